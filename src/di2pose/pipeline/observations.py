"""Where the people of some crops were seen, by every observer: what a body is fitted to.  B crops."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from di2pose.arrays import to_numpy
from di2pose.image.boxes import Box
from di2pose.image.detect import SURE_KEYPOINT
from di2pose.image.encoder import Encoder, to_picture
from di2pose.pipeline.crops import EncodedCrops, PersonCrop
from di2pose.pipeline.fit import Sighting, View, keypoint_sighting, landmark_noise, seen_joints
from di2pose.pose.skeleton import COCO_17, H36M_17

BORDER = 0.03
"""A box that comes nearer to the picture's border, as a share of its side, is cut by it."""
KEYPOINT_NOISE = 0.7
"""Deviation of a detector's keypoint, which saw the picture at 256 pixels, over that of a landmark of such a crop."""


def views_of(encoded: EncodedCrops, encoder: Encoder) -> list[View]:
    """Where the people were seen: by the encoder and its second observer, in the mean of both looks where the mirror
    images were encoded, too, and by the detector, where it has keypoints. What the user calls hidden was not seen."""
    views = []
    second = _second_sightings(encoded, encoder)
    for row, (crop, (points, weights)) in enumerate(zip(encoded.crops, _limbs(encoded, encoder), strict=True)):
        others = [] if second is None else [_outside(second[row], crop.hidden)]
        if crop.detection.keypoints is not None and not crop.hidden:
            others.append(_keypoints(crop, crop.detection.keypoints))
        box, size = crop.detection.box, crop.picture.size
        views.append(View(crop.camera, box, is_cut(box, size), crop.region.side, points, weights, tuple(others)))
    return views


def _second_sightings(encoded: EncodedCrops, encoder: Encoder) -> list[Sighting] | None:
    """Of each crop: where the second observer sees the joints, picture pixels."""
    looks = [
        to_numpy(each.keypoints)
        for each in (encoded.output, encoded.flipped)
        if each is not None and each.keypoints is not None
    ]
    if not looks:
        return None
    points, scores = seen_joints([(look[..., :2], look[..., 2]) for look in looks], encoder.size[0], COCO_17)
    return [
        keypoint_sighting(to_picture(encoder, crop.region, each), told, crop.region.side)
        for crop, each, told in zip(encoded.crops, points, scores, strict=True)
    ]


def _outside(sighting: Sighting, hidden: Sequence[Box]) -> Sighting:
    """Without what lies in boxes that are not to be looked at."""
    points, noise = sighting
    x, y = points.T
    for x0, y0, x1, y1 in hidden:
        noise = np.where((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1), np.inf, noise)
    return points, noise


def _keypoints(crop: PersonCrop, marks: Float[np.ndarray, "17 3"]) -> Sighting:
    """Where the detector saw the joints, if it is sure, and how far off that may be."""
    sure = np.where(marks[:, 2] >= SURE_KEYPOINT, 1.0, np.nan)  # one that is not spoils what is built from it
    points, _ = seen_joints([(marks[:, :2] + 0 * sure[:, None], np.nan_to_num(sure))], 0.0, COCO_17)
    return points, landmark_noise(max(crop.picture.size)) * KEYPOINT_NOISE


def is_cut(box: Box, size: tuple[int, int]) -> bool:
    """Whether a box reaches a border of the picture."""
    (x0, y0, x1, y1), (width, height) = box, size
    near = BORDER * max(size)
    return x0 <= near or y0 <= near or x1 >= width - near or y1 >= height - near


def _limbs(encoded: EncodedCrops, encoder: Encoder) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each crop: where its landmarks see the joints (`seen_joints`), picture pixels, and their visibility, which is
    0 where there are no landmarks."""
    limbs = np.full((len(encoded.crops), H36M_17.count, 2), np.nan)
    weights = np.zeros(limbs.shape[:-1])
    looks = [
        (to_numpy(look.landmarks_2d), to_numpy(look.landmark_visibility))
        for look in (encoded.output, encoded.flipped)
        if look is not None and look.landmarks_2d is not None and look.landmark_visibility is not None
    ]
    if looks and encoded.output.skeleton is not None:
        limbs, weights = seen_joints(looks, encoder.size[0], encoded.output.skeleton)
    found = []
    for crop, in_crop, shown in zip(encoded.crops, limbs, weights, strict=True):
        points = to_picture(encoder, crop.region, in_crop)
        x, y = points.T
        for x0, y0, x1, y1 in crop.hidden:
            shown = np.where((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1), 0.0, shown)
        found.append((points, shown))
    return found
