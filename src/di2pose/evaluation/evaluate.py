"""One predictor, one prepared dataset, any number of protocols: `evaluate_dataset`.

Work goes in passes (clean, occ-40, advocc-80, ...) whose results are appended to <out>/records, record by record. A run
that was stopped goes on from there. Under torchrun rank r of R takes every R-th record; the rank that finds all records
done writes the report, so no rank waits for another and the report is the same for any R.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from di2pose.data.sample import Dataset, Sample
from di2pose.errors import InputError
from di2pose.evaluation.passes import Line, Work, advocc_pass, clean_pass, occ_pass
from di2pose.evaluation.predictor import PredictionFile, Predictor
from di2pose.evaluation.protocol import Occlusion, Protocol, select_records
from di2pose.evaluation.report import build_report, write_report
from di2pose.evaluation.scoring import Scorer
from di2pose.evaluation.shards import Shards, write_text
from di2pose.evaluation.worst import write_worst_page
from di2pose.image.crop import Roi
from di2pose.occlusion.patch_textures import ProceduralTextures, TextureSource
from di2pose.pose.skeleton import H36M_17, Skeleton


def evaluate_dataset(
    predictor: Predictor,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    out: Path,
    *,
    name: str = "predictor",
    hypotheses: Sequence[int] = (1,),
    steps: int = 25,
    seed: int = 0,
    batch: int = 16,
    skeleton: Skeleton = H36M_17,
    textures: TextureSource | None = None,
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None,
    worst: int = 20,
) -> dict[str, Any] | None:
    """Run the protocols and write report.json, .md, .tex and worst.html to `out`; the report, or None while other ranks
    still have records to do.

    `skeleton`: the joint order of the predictor's poses, unless it has a `skeleton` of its own. `hypotheses`: each
    count is reported; the predictor runs once with the greatest. `name` stands in the report for the predictor and its
    weights. `roi_of`: the region of a person in the clean picture, by which occ patches are sized.
    """
    skeleton = getattr(predictor, "skeleton", skeleton)
    rank, ranks = torchrun_rank()
    counts = tuple(sorted(set(hypotheses)))
    _check(predictor, protocols, counts, steps, batch)
    scorers = {protocol.id: Scorer(protocol, dataset.skeleton, skeleton) for protocol in protocols}
    selected = {protocol.id: [int(row) for row in select_records(protocol, dataset)] for protocol in protocols}
    if isinstance(predictor, PredictionFile):
        _check_file(predictor, dataset, selected)
    source = textures or ProceduralTextures()
    run = {
        "predictor": name,
        "prediction_skeleton": skeleton.name,
        "dataset": dataset.name,
        "dataset_skeleton": dataset.skeleton.name,
        "hypotheses": list(counts),
        "steps": None if isinstance(predictor, PredictionFile) else steps,
        "seed": seed,
        "textures": getattr(source, "name", type(source).__name__),
        "occ_roi": "from the record's box" if roi_of is None else "given",
        "protocols": [
            protocol.statement() | {"truth": _digest(dataset, selected[protocol.id])} for protocol in protocols
        ],
    }
    _claim(out, run)
    frozen = {key: frozenset(rows) for key, rows in selected.items()}
    work = Work(predictor, dataset, scorers, frozen, counts, steps, seed, batch, source, roi_of)

    shards: dict[str, Shards] = {}
    for occlusion in dict.fromkeys(protocol.occlusion for protocol in protocols):
        members = [protocol.id for protocol in protocols if protocol.occlusion == occlusion]
        todo = sorted(set().union(*(selected[key] for key in members)))
        title = "clean" if occlusion is None else f"{occlusion.kind}-{occlusion.size}"
        own = Shards(out / "records", title, rank)
        part = replace(work, scorers={key: scorers[key] for key in members})
        _run_pass(part, occlusion, title, todo[rank::ranks], own)
        shards |= dict.fromkeys(members, own)
    # Read only now: of two ranks the later one must see all that the other wrote, in every pass.
    lines = {key: own.read() for key, own in shards.items()}
    if any(row not in lines[key] for key in lines for row in selected[key]):
        return None
    ordered: dict[str, list[Line]] = {key: [lines[key][row] for row in selected[key]] for key in lines}
    report = build_report(run, protocols, dataset, ordered)
    write_report(report, out)
    write_worst_page(report, protocols, dataset, ordered, out / "worst.html", worst, seed, source)
    return report


def torchrun_rank() -> tuple[int, int]:
    """(rank, number of ranks) as torchrun tells them; (0, 1) without it."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not 0 <= rank < ranks:
        raise InputError(f"RANK must lie below WORLD_SIZE, got RANK={rank} and WORLD_SIZE={ranks}")
    return rank, ranks


def _run_pass(work: Work, occlusion: Occlusion | None, title: str, rows: Sequence[int], shards: Shards) -> None:
    done = shards.read()
    left = [row for row in rows if row not in done]
    # A search is hundreds of predictions: its record is a batch of its own, and is kept as soon as it is finished.
    step = 1 if occlusion is not None and occlusion.kind == "advocc" else work.batch
    with tqdm(total=len(rows), initial=len(rows) - len(left), desc=title, unit="record", disable=None) as bar:
        for start in range(0, len(left), step):
            chunk = left[start : start + step]
            if occlusion is None:
                shards.append(clean_pass(work, chunk))
            elif occlusion.kind == "occ":
                shards.append(occ_pass(work, chunk, occlusion.size))
            else:
                shards.append(advocc_pass(work, chunk, occlusion.size))
            bar.update(len(chunk))


def _check(
    predictor: Predictor, protocols: Sequence[Protocol], hypotheses: tuple[int, ...], steps: int, batch: int
) -> None:
    if not protocols:
        raise InputError("no protocol was asked for")
    if not hypotheses or hypotheses[0] < 1 or steps < 1 or batch < 1:
        raise InputError(f"hypotheses, steps and batch must be 1 or more, got {hypotheses}, {steps} and {batch}")
    occluded = [protocol.id for protocol in protocols if protocol.occlusion is not None]
    if isinstance(predictor, PredictionFile) and occluded:
        raise InputError(
            f"{', '.join(occluded)} put patches on the pictures, so they need a predictor that looks at pictures; "
            f"{predictor.path} holds finished poses"
        )
    if isinstance(predictor, PredictionFile) and hypotheses[-1] > predictor.hypotheses:
        raise InputError(
            f"{predictor.path} holds {predictor.hypotheses} hypotheses per record, {hypotheses[-1]} were asked for"
        )


def _check_file(predictor: PredictionFile, dataset: Dataset, selected: dict[str, list[int]]) -> None:
    ids = [line["id"] for line in dataset.index]
    rows = sorted(set().union(*selected.values()))
    predictor.check_records([ids[row] for row in rows], ids)


def _digest(dataset: Dataset, rows: Sequence[int]) -> str:
    """Tells record sets apart: their ids and true poses."""
    digest = hashlib.sha256(dataset.skeleton.name.encode())
    for row in rows:
        digest.update(dataset.index[row]["id"].encode() + b"\0")
        digest.update(dataset.joints_mm[row].tobytes())
    return digest.hexdigest()[:16]


def _claim(out: Path, run: dict[str, Any]) -> None:
    """Stamp the folder with this run's settings, or go on with the run whose settings are the same."""
    stamp = out / "run.json"
    if stamp.exists():
        before = json.loads(stamp.read_text(encoding="utf-8"))
        if before != run:
            changed = sorted(key for key in run.keys() | before.keys() if run.get(key) != before.get(key))
            raise InputError(
                f"{out} holds a run with other settings ({', '.join(changed)} differ): repeat them to go on with it, "
                "or choose another --out"
            )
        return
    write_text(stamp, json.dumps(run, indent=1) + "\n")
