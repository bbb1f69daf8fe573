"""One predictor, one prepared dataset or feature cache, any number of protocols: `evaluate_dataset`.

Work goes in ways (clean, occ-40, advocc-80, ...) whose results are appended to <out>/records, record by record. A run
that was stopped goes on from there. Under torchrun rank r of R takes every R-th record; the rank that finds all records
done writes the report, so no rank waits for another and the report is the same for any R.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import CachedRecords, Records
from di2pose.evaluation.failures import write_failures_page
from di2pose.evaluation.heatmap import write_heatmaps
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.predictor import Predictor
from di2pose.evaluation.protocol import Protocol, select_records
from di2pose.evaluation.record_log import RecordLog
from di2pose.evaluation.report import EvaluationReport, Json, build_report
from di2pose.evaluation.report_text import write_report
from di2pose.evaluation.runs import Work, run_advocc, run_pictures
from di2pose.evaluation.scoring import Scorer
from di2pose.files import write_json
from di2pose.image.crop import Roi
from di2pose.occlusion.patch_textures import ProceduralTextures, TextureSource
from di2pose.pose.skeleton import H36M_17, Skeleton

SEARCH_STEPS = 10


def evaluate_dataset(
    predictor: Predictor,
    dataset: Records,
    protocols: Sequence[Protocol],
    out: Path,
    *,
    name: str = "predictor",
    hypotheses: Sequence[int] = (1,),
    steps: int | None = None,
    search_steps: int = SEARCH_STEPS,
    seed: int = 0,
    more_seeds: Sequence[int] = (),
    batch: int = 16,
    skeleton: Skeleton = H36M_17,
    textures: TextureSource | None = None,
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None,
    worst: int = 20,
    heatmaps: int = 8,
    limit: int | None = None,
    plain: bool = False,
) -> EvaluationReport | None:
    """Run the protocols and write report.json, .md, .tex and worst.html to `out`; the report, or None while other ranks
    still have records to do.

    `skeleton`: the joint order of the predictor's poses, unless it has a `skeleton` of its own. `hypotheses`: each
    count is reported; the predictor runs once with the greatest for each seed. `more_seeds`: other noise on the same
    pictures; figures are then means over all seeds. `name` stands in the report for the predictor and its weights.
    `search_steps`: AdvOcc's search draws in so many reverse steps at most, what it finds is drawn in `steps`.
    `roi_of`: the region of a person in the clean picture, by which occ patches are sized. `heatmaps`: of so many
    records of AdvOcc protocols the search is drawn. `limit`: only the first so
    many records of each protocol. `plain`: only rendered people with nothing before them and nothing of them outside.
    """
    skeleton = getattr(predictor, "skeleton", skeleton)
    rank, ranks = torchrun_rank()
    counts, seeds = tuple(sorted(set(hypotheses))), (seed, *more_seeds)
    steps = getattr(predictor, "steps", None) if steps is None else steps
    source = textures or ProceduralTextures()
    searches = steps is not None and search_steps < steps and any(_is_search(protocol) for protocol in protocols)
    work = Work(predictor, dataset, counts, steps, seeds, batch, source, roi_of)
    work.search_steps = search_steps if searches else None
    _check(work, protocols, limit)
    work.scorers = {protocol.id: Scorer(protocol, dataset.skeleton, skeleton) for protocol in protocols}
    selected = {protocol.id: _select(protocol, dataset, plain, limit) for protocol in protocols}
    work.selected = {key: frozenset(rows) for key, rows in selected.items()}
    if isinstance(predictor, PredictionFile):
        ids = [line["id"] for line in dataset.index]
        predictor.check_records([ids[row] for row in sorted(set().union(*selected.values()))], ids)
    run: Json = {
        "predictor": name,
        "prediction_skeleton": skeleton.name,
        "dataset": dataset.name,
        "source": dataset.source if isinstance(dataset, CachedRecords) else dataset.name,
        "dataset_skeleton": dataset.skeleton.name,
        "hypotheses": list(counts),
        "steps": None if isinstance(predictor, PredictionFile) else steps,
        "seed": seed,
        "more_seeds": list(more_seeds),
        "plain": plain,
        "limit": limit,
        "textures": getattr(source, "name", type(source).__name__),
        "occ_roi": "from the record's box" if roi_of is None else "given",
        "protocols": [
            {**protocol.statement(), "truth": _digest(dataset, selected[protocol.id])} for protocol in protocols
        ],
    }
    if searches:
        run["search_steps"] = search_steps
    _claim(out, run)
    logs: dict[str, RecordLog] = {}
    for occlusion in dict.fromkeys(protocol.occlusion for protocol in protocols):
        members = [protocol.id for protocol in protocols if protocol.occlusion == occlusion]
        todo = sorted(set().union(*(selected[key] for key in members)))[rank::ranks]
        title = "clean" if occlusion is None else f"{occlusion.kind}-{occlusion.size}"
        log = RecordLog(out / "records", title, rank)
        logs |= dict.fromkeys(members, log)
        done = log.read()
        left = [row for row in todo if row not in done]
        with tqdm(total=len(todo), initial=len(todo) - len(left), desc=title, unit="record", disable=None) as bar:
            if occlusion is not None and occlusion.kind == "advocc":
                for row in left:  # hundreds of predictions: kept as soon as it is finished
                    log.append([run_advocc(work, row, occlusion)])
                    bar.update()
            else:
                for start in range(0, len(left), batch):
                    chunk = left[start : start + batch]
                    log.append(run_pictures(work, chunk, occlusion))
                    bar.update(len(chunk))
    # Read only now: of two ranks the later one must see all that the other wrote, in every way.
    lines = {key: log.read() for key, log in logs.items()}
    if any(row not in lines[key] for key in lines for row in selected[key]):
        return None
    ordered = {key: [lines[key][row] for row in rows] for key, rows in selected.items()}
    report = build_report(run, protocols, dataset, ordered)
    write_report({"": report}, out)
    for scorer in work.scorers.values():
        if _is_search(scorer.protocol):
            write_heatmaps(work, scorer, ordered[scorer.protocol.id][:heatmaps], out / "heatmaps", name)
    write_failures_page(work, report, ordered, out / "worst.html", worst)
    return report


def _is_search(protocol: Protocol) -> bool:
    return protocol.occlusion is not None and protocol.occlusion.kind == "advocc"


def torchrun_rank() -> tuple[int, int]:
    """(rank, number of ranks) as torchrun tells them; (0, 1) without it."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not 0 <= rank < ranks:
        raise InputError(f"RANK must lie below WORLD_SIZE, got RANK={rank} and WORLD_SIZE={ranks}")
    return rank, ranks


def _select(protocol: Protocol, dataset: Records, plain: bool, limit: int | None) -> list[int]:
    rows = select_records(protocol, dataset)
    if plain:
        if not isinstance(dataset, CachedRecords):
            raise InputError("plain people can be told only in feature caches of `di2pose people features`")
        rows = np.intersect1d(rows, dataset.plain_rows())
        if not len(rows):
            raise InputError(f"no crop of {dataset.name} that {protocol.id} counts is plain")
    return [int(row) for row in rows[:limit]]


def _check(work: Work, protocols: Sequence[Protocol], limit: int | None) -> None:
    counts, steps, predictor = work.hypotheses, work.steps, work.predictor
    if not protocols:
        raise InputError("no protocol was asked for")
    if not counts or min(counts[0], 1 if steps is None else steps, work.batch, 1 if limit is None else limit) < 1:
        raise InputError(
            f"hypotheses, steps, batch and limit must be 1 or more, got {counts}, {steps}, {work.batch} and {limit}"
        )
    if work.search_steps is not None and work.search_steps < 1:
        raise InputError(f"--search-steps must be 1 or more, got {work.search_steps}")
    if len(set(work.seeds)) != len(work.seeds):
        raise InputError(f"every seed counts once, got {work.seeds}")
    patched = ", ".join(protocol.id for protocol in protocols if protocol.occlusion is not None)
    if patched and isinstance(work.dataset, CachedRecords):
        raise InputError(
            f"{patched} put patches on the pictures, and a feature cache has none: make one with the patch on it "
            "(`di2pose features --occlusion occ-80`), and evaluate that with limb-12"
        )
    if patched and isinstance(predictor, PredictionFile):
        raise InputError(
            f"{patched} put patches on the pictures, so they need a predictor that looks at pictures; "
            f"{predictor.path} holds finished poses"
        )
    if "advocc" in patched and len(work.seeds) > 1:
        raise InputError(f"{patched}: the search tries hundreds of placements for each record, give it one seed")
    if isinstance(predictor, PredictionFile):
        predictor.check_hypotheses(counts[-1])


def _digest(dataset: Records, rows: Sequence[int]) -> str:
    """Tells record sets apart: their ids and true poses."""
    digest = hashlib.sha256(dataset.skeleton.name.encode())
    for row in rows:
        digest.update(dataset.index[row]["id"].encode() + b"\0")
        digest.update(dataset.joints_mm[row].tobytes())
    return digest.hexdigest()[:16]


def _claim(out: Path, run: Json) -> None:
    """Stamp the folder with this run's settings, or go on with the run whose settings are the same."""
    stamp = out / "run.json"
    if not stamp.exists():
        write_json(stamp, run)
        return
    before = json.loads(stamp.read_text(encoding="utf-8"))
    if before != run:
        changed = sorted(key for key in run.keys() | before.keys() if run.get(key) != before.get(key))
        raise InputError(
            f"{out} holds a run with other settings ({', '.join(changed)} differ): repeat them to go on with it, or "
            "choose another --out"
        )
