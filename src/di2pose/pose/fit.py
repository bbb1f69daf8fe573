"""One pose out of several hypotheses: bones kept, fitted to what was seen of it in the picture.  J = 17, K = 16 bones.

Minimised over the joints x (relative to the pelvis) and the place of the root r, by Gauss-Newton:

    (x - mean)' P (x - mean)                 P the inverse of the hypotheses' shrunken covariance
    + sum_j huber(|project(x_j + r) - seen_j| / noise_j)
    + sum_k ((|bone_k(x)| - length_k) / BONE_MM)^2
    + sum_pinned |x_j - pin_j|^2 / PIN_MM^2
    + (log r_z - log depth)^2 / depth_trust^2            what the box tells of the distance, and as loosely of x and y

Angles are used in place of pixels (x / z, y / z), so that any lens model serves.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from di2pose.pose.bones import rebuild, settle
from di2pose.pose.skeleton import H36M_17

BONE_MM, PIN_MM = 5.0, 2.0
"""Deviations with which bones keep their lengths and pinned joints their places while all is fitted."""
HUBER = 1.5
"""Deviations of a 2D joint's noise from which on it counts less."""
LEAST_DEPTH_MM = 100.0
"""No joint comes nearer to the camera's plane: what is in a picture is in front of the camera."""
ROUNDS = 12
SHRINKAGE = 0.5
"""How much of the correlations between the hypotheses' coordinates is not believed."""
FLOOR_MM = 20.0
"""What hypotheses that agree are still off by, along an axis."""
FREE = 3 * (H36M_17.count - 1)
"""Coordinates of a pose whose pelvis is at 0, as H36M_17 has it first."""
CHILDREN, PARENTS = np.array(H36M_17.bones).T


@dataclass(frozen=True)
class Evidence:
    """What a picture tells of one person."""

    rays: Float[np.ndarray, "J 2"]
    """x / z and y / z of where each joint was seen; NaN where it was not."""
    noise: Float[np.ndarray, " J"]
    """Standard deviation of the rays."""
    depth_mm: float
    """Of the pelvis, by the size of the box; with a deviation of `depth_trust` (log)."""
    depth_trust: float


@dataclass(frozen=True)
class FittedPose:
    """Of one pose, or of a batch of them."""

    joints_mm: Float[np.ndarray, "*B J 3"]
    root_mm: Float[np.ndarray, "*B 3"]
    root_covariance_mm2: Float[np.ndarray, "*B 3 3"]
    """As far as the fit can tell: given the camera and the bones."""
    miss: Float[np.ndarray, "*B J"]
    """Between where each joint was seen and where the fit has it, over its noise; NaN where it was not seen."""

    def __getitem__(self, row: int) -> "FittedPose":
        return FittedPose(self.joints_mm[row], self.root_mm[row], self.root_covariance_mm2[row], self.miss[row])


def fit_pose(
    mean_mm: Float[np.ndarray, "J 3"],
    precision: Float[np.ndarray, "48 48"],
    lengths_mm: Float[np.ndarray, " K"],
    evidence: Evidence,
    root_mm: Float[np.ndarray, " 3"],
    pins: tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None = None,
) -> FittedPose:
    """The likeliest pose and place; `root_mm` is where the search begins. Bones have their lengths, unless
    pinned joints contradict them: those are exactly at their pins."""
    return fit_poses(mean_mm[None], precision, lengths_mm, evidence, root_mm, pins)[0]


def fit_poses(
    means_mm: Float[np.ndarray, "B J 3"],
    precision: Float[np.ndarray, "48 48"],
    lengths_mm: Float[np.ndarray, " K"],
    evidence: Evidence,
    root_mm: Float[np.ndarray, " 3"],
    pins: tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None = None,
) -> FittedPose:
    """`fit_pose` from several means, all of one person in one picture."""
    x = means_mm.astype(np.float64)
    root = np.broadcast_to(root_mm, (len(x), 3)).astype(np.float64)
    seen = np.flatnonzero(np.isfinite(evidence.rays).all(-1))
    rays, noise = evidence.rays[seen], evidence.noise[seen]
    place = np.arange(FREE, FREE + 3)
    normal = np.eye(FREE + 3)[None].repeat(len(x), 0)
    for _ in range(ROUNDS):
        at = x[:, seen] + root[:, None]
        miss = at[..., :2] / at[..., 2:] - rays
        trust = np.minimum(1, HUBER / np.maximum(np.linalg.norm(miss, axis=-1) / noise, 1e-9)) / noise**2
        slope = _projection_slopes(at, seen)
        pull = (np.repeat(trust, 2, axis=-1)[..., None] * slope).mT
        normal, gradient = pull @ slope, (pull @ miss.reshape(len(x), -1, 1))[..., 0]
        normal[:, :FREE, :FREE] += precision
        gradient[:, :FREE] += (x - means_mm)[:, 1:].reshape(len(x), -1) @ precision
        for slope, off, deviation in _ties(x, lengths_mm, pins):
            normal[:, :FREE, :FREE] += slope.mT @ slope / deviation**2
            gradient[:, :FREE] += (slope.mT @ off[..., None])[..., 0] / deviation**2
        depth = root[:, 2:]
        loose = (evidence.depth_trust * depth) ** -2.0
        normal[:, place, place] += loose
        gradient[:, FREE:-1] += loose * (root - root_mm)[:, :2]
        gradient[:, -1:] += np.log(depth / evidence.depth_mm) / depth / evidence.depth_trust**2
        step = -np.linalg.solve(normal, gradient[..., None])[..., 0]
        step *= np.minimum(1.0, 0.5 * depth / np.maximum(np.abs(step[:, -1:]), 1e-9))  # a depth halves at most
        x[:, 1:] += step[:, :FREE].reshape(len(x), -1, 3)
        root = root + step[:, FREE:]
        root[:, 2] = np.maximum(root[:, 2], LEAST_DEPTH_MM - x[..., 2].min(1))
        if np.abs(step).max() < 0.05:
            break
    if pins is None:
        x = rebuild(x, lengths_mm)
    else:
        x = np.stack([settle(np.where(pins[1][:, None], pins[0], each), lengths_mm, pins[1]) for each in x])
    at = x[:, seen] + root[:, None]
    off = np.full(x.shape[:2], np.nan)
    off[:, seen] = np.linalg.norm(at[..., :2] / at[..., 2:] - rays, axis=-1) / noise
    return FittedPose(x, root, np.linalg.inv(normal)[:, FREE:, FREE:], off)


def shrunken_precision(
    samples_mm: Float[np.ndarray, "H J 3"], single_mm2: Float[np.ndarray, " J"]
) -> Float[np.ndarray, "48 48"]:
    """The inverse of what the truth varies by, as far as few hypotheses tell: their covariance with its correlations
    halved, and FLOOR_MM along every axis. `single_mm2`: each joint's variance, which stands in for that of a single
    hypothesis."""
    free = samples_mm[:, 1:].reshape(len(samples_mm), -1).astype(np.float64)
    if len(free) > 1:
        offset = free - free.mean(0)
        own = offset.T @ offset / (len(free) - 1)
    else:
        own = np.diag(np.repeat(single_mm2[1:], 3))
    total = (1 - SHRINKAGE) * own + np.diag(SHRINKAGE * np.diag(own) + FLOOR_MM**2)
    return np.linalg.inv(total)


def _projection_slopes(at: Float[np.ndarray, "B n 3"], joints: np.ndarray) -> Float[np.ndarray, "B 2*n 51"]:
    """Derivative of (x/z, y/z) of some joints with respect to the free coordinates and the root."""
    x, y, z = np.moveaxis(at, -1, 0)
    zero = np.zeros_like(z)
    own = np.stack([1 / z, zero, -x / z**2, zero, 1 / z, -y / z**2], axis=-1).reshape(*z.shape, 2, 3)
    slopes = np.zeros((*z.shape, 2, FREE + 3))
    slopes[..., FREE:] = own
    for row, joint in enumerate(joints.tolist()):
        if joint:
            slopes[:, row, :, 3 * joint - 3 : 3 * joint] = own[:, row]
    return slopes.reshape(len(at), -1, FREE + 3)


def _ties(
    x: Float[np.ndarray, "B J 3"],
    lengths_mm: Float[np.ndarray, " K"],
    pins: tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None,
) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """(slope, how far off, deviation) of the bones' lengths, and of the pinned joints' coordinates."""
    way = x[:, CHILDREN] - x[:, PARENTS]
    length = np.linalg.norm(way, axis=-1)
    unit = way / np.maximum(length, 1e-6)[..., None]
    slope = np.zeros((len(x), len(CHILDREN), H36M_17.count, 3))
    bones = np.arange(len(CHILDREN))
    slope[:, bones, CHILDREN] = unit
    slope[:, bones, PARENTS] -= unit
    yield slope[:, :, 1:].reshape(len(x), len(CHILDREN), FREE), length - lengths_mm, BONE_MM
    if pins is not None:
        held = np.repeat(pins[1], 3)[3:]
        off = (x - pins[0])[:, 1:].reshape(len(x), -1)[:, held]
        yield np.broadcast_to(np.eye(FREE)[held], (len(x), int(held.sum()), FREE)), off, PIN_MM
