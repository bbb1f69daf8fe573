"""A second look at people: whose crop is doubtful, other regions than the detector's, and which of them to keep.

What stands before a person misleads a detector: crops come turned, off or of another size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from di2pose.arrays import to_numpy
from di2pose.image.crop import Roi
from di2pose.image.detect import FEW_KEYPOINTS, SURE_KEYPOINT, Detection
from di2pose.image.encoder import PERSON, Encoder, to_picture
from di2pose.image.region import next_region
from di2pose.pipeline.crops import Encode, EncodedCrops, PersonCrop, encode_crops
from di2pose.pose.skeleton import COCO_17, LIMB_12, Skeleton

TURNED = np.radians(15)
"""Regions turned by less are not looked at upright, too."""
FARTHEST, LARGEST = 0.3, np.log(2.0)
"""Most that a second look may lie off the first, in sides, and differ from it in size (log): else it shows another."""
UPPER = ("nose", "left_ear", "right_ear", "left_shoulder", "right_shoulder")
"""Landmarks by which people are told apart: whoever is photographed shows head and shoulders first of all."""
OFF, INSIDE = 0.12, 0.05
"""Over the longer side of the box: how far landmarks may lie off keypoints, and how far outside of the box."""
APART, HARDLY = 0.025, 0.05
"""Of a crop that is not doubtful: how far its landmarks lie from those of the mirror image and from a second observer's
keypoints at most, over the crop's width; and how much a landmark that is not seen counts in that. On real footage 97 of
100 crops are not doubtful, and 38 of those with a patch before a limb (docs/log.md)."""
MOVED, GROWN, SWUNG = 0.05, 0.15, np.radians(10)
"""Of such a crop: how far the region that its landmarks call for lies off at most (sides), differs in size (log), and
is turned."""


def surest_looks(
    first: EncodedCrops,
    rows: Sequence[int],
    encoder: Encoder,
    encode: Encode,
    certainty: Callable[[Any], Any],
) -> EncodedCrops:
    """The same people, but for each of the rows the look of the greatest certainty: the one that was taken, upright
    where that was turned, and at the places where the landmarks of those two lie. Where all of these show a neighbour,
    neighbours are painted over. Looks that show a neighbour come late, and looks that show nobody last.

    `certainty`: a model's, of features; one that cannot tell it stays with the first look. An encoder without landmarks
    has fewer looks.
    """
    if not len(rows):
        return first
    looks, owners = [first.pick(rows)], [list(rows)]

    def take(crops: Mapping[int, PersonCrop], of: list[int]) -> None:
        if crops:
            taken = list(crops.values())
            looks.append(EncodedCrops(taken, encode_crops(encoder, taken, encode)))
            owners.append([of[place] for place in crops])

    take(upright_crops(looks[0].crops), owners[0])
    for seen, of in list(zip(looks, owners, strict=True)):
        take(moved_crops(seen, encoder), of)
    astray = set(rows) - {row for seen, of in zip(looks, owners, strict=True) for row in _settled(seen, of, encoder)}
    lost = {place: crop for place, crop in enumerate(looks[0].crops) if owners[0][place] in astray and crop.others}
    alone = {place: replace(crop.at(encoder.region(crop.detection)), alone=True) for place, crop in lost.items()}
    take(alone, owners[0])
    if lost:
        take(moved_crops(looks[-1], encoder), owners[-1])
    if len(looks) == 1:
        return first
    every = EncodedCrops.join(looks)
    told = certainty(every.output.features)
    if told is None:
        return first
    sure = to_numpy(told) - 1e2 * mistaken(every, encoder)
    if every.output.person is not None:
        sure = sure - 1e3 * (to_numpy(every.output.person) < PERSON)
    best: dict[int, int] = {}
    for place, row in enumerate(row for some in owners for row in some):
        if row not in best or sure[place] > sure[best[row]]:
            best[row] = place
    count = len(first.crops)
    chosen = [count + best[row] if row in best else row for row in range(count)]
    return EncodedCrops.join([first, every]).pick(chosen)


def doubtful(first: EncodedCrops, encoder: Encoder) -> Bool[np.ndarray, " B"]:
    """Which crops may be worth another look: the landmarks lie elsewhere than in the mirror image or than the second
    observer's keypoints, call for quite another region, or lie on somebody else; or nobody is seen. All, where nothing
    can be compared."""
    output = first.output
    if output.landmarks_2d is None or output.landmark_visibility is None or output.skeleton is None:
        return np.ones(len(first.crops), bool)
    points, shown = (to_numpy(each) for each in (output.landmarks_2d, output.landmark_visibility))
    marks = None if output.keypoints is None else to_numpy(output.keypoints)
    if first.flipped is None or first.flipped.landmarks_2d is None:
        there = None
    else:
        there = _mirrored(to_numpy(first.flipped.landmarks_2d), output.skeleton, encoder)
    if there is None and marks is None:
        return np.ones(len(first.crops), bool)
    doubt = mistaken(first, encoder)
    if output.person is not None:
        doubt |= to_numpy(output.person) < PERSON
    limbs, same = (list(output.skeleton.indices(*names)) for names in (LIMB_12, COCO_17.joints))
    for row, (crop, landmarks) in enumerate(zip(first.crops, points, strict=True)):
        places = to_picture(encoder, crop.region, landmarks)
        inside = np.asarray(((places >= 0) & (places <= crop.picture.size)).all(-1))  # elsewhere both only guess
        if there is not None:
            gap = _gap(landmarks[limbs], there[row, limbs], (shown[row, limbs] + HARDLY) * inside[limbs])
            doubt[row] |= gap > APART * encoder.size[0]
        if marks is not None:
            gap = _gap(landmarks[same], marks[row, :, :2], (marks[row, :, 2] + HARDLY) * inside[same])
            doubt[row] |= gap > APART * encoder.size[0]
        way, grown, turned = _change(crop.region, next_region(places, crop.region, output.skeleton))
        doubt[row] |= way > MOVED or grown > GROWN or turned > SWUNG or crop.detection.has_few_keypoints
    return doubt


def _gap(a: Float[np.ndarray, "J 2"], b: Float[np.ndarray, "J 2"], weight: Float[np.ndarray, " J"]) -> float:
    """Weighted mean distance; infinite where nothing counts."""
    total = float(weight.sum())
    return float((np.linalg.norm(a - b, axis=-1) * weight).sum()) / total if total else np.inf


def _change(before: Roi, after: Roi) -> tuple[float, float, float]:
    """How far a region moved, over its side; how much it grew or shrank (log); and by how much it turned."""
    way = float(np.hypot(after.centre[0] - before.centre[0], after.centre[1] - before.centre[1]))
    turn = abs(float(np.angle(np.exp(1j * (after.angle - before.angle)))))
    return way / before.side, abs(float(np.log(after.side / before.side))), turn


def _mirrored(points: np.ndarray, skeleton: Skeleton, encoder: Encoder) -> np.ndarray:
    """Landmarks of mirror images, in the pixels of the crops."""
    back: np.ndarray = (points * (-1, 1) + (encoder.size[0], 0))[..., list(skeleton.mirror_order), :]
    return back


def _settled(seen: EncodedCrops, of: Sequence[int], encoder: Encoder) -> list[int]:
    """The people of a round of looks whom it does show."""
    return [row for row, wrong in zip(of, mistaken(seen, encoder), strict=True) if not wrong]


def mistaken(seen: EncodedCrops, encoder: Encoder, flipped: bool = False) -> Bool[np.ndarray, " B"]:
    """Which crops' landmarks lie on somebody else than the detection is of: off its keypoints, where it has any, else
    with head and shoulders outside of its box. `flipped`: by the landmarks of the mirror images."""
    output = seen.flipped if flipped else seen.output
    if output is None or output.landmarks_2d is None or output.skeleton is None:
        return np.zeros(len(seen.crops), bool)
    found = []
    for crop, landmarks in zip(seen.crops, to_numpy(output.landmarks_2d), strict=True):
        if flipped:
            landmarks = _mirrored(landmarks, output.skeleton, encoder)
        found.append(_is_on_another(to_picture(encoder, crop.region, landmarks), output.skeleton, crop.detection))
    return np.array(found, bool)


def _is_on_another(points: Float[np.ndarray, "J 2"], skeleton: Skeleton, detection: Detection) -> bool:
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
    """Number of a crop -> the region that its landmarks call for; not where that would lie on somebody else."""
    if seen.output.landmarks_2d is None or seen.output.skeleton is None:
        return {}
    moved = {}
    points = to_numpy(seen.output.landmarks_2d)
    for row, (crop, landmarks) in enumerate(zip(seen.crops, points, strict=True)):
        before = crop.region
        region = next_region(to_picture(encoder, before, landmarks), before, seen.output.skeleton)
        way, grown, _ = _change(before, region)
        if way < FARTHEST and grown < LARGEST:
            moved[row] = crop.at(region)
    return moved
