"""The first region to look at, from 17 COCO keypoints: hips in the middle, trunk upright, the whole body inside.

Close-ups and cut bodies show no hips. There head and shoulders say where they would be: the landmark network was
trained on such regions, and takes a crop of the visible part alone for nobody in a quarter of the cases.
"""

import math

import numpy as np
from jaxtyping import Float

from di2pose.image.boxes import Box
from di2pose.image.crop import Roi
from di2pose.pose.skeleton import COCO_17

SURE = 0.15
"""Least score of a keypoint that is relied on."""
BODY, REACH, IMPLIED_REACH = 4.0, 2.9, 2.6
"""A region's side: at least so many trunks (hips to shoulders), and so many times the way from the hips to the farthest
keypoint; less where the hips are not seen."""
TRUNK_OVER_SHOULDERS, TRUNK_OVER_NECK, TRUNK_OVER_HEAD, NECK_OVER_HEAD = 1.35, 1.9, 3.3, 1.7
"""Of adults: the trunk's length over the shoulders' width, over the way from the head's middle to the shoulders, and
over the head's width from ear to ear; the way from head to shoulders over that width."""
EARS_OVER_EYES = 2.3
LEANING = math.radians(45)
"""Necks bend: a body is taken for upright unless the head leans by more than this."""
_HIPS, _SHOULDERS, _EYES, _EARS = (
    list(COCO_17.indices(f"left_{part}", f"right_{part}")) for part in ("hip", "shoulder", "eye", "ear")
)
HEAD = [COCO_17.index("nose"), *_EYES, *_EARS]


def region_of(keypoints: Float[np.ndarray, "17 3"], box: Box) -> Roi | None:
    """For a person with these keypoints (x, y, score) and box; None where they are too unsure or not of the box."""
    sure = (keypoints[:, 2] >= SURE) & _near(keypoints[:, :2], box)
    trunk = _trunk(keypoints[:, :2], sure)
    if trunk is None:
        return None
    hips, up = trunk  # up: from the hips to the shoulders
    far = float(np.linalg.norm(keypoints[sure, :2] - hips, axis=1).max())
    x, y = up.tolist()
    reach = REACH if sure[_HIPS].all() else IMPLIED_REACH
    side = max(BODY * math.hypot(x, y), reach * far, 1.0)
    return Roi((float(hips[0]), float(hips[1])), side, math.atan2(x, -y))


def _trunk(points: np.ndarray, sure: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The point between the hips, and the way from there to the shoulders; seen, or as head and shoulders imply."""
    shoulders = points[_SHOULDERS].mean(0)
    if sure[_HIPS + _SHOULDERS].all():
        hips = points[_HIPS].mean(0)
        return hips, shoulders - hips
    if not sure[HEAD].any():
        return None
    head = points[HEAD][sure[HEAD]].mean(0)
    up = np.array([0.0, -1.0])
    if sure[_SHOULDERS].all():
        neck = head - shoulders
        length = max(TRUNK_OVER_SHOULDERS * _apart(points, _SHOULDERS), TRUNK_OVER_NECK * float(np.linalg.norm(neck)))
        if abs(math.atan2(neck[0], -neck[1])) > LEANING:
            up = neck / np.linalg.norm(neck)
    else:
        wide = _apart(points, _EARS) if sure[_EARS].all() else 0.0
        wide = max(wide, EARS_OVER_EYES * _apart(points, _EYES) if sure[_EYES].all() else 0.0)
        shoulders, length = head - NECK_OVER_HEAD * wide * up, TRUNK_OVER_HEAD * wide
    return (shoulders - length * up, length * up) if length > 1 else None


def _near(points: np.ndarray, box: Box) -> np.ndarray:
    """Which points lie in a box, or beside it by a tenth of its longer side at most."""
    low, high = np.array(box[:2]), np.array(box[2:])
    grown = 0.1 * (high - low).max()
    near: np.ndarray = ((points >= low - grown) & (points <= high + grown)).all(1)
    return near


def _apart(points: np.ndarray, pair: list[int]) -> float:
    return float(np.linalg.norm(points[pair[0]] - points[pair[1]]))
