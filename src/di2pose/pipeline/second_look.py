"""A second look: which crops need one, which other regions to try, and which crop to keep; and the flip test.

What stands in front of a person misleads a detector: crops come turned, shifted or of the wrong size. The flip test
takes a crop's mirror image as a second observation, in which an encoder errs differently.  B crops, H hypotheses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from di2pose.image.crop import Roi
from di2pose.image.detect import FEW_KEYPOINTS, SURE_KEYPOINT, Detection
from di2pose.image.encoder import PERSON, Encoder, to_picture
from di2pose.image.region import next_region
from di2pose.model import Constraints, NumpyModel, Prediction, TorchModel
from di2pose.noise import share
from di2pose.pipeline.crops import EncodedCrops, PersonCrop, encode_crops, encode_mirrored
from di2pose.pose.skeleton import COCO_17, H36M_17, LIMB_12, Skeleton, mirror

TURNED = np.radians(15)
"""Regions turned by more are also tried upright."""
FARTHEST, LARGEST = 0.3, np.log(2.0)
"""Largest shift of another region, in sides of the first, and change of size (log): beyond, it shows someone else."""
UPPER = ("nose", "left_ear", "right_ear", "left_shoulder", "right_shoulder")
"""Landmarks that tell people apart: head and shoulders are in nearly every photo."""
OFF, INSIDE = 0.12, 0.05
"""Over the longer side of the box: how far landmarks may lie off keypoints, and how far outside of the box."""
APART, HARDLY = 0.025, 0.05
"""Mean distance of landmarks from those of the mirror image, or from a second observer's keypoints, from which on a
crop needs a second look, over the crop's width; and the weight of an unseen landmark in it. On real footage 97 of 100
crops need none, and 38 of 100 with a patch before a limb (docs/log.md)."""
MOVED, GROWN, SWUNG = 0.05, 0.15, np.radians(10)
"""The same for the region that the landmarks call for: shift (sides), change of size (log) and turn."""


def with_second_looks(
    first: EncodedCrops, encoder: Encoder, model: NumpyModel, rows: Sequence[int] | None = None
) -> EncodedCrops:
    """The same people; each crop that needs a second look, of the given rows or of all, is replaced by the one of
    greatest certainty, with its mirror image."""
    wanted = needs_second_look(first, encoder)
    again = [row for row in (range(len(first.crops)) if rows is None else rows) if wanted[row]]
    best = most_certain_crops(first, again, encoder, model)
    moved = [row for row in again if best.crops[row] is not first.crops[row]]
    if not moved:
        return first
    if first.flipped is None:
        return best
    there = encode_mirrored(encoder, [best.crops[row] for row in moved])
    return replace(best, flipped=first.flipped.swap(moved, there))


def without_neighbours(both: EncodedCrops, encoder: Encoder) -> EncodedCrops:
    """The same; mirror images in which the landmarks lie on a neighbour are encoded again, the neighbours painted
    over."""
    wrong = on_neighbour(both, encoder, flipped=True) & ~on_neighbour(both, encoder)
    crops = both.crops
    again = [row for row in np.flatnonzero(wrong).tolist() if crops[row].others and not crops[row].alone]
    if both.flipped is None or not again:
        return both
    there = encode_mirrored(encoder, [replace(crops[row], alone=True) for row in again])
    return replace(both, flipped=both.flipped.swap(again, there))


def most_certain_crops(first: EncodedCrops, rows: Sequence[int], encoder: Encoder, model: NumpyModel) -> EncodedCrops:
    """The same people, but for each of the rows the crop of the model's greatest certainty among: the first, upright
    where that is turned, and the regions that the landmarks of those two call for. Where all of these lie on a
    neighbour, also with neighbours painted over. Crops on a neighbour come late, and crops without a person last.

    A model without certainty keeps the first crop. An encoder without landmarks has fewer candidates.
    """
    if not len(rows):
        return first
    tried, owners = [first.pick(rows)], [list(rows)]

    def encode(crops: Mapping[int, PersonCrop], of: list[int]) -> None:
        if crops:
            tried.append(encode_crops(encoder, list(crops.values())))
            owners.append([of[place] for place in crops])

    encode(upright_crops(tried[0].crops), owners[0])
    for seen, of in list(zip(tried, owners, strict=True)):
        encode(moved_crops(seen, encoder), of)
    right = {
        row
        for seen, of in zip(tried, owners, strict=True)
        for row, wrong in zip(of, on_neighbour(seen, encoder), strict=True)
        if not wrong
    }
    lost = {place: crop for place, crop in enumerate(tried[0].crops) if owners[0][place] not in right and crop.others}
    encode({k: replace(crop.at(encoder.region(crop.detection)), alone=True) for k, crop in lost.items()}, owners[0])
    if lost:
        encode(moved_crops(tried[-1], encoder), owners[-1])
    if len(tried) == 1:
        return first
    every = EncodedCrops.join(tried)
    certainty = model.certainty(every.output.features)
    if certainty is None:
        return first
    order = certainty - 1e2 * on_neighbour(every, encoder)
    if every.output.person is not None:
        order = order - 1e3 * (every.output.person < PERSON)
    best: dict[int, int] = {}
    for place, row in enumerate(row for some in owners for row in some):
        if row not in best or order[place] > order[best[row]]:
            best[row] = place
    count = len(first.crops)
    chosen = [count + best[row] if row in best else row for row in range(count)]
    return EncodedCrops.join([first, every]).pick(chosen)


def needs_second_look(first: EncodedCrops, encoder: Encoder) -> Bool[np.ndarray, " B"]:
    """The crops whose landmarks lie elsewhere than in the mirror image or than the second observer's keypoints, call
    for quite another region, or lie on a neighbour; and those without a person. All, where nothing can be compared."""
    output, width = first.output, encoder.size[0]
    points, shown = output.landmarks_2d, output.landmark_visibility
    there = None if first.flipped is None else first.flipped.landmarks_2d
    if points is None or shown is None or output.skeleton is None or (there is None and output.keypoints is None):
        return np.ones(len(first.crops), bool)
    doubt = on_neighbour(first, encoder)
    if output.keypoints is not None:
        doubt |= observers_disagree(first, encoder)
    if output.person is not None:
        doubt |= output.person < PERSON
    there = None if there is None else mirrored_back(there, output.skeleton, width)
    limbs = list(output.skeleton.indices(*LIMB_12))
    for row, (crop, landmarks) in enumerate(zip(first.crops, points, strict=True)):
        places = to_picture(encoder, crop.region, landmarks)
        if there is not None:
            weights = (shown[row, limbs] + HARDLY) * _inside(places, crop)[limbs]
            doubt[row] |= _gap(landmarks[limbs], there[row, limbs], weights) > APART * width
        shift, grown, turned = _change(crop.region, next_region(places, crop.region, output.skeleton))
        doubt[row] |= shift > MOVED or grown > GROWN or turned > SWUNG or crop.detection.has_few_keypoints
    return doubt


def observers_disagree(seen: EncodedCrops, encoder: Encoder) -> Bool[np.ndarray, " B"]:
    """The crops whose landmarks lie elsewhere than the second observer's keypoints; all without such an observer."""
    points, marks, skeleton = seen.output.landmarks_2d, seen.output.keypoints, seen.output.skeleton
    apart = np.ones(len(seen.crops), bool)
    if points is None or marks is None or skeleton is None:
        return apart
    same = list(skeleton.indices(*COCO_17.joints))
    for row, (crop, landmarks) in enumerate(zip(seen.crops, points, strict=True)):
        inside = _inside(to_picture(encoder, crop.region, landmarks), crop)[same]
        gap = _gap(landmarks[same], marks[row, :, :2], (marks[row, :, 2] + HARDLY) * inside)
        apart[row] = gap > APART * encoder.size[0]
    return apart


def _inside(places: Float[np.ndarray, "J 2"], crop: PersonCrop) -> Bool[np.ndarray, " J"]:
    """Which lie in the picture: elsewhere observers only guess."""
    return np.asarray(((places >= 0) & (places <= crop.picture.size)).all(-1))


def mirrored_back(points: Float[np.ndarray, "*B J 2"], skeleton: Skeleton, width: float) -> Float[np.ndarray, "*B J 2"]:
    """Landmarks of the mirror image of a crop of that width -> in the pixels of the crop."""
    back: np.ndarray = (points * (-1, 1) + (width, 0))[..., list(skeleton.mirror_order), :]
    return back


def on_neighbour(seen: EncodedCrops, encoder: Encoder, flipped: bool = False) -> Bool[np.ndarray, " B"]:
    """The crops whose landmarks lie on someone else than the detection: off its keypoints, where it has any, else with
    head and shoulders outside of its box. `flipped`: by the landmarks of the mirror images."""
    output = seen.flipped if flipped else seen.output
    if output is None or output.landmarks_2d is None or output.skeleton is None:
        return np.zeros(len(seen.crops), bool)
    points = output.landmarks_2d
    if flipped:
        points = mirrored_back(points, output.skeleton, encoder.size[0])
    found = [
        _is_elsewhere(to_picture(encoder, crop.region, each), output.skeleton, crop.detection)
        for crop, each in zip(seen.crops, points, strict=True)
    ]
    return np.array(found, bool)


def _is_elsewhere(points: Float[np.ndarray, "J 2"], skeleton: Skeleton, detection: Detection) -> bool:
    x0, y0, x1, y1 = detection.box
    size = max(x1 - x0, y1 - y0)
    names = [name for name in UPPER if name in skeleton.joints]
    marks = points[list(skeleton.indices(*names))]
    if detection.keypoints is not None:
        there = detection.keypoints[list(COCO_17.indices(*names))]
        known = there[:, 2] >= SURE_KEYPOINT
        if known.sum() >= FEW_KEYPOINTS:
            return float(np.median(np.linalg.norm(marks - there[:, :2], axis=-1)[known])) > OFF * size
    x, y = marks.mean(0).tolist()
    slack = INSIDE * size
    return not (x0 - slack <= x <= x1 + slack and y0 - slack <= y <= y1 + slack)


def upright_crops(crops: Sequence[PersonCrop]) -> dict[int, PersonCrop]:
    """Number of a crop -> the same region upright, where it is turned noticeably."""
    turned = {row: crop for row, crop in enumerate(crops) if abs(crop.region.angle) > TURNED}
    return {row: crop.at(replace(crop.region, angle=0.0)) for row, crop in turned.items()}


def moved_crops(seen: EncodedCrops, encoder: Encoder) -> dict[int, PersonCrop]:
    """Number of a crop -> the region that its landmarks call for; none where that would lie on someone else."""
    if seen.output.landmarks_2d is None or seen.output.skeleton is None:
        return {}
    moved = {}
    for row, (crop, landmarks) in enumerate(zip(seen.crops, seen.output.landmarks_2d, strict=True)):
        region = next_region(to_picture(encoder, crop.region, landmarks), crop.region, seen.output.skeleton)
        shift, grown, _ = _change(crop.region, region)
        if shift < FARTHEST and grown < LARGEST:
            moved[row] = crop.at(region)
    return moved


def _gap(a: Float[np.ndarray, "J 2"], b: Float[np.ndarray, "J 2"], weight: Float[np.ndarray, " J"]) -> float:
    """Weighted mean distance; infinite where all weights are 0."""
    total = float(weight.sum())
    return float((np.linalg.norm(a - b, axis=-1) * weight).sum()) / total if total else np.inf


def _change(before: Roi, after: Roi) -> tuple[float, float, float]:
    """Shift of a region over its side, change of size (log), and turn."""
    shift = float(np.hypot(after.centre[0] - before.centre[0], after.centre[1] - before.centre[1]))
    turn = abs(float(np.angle(np.exp(1j * (after.angle - before.angle)))))
    return shift / before.side, abs(float(np.log(after.side / before.side))), turn


def predict_both(
    model: NumpyModel,
    features: Float[np.ndarray, "B L F"],
    flipped: Float[np.ndarray, "B L F"] | None,
    hypotheses: int,
    steps: int,
    noise: Any,
    constraints: Constraints | None = None,
    skeleton: Skeleton = H36M_17,
) -> Prediction:
    """`model.predict`; with `flipped`, the features of the mirror images, the flip test: every other pair of hypotheses
    comes from the mirror image and is mirrored back; single poses and visibilities are the means of both.

    Kept tokens have no meaning in the mirror: they switch the flip test off. The tokens of a mirrored hypothesis are
    those of its pose mirrored back.
    """
    known = constraints or Constraints()
    if flipped is None or known.kept is not None:
        return model.predict(features, hypotheses, steps, noise, constraints)
    here, there = ([h for h in range(hypotheses) if h // 2 % 2 == side] for side in (0, 1))
    if not there:  # too few hypotheses for a pose of the mirror image: drawn in one step for its visibility alone
        found = model.predict(features, hypotheses, steps, noise, constraints)
        if found.visibility is None:
            return found
        other = model.predict(flipped, 1, 1, share(noise, [0], hypotheses))
        return replace(found, visibility=_mean_visibility(found, other, skeleton))
    mirrored = known
    if known.pins is not None:
        joints, which = known.pins
        mirrored = replace(known, pins=(mirror(joints, skeleton), which[:, list(skeleton.mirror_order)]))
    noise_here, noise_there = (share(noise, rows, hypotheses) for rows in (here, there))
    if len(here) == len(there) and isinstance(noise_here, list) and isinstance(noise_there, list):  # in one pass
        pins = None
        if known.pins is not None and mirrored.pins is not None:
            pins = np.concatenate([known.pins[0], mirrored.pins[0]]), np.concatenate([known.pins[1], mirrored.pins[1]])
        joined = np.concatenate([features, flipped])
        both = model.predict(joined, len(here), steps, noise_here + noise_there, Constraints(pins))
        found, other = _rows(both, slice(0, len(features))), _rows(both, slice(len(features), None))
    else:
        found = model.predict(features, len(here), steps, noise_here, known)
        other = model.predict(flipped, len(there), steps, noise_there, mirrored)
    back = mirror(other.joints_mm, skeleton)
    order = np.argsort(here + there)
    tokens = None if found.tokens is None else model.tokens_of(back)
    if tokens is not None:
        tokens = np.concatenate([found.tokens, tokens], axis=1)[:, order]
    joints_mm = np.concatenate([found.joints_mm, back], axis=1)[:, order]
    return Prediction(joints_mm, _mean_visibility(found, other, skeleton), tokens)


def point_estimates(
    model: TorchModel,
    features: Float[np.ndarray, "B L F"],
    flipped: Float[np.ndarray, "B L F"] | None,
    skeleton: Skeleton = H36M_17,
) -> dict[str, Float[np.ndarray, "B J 3"]]:
    """`PoseModel.point_estimates`; with the mirror images the means of both."""
    found = model.point_estimates(features)
    if flipped is None:
        return found
    there = model.point_estimates(flipped)
    return {name: (pose + mirror(there[name], skeleton)) / 2 for name, pose in found.items()}


def _rows(both: Prediction, rows: slice) -> Prediction:
    visibility, tokens = (None if part is None else part[rows] for part in (both.visibility, both.tokens))
    return Prediction(both.joints_mm[rows], visibility, tokens)


def _mean_visibility(here: Prediction, there: Prediction, skeleton: Skeleton) -> Any:
    if here.visibility is None or there.visibility is None:
        return None
    return (here.visibility + there.visibility[:, list(skeleton.mirror_order)]) / 2
