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
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

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
from di2pose.evaluation.report import build_report, write_report
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
PROCEDURAL = ProceduralTextures()
LOG_FORMAT = 4
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
    protocols, numbers = parse_protocols(protocol, every, split), _integers(seeds, "--seeds") or (seed,)
    several, counts = _integers(steps, "--steps"), _integers(hypotheses, "--hypotheses")
    records = open_records(data, images)
    detects = predictions is None and not isinstance(records, CachedRecords)
    common: Json = {"search_steps": search_steps, "seed": numbers[0], "more_seeds": numbers[1:], "batch": batch}
    common |= {"limit": limit, "plain": plain, "worst": worst, "roi_of": PersonMatcher() if detects else None}
    common |= {} if textures is None else {"textures": DtdTextures(textures)}
    runs: dict[str, Run] = {}

    def add(row: str, title: str, predictor: Predictor, fewest: int, steps: int | None = None) -> None:
        """A row of the joint table; `title`: its name with a fingerprint of the weights and the settings."""
        names = [row, *(f"{row}-{k}" for k in range(2, len(runs) + 2))]
        run = Run(predictor, records, protocols, title, counts or (fewest,), steps, **common)
        runs[next(each for each in names if each not in runs)] = run

    if predictions is not None:
        file = PredictionFile(predictions)
        add(predictions.name, f"{predictions.name} ({file.fingerprint})", file, 1)
    drawing = {key: value for key, value in {"temperature": temperature, "top_r": top_r}.items() if value is not None}
    dtype = precision_of(precision, choose_device(device))
    settings = ["one look"] * (not second_look) + ["no flip test"] * (not flip_test) + [str(encoder)] * bool(encoder)
    settings += ["true boxes"] * true_boxes + ["not fitted"] * (not fit)
    settings += [str(dtype).removeprefix("torch.")] * (dtype != torch.float32)
    settings += [f"{key} {value:g}" for key, value in drawing.items()]
    for model in models:
        looks: Json = {"second_look": second_look, "flip_test": flip_test, "true_boxes": true_boxes, "fit": fit}
        predictor = load_predictor(model, records, device=device, encoder=encoder, precision=precision, **looks)
        path = Path(model)
        name, folder = (path.resolve().name, path.resolve().parent.name) if path.exists() else (model, "")
        name = {"model": folder, "best": f"{folder}-best"}.get(name, name)
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
    reports = {name: run.write(folders[name]) for name, run in runs.items()}
    # Another rank may have finished a model in the meantime: the last one finds them all done.
    reports = {name: report or runs[name].write(folders[name]) for name, report in reports.items()}
    done = {name if len(runs) > 1 else "": report for name, report in reports.items() if report is not None}
    if len(done) < len(runs):
        print("rank {} of {} is done; the rank that finishes last writes the report".format(*torchrun_rank()))
        return 0
    if len(runs) > 1:
        write_report(done, out)
    page = ", worst.html" if (out / "worst.html").is_file() else ""
    text = (out / "report.md").read_text(encoding="utf-8")
    print(f"{text}\nwritten: {out / 'report.json'}, report.md, report.tex{page}")
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
    predictor: Predictor, dataset: Records, protocols: Sequence[Protocol], out: Path, **settings: Any
) -> Json | None:
    """Run the protocols and write report.json, .md, .tex and worst.html to `out`; the report, or None while other ranks
    still have records to do. `settings`: fields of `Run`."""
    return Run(predictor, dataset, protocols, **settings).write(out)


@dataclass(frozen=True)
class Run:
    """A predictor on a dataset under some protocols. It predicts on Human3.6M's skeleton unless it has a `skeleton`."""

    predictor: Predictor
    dataset: Records
    protocols: Sequence[Protocol]
    name: str = "predictor"
    """Stands in the report for the predictor and its weights."""
    hypotheses: Sequence[int] = (1,)
    """Each count is reported; the predictor runs once with the greatest for each seed."""
    steps: int | None = None
    """None: the predictor's own."""
    search_steps: int = SEARCH_STEPS
    """Reverse steps of AdvOcc's search, at most: the placements it finds are then predicted with `steps`."""
    seed: int = 0
    """Of the sampler's noise, of patches and of textures."""
    more_seeds: Sequence[int] = ()
    """Other noise on the same pictures; figures are then means over all seeds."""
    batch: int = 16
    textures: TextureSource = PROCEDURAL
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None
    """The region of a person in the clean picture, by which occ patches are sized; None: from the record's box."""
    worst: int = 20
    """Records on the page of the worst."""
    limit: int | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        require("pandas", extra="pandas")  # before the records, not after them
        own = getattr(self.predictor, "steps", None)
        object.__setattr__(self, "hypotheses", tuple(sorted(set(self.hypotheses))))
        object.__setattr__(self, "steps", own if self.steps is None else self.steps)
        positive = [*self.hypotheses, self.batch]
        positive += [each for each in (self.steps, self.limit, self.search_steps) if each is not None]
        if min(positive) < 1:
            raise InputError(f"hypotheses, batch, steps and limit must be 1 or more, got {str(positive)[1:-1]}")
        if len(set(self.seeds)) != len(self.seeds):
            raise InputError(f"every seed counts once, got {self.seeds}")
        patched = ", ".join(protocol.id for protocol in self.protocols if protocol.occlusion is not None)
        file = self.predictor if isinstance(self.predictor, PredictionFile) else None
        if patched and (file is not None or isinstance(self.dataset, CachedRecords)):
            raise InputError(
                f"{patched} put patches on the pictures, so they need pictures and a predictor that reads them; a "
                "feature cache is made with the patch (`di2pose features --occlusion occ-80`) and evaluated with "
                "limb-12"
            )
        if self.more_seeds and any(protocol.searches for protocol in self.protocols):
            raise InputError(f"{patched}: the search tries hundreds of placements for each record, give it one seed")
        if file is not None:
            ids = [line["id"] for line in self.dataset.index]
            rows = sorted(set().union(*self.selected.values()))
            file.check([ids[row] for row in rows], ids, max(self.hypotheses))

    @property
    def skeleton(self) -> Skeleton:
        """Of the predicted poses."""
        return getattr(self.predictor, "skeleton", H36M_17)

    @property
    def seeds(self) -> tuple[int, ...]:
        return (self.seed, *self.more_seeds)

    @property
    def quick_search(self) -> bool:
        """AdvOcc's search takes fewer steps than the placements that it finds."""
        searches = any(protocol.searches for protocol in self.protocols)
        return searches and self.steps is not None and self.search_steps < self.steps

    @cached_property
    def scorers(self) -> dict[str, Scorer]:
        """By protocol."""
        return {protocol.id: Scorer(protocol, self.dataset.skeleton, self.skeleton) for protocol in self.protocols}

    @cached_property
    def selected(self) -> dict[str, dict[int, None]]:
        """Protocol -> the dataset rows that it counts, in order."""
        found = {}
        for protocol in self.protocols:
            rows = select_records(protocol, self.dataset)
            if self.plain:
                if not isinstance(self.dataset, CachedRecords):
                    raise InputError("plain people are known only in feature caches of `di2pose people features`")
                rows = np.intersect1d(rows, self.dataset.plain_rows())
                if not len(rows):
                    raise InputError(f"no crop of {self.dataset.name} that {protocol.id} counts is plain")
            found[protocol.id] = dict.fromkeys(rows[: self.limit].tolist())
        return found

    def stamp(self) -> Json:
        """The settings that numbers depend on."""
        return {
            "predictor": self.name,
            "prediction_skeleton": self.skeleton.name,
            "dataset": self.dataset.name,
            "source": getattr(self.dataset, "source", self.dataset.name),
            "dataset_skeleton": self.dataset.skeleton.name,
            "hypotheses": list(self.hypotheses),
            "steps": None if isinstance(self.predictor, PredictionFile) else self.steps,
            "seed": self.seed,
            "more_seeds": list(self.more_seeds),
            "plain": self.plain,
            "limit": self.limit,
            "textures": getattr(self.textures, "name", type(self.textures).__name__),
            "occ_roi": "from the record's box" if self.roi_of is None else "given",
            "protocols": [{**each.statement(), "truth": self._digest(each)} for each in self.protocols],
        } | ({"search_steps": self.search_steps} if self.quick_search else {})

    def _digest(self, protocol: Protocol) -> str:
        """Of the ids and true poses of the records that a protocol counts."""
        digest = hashlib.sha256(self.dataset.skeleton.name.encode())
        for row in self.selected[protocol.id]:
            digest.update(self.dataset.index[row]["id"].encode() + b"\0")
            digest.update(self.dataset.joints_mm[row].tobytes())
        return digest.hexdigest()[:16]

    def write(self, out: Path) -> Json | None:
        """Measure this rank's share of the records that are not in the logs yet; the report and its files when all are
        there, else None."""
        stamp, file = self.stamp(), out / "run.json"
        claimed = stamp | {"log_format": LOG_FORMAT}
        before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        if before is None:
            write_json(file, claimed)
        elif before != claimed:
            changed = sorted(key for key in claimed.keys() | before.keys() if claimed.get(key) != before.get(key))
            raise InputError(
                f"{out} holds a run with other settings ({', '.join(changed)} differ): repeat them to go on with it, "
                "or choose another --out"
            )
        rank, ranks = torchrun_rank()
        logs: dict[str, RecordLog] = {}
        for occlusion in dict.fromkeys(protocol.occlusion for protocol in self.protocols):
            members = [protocol.id for protocol in self.protocols if protocol.occlusion == occlusion]
            todo = sorted(set().union(*(self.selected[key] for key in members)))[rank::ranks]
            title = "clean" if occlusion is None else f"{occlusion.kind}-{occlusion.size}"
            log = RecordLog(out / "records", title, rank)
            logs |= dict.fromkeys(members, log)
            done = log.read()
            left = [row for row in todo if row not in done]
            searches = occlusion is not None and occlusion.kind == "advocc"
            size = 1 if searches else self.batch
            with tqdm(total=len(todo), initial=len(todo) - len(left), desc=title, unit="record", disable=None) as bar:
                for start in range(0, len(left), size):
                    rows = left[start : start + size]
                    log.append([self.search(rows[0], occlusion)] if searches else self.measure(rows, occlusion))
                    bar.update(len(rows))
        # Read only now: of two ranks the later one must see all that the other wrote, for every occlusion.
        found = {key: log.read() for key, log in logs.items()}
        if any(row not in found[key] for key, rows in self.selected.items() for row in rows):
            return None
        lines = {key: [found[key][row] for row in rows] for key, rows in self.selected.items()}
        report = build_report(stamp, self.protocols, self.dataset, lines)
        write_report({"": report}, out)
        write_worst_page(self, report, lines, out / "worst.html", self.worst)
        return report

    def measure(self, rows: Sequence[int], occlusion: Occlusion | None) -> list[Json]:
        """Some records as they are, or with one patch on a limb of each: a line of the log for each."""
        lines: list[Json] = []
        ready: list[tuple[int, Sample, Image.Image | None, Rectangle | None]] = []
        for row in rows:
            sample, patch = self.dataset[row], None
            try:
                image = self._picture(sample, patched=occlusion is not None)
                if image is not None and occlusion is not None:
                    roi = None if self.roi_of is None else self.roi_of(sample, image)
                    skeleton, size = self.dataset.skeleton, occlusion.size
                    found = occlude_limb(image, sample, skeleton, size, self.seed, self.textures, roi)
                    image, patch = found.image, found.patch
                ready.append((row, sample, image, patch))
            except (InputError, OSError) as error:
                lines.append({"row": row, "id": sample.id, "skipped": str(error)})
        if not ready:
            return lines
        images, samples = [image for _, _, image, _ in ready], [sample for _, sample, _, _ in ready]
        by_seed = [self._predict(images, samples, seed, self.steps) for seed in self.seeds]
        rest_seen = isinstance(self.dataset, CachedRecords) and self.dataset.only_hidden_labelled
        for place, (row, sample, _, patch) in enumerate(ready):
            own = [found.row(place) for found in by_seed]
            results = {
                key: scorer.measure(sample, own, self.hypotheses, patch, rest_seen)
                for key, scorer in self._scorers_of(row, occlusion).items()
            }
            lines.append({"row": row, "id": sample.id, "results": results})
        return lines

    def _picture(self, sample: Sample, patched: bool) -> Image.Image | None:
        if sample.image is not None and not isinstance(self.predictor, PredictionFile):
            return self.dataset.read_image(sample)
        if patched:
            raise InputError("the record has no picture to put a patch on")
        return None

    def _scorers_of(self, row: int, occlusion: Occlusion | None) -> dict[str, Scorer]:
        """Of the protocols with this occlusion, those that count the record."""
        same = {key: scorer for key, scorer in self.scorers.items() if scorer.protocol.occlusion == occlusion}
        return {key: scorer for key, scorer in same.items() if row in self.selected[key]}

    def _predict(
        self, images: Sequence[Image.Image | None], samples: Sequence[Sample], seed: int, steps: int | None
    ) -> Predictions:
        most = max(self.hypotheses)
        found = self.predictor.predict(images, samples, most, steps, seed)
        if isinstance(found, np.ndarray):
            found = Predictions(found)
        poses = found.samples_mm
        expected = (len(samples), most, self.skeleton.count, 3)
        if poses.shape != expected:
            raise InputError(f"the predictor gave poses of shape {poses.shape}, expected {expected}")
        broken = [s.id for s, pose in zip(samples, poses, strict=True) if not np.isfinite(pose).all()]
        if broken:
            raise InputError(f"the predictor gave NaN or infinite joints for record {broken[0]}")
        return found

    def search(self, row: int, occlusion: Occlusion | None) -> Json:
        """AdvOcc on one record: the errors at the worst placements of the patch."""
        assert occlusion is not None
        sample, placements = self.dataset[row], advocc_placements(occlusion.size)
        wanted: dict[str, tuple[Scorer, torch.Tensor, torch.Tensor]] = {}
        try:
            image = self._picture(sample, patched=True)
            if sample.box is None:
                raise InputError("the record has no box, which the 256x192 crop needs")
            crop = person_crop(sample.box)
            for key, scorer in self._scorers_of(row, occlusion).items():
                (truth, known), points = scorer.truth(sample), scorer.points(sample)
                shown = np.stack([advocc_visible(points, crop, place) for place in placements])
                wanted[key] = scorer, truth, torch.from_numpy(shown) & known
        except (InputError, OSError) as error:
            return {"row": row, "id": sample.id, "skipped": str(error)}
        assert image is not None

        def predict(chosen: Sequence[int], steps: int | None) -> tuple[np.ndarray, np.ndarray]:
            """On the clean picture, and with the patch at the chosen placements."""
            chunks = []
            for start in range(0, len(chosen), self.batch):
                places = [placements[k] for k in chosen[start : start + self.batch]]
                pictures = [advocc_image(image, sample.id, crop, place, self.seed, self.textures) for place in places]
                chunks.append(self._predict(pictures, [sample] * len(places), self.seed, steps).samples_mm)
            return self._predict([image], [sample], self.seed, steps).samples_mm, np.concatenate(chunks)

        clean, occluded = predict(range(len(placements)), self.search_steps if self.quick_search else self.steps)
        results: dict[str, Json] = {}
        for key, (scorer, truth, visible) in wanted.items():
            found = scorer.measure_worst(clean, occluded, truth, visible, self.hypotheses)
            if self.quick_search and "worst_placements" in found:
                worst, errors = found["worst_placements"], found["placement_errors_mm"]
                again = sorted({k for each in worst.values() for k in each})
                whole = occluded.copy()
                quiet, whole[again] = predict(again, self.steps)
                found = scorer.measure_worst(quiet, whole, truth, visible, self.hypotheses, worst)
                found["placement_errors_mm"] = errors  # all of them in the search's steps
            results[key] = found
        return {"row": row, "id": sample.id, "results": results}
