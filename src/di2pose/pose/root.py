"""Where a person stands: the root's place in the camera frame, and the body's size.  J joints; millimetres, pixels."""

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, bone_lengths

LEAST_JOINTS = 4.0
"""Sum of the weights below which 2D joints are too few or too unsure to say how far away somebody is."""
LEAST_DEPTH_MM = 100.0
"""No joint comes nearer to the camera's plane: what is in a picture is in front of the camera."""
FLESH = 1.15
"""A box round a body over the box round its joints: hands, feet, hair and clothes stick out."""
ROUNDS = 10
SOLE = 0.039
"""Height of the ankle over stature (Drillis and Contini, as in Winter's Biomechanics)."""
CHAIN = (("right_knee", "left_knee"), ("right_ankle", "left_ankle"), ("spine",), ("thorax",), ("nose",), ("head",))
"""The bones that a standing body piles up, by their lower ends; left and right are averaged."""


def place(
    joints_mm: Float[np.ndarray, "J 3"],
    joints_2d: Float[np.ndarray, "J 2"],
    weights: Float[np.ndarray, " J"],
    camera: Camera,
) -> Float[np.ndarray, " 3"] | None:
    """The root at which a root-relative pose projects best onto 2D joints; None where they cannot tell.

    The linear answer to (x + tx) - u (z + tz) = 0, (y + ty) - v (z + tz) = 0 on the rays (u, v, 1), which weighs far
    joints more, then Gauss-Newton steps on the angles themselves, in which joints that do not fit count less and less
    (Cauchy weights). Weights are 0 to 1, say the visibility of each joint.
    """
    rays = camera.unproject_ray(joints_2d)[:, :2]
    usable = np.isfinite(rays).all(-1) & np.isfinite(joints_mm).all(-1)
    w = np.where(usable, weights, 0.0).astype(np.float64)
    if w.sum() < LEAST_JOINTS:
        return None
    joints, rays = np.where(usable[:, None], joints_mm, 0.0).astype(np.float64), np.where(usable[:, None], rays, 0.0)
    root = _in_front(_solve(joints, rays, w), joints, rays, w)
    for _ in range(ROUNDS):
        at = joints + root
        miss = at[:, :2] / at[:, 2:] - rays
        off = np.linalg.norm(miss, axis=-1)
        trust = w * np.minimum(1, _median(off, w) / np.maximum(off, 1e-12))
        slope = _slopes(at)
        scaled = np.repeat(trust, 2)[:, None] * slope
        step, *_ = np.linalg.lstsq(scaled.T @ slope, -scaled.T @ miss.reshape(-1), rcond=None)
        step *= min(1.0, 0.3 * root[2] / max(abs(step[2]), 1e-12))
        root = _in_front(root + step, joints, rays, w)
        if np.abs(step).max() < 1e-3:
            break
    return root


def place_by_box(
    joints_mm: Float[np.ndarray, "J 3"], box: tuple[float, float, float, float], camera: Camera
) -> Float[np.ndarray, " 3"]:
    """The root at which a pose is as large as a box (x0, y0, x1, y1) round it: a coarse answer, perspective left out.

    The longer side of the box is FLESH times the longer side of the joints' own box, and their centres are the same.
    """
    low, high = joints_mm[:, :2].min(0), joints_mm[:, :2].max(0)
    ends = camera.unproject_ray(np.array([box[:2], box[2:]]))
    if not np.isfinite(ends).all():
        raise InputError(f"the camera's lens model cannot reach the box {box}: check its distortion")
    across = float(np.abs(ends[1] - ends[0]).max())
    depth = FLESH * float((high - low).max()) / across
    depth = max(depth, LEAST_DEPTH_MM - float(joints_mm[:, 2].min()))
    centre = ends.mean(0)[:2] * depth - (low + high) / 2
    return np.array([*centre, depth])


def stature_mm(joints_mm: Float[np.ndarray, "*B 17 3"]) -> Float[np.ndarray, "*B"]:
    """The standing height of H36M poses, from the bones that a standing body piles up and the height of the ankle."""
    lengths = bone_lengths(joints_mm.astype(np.float64), H36M_17)
    column = {H36M_17.joints[child]: bone for bone, (child, _) in enumerate(H36M_17.bones)}
    pile = sum(lengths[..., [column[name] for name in names]].mean(-1) for names in CHAIN)
    return np.asarray(pile / (1 - SOLE))


def _solve(joints: np.ndarray, rays: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The linear least-squares root."""
    one, zero = np.ones(len(joints)), np.zeros(len(joints))
    u, v = rays.T
    x, y, z = joints.T
    rows = np.stack([one, zero, -u, zero, one, -v], axis=-1).reshape(-1, 3)
    goal = np.stack([u * z - x, v * z - y], axis=-1).reshape(-1)
    w = np.sqrt(np.repeat(weights, 2))
    root: np.ndarray = np.linalg.lstsq(w[:, None] * rows, w * goal, rcond=None)[0]
    return root


def _in_front(root: np.ndarray, joints: np.ndarray, rays: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The root, or where it would put a joint behind the camera, the nearest depth that does not."""
    nearest = LEAST_DEPTH_MM - float(joints[:, 2].min())
    if root[2] >= nearest:
        return root
    offset = rays * (joints[:, 2:] + nearest) - joints[:, :2]
    return np.array([*np.average(offset, axis=0, weights=weights), nearest])


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
