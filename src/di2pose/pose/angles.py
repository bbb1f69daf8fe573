"""Joint angles of a pose in degrees; all are 0 for a person who stands upright with hanging arms.

Human3.6M's joints in camera axes (x right, y down, z away); ankles only with heels and toes (H36M_21). docs/guide.md
shows every angle in a picture. An angle that the pose leaves open (a thigh along the hips' own axis has no flexion) is
NaN.

A ball joint has two angles. Hip: flexion about the axis of the hips, then abduction, as the International Society of
Biomechanics defines it (Grood and Suntay's order). Shoulder, neck and trunk, where that order is singular in ordinary
poses (an arm held out sideways would have no flexion): the swing from the rest direction as a rotation vector, singular
only where the bone points against its rest direction.
"""

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17, H36M_21, Skeleton, convert

SIDES = ("left", "right")
PAIRED = ("knee_flexion", "hip_flexion", "hip_abduction", "elbow_flexion", "shoulder_elevation", "shoulder_flexion",
          "shoulder_abduction")  # fmt: skip
"""Angles of both sides."""
SINGLE = ("trunk_lean", "trunk_forward_lean", "trunk_side_lean", "trunk_rotation", "neck_flexion")
NAMES = (*(f"{side}_{name}" for name in PAIRED for side in SIDES), *SINGLE)
DIFFERENCE = "_difference"
DIFFERENCES = tuple(f"{name}{DIFFERENCE}" for name in PAIRED)
"""Left minus right."""
ANKLE = "ankle_flexion"
ANKLES = tuple(f"{side}_{ANKLE}" for side in SIDES)
"""Angles that need heels and toes."""
ALL = (*ANKLES, *NAMES, f"{ANKLE}{DIFFERENCE}", *DIFFERENCES)
UNSIGNED = ("knee_flexion", "elbow_flexion", "shoulder_elevation", "trunk_lean")
"""From 0 to 180."""
SHORTEST = 0.2
"""Sine of the least angle to an axis (11.5 degrees) for which a direction about that axis is defined."""
UP = np.array([0.0, -1.0, 0.0])

_HIPS = ("left_hip", "right_hip")
_TRUNK = (*_HIPS, "pelvis", "thorax")
_LIMB = {ANKLE: ("knee", "ankle", "heel", "toe"), "knee_flexion": ("hip", "knee", "knee", "ankle"),
         "elbow_flexion": ("shoulder", "elbow", "elbow", "wrist")}  # fmt: skip
"""From and to of the two lines between which the angle lies."""
_ARM = ("left_shoulder", "right_shoulder", "pelvis", "thorax")


def basis(skeleton: Skeleton) -> Skeleton:
    """The joints that a skeleton's angles are computed from: Human3.6M's, with heels and toes where it has all four."""
    known = convert(np.zeros((skeleton.count, 2)), skeleton, H36M_21)[1]
    return H36M_21 if known[H36M_17.count :].all() else H36M_17


def angle_names(skeleton: Skeleton) -> tuple[str, ...]:
    """Every angle of a skeleton's poses, then the differences."""
    return NAMES + DIFFERENCES if basis(skeleton) == H36M_17 else ALL


def joints_of(name: str) -> tuple[str, ...]:
    """The joints that an angle is computed from."""
    if name not in ALL:
        raise InputError(f"no angle is called '{name}'; there are {', '.join(ALL)}")
    if name.endswith(DIFFERENCE):
        stem = name.removesuffix(DIFFERENCE)
        return tuple(dict.fromkeys(joint for side in SIDES for joint in joints_of(f"{side}_{stem}")))
    side, _, stem = name.partition("_")
    if stem in _LIMB:
        return tuple(dict.fromkeys(f"{side}_{joint}" for joint in _LIMB[stem]))
    if stem.startswith("hip_"):
        return (*(_TRUNK if stem == "hip_flexion" else _HIPS), f"{side}_knee")
    if stem == "shoulder_elevation":
        return (f"{side}_shoulder", f"{side}_elbow", "pelvis", "thorax")
    if stem.startswith("shoulder_"):
        return (*_ARM, f"{side}_elbow")
    return {
        "trunk_lean": ("pelvis", "thorax"),
        "trunk_rotation": (*_TRUNK, "left_shoulder", "right_shoulder"),
        "neck_flexion": (*_ARM, "head"),
    }.get(name, _TRUNK)


def possible(name: str) -> tuple[float, float]:
    """Least and greatest degrees of an angle; infinite where it goes all the way round."""
    stem = name.partition("_")[2] if name.startswith(SIDES) else name
    if stem in UNSIGNED:
        return 0.0, 180.0
    return (-90.0, 90.0) if stem in ("hip_abduction", ANKLE) else (-np.inf, np.inf)


def joint_angles(
    joints_mm: Float[np.ndarray, "*B J 3"], skeleton: Skeleton = H36M_17
) -> dict[str, Float[np.ndarray, "*B"]]:
    """Every angle of NAMES, in H36M_21 also ANKLES; NaN where a joint is unknown or the pose leaves it open."""
    shape = joints_mm.shape[:-2]
    points = joints_mm.reshape(-1, skeleton.count, 3).astype(np.float64)
    at = dict(zip(skeleton.joints, np.moveaxis(points, 1, 0), strict=True))
    found: dict[str, np.ndarray] = {}
    trunk = _unit(at["thorax"] - at["pelvis"])
    hips = _unit(at["left_hip"] - at["right_hip"])
    shoulders = _unit(at["left_shoulder"] - at["right_shoulder"])
    pelvis_up, chest_left = _across(trunk, hips), _across(shoulders, trunk)
    pelvis_front, chest_front = np.cross(hips, pelvis_up), np.cross(chest_left, trunk)
    for side, sign in zip(SIDES, (1.0, -1.0), strict=True):
        for name, ends in _LIMB.items():
            if f"{side}_{ends[-1]}" in at:
                a, b, c, d = (at[f"{side}_{end}"] for end in ends)
                found[f"{side}_{name}"] = _between(_unit(b - a), _unit(d - c)) - 90 * (name == ANKLE)
        thigh = _unit(at[f"{side}_knee"] - at[f"{side}_hip"])
        flexion = np.arctan2(_dot(thigh, pelvis_front), -_dot(thigh, pelvis_up))
        beside = _dot(thigh, sign * hips)
        found[f"{side}_hip_flexion"] = np.degrees(np.where(1 - beside**2 >= SHORTEST**2, flexion, np.nan))
        found[f"{side}_hip_abduction"] = np.degrees(np.arcsin(np.clip(beside, -1, 1)))
        arm = _unit(at[f"{side}_elbow"] - at[f"{side}_shoulder"])
        elevation, forwards, outwards = _swing(arm, -trunk, chest_front, sign * chest_left)
        found[f"{side}_shoulder_elevation"] = elevation
        found[f"{side}_shoulder_flexion"], found[f"{side}_shoulder_abduction"] = forwards, outwards
    level_left = _across(hips, UP)  # where the hips point, seen from above
    lean = _swing(trunk, UP, np.cross(level_left, UP), level_left)
    found["trunk_lean"], found["trunk_forward_lean"], found["trunk_side_lean"] = lean
    # Right-handed about the trunk: to the left is positive.
    hips_left = _across(hips, trunk)
    turned = np.arctan2(_dot(np.cross(hips_left, chest_left), trunk), _dot(hips_left, chest_left))
    found["trunk_rotation"] = np.degrees(turned)
    found["neck_flexion"] = _swing(_unit(at["head"] - at["thorax"]), trunk, chest_front, chest_left)[1]
    return {name: found[name].reshape(shape) for name in ANKLES + NAMES if name in found}


def with_differences(angles: dict[str, Float[np.ndarray, "*B"]]) -> dict[str, Float[np.ndarray, "*B"]]:
    """The angles, and of every angle of both sides the left one minus the right one, -180 to 180."""
    both = [name for name in (ANKLE, *PAIRED) if f"left_{name}" in angles]
    off = {name: np.asarray(angles[f"left_{name}"] - angles[f"right_{name}"]) for name in both}
    return angles | {f"{name}{DIFFERENCE}": wrapped(value) for name, value in off.items()}


def wrapped(degrees: Float[np.ndarray, "*B"]) -> Float[np.ndarray, "*B"]:
    """The same direction, from -180 up to 180."""
    return np.asarray((degrees + 180) % 360 - 180)


def _swing(
    bone: np.ndarray, rest: np.ndarray, front: np.ndarray, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Angle of a direction from `rest`, and its parts towards `front` and `out` (unit vectors across `rest`)."""
    angle = _between(bone, rest)
    forwards, outwards = _dot(bone, front), _dot(bone, out)
    reach = np.hypot(forwards, outwards)
    open_ = (reach < SHORTEST) & (angle > 90)  # against rest: no plane of the swing
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(open_, np.nan, np.where(reach < 1e-9, 0.0, angle / reach))
    return angle, share * forwards, share * outwards


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("...i,...i->...", a, b)


def _between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Degrees between unit vectors, exact for small ones, too."""
    return np.degrees(2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1)))


def _unit(vector: np.ndarray) -> np.ndarray:
    """Of length 1; NaN where there is no length."""
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    return vector / np.where(length > 1e-6, length, np.nan)


def _across(vector: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """The part of a unit vector across the unit vector `axis`, of length 1; NaN where they are nearly parallel."""
    rest = vector - _dot(vector, axis)[..., None] * axis
    length = np.linalg.norm(rest, axis=-1, keepdims=True)
    return rest / np.where(length >= SHORTEST, length, np.nan)
