"""Where a person stands: the root's place in the camera frame, and the body's size.  J joints; millimetres, pixels."""

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, bone_lengths

FLESH = 1.15
"""A box round a body over the box round its joints: hands, feet, hair and clothes stick out."""
LEAST_DEPTH_MM = 100.0
"""No joint comes nearer to the camera's plane: what is in a picture is in front of the camera."""
ROUNDS = 15
SOLE = 0.039
"""Height of the ankle over stature (Drillis and Contini, as in Winter's Biomechanics)."""
PILE = (("right_knee", "left_knee"), ("right_ankle", "left_ankle"), ("spine",), ("thorax",), ("nose",), ("head",))
"""The bones that a standing body piles up, by their children; left and right are averaged."""


def place(
    joints_mm: Float[np.ndarray, "J 3"],
    joints_2d: Float[np.ndarray, "J 2"],
    weights: Float[np.ndarray, " J"],
    box: tuple[float, float, float, float],
    camera: Camera,
    box_trust: float = 0.25,
) -> Float[np.ndarray, " 3"]:
    """The root (3,) at which a root-relative pose projects best onto 2D joints and fills the box (x0, y0, x1, y1).

    Starts from the box and takes Gauss-Newton steps on the angles between projections and 2D joints. Their deviation
    is taken from the fit itself (the median), joints beyond it count less (Huber), and the box holds the depth with a
    deviation (log) of `box_trust`: 2D joints that fit decide alone, and where they contradict the pose the box does.
    `weights` 0 to 1, say the joints' visibility; joints that are not finite count 0. Every joint ends up in front of
    the camera.
    """
    rays = camera.unproject_ray(joints_2d)[:, :2]
    usable = np.isfinite(rays).all(-1)
    rays, w = np.where(usable[:, None], rays, 0.0), np.where(usable, weights, 0.0).astype(np.float64)
    joints = joints_mm.astype(np.float64)
    root = place_by_box(joints, box, camera)
    if not w.any():
        return root
    box_depth, least = root[2], _least_depth(joints)
    for _ in range(ROUNDS):
        at = joints + root
        miss = at[:, :2] / at[:, 2:] - rays
        off = np.linalg.norm(miss, axis=-1)
        typical = max(_median(off, w), 1e-9)
        trust = w * np.minimum(1, typical / np.maximum(off, typical)) / typical**2
        slope = _slopes(at)
        pull = np.repeat(trust, 2)[:, None] * slope
        normal, gradient = pull.T @ slope, pull.T @ miss.reshape(-1)
        normal[2, 2] += (box_trust * root[2]) ** -2
        gradient[2] += np.log(root[2] / box_depth) / root[2] / box_trust**2
        step = np.linalg.solve(normal, -gradient)
        step *= min(1.0, 0.5 * root[2] / max(abs(step[2]), 1e-9))  # a depth may halve in a round, not more
        root = root + step
        root[2] = max(root[2], least)
        if np.abs(step).max() < 1e-3:
            break
    return root


def place_by_box(
    joints_mm: Float[np.ndarray, "J 3"], box: tuple[float, float, float, float], camera: Camera
) -> Float[np.ndarray, " 3"]:
    """The root (3,) at which a pose is as large as the box (x0, y0, x1, y1) round it: coarse, without perspective.

    The longer side of the box is FLESH times the longer side of the joints' own box, and their centres are the same.
    """
    low, high = joints_mm[:, :2].min(0), joints_mm[:, :2].max(0)
    corners = camera.unproject_ray(np.array([box[:2], box[2:]]))[:, :2]
    if not np.isfinite(corners).all():
        raise InputError(f"the camera's lens model cannot reach the box {box}: check its distortion")
    depth = FLESH * float((high - low).max()) / float(np.abs(corners[1] - corners[0]).max())
    depth = max(depth, _least_depth(joints_mm))
    return np.array([*(corners.mean(0) * depth - (low + high) / 2), depth])


def stature_mm(joints_mm: Float[np.ndarray, "*B 17 3"]) -> np.ndarray:
    """Standing height (...) of H36M poses: the bones that a standing body piles up, and the height of the ankle.

    Within 1.5 % of the truth for 98 of 100 rendered people.
    """
    lengths = bone_lengths(joints_mm.astype(np.float64), H36M_17)
    column = {H36M_17.joints[child]: bone for bone, (child, _) in enumerate(H36M_17.bones)}
    bones = [lengths[..., [column[name] for name in names]].mean(-1) for names in PILE]
    return np.asarray(np.sum(bones, axis=0) / (1 - SOLE))


def _least_depth(joints_mm: np.ndarray) -> float:
    return LEAST_DEPTH_MM - float(joints_mm[:, 2].min())


def _slopes(at: np.ndarray) -> np.ndarray:
    """(2J, 3) derivative of (x/z, y/z) with respect to the root."""
    x, y, z = at.T
    zero = np.zeros_like(z)
    return np.stack([1 / z, zero, -x / z**2, zero, 1 / z, -y / z**2], axis=-1).reshape(-1, 3)


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    """The weighted median."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)])
