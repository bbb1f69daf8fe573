"""`di2pose evaluate`: named protocols on one or several models, or on a file of poses, in one table.

Work goes by occlusion (clean, occ-40, advocc-80, ...): protocols with the same one share the predictions. Results are
appended to <out>/records, record by record; a run that was stopped goes on from there. Under torchrun rank r of R takes
every R-th record; the rank that finds all records done writes the report, so no rank waits for another and the report
is the same for any R.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from PIL import Image
from tqdm import tqdm

from di2pose.baselines.blazepose import BlazePosePeer
from di2pose.data.sample import Sample
from di2pose.device import Precision, choose_device, precision_of
from di2pose.errors import InputError, require
from di2pose.evaluation.pages import write_worst_page
from di2pose.evaluation.predictors import PredictionFile, Predictions, Predictor, fingerprint, load_predictor
from di2pose.evaluation.protocol import PROTOCOLS, Occlusion, Protocol, parse_protocols, select_records
from di2pose.evaluation.records import CachedRecords, RecordLog, Records, open_records
from di2pose.evaluation.report import build_report, markdown, write_report
from di2pose.evaluation.scoring import Scorer
from di2pose.files import Json, write_json
from di2pose.image.crop import Roi
from di2pose.image.detect import PersonMatcher
from di2pose.network import Di2PoseNetwork
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, advocc_visible, occlude_limb, person_crop
from di2pose.occlusion.textures import DtdTextures, ProceduralTextures, TextureSource
from di2pose.pose.skeleton import H36M_17, Skeleton

HYPOTHESES, SEARCH_STEPS = 8, 10
LOG_FORMAT = 3
"""Of the lines in <out>/records."""


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
    encoder: str | None = None,
    device: str = "cpu",
    precision: Precision = "auto",
    temperature: float | None = None,
    top_r: float | None = None,
    textures: Path | None = None,
    images: Path | None = None,
    worst: int = 20,
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
        encoder: another image encoder than the model's own, e.g. vitpose:FOLDER.
        device: cpu, cuda, mps; under torchrun `cuda` is each rank's own GPU.
        precision: of the model; auto: bfloat16 on a GPU that has it, else float32.
        temperature: of the sampler: below 1 tokens are drawn more sharply than the model says; left out: the model's.
        top_r: of the sampler: only the most probable codes that hold this mass are drawn; left out: the model's.
        textures: folder of the Describable Textures Dataset for the patches (left out: procedural textures).
        images: folder of the pictures, if not the one in the prepared dataset.
        worst: how many of the worst records the HTML page shows per protocol.
    """
    if bool(models) == (predictions is not None):
        raise InputError("give either a MODEL (checkpoint folder, run, name) or --predictions FILE.npz")
    chosen, numbers = parse_protocols(protocol, every, split), _integers(seeds, "--seeds") or (seed,)
    records, several = open_records(data, images), _integers(steps, "--steps")
    counts = _integers(hypotheses, "--hypotheses")
    common = {"search_steps": search_steps, "seed": numbers[0], "more_seeds": numbers[1:], "batch": batch}
    common |= {"limit": limit, "plain": plain, "worst": worst}
    common |= {"textures": None if textures is None else DtdTextures(textures)}
    if predictions is None and not isinstance(records, CachedRecords):
        common["roi_of"] = PersonMatcher()
    runs: dict[str, Callable[[Path], Json | None]] = {}

    def add(row: str, title: str, predictor: Predictor, fewest: int, steps: int | None = None) -> None:
        """A row of the joint table; `title`: its name with a fingerprint of the weights and the settings."""
        options: Json = {"name": title, "hypotheses": counts or (fewest,), "steps": steps, **common}
        names = [row, *(f"{row}-{k}" for k in range(2, len(runs) + 2))]
        runs[next(each for each in names if each not in runs)] = partial(
            evaluate_dataset, predictor, records, chosen, **options
        )

    if predictions is not None:
        file = PredictionFile(predictions)
        add(predictions.name, f"{predictions.name} ({file.fingerprint})", file, 1)
    settings = ["one look"] * (not second_look) + ["no flip test"] * (not flip_test) + [str(encoder)] * bool(encoder)
    settings += ["true boxes"] * true_boxes + ["not fitted"] * (not fit)
    if (dtype := precision_of(precision, choose_device(device))) != torch.float32:
        settings.append(str(dtype).removeprefix("torch."))
    drawing = {key: value for key, value in {"temperature": temperature, "top_r": top_r}.items() if value is not None}
    settings += [f"{key} {value:g}" for key, value in drawing.items()]
    for model in models:
        looks: Json = {"second_look": second_look, "flip_test": flip_test, "true_boxes": true_boxes, "fit": fit}
        predictor = load_predictor(model, records, device=device, encoder=encoder, precision=precision, **looks)
        path = Path(model)
        name, run = (path.resolve().name, path.resolve().parent.name) if path.exists() else (model, "")
        name = {"model": run, "best": f"{run}-best"}.get(name, name)
        if isinstance(predictor, BlazePosePeer):  # one pose, repeated
            add(name, name + " (true boxes)" * true_boxes, predictor, 1)
            continue
        if drawing:
            if not isinstance(predictor.model, Di2PoseNetwork):
                raise InputError(f"--temperature and --top-r: {model} is of kind '{predictor.model.kind}', not di2pose")
            predictor.model.draw_with(**drawing)
        title = f"{name} ({', '.join([fingerprint(predictor.model), *settings])})"
        for count in several or (None,):
            add(f"{name}-{count}-steps" if len(several) > 1 else name, title, predictor, HYPOTHESES, count)
    folders = {name: out / name if len(runs) > 1 else out for name in runs}
    reports = {name: run(folders[name]) for name, run in runs.items()}
    # Another rank may have finished a model in the meantime: the last one finds them all done.
    reports = {name: report or runs[name](folders[name]) for name, report in reports.items()}
    done = {name: report for name, report in reports.items() if report is not None}
    if len(done) < len(reports):
        print("rank {} of {} is done; the rank that finishes last writes the report".format(*torchrun_rank()))
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
    cached, file = isinstance(dataset, CachedRecords), isinstance(predictor, PredictionFile)
    skeleton: Skeleton = getattr(predictor, "skeleton", H36M_17)
    steps = getattr(predictor, "steps", None) if steps is None else steps
    counts, seeds, source = tuple(sorted(set(hypotheses))), (seed, *more_seeds), textures or ProceduralTextures()
    searches = steps is not None and search_steps < steps and any(protocol.searches for protocol in protocols)
    positive = [*counts, batch, *(each for each in (steps, limit, search_steps) if each is not None)]
    if min(positive) < 1:
        raise InputError(f"hypotheses, batch, steps and limit must be 1 or more, got {', '.join(map(str, positive))}")
    if len(set(seeds)) != len(seeds):
        raise InputError(f"every seed counts once, got {seeds}")
    patched = ", ".join(protocol.id for protocol in protocols if protocol.occlusion is not None)
    if patched and (cached or file):
        raise InputError(
            f"{patched} put patches on the pictures, so they need pictures and a predictor that reads them; a feature "
            "cache is made with the patch (`di2pose features --occlusion occ-80`) and evaluated with limb-12"
        )
    if len(seeds) > 1 and any(protocol.searches for protocol in protocols):
        raise InputError(f"{patched}: the search tries hundreds of placements for each record, give it one seed")
    scorers = {protocol.id: Scorer(protocol, dataset.skeleton, skeleton) for protocol in protocols}
    selected = {protocol.id: _select(protocol, dataset, plain, limit) for protocol in protocols}
    if isinstance(predictor, PredictionFile):
        ids = [line["id"] for line in dataset.index]
        predictor.check([ids[row] for row in sorted(set().union(*selected.values()))], ids, counts[-1])
    stamp: Json = {
        "predictor": name,
        "prediction_skeleton": skeleton.name,
        "dataset": dataset.name,
        "source": getattr(dataset, "source", dataset.name),
        "dataset_skeleton": dataset.skeleton.name,
        "hypotheses": list(counts),
        "steps": None if file else steps,
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
    _claim(out, stamp)
    rows = {key: frozenset(some) for key, some in selected.items()}
    few = search_steps if searches else None
    run = Run(predictor, dataset, scorers, rows, counts, steps, seeds, batch, source, roi_of, few)
    logs = _measure_all(run, protocols, out / "records")
    # Read only now: of two ranks the later one must see all that the other wrote, for every occlusion.
    lines = {key: log.read() for key, log in logs.items()}
    if any(row not in lines[key] for key in lines for row in selected[key]):
        return None
    ordered = {key: [lines[key][row] for row in rows] for key, rows in selected.items()}
    report = build_report(stamp, protocols, dataset, ordered)
    write_report({"": report}, out)
    write_worst_page(run, report, ordered, out / "worst.html", worst)
    return report


def _select(protocol: Protocol, dataset: Records, plain: bool, limit: int | None) -> list[int]:
    rows = select_records(protocol, dataset)
    if plain:
        if not isinstance(dataset, CachedRecords):
            raise InputError("plain people are known only in feature caches of `di2pose people features`")
        rows = np.intersect1d(rows, dataset.plain_rows())
        if not len(rows):
            raise InputError(f"no crop of {dataset.name} that {protocol.id} counts is plain")
    return [int(row) for row in rows[:limit]]


def _digest(dataset: Records, rows: Sequence[int]) -> str:
    """Of the ids and true poses of a set of records."""
    digest = hashlib.sha256(dataset.skeleton.name.encode())
    for row in rows:
        digest.update(dataset.index[row]["id"].encode() + b"\0")
        digest.update(dataset.joints_mm[row].tobytes())
    return digest.hexdigest()[:16]


def _claim(out: Path, stamp: Json) -> None:
    """Write this run's settings to run.json, or go on with the run whose settings are the same."""
    file, stamp = out / "run.json", stamp | {"log_format": LOG_FORMAT}
    if not file.exists():
        write_json(file, stamp)
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    if before != stamp:
        changed = sorted(key for key in stamp.keys() | before.keys() if stamp.get(key) != before.get(key))
        raise InputError(
            f"{out} holds a run with other settings ({', '.join(changed)} differ): repeat them to go on with it, or "
            "choose another --out"
        )


@dataclass(frozen=True)
class Run:
    """What all measurements of a run depend on."""

    predictor: Predictor
    dataset: Records
    scorers: dict[str, Scorer]
    selected: dict[str, frozenset[int]]
    """Protocol -> the dataset rows that it counts."""
    hypotheses: tuple[int, ...]
    steps: int | None
    seeds: tuple[int, ...]
    """Of the sampler's noise; the first also of patches and textures."""
    batch: int
    textures: TextureSource
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None
    """The detector's ROI on the clean picture, for the size of the `occ` patch; None: from the record's box."""
    search_steps: int | None = None
    """Fewer reverse steps, for AdvOcc's search only: the placements it finds are then predicted with `steps`."""

    def wanted(self, row: int, occlusion: Occlusion | None) -> dict[str, Scorer]:
        """Of the protocols with this occlusion, those that count the record."""
        same = {key: scorer for key, scorer in self.scorers.items() if scorer.protocol.occlusion == occlusion}
        return {key: scorer for key, scorer in same.items() if row in self.selected[key]}

    def predict(
        self, images: Sequence[Image.Image | None], samples: Sequence[Sample], seed: int, steps: int | None = None
    ) -> Predictions:
        most = max(self.hypotheses)
        found = self.predictor.predict(images, samples, most, steps or self.steps, seed)
        if isinstance(found, np.ndarray):
            found = Predictions(found)
        poses = found.samples_mm
        expected = (len(samples), most, next(iter(self.scorers.values())).prediction_skeleton.count, 3)
        if poses.shape != expected:
            raise InputError(f"the predictor gave poses of shape {poses.shape}, expected {expected}")
        broken = [s.id for s, pose in zip(samples, poses, strict=True) if not np.isfinite(pose).all()]
        if broken:
            raise InputError(f"the predictor gave NaN or infinite joints for record {broken[0]}")
        return found

    def picture(self, sample: Sample, patched: bool) -> Image.Image | None:
        if sample.image is not None and not isinstance(self.predictor, PredictionFile):
            return self.dataset.read_image(sample)
        if patched:
            raise InputError("the record has no picture to put a patch on")
        return None

    def measure(self, rows: Sequence[int], occlusion: Occlusion | None) -> list[Json]:
        """Some records as they are, or with one patch on a limb of each: a line of the log for each."""
        lines: list[Json] = []
        ready: list[tuple[int, Sample, Image.Image | None, Rectangle | None]] = []
        for row in rows:
            sample, patch = self.dataset[row], None
            try:
                image = self.picture(sample, patched=occlusion is not None)
                if image is not None and occlusion is not None:
                    roi = None if self.roi_of is None else self.roi_of(sample, image)
                    skeleton, size = self.dataset.skeleton, occlusion.size
                    found = occlude_limb(image, sample, skeleton, size, self.seeds[0], self.textures, roi)
                    image, patch = found.image, found.patch
                ready.append((row, sample, image, patch))
            except (InputError, OSError) as error:
                lines.append({"row": row, "id": sample.id, "skipped": str(error)})
        if not ready:
            return lines
        images, samples = [image for _, _, image, _ in ready], [sample for _, sample, _, _ in ready]
        by_seed = [self.predict(images, samples, seed) for seed in self.seeds]
        rest_seen = isinstance(self.dataset, CachedRecords) and self.dataset.only_hidden_labelled
        for place, (row, sample, _, patch) in enumerate(ready):
            own = [found.row(place) for found in by_seed]
            results = {
                key: scorer.measure(sample, own, self.hypotheses, patch, rest_seen)
                for key, scorer in self.wanted(row, occlusion).items()
            }
            lines.append({"row": row, "id": sample.id, "results": results})
        return lines

    def search(self, row: int, occlusion: Occlusion) -> Json:
        """AdvOcc on one record: the errors at the worst placements of the patch."""
        sample, seed = self.dataset[row], self.seeds[0]
        wanted = self.wanted(row, occlusion)
        try:
            image = self.picture(sample, patched=True)
            assert image is not None
            if sample.box is None:
                raise InputError("the record has no box, which the 256x192 crop needs")
            crop = person_crop(sample.box)
            truths = {key: (*scorer.truth(sample), scorer.points(sample)) for key, scorer in wanted.items()}
        except (InputError, OSError) as error:
            return {"row": row, "id": sample.id, "skipped": str(error)}
        placements = advocc_placements(occlusion.size)

        def predict(chosen: Sequence[int], steps: int | None) -> tuple[np.ndarray, np.ndarray]:
            """On the clean picture, and with the patch at the chosen placements."""
            chunks = []
            for start in range(0, len(chosen), self.batch):
                places = [placements[k] for k in chosen[start : start + self.batch]]
                pictures = [advocc_image(image, sample.id, crop, place, seed, self.textures) for place in places]
                chunks.append(self.predict(pictures, [sample] * len(places), seed, steps).samples_mm)
            return self.predict([image], [sample], seed, steps).samples_mm, np.concatenate(chunks)

        clean, occluded = predict(range(len(placements)), self.search_steps)
        results: dict[str, Json] = {}
        for key, (truth, known, points) in truths.items():
            visible = torch.from_numpy(np.stack([advocc_visible(points, crop, place) for place in placements])) & known
            found = wanted[key].measure_worst(clean, occluded, truth, visible, self.hypotheses)
            if self.search_steps is not None and "worst_placements" in found:
                worst, errors = found["worst_placements"], found["placement_errors_mm"]
                again = sorted({k for each in worst.values() for k in each})
                whole = occluded.copy()
                quiet, whole[again] = predict(again, None)
                found = wanted[key].measure_worst(quiet, whole, truth, visible, self.hypotheses, worst)
                found["placement_errors_mm"] = errors  # all of them in the search's steps
            results[key] = found
        return {"row": row, "id": sample.id, "results": results}


def _measure_all(run: Run, protocols: Sequence[Protocol], folder: Path) -> dict[str, RecordLog]:
    """Measure this rank's share of the records that are not in the logs yet; protocol -> its log."""
    rank, ranks = torchrun_rank()
    logs: dict[str, RecordLog] = {}
    for occlusion in dict.fromkeys(protocol.occlusion for protocol in protocols):
        members = [protocol.id for protocol in protocols if protocol.occlusion == occlusion]
        todo = sorted(set().union(*(run.selected[key] for key in members)))[rank::ranks]
        title = "clean" if occlusion is None else f"{occlusion.kind}-{occlusion.size}"
        log = RecordLog(folder, title, rank)
        logs |= dict.fromkeys(members, log)
        done = log.read()
        left = [row for row in todo if row not in done]
        with tqdm(total=len(todo), initial=len(todo) - len(left), desc=title, unit="record", disable=None) as bar:
            if occlusion is not None and occlusion.kind == "advocc":
                for row in left:
                    log.append([run.search(row, occlusion)])
                    bar.update()
                continue
            for start in range(0, len(left), run.batch):
                chunk = left[start : start + run.batch]
                log.append(run.measure(chunk, occlusion))
                bar.update(len(chunk))
    return logs
