"""Regions to crop, from landmarks or keypoints: hips in the middle, trunk upright, the whole body inside.

Positions in pixels of the upright picture.  J landmarks.

Close-ups and cut bodies show no hips. There head and shoulders tell where they would be: BlazePose was trained on such
regions, and gives a quarter of the crops of the visible part alone a low `person`.
"""

import math

import numpy as np
from jaxtyping import Bool, Float

from di2pose.image.boxes import Box
from di2pose.image.crop import ROI_MARGIN, Roi
from di2pose.pose.skeleton import BLAZEPOSE_33, COCO_17, Skeleton

CIRCLE = 1.07
"""Radius of BlazePose's circle over the distance of the farthest landmark from the hips; 0.97 to 1.20 on Pose2Sim."""
FLAT_TORSO = 0.15
"""Of the radius: a torso that appears shorter points at the camera and says nothing about the crop's angle."""
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
"""Necks bend: a body counts as upright unless the head leans by more than this."""
_HIPS, _SHOULDERS, _EYES, _EARS = (
    list(COCO_17.indices(f"left_{part}", f"right_{part}")) for part in ("hip", "shoulder", "eye", "ear")
)
HEAD = [COCO_17.index("nose"), *_EYES, *_EARS]


def hips_of(points: Float[np.ndarray, "J 2"], skeleton: Skeleton = BLAZEPOSE_33) -> Float[np.ndarray, " 2"]:
    """The point between them."""
    return _between(points, skeleton, "hip")


def body_radius(points: Float[np.ndarray, "J 2"], skeleton: Skeleton = BLAZEPOSE_33) -> float:
    """Of the circle round the hips that holds the body."""
    return CIRCLE * max(1.0, float(np.linalg.norm(points - hips_of(points, skeleton), axis=1).max()))


def trunk_angle(
    points: Float[np.ndarray, "J 2"], radius: float, before: float, skeleton: Skeleton = BLAZEPOSE_33
) -> float:
    """Of the trunk from the vertical, clockwise; `before` where the trunk points at the camera."""
    x, y = (_between(points, skeleton, "shoulder") - hips_of(points, skeleton)).tolist()
    return before if math.hypot(x, y) < FLAT_TORSO * radius else math.atan2(x, -y)


def region_round(hips: Float[np.ndarray, " 2"], radius: float, angle: float) -> Roi:
    x, y = hips.tolist()
    return Roi((x, y), 2 * ROI_MARGIN * radius, angle)


def next_region(points: Float[np.ndarray, "J 2"], before: Roi, skeleton: Skeleton = BLAZEPOSE_33) -> Roi:
    """Of the body with these landmarks, which were found in the region `before`."""
    radius = body_radius(points, skeleton)
    return region_round(hips_of(points, skeleton), radius, trunk_angle(points, radius, before.angle, skeleton))


def points_of(region: Roi) -> Float[np.ndarray, "33 2"]:
    """Stand-ins for the landmarks of a body that fills a region, for encoders without landmarks: `next_region` of them
    is the region again."""
    radius = region.side / (2 * ROI_MARGIN)
    up = np.array([math.sin(region.angle), -math.cos(region.angle)])
    points = np.tile(region.centre + radius / CIRCLE * up, (BLAZEPOSE_33.count, 1))
    points[list(BLAZEPOSE_33.indices("left_hip", "right_hip"))] = region.centre
    points[list(BLAZEPOSE_33.indices("left_shoulder", "right_shoulder"))] = region.centre + radius / 2 * up
    return points


def region_of(keypoints: Float[np.ndarray, "17 3"], box: Box) -> Roi | None:
    """Of a person with these COCO keypoints (x, y, score) and box; None where they are too unsure or not in the box."""
    low, high = np.array(box[:2]), np.array(box[2:])
    grown, points = 0.1 * (high - low).max(), keypoints[:, :2]
    sure = (keypoints[:, 2] >= SURE) & ((points >= low - grown) & (points <= high + grown)).all(1)
    trunk = _trunk(points, sure)
    if trunk is None:
        return None
    hips, up = trunk  # up: from the hips to the shoulders
    far = float(np.linalg.norm(points[sure] - hips, axis=1).max())
    x, y = up.tolist()
    reach = REACH if sure[_HIPS].all() else IMPLIED_REACH
    side = max(BODY * math.hypot(x, y), reach * far, 1.0)
    return Roi((float(hips[0]), float(hips[1])), side, math.atan2(x, -y))


def _trunk(
    points: Float[np.ndarray, "17 2"], sure: Bool[np.ndarray, " 17"]
) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, " 2"]] | None:
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


def _between(points: np.ndarray, skeleton: Skeleton, part: str) -> np.ndarray:
    middle: np.ndarray = points[list(skeleton.indices(f"left_{part}", f"right_{part}"))].mean(0)
    return middle


def _apart(points: np.ndarray, pair: list[int]) -> float:
    return float(np.linalg.norm(points[pair[0]] - points[pair[1]]))
