"""Where to look next: the region that the landmarks of a look call for, as BlazePose follows people.

Hips in the middle, trunk upright, the whole body inside. All positions in pixels of the upright picture.
"""

import math

import numpy as np
from jaxtyping import Float

from di2pose.image.crop import ROI_MARGIN, Roi
from di2pose.pose.skeleton import BLAZEPOSE_33

CIRCLE = 1.07
"""Radius of BlazePose's circle over the distance of the farthest landmark from the hips; 0.97 to 1.20 on Pose2Sim."""
FLAT_TORSO = 0.15
"""Of the radius: a torso that looks shorter points at the camera and says nothing about the crop's angle."""
HIPS, SHOULDERS = (BLAZEPOSE_33.indices(f"left_{part}", f"right_{part}") for part in ("hip", "shoulder"))


def hips_of(points: Float[np.ndarray, "33 2"]) -> Float[np.ndarray, " 2"]:
    """Their middle."""
    middle: np.ndarray = points[list(HIPS)].mean(0)
    return middle


def body_radius(points: Float[np.ndarray, "33 2"]) -> float:
    """Of the circle round the hips that holds the body."""
    return CIRCLE * max(1.0, float(np.linalg.norm(points - hips_of(points), axis=1).max()))


def trunk_angle(points: Float[np.ndarray, "33 2"], radius: float, before: float) -> float:
    """Of the trunk from the vertical, clockwise; as before where the trunk points at the camera."""
    x, y = (points[list(SHOULDERS)].mean(0) - hips_of(points)).tolist()
    return before if math.hypot(x, y) < FLAT_TORSO * radius else math.atan2(x, -y)


def region_round(hips: Float[np.ndarray, " 2"], radius: float, angle: float) -> Roi:
    x, y = hips.tolist()
    return Roi((x, y), 2 * ROI_MARGIN * radius, angle)


def next_region(points: Float[np.ndarray, "33 2"], before: Roi) -> Roi:
    """For another look at the body with these landmarks, which were seen in the region `before`."""
    radius = body_radius(points)
    return region_round(hips_of(points), radius, trunk_angle(points, radius, before.angle))
