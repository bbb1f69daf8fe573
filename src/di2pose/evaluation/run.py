"""`di2pose evaluate`: named protocols on one or several models, or on a file of poses, in one table.

Work goes by occlusion (clean, occ-40, advocc-80, ...); results are appended to <out>/records, record by record. A run
that was stopped goes on from there. Under torchrun rank r of R takes every R-th record; the rank that finds all records
done writes the report, so no rank waits for another and the report is the same for any R.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
import tyro
from PIL import Image
from tqdm import tqdm

from di2pose.baselines.blazepose import BlazePosePeer
from di2pose.data.sample import Sample
from di2pose.device import Precision, choose_device, precision_of
from di2pose.errors import InputError, require
from di2pose.evaluation.measure import Setup, measure_pictures, search_worst_patch
from di2pose.evaluation.pages import write_heatmaps, write_worst_page
from di2pose.evaluation.predictors import PredictionFile, Predictor, fingerprint, load_predictor
from di2pose.evaluation.protocol import PROTOCOLS, Protocol, parse_protocols, select_records
from di2pose.evaluation.records import CachedRecords, RecordLog, Records, open_records
from di2pose.evaluation.report import build_report
from di2pose.evaluation.scoring import Scorer
from di2pose.evaluation.tables import markdown, write_report
from di2pose.files import Json, write_json
from di2pose.image.crop import Roi
from di2pose.image.detect import PersonMatcher
from di2pose.network import Di2PoseNetwork
from di2pose.occlusion.textures import DtdTextures, ProceduralTextures, TextureSource
from di2pose.pose.skeleton import H36M_17, Skeleton

HYPOTHESES, SEARCH_STEPS = 8, 10
LOG_FORMAT = 2
"""Of the lines in <out>/records."""


class Contestant(NamedTuple):
    """A row of the joint table."""

    name: str
    title: str
    """The name with a fingerprint of the weights and the settings."""
    predictor: Predictor
    hypotheses: tuple[int, ...]
    steps: int | None = None


def evaluate(
    models: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL")] = (),
    *,
    data: Path,
    out: Path,
    protocol: Annotated[
        str, tyro.conf.arg(help=f"one or several, with commas between them: {', '.join(PROTOCOLS)}")
    ] = "limb-12",
    predictions: Path | None = None,
    hypotheses: str | None = None,
    steps: str | None = None,
    search_steps: int = SEARCH_STEPS,
    seed: int = 0,
    seeds: str | None = None,
    batch: int = 16,
    every: int | None = None,
    split: str | None = None,
    limit: int | None = None,
    plain: bool = False,
    second_look: bool = True,
    flip_test: bool = True,
    true_boxes: bool = False,
    fit: bool = True,
    temperature: float | None = None,
    top_r: float | None = None,
    encoder: str | None = None,
    device: str = "cpu",
    precision: Precision = "auto",
    textures: Path | None = None,
    images: Path | None = None,
    worst: int = 20,
    heatmaps: int = 8,
) -> int:
    """Evaluate models of any kind, a peer or a file of poses on a prepared dataset or a feature cache.

    Prints tables and writes report.json, report.md, report.tex and worst.html to --out; of several models each to
    --out/NAME, and one joint table to --out. The same command goes on with a run that was stopped; under torchrun the
    records are shared among the ranks.

    Args:
        models: checkpoint folders, runs, names in the package, or peers (blazepose-heavy, -full, -lite)
        data: prepared dataset (made by `di2pose data prepare`), or feature cache (`di2pose features`, `people
            features`): crops with known poses, without pictures.
        out: folder for the results.
        predictions: npz file with ids and joints_mm (n, J, 3) or (n, H, J, 3) instead of a model.
        hypotheses: hypothesis counts to report, e.g. 1,8; left out: 8 of a model, 1 of a peer or a prediction file.
        steps: reverse steps of the sampler; left out: the model's own. Several, with commas: a table of them all.
        search_steps: reverse steps of AdvOcc's search, at most; the worst placements are drawn in --steps.
        seed: seeds sampler noise, patch places and textures, each per record.
        seeds: several of them, e.g. 0,1,2: figures are means over their noise; patches are the first one's.
        batch: pictures per call of the model.
        every: keep a frame of every so many, instead of the protocol's own sampling.
        split: dataset split, instead of the protocol's own; `all` takes every record.
        limit: only the first so many records.
        plain: of a cache of rendered people only those with nothing before them and nothing of them outside the
            picture.
        second_look: encode other crops of people where the model is uncertain (pictures only).
        flip_test: encode the crops' mirror images, too.
        true_boxes: crop people by the records' own boxes, as the paper does, instead of detecting them (pictures
            only).
        fit: fit hypotheses to the landmarks, as for a user; without it they are as the model draws them, which is what
            methods are compared by (feature caches only).
        temperature: of the sampler: below 1 tokens are drawn more sharply than the model says; left out: the model's.
        top_r: of the sampler: only the most probable codes that hold this mass are drawn; left out: the model's.
        encoder: another image encoder than the model's own, e.g. vitpose:FOLDER.
        device: cpu, cuda, mps; under torchrun `cuda` is each rank's own GPU.
        precision: of the model; auto: bfloat16 on a GPU that has it, else float32.
        textures: folder of the Describable Textures Dataset for the patches (left out: procedural textures).
        images: folder of the pictures, if not the one in the prepared dataset.
        worst: how many of the worst records the HTML page shows per protocol.
        heatmaps: of how many records of an AdvOcc protocol the search is drawn, to --out/heatmaps.
    """
    if bool(models) == (predictions is not None):
        raise InputError("give either a MODEL (checkpoint folder, run, name) or --predictions FILE.npz")
    chosen, numbers = parse_protocols(protocol, every, split), _integers(seeds, "--seeds") or (seed,)
    records, counts = open_records(data, images), _integers(hypotheses, "--hypotheses")
    contestants: list[Contestant] = []
    several = _integers(steps, "--steps")
    if predictions is not None:
        file = PredictionFile(predictions)
        title = f"{predictions.name} ({file.fingerprint})"
        contestants.append(Contestant(predictions.name, title, file, counts or (1,)))
    drawing = {key: value for key, value in {"temperature": temperature, "top_r": top_r}.items() if value is not None}
    settings = ["one look"] * (not second_look) + ["no flip test"] * (not flip_test) + [str(encoder)] * bool(encoder)
    settings += ["true boxes"] * true_boxes + ["not fitted"] * (not fit)
    if (dtype := precision_of(precision, choose_device(device))) != torch.float32:
        settings.append(str(dtype).removeprefix("torch."))
    settings += [f"{key} {value:g}" for key, value in drawing.items()]
    for model in models:
        looks: Json = {"second_look": second_look, "flip_test": flip_test, "true_boxes": true_boxes, "fit": fit}
        predictor = load_predictor(model, records, device=device, encoder=encoder, precision=precision, **looks)
        path = Path(model)
        name, run = (path.resolve().name, path.resolve().parent.name) if path.exists() else (model, "")
        name = {"model": run, "best": f"{run}-best"}.get(name, name)
        if isinstance(predictor, BlazePosePeer):  # one pose, repeated
            contestants.append(Contestant(name, name + " (true boxes)" * true_boxes, predictor, counts or (1,)))
            continue
        if drawing:
            if not isinstance(predictor.model, Di2PoseNetwork):
                raise InputError(f"--temperature and --top-r: {model} is of kind '{predictor.model.kind}', not di2pose")
            predictor.model.draw_with(**drawing)
        title = f"{name} ({', '.join([fingerprint(predictor.model), *settings])})"
        for count in several or (None,):
            row = f"{name}-{count}-steps" if len(several) > 1 else name
            contestants.append(Contestant(row, title, predictor, counts or (HYPOTHESES,), count))
    regions = None if predictions is not None or isinstance(records, CachedRecords) else PersonMatcher()
    runs: dict[str, Callable[[], Json | None]] = {}
    reports: dict[str, Json | None] = {}
    for each in contestants:
        name = next(word for word in (each.name, *(f"{each.name}-{k}" for k in range(2, 1000))) if word not in reports)
        runs[name] = partial(
            evaluate_dataset,
            each.predictor,
            records,
            chosen,
            out if len(contestants) == 1 else out / name,
            name=each.title,
            hypotheses=each.hypotheses,
            steps=each.steps,
            search_steps=search_steps,
            seed=numbers[0],
            more_seeds=numbers[1:],
            batch=batch,
            roi_of=regions,
            textures=None if textures is None else DtdTextures(textures),
            worst=worst,
            heatmaps=heatmaps,
            limit=limit,
            plain=plain,
        )
        reports[name] = runs[name]()
    if None in reports.values() and reports[name] is not None:  # the last rank: all other ranks have finished
        reports = {name: report or runs[name]() for name, report in reports.items()}
    done = {name: report for name, report in reports.items() if report is not None}
    if len(done) < len(reports):
        rank, ranks = torchrun_rank()
        print(f"rank {rank} of {ranks} is done; the rank that finishes last writes the report")
        return 0
    if len(done) == 1:
        done = dict(zip([""], done.values(), strict=True))  # a single model needs no name in its table
    else:
        write_report(done, out)
    page = ", worst.html" if (out / "worst.html").is_file() else ""
    print(markdown(done) + f"\nwritten: {out / 'report.json'}, report.md, report.tex{page}")
    return 0


def _integers(text: str | None, flag: str) -> tuple[int, ...]:
    """'1,8' -> (1, 8); empty where nothing is given."""
    try:
        return () if text is None else tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"{flag} takes counts with commas between them, e.g. 1,8; got '{text}'") from error


def torchrun_rank() -> tuple[int, int]:
    """(rank, number of ranks) from torchrun's environment; (0, 1) without it."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not 0 <= rank < ranks:
        raise InputError(f"RANK must lie below WORLD_SIZE, got RANK={rank} and WORLD_SIZE={ranks}")
    return rank, ranks


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
    textures: TextureSource | None = None,
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None,
    worst: int = 20,
    heatmaps: int = 8,
    limit: int | None = None,
    plain: bool = False,
) -> Json | None:
    """Run the protocols and write report.json, .md, .tex and worst.html to `out`; the report, or None while other ranks
    still have records to do.

    A predictor's poses are in Human3.6M's joint order unless it has a `skeleton`. `hypotheses`: each count is reported;
    the predictor runs once with the greatest for each seed. `more_seeds`: other noise on the same pictures; figures are
    then means over all seeds. `name` stands in the report for the predictor and its weights. `roi_of`: the region of a
    person in the clean picture, by which occ patches are sized. The others: see `evaluate`.
    """
    require("pandas", extra="pandas")  # before the records, not after them
    cached = dataset if isinstance(dataset, CachedRecords) else None
    file = predictor if isinstance(predictor, PredictionFile) else None
    skeleton: Skeleton = getattr(predictor, "skeleton", H36M_17)
    steps = getattr(predictor, "steps", None) if steps is None else steps
    counts, seeds, source = tuple(sorted(set(hypotheses))), (seed, *more_seeds), textures or ProceduralTextures()
    searches = steps is not None and search_steps < steps and any(protocol.searches for protocol in protocols)
    _check(protocols, [*counts, batch, *(each for each in (steps, limit) if each is not None)], seeds, cached, file)
    if searches and search_steps < 1:
        raise InputError(f"--search-steps must be 1 or more, got {search_steps}")
    if file is not None:
        file.check_hypotheses(counts[-1])
    scorers = {protocol.id: Scorer(protocol, dataset.skeleton, skeleton) for protocol in protocols}
    selected = {protocol.id: _select(protocol, dataset, plain, limit) for protocol in protocols}
    if file is not None:
        ids = [line["id"] for line in dataset.index]
        file.check_records([ids[row] for row in sorted(set().union(*selected.values()))], ids)
    run: Json = {
        "predictor": name,
        "prediction_skeleton": skeleton.name,
        "dataset": dataset.name,
        "source": dataset.name if cached is None else cached.source,
        "dataset_skeleton": dataset.skeleton.name,
        "hypotheses": list(counts),
        "steps": steps if file is None else None,
        "seed": seed,
        "more_seeds": list(more_seeds),
        "plain": plain,
        "limit": limit,
        "textures": getattr(source, "name", type(source).__name__),
        "occ_roi": "from the record's box" if roi_of is None else "given",
        "protocols": [
            {**protocol.statement(), "truth": _digest(dataset, selected[protocol.id])} for protocol in protocols
        ],
    } | ({"search_steps": search_steps} if searches else {})
    _claim(out, run)
    rows = {key: frozenset(some) for key, some in selected.items()}
    few_steps, rest_seen = search_steps if searches else None, cached is not None and cached.only_hidden_labelled
    settings = (counts, steps, seeds, batch, source, roi_of, few_steps, file is None, rest_seen)
    setup = Setup(predictor, dataset, scorers, rows, *settings)
    logs = _measure_all(setup, protocols, out / "records")
    # Read only now: of two ranks the later one must see all that the other wrote, for every occlusion.
    lines = {key: log.read() for key, log in logs.items()}
    if any(row not in lines[key] for key in lines for row in selected[key]):
        return None
    ordered = {key: [lines[key][row] for row in rows] for key, rows in selected.items()}
    report = build_report(run, protocols, dataset, ordered)
    write_report({"": report}, out)
    for protocol in protocols:
        if protocol.searches:
            write_heatmaps(setup, scorers[protocol.id], ordered[protocol.id][:heatmaps], out / "heatmaps", name)
    write_worst_page(setup, report, ordered, out / "worst.html", worst)
    return report


def _measure_all(setup: Setup, protocols: Sequence[Protocol], folder: Path) -> dict[str, RecordLog]:
    """Measure this rank's share of the records that are not in the logs yet; protocol -> its log."""
    rank, ranks = torchrun_rank()
    logs: dict[str, RecordLog] = {}
    for occlusion in dict.fromkeys(protocol.occlusion for protocol in protocols):
        members = [protocol.id for protocol in protocols if protocol.occlusion == occlusion]
        todo = sorted(set().union(*(setup.selected[key] for key in members)))[rank::ranks]
        title = "clean" if occlusion is None else f"{occlusion.kind}-{occlusion.size}"
        log = RecordLog(folder, title, rank)
        logs |= dict.fromkeys(members, log)
        done = log.read()
        left = [row for row in todo if row not in done]
        size = 1 if occlusion is not None and occlusion.kind == "advocc" else setup.batch  # hundreds of predictions
        with tqdm(total=len(todo), initial=len(todo) - len(left), desc=title, unit="record", disable=None) as bar:
            for start in range(0, len(left), size):
                chunk = left[start : start + size]
                if occlusion is not None and occlusion.kind == "advocc":
                    log.append([search_worst_patch(setup, chunk[0], occlusion)])
                else:
                    log.append(measure_pictures(setup, chunk, occlusion))
                bar.update(len(chunk))
    return logs


def _select(protocol: Protocol, dataset: Records, plain: bool, limit: int | None) -> list[int]:
    rows = select_records(protocol, dataset)
    if plain:
        if not isinstance(dataset, CachedRecords):
            raise InputError("plain people are known only in feature caches of `di2pose people features`")
        rows = np.intersect1d(rows, dataset.plain_rows())
        if not len(rows):
            raise InputError(f"no crop of {dataset.name} that {protocol.id} counts is plain")
    return [int(row) for row in rows[:limit]]


def _check(
    protocols: Sequence[Protocol],
    counts: Sequence[int],
    seeds: Sequence[int],
    cached: CachedRecords | None,
    file: PredictionFile | None,
) -> None:
    if not protocols:
        raise InputError("expected one protocol or more, got none")
    if min(counts) < 1:
        raise InputError(f"hypotheses, batch, steps and limit must be 1 or more, got {', '.join(map(str, counts))}")
    if len(set(seeds)) != len(seeds):
        raise InputError(f"every seed counts once, got {seeds}")
    patched = ", ".join(protocol.id for protocol in protocols if protocol.occlusion is not None)
    if patched and cached is not None:
        raise InputError(
            f"{patched} put patches on the pictures, and a feature cache has none: make one with the patch on it "
            "(`di2pose features --occlusion occ-80`), and evaluate that with limb-12"
        )
    if patched and file is not None:
        raise InputError(
            f"{patched} put patches on the pictures, so they need a predictor that reads pictures; "
            f"{file.path} holds finished poses"
        )
    if any(protocol.searches for protocol in protocols) and len(seeds) > 1:
        raise InputError(f"{patched}: the search tries hundreds of placements for each record, give it one seed")


def _digest(dataset: Records, rows: Sequence[int]) -> str:
    """Of the ids and true poses of a set of records."""
    digest = hashlib.sha256(dataset.skeleton.name.encode())
    for row in rows:
        digest.update(dataset.index[row]["id"].encode() + b"\0")
        digest.update(dataset.joints_mm[row].tobytes())
    return digest.hexdigest()[:16]


def _claim(out: Path, run: Json) -> None:
    """Write this run's settings to run.json, or go on with the run whose settings are the same."""
    stamp, run = out / "run.json", run | {"log_format": LOG_FORMAT}
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
