"""Where to look next: the region that the landmarks of a look call for, as BlazePose follows people.

Hips in the middle, trunk upright, the whole body inside. Positions in pixels of the upright picture. J landmarks.
"""

import math

import numpy as np
from jaxtyping import Float

from di2pose.image.crop import ROI_MARGIN, Roi
from di2pose.pose.skeleton import BLAZEPOSE_33, Skeleton

CIRCLE = 1.07
"""Radius of BlazePose's circle over the distance of the farthest landmark from the hips; 0.97 to 1.20 on Pose2Sim."""
FLAT_TORSO = 0.15
"""Of the radius: a torso that looks shorter points at the camera and says nothing about the crop's angle."""


def hips_of(points: Float[np.ndarray, "J 2"], skeleton: Skeleton = BLAZEPOSE_33) -> Float[np.ndarray, " 2"]:
    """The point between them."""
    return _between(points, skeleton, "hip")


def body_radius(points: Float[np.ndarray, "J 2"], skeleton: Skeleton = BLAZEPOSE_33) -> float:
    """Of the circle round the hips that holds the body."""
    return CIRCLE * max(1.0, float(np.linalg.norm(points - hips_of(points, skeleton), axis=1).max()))


def trunk_angle(
    points: Float[np.ndarray, "J 2"], radius: float, before: float, skeleton: Skeleton = BLAZEPOSE_33
) -> float:
    """Of the trunk from the vertical, clockwise; as before where the trunk points at the camera."""
    x, y = (_between(points, skeleton, "shoulder") - hips_of(points, skeleton)).tolist()
    return before if math.hypot(x, y) < FLAT_TORSO * radius else math.atan2(x, -y)


def region_round(hips: Float[np.ndarray, " 2"], radius: float, angle: float) -> Roi:
    x, y = hips.tolist()
    return Roi((x, y), 2 * ROI_MARGIN * radius, angle)


def next_region(points: Float[np.ndarray, "J 2"], before: Roi, skeleton: Skeleton = BLAZEPOSE_33) -> Roi:
    """For another look at the body with these landmarks, which were seen in the region `before`."""
    radius = body_radius(points, skeleton)
    return region_round(hips_of(points, skeleton), radius, trunk_angle(points, radius, before.angle, skeleton))


def points_of(region: Roi) -> Float[np.ndarray, "33 2"]:
    """Stand-ins for the landmarks of a body that fills a region, for encoders that have none: `next_region` of them is
    the region again."""
    radius = region.side / (2 * ROI_MARGIN)
    up = np.array([math.sin(region.angle), -math.cos(region.angle)])
    points = np.tile(region.centre + radius / CIRCLE * up, (BLAZEPOSE_33.count, 1))
    points[list(BLAZEPOSE_33.indices("left_hip", "right_hip"))] = region.centre
    points[list(BLAZEPOSE_33.indices("left_shoulder", "right_shoulder"))] = region.centre + radius / 2 * up
    return points


def _between(points: np.ndarray, skeleton: Skeleton, part: str) -> np.ndarray:
    middle: np.ndarray = points[list(skeleton.indices(f"left_{part}", f"right_{part}"))].mean(0)
    return middle
