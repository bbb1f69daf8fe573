"""The three ways over a dataset: clean pictures, one patch per picture, and the search for the worst patch.

Each gives one JSON-ready line per record: {"row", "id", "results": {protocol: {"values", "pose", ...}}}, or the reason
why the record was left out: {"row", "id", "skipped"}. All protocols of a pass share its predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from di2pose.data.sample import SEEN, Dataset, Sample
from di2pose.errors import InputError
from di2pose.evaluation.predictor import PredictionFile, Predictor
from di2pose.evaluation.scoring import Scorer, headline
from di2pose.image.crop import Roi
from di2pose.occlusion.patch_textures import TextureSource
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_image, advocc_placements, advocc_visible, occlude_limb, person_crop
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import convert

Line = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """What every pass needs."""

    predictor: Predictor
    dataset: Dataset
    scorers: dict[str, Scorer]
    selected: dict[str, frozenset[int]]
    """Protocol -> the dataset rows that it counts."""
    hypotheses: tuple[int, ...]
    steps: int
    seed: int
    batch: int
    textures: TextureSource
    roi_of: Callable[[Sample, Image.Image], Roi] | None = None
    """The detector's ROI on the clean picture, for the size of the `occ` patch; None: from the record's box."""

    def wanted(self, row: int) -> list[Scorer]:
        return [scorer for name, scorer in self.scorers.items() if row in self.selected[name]]

    def predict(self, images: Sequence[Image.Image | None], samples: Sequence[Sample]) -> Float[np.ndarray, "B H J 3"]:
        most = max(self.hypotheses)
        poses = self.predictor.predict(images, samples, most, self.steps, self.seed)
        expected = (len(samples), most, next(iter(self.scorers.values())).prediction_skeleton.count, 3)
        if poses.shape != expected:
            raise InputError(f"the predictor gave poses of shape {poses.shape}, expected {expected}")
        broken = [s.id for s, pose in zip(samples, poses, strict=True) if not np.isfinite(pose).all()]
        if broken:
            raise InputError(f"the predictor gave NaN or infinite joints for record {broken[0]}")
        return poses

    def picture(self, sample: Sample) -> Image.Image | None:
        if isinstance(self.predictor, PredictionFile) or sample.image is None:
            return None
        return self.dataset.read_image(sample)


def clean_pass(work: Work, rows: Sequence[int]) -> list[Line]:
    return _one_picture_each(work, rows, lambda sample: (work.picture(sample), None))


def occ_pass(work: Work, rows: Sequence[int], size: int) -> list[Line]:
    def occluded(sample: Sample) -> tuple[Image.Image, Rectangle]:
        image = _needed(work.picture(sample))
        roi = None if work.roi_of is None else work.roi_of(sample, image)
        found = occlude_limb(image, sample, work.dataset.skeleton, size, work.seed, work.textures, roi)
        return found.image, found.patch

    return _one_picture_each(work, rows, occluded)


def advocc_pass(work: Work, rows: Sequence[int], size: int) -> list[Line]:
    lines = []
    for row in rows:
        sample = work.dataset[row]
        try:
            image = _needed(work.picture(sample))
            if sample.box is None:
                raise InputError("the record has no box, which the 256x192 crop needs")
            crop = person_crop(sample.box)
            truths = [(scorer, *scorer.truth(sample), scorer.points(sample)) for scorer in work.wanted(row)]
        except (InputError, OSError) as error:
            lines.append(_skipped(row, sample, error))
            continue
        placements = advocc_placements(size)
        clean = work.predict([image], [sample])
        chunks = []
        for start in range(0, len(placements), work.batch):
            chunk = placements[start : start + work.batch]
            pictures = [advocc_image(image, sample.id, crop, place, work.seed, work.textures) for place in chunk]
            chunks.append(work.predict(pictures, [sample] * len(chunk)))
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
) -> dict[str, Any]:
    """The placement with the greatest absolute error on the visible joints, and what happened there."""
    poses, before = scorer.prediction(occluded), scorer.prediction(clean).expand(len(occluded), -1, -1, -1)
    target = truth.expand(len(occluded), -1, -1)
    values: dict[str, float | None] = {}
    found: dict[str, int] = {}
    for count in work.hypotheses:
        key = f"{count}/{headline(count)}/"
        after_all, clean_all = (scorer.score(p, target, visible, count) for p in (poses, before))
        errors, pa_errors = after_all[f"{key}mpjpe"], after_all[f"{key}pa_mpjpe"]
        if errors.isnan().all():
            return {"skipped": "no placement leaves a visible joint"}
        worst = int(errors.nan_to_num(nan=-1.0).argmax())
        found[str(count)] = worst
        clean_error = float(clean_all[f"{key}mpjpe"][worst])
        values |= {
            f"{key}mpjpe": float(errors[worst]),
            f"{key}pa_mpjpe": _number(pa_errors[worst]),
            f"{key}pa_mpjpe_worst": _number(pa_errors.nan_to_num(nan=-torch.inf).max()),
            f"{key}clean_mpjpe": clean_error,
            f"{key}clean_pa_mpjpe": _number(clean_all[f"{key}pa_mpjpe"][worst]),
            f"{key}degradation_mpjpe": float(errors[worst]) - clean_error,
        }
    most = max(work.hypotheses)
    return {
        "values": values,
        "pose": _rounded(poses[found[str(most)], :most].mean(0)),
        "worst_placement": found,
        "placement_errors_mm": [
            _number(e) for e in scorer.score(poses, target, visible, most)[_key(most)].round(decimals=2)
        ],
    }


def _one_picture_each(
    work: Work, rows: Sequence[int], picture: Callable[[Sample], tuple[Image.Image | None, Rectangle | None]]
) -> list[Line]:
    lines: list[Line] = []
    ready: list[tuple[int, Sample, Image.Image | None, Rectangle | None]] = []
    for row in rows:
        sample = work.dataset[row]
        try:
            ready.append((row, sample, *picture(sample)))
        except (InputError, OSError) as error:
            lines.append(_skipped(row, sample, error))
    if not ready:
        return lines
    poses = work.predict([image for _, _, image, _ in ready], [sample for _, sample, _, _ in ready])
    for (row, sample, _, patch), pose in zip(ready, poses, strict=True):
        results = {
            scorer.protocol.id: _measured(work, scorer, sample, pose[None], patch) for scorer in work.wanted(row)
        }
        lines.append({"row": row, "id": sample.id, "results": results})
    return lines


def _measured(
    work: Work, scorer: Scorer, sample: Sample, pose: Float[np.ndarray, "1 H J 3"], patch: Rectangle | None
) -> dict[str, Any]:
    try:
        truth, known = scorer.truth(sample)
    except InputError as error:
        return {"skipped": str(error)}
    prediction, target, mask = scorer.prediction(pose), truth[None], known[None]
    groups = _hidden_and_seen(scorer, sample, patch)
    values: dict[str, float | None] = {}
    for count in work.hypotheses:
        values |= {key: _number(v[0]) for key, v in scorer.score(prediction, target, mask, count).items()}
        values |= scorer.score_reprojected(prediction, target, mask, count, [sample])[0]
        for name, joints in groups.items():
            errors = mpjpe(prediction[:, :count].mean(1), target, mask & torch.from_numpy(joints)[None])
            values[f"{count}/{headline(count)}/mpjpe_{name}"] = _number(errors[0])
    result: dict[str, Any] = {"values": values, "pose": _rounded(prediction[0].mean(0))}
    if patch is not None:
        result["patch"] = [patch.x0, patch.y0, patch.x1, patch.y1]
    return result


def _hidden_and_seen(scorer: Scorer, sample: Sample, patch: Rectangle | None) -> dict[str, Bool[np.ndarray, " K"]]:
    """Joints under the patch or annotated as hidden, and all others; nothing where nobody knows."""
    tells = sample.visibility is not None and bool((sample.visibility == SEEN).any())
    if "mpjpe" not in scorer.protocol.metrics or not (tells or patch is not None):
        return {}
    hidden = np.zeros(len(sample.valid), bool) if sample.visibility is None else sample.visibility > SEEN
    if patch is not None and sample.joints_2d is not None:
        hidden = hidden | patch.strictly_contains(sample.joints_2d)
    # A joint that is built from others is hidden when one of them is: its converted flag is then above 0.
    flags = np.stack([hidden, hidden], axis=-1).astype(np.float64)
    converted, _ = convert(flags, scorer.truth_skeleton, scorer.protocol.skeleton)
    is_hidden = converted[scorer.columns, 0] > 0
    return {"hidden": is_hidden, "seen": ~is_hidden}


def _needed(image: Image.Image | None) -> Image.Image:
    if image is None:
        raise InputError("the record has no picture to put a patch on")
    return image


def _skipped(row: int, sample: Sample, error: Exception) -> Line:
    return {"row": row, "id": sample.id, "skipped": str(error)}


def _key(count: int) -> str:
    return f"{count}/{headline(count)}/mpjpe"


def _number(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None


def _rounded(pose: Tensor) -> list[list[float]]:
    return [[round(float(x), 2) for x in joint] for joint in pose]
