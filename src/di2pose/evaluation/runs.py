"""The three ways over a dataset: clean pictures, one patch per picture, and the search for the worst patch.

Each gives one JSON line per record, appended to `<way>.rank<k>.jsonl`. A line counts when it ends in a newline: a run
that was killed in the middle of one loses that record only, which is then computed again. Any number of ranks may go on
with what any other number began. All protocols of a way share its predictions.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from di2pose.data.sample import SEEN, UNKNOWN, Sample
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import CachedRecords, Records
from di2pose.evaluation.joint_groups import STATES, joint_groups
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.predictor import Predictions, Predictor
from di2pose.evaluation.scoring import Scorer, headline
from di2pose.image.crop import Roi
from di2pose.occlusion.patch_textures import TextureSource
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, advocc_visible, occlude_limb, person_crop
from di2pose.pose.aggregate import covariance
from di2pose.pose.metrics import joint_errors
from di2pose.pose.skeleton import H36M_17


class RecordResult(TypedDict):
    """What one protocol measured on one record; `skipped`, the reason, stands alone. K joints of the protocol."""

    skipped: NotRequired[str]
    values: NotRequired[dict[str, list[float | None]]]
    """'H/estimate/metric' -> one number for each sampling seed, or a single one where nothing is drawn."""
    pose: NotRequired[list[list[float]]]
    """The mean of the hypotheses, at the protocol's root, mm."""
    patch: NotRequired[list[float]]
    groups: NotRequired[dict[str, int]]
    """How many joints count as seen, hidden, ...; left out, as the next two, where nobody knows."""
    visibility: NotRequired[list[int]]
    said: NotRequired[list[int]]
    """What the model says of the joints: places in STATES."""
    error_mm: NotRequired[list[list[float | None]]]
    """Of the mean pose, for each seed and joint; and the spread of the hypotheses."""
    spread_mm: NotRequired[list[list[float]]]
    worst_placement: NotRequired[dict[str, int]]
    placement_errors_mm: NotRequired[list[float | None]]


class RecordLine(TypedDict):
    """One record: its results by protocol, or why it was left out."""

    row: int
    id: str
    skipped: NotRequired[str]
    results: NotRequired[dict[str, RecordResult]]


class RecordLog:
    """The lines of one way, of which this process writes its own rank's file."""

    def __init__(self, folder: Path, name: str, rank: int) -> None:
        self.folder, self.name = folder, name
        self.own = folder / f"{name}.rank{rank:04d}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if self.own.exists():
            with self.own.open("r+b") as file:  # a torn last line goes
                file.truncate(file.read().rfind(b"\n") + 1)

    def append(self, lines: Iterable[RecordLine]) -> None:
        text = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
        with self.own.open("a", encoding="utf-8") as file:
            file.write(text)

    def read(self) -> dict[int, RecordLine]:
        """Dataset row -> line, over the files of all ranks."""
        found: dict[int, RecordLine] = {}
        for path in sorted(self.folder.glob(f"{self.name}.rank*.jsonl")):
            for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
                try:
                    record: RecordLine = json.loads(line)
                    found.setdefault(int(record["row"]), record)
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{path}, line {number} is damaged: delete the file and run again") from error
        return found


@dataclass(frozen=True)
class Work:
    """What every way needs."""

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

    def wanted(self, row: int) -> list[Scorer]:
        return [scorer for name, scorer in self.scorers.items() if row in self.selected[name]]

    def predict(self, images: Sequence[Image.Image | None], samples: Sequence[Sample], seed: int) -> Predictions:
        most = max(self.hypotheses)
        found = self.predictor.predict(images, samples, most, self.steps, seed)
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

    def picture(self, sample: Sample) -> Image.Image | None:
        if isinstance(self.predictor, PredictionFile) or sample.image is None:
            return None
        return self.dataset.read_image(sample)


def run_clean(work: Work, rows: Sequence[int]) -> list[RecordLine]:
    return _one_picture_each(work, rows, lambda sample: (work.picture(sample), None))


def run_occ(work: Work, rows: Sequence[int], size: int) -> list[RecordLine]:
    def occluded(sample: Sample) -> tuple[Image.Image, Rectangle]:
        image = _needed(work.picture(sample))
        roi = None if work.roi_of is None else work.roi_of(sample, image)
        found = occlude_limb(image, sample, work.dataset.skeleton, size, work.seeds[0], work.textures, roi)
        return found.image, found.patch

    return _one_picture_each(work, rows, occluded)


def run_advocc(work: Work, rows: Sequence[int], size: int) -> list[RecordLine]:
    lines: list[RecordLine] = []
    seed = work.seeds[0]
    for row in rows:
        sample = work.dataset[row]
        try:
            image = _needed(work.picture(sample))
            if sample.box is None:
                raise InputError("the record has no box, which the 256x192 crop needs")
            crop = person_crop(sample.box)
            truths = [(scorer, *scorer.truth(sample), scorer.points(sample)) for scorer in work.wanted(row)]
        except (InputError, OSError) as error:
            lines.append({"row": row, "id": sample.id, "skipped": str(error)})
            continue
        placements = advocc_placements(size)
        clean = work.predict([image], [sample], seed).samples_mm
        chunks = []
        for start in range(0, len(placements), work.batch):
            chunk = placements[start : start + work.batch]
            pictures = [advocc_image(image, sample.id, crop, place, seed, work.textures) for place in chunk]
            chunks.append(work.predict(pictures, [sample] * len(chunk), seed).samples_mm)
        occluded = np.concatenate(chunks)
        results = {}
        for scorer, truth, known, points in truths:
            visible = torch.from_numpy(np.stack([advocc_visible(points, crop, place) for place in placements])) & known
            results[scorer.protocol.id] = _worst(work, scorer, clean, occluded, truth, visible)
        lines.append({"row": row, "id": sample.id, "results": results})
    return lines


def _worst(
    work: Work,
    scorer: Scorer,
    clean: Float[np.ndarray, "1 H J 3"],
    occluded: Float[np.ndarray, "P H J 3"],
    truth: Float[Tensor, "K 3"],
    visible: Bool[Tensor, "P K"],
) -> RecordResult:
    """The placement with the greatest absolute error on the visible joints, and what happened there."""
    poses, before = scorer.prediction(occluded), scorer.prediction(clean).expand(len(occluded), -1, -1, -1)
    target = truth.expand(len(occluded), -1, -1)
    values: dict[str, list[float | None]] = {}
    found: dict[str, int] = {}
    for count in work.hypotheses:
        key = f"{count}/{headline(count)}"
        after, calm = (scorer.score_pose(p[:, :count].mean(1), target, visible, key) for p in (poses, before))
        errors, pa_errors = after[f"{key}/mpjpe"], after[f"{key}/pa_mpjpe"]
        if errors.isnan().all():
            return {"skipped": "no placement leaves a visible joint"}
        worst = found[str(count)] = int(errors.nan_to_num(nan=-1.0).argmax())
        values |= {
            f"{key}/mpjpe": [float(errors[worst])],
            f"{key}/pa_mpjpe": [_number(pa_errors[worst])],
            f"{key}/pa_mpjpe_worst": [_number(pa_errors.nan_to_num(nan=-torch.inf).max())],
            f"{key}/clean_mpjpe": [float(calm[f"{key}/mpjpe"][worst])],
            f"{key}/clean_pa_mpjpe": [_number(calm[f"{key}/pa_mpjpe"][worst])],
            f"{key}/degradation_mpjpe": [float(errors[worst] - calm[f"{key}/mpjpe"][worst])],
        }
    return {
        "values": values,
        "pose": _rounded(poses[found[str(count)], :count].mean(0)),
        "worst_placement": found,
        "placement_errors_mm": [_number(error) for error in errors.round(decimals=2)],
    }


def _one_picture_each(
    work: Work, rows: Sequence[int], picture: Callable[[Sample], tuple[Image.Image | None, Rectangle | None]]
) -> list[RecordLine]:
    lines: list[RecordLine] = []
    ready: list[tuple[int, Sample, Image.Image | None, Rectangle | None]] = []
    for row in rows:
        sample = work.dataset[row]
        try:
            ready.append((row, sample, *picture(sample)))
        except (InputError, OSError) as error:
            lines.append({"row": row, "id": sample.id, "skipped": str(error)})
    if not ready:
        return lines
    images, samples = [image for _, _, image, _ in ready], [sample for _, sample, _, _ in ready]
    by_seed = [work.predict(images, samples, seed) for seed in work.seeds]
    for place, (row, sample, _, patch) in enumerate(ready):
        results = {
            scorer.protocol.id: _measured(work, scorer, sample, by_seed, place, patch) for scorer in work.wanted(row)
        }
        lines.append({"row": row, "id": sample.id, "results": results})
    return lines


def _measured(
    work: Work, scorer: Scorer, sample: Sample, by_seed: Sequence[Predictions], place: int, patch: Rectangle | None
) -> RecordResult:
    """One protocol on the record at `place` of the predictions."""
    try:
        truth, known = scorer.truth(sample)
    except InputError as error:
        return {"skipped": str(error)}
    target, mask = truth[None], known[None]
    visibility = scorer.visibility(sample, patch)
    told = bool((visibility == SEEN).any())
    rest_seen = not told and (
        patch is not None or (isinstance(work.dataset, CachedRecords) and work.dataset.only_hidden_labelled)
    )
    groups = {name: joints & known.numpy() for name, joints in joint_groups(visibility, rest_seen).items()}
    values: dict[str, list[float | None]] = {}

    def note(found: dict[str, Tensor]) -> None:
        for key, value in found.items():
            if bool(value.isfinite()) or key.split("/")[2] in scorer.protocol.metrics:
                values.setdefault(key, []).append(_number(value[0]))

    for name, (poses, skeleton) in by_seed[0].others.items():
        if not scorer.missing(skeleton):
            pose = scorer.prediction(poses[place][None, None], skeleton)[:, 0]
            note(scorer.score_pose(pose, target, mask, f"0/{name}", groups))
    predictions = [scorer.prediction(found.samples_mm[place][None]) for found in by_seed]
    for prediction in predictions:
        for count in work.hypotheses:
            note(scorer.score(prediction, target, mask, count, groups))
            note(scorer.score_reprojected(prediction, target, mask, count, sample, groups))
    result: RecordResult = {"values": values, "pose": _rounded(predictions[0][0].mean(0))}
    if patch is not None:
        result["patch"] = [patch.x0, patch.y0, patch.x1, patch.y1]
    if groups:
        result["groups"] = {name: int(joints.sum()) for name, joints in groups.items()}
        result["visibility"] = np.where(known.numpy(), visibility, UNKNOWN).tolist()
        said = by_seed[0].states
        if told and said is not None and scorer.protocol.skeleton == H36M_17:
            result["said"] = [STATES.index(str(state)) for state in said[place][scorer.columns]]
    if max(work.hypotheses) > 1 and "mpjpe" in scorer.protocol.metrics:
        result["error_mm"], result["spread_mm"] = [], []
        for prediction in predictions:
            off = joint_errors(prediction.mean(1), target, mask)[0]
            trace = covariance(prediction)[0].diagonal(dim1=-2, dim2=-1).sum(-1)
            result["error_mm"].append([round(float(e), 2) if k else None for e, k in zip(off, known, strict=True)])
            result["spread_mm"].append([round(float(s), 2) for s in trace.clamp_min(0).sqrt()])
    return result


def _needed(image: Image.Image | None) -> Image.Image:
    if image is None:
        raise InputError("the record has no picture to put a patch on")
    return image


def _number(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None


def _rounded(pose: Tensor) -> list[list[float]]:
    return [[round(float(x), 2) for x in joint] for joint in pose]
