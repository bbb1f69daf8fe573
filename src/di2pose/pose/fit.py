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
    joints_mm: Float[np.ndarray, "J 3"]
    root_mm: Float[np.ndarray, " 3"]
    root_covariance_mm2: Float[np.ndarray, "3 3"]
    """As far as the fit can tell: given the camera and the bones."""
    miss: Float[np.ndarray, " J"]
    """Between where each joint was seen and where the fit has it, over its noise; NaN where it was not seen."""


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
    x, root = mean_mm.astype(np.float64), root_mm.astype(np.float64)
    seen = np.flatnonzero(np.isfinite(evidence.rays).all(-1))
    rays, noise = evidence.rays[seen], evidence.noise[seen]
    normal = np.eye(FREE + 3)
    for _ in range(ROUNDS):
        at = x[seen] + root
        miss = at[:, :2] / at[:, 2:] - rays
        trust = np.minimum(1, HUBER / np.maximum(np.linalg.norm(miss, axis=-1) / noise, 1e-9)) / noise**2
        slope = _projection_slopes(at, seen)
        pull = np.repeat(trust, 2)[:, None] * slope
        normal, gradient = pull.T @ slope, pull.T @ miss.reshape(-1)
        normal[:FREE, :FREE] += precision
        gradient[:FREE] += precision @ (x - mean_mm)[1:].reshape(-1)
        for slope, off, deviation in _ties(x, lengths_mm, pins):
            normal[:FREE, :FREE] += slope.T @ slope / deviation**2
            gradient[:FREE] += slope.T @ off / deviation**2
        loose = (evidence.depth_trust * root[2]) ** -2.0
        normal[range(FREE, FREE + 3), range(FREE, FREE + 3)] += loose
        gradient[FREE:-1] += loose * (root - root_mm)[:2]
        gradient[-1] += np.log(root[2] / evidence.depth_mm) / root[2] / evidence.depth_trust**2
        step = -np.linalg.solve(normal, gradient)
        step *= min(1.0, 0.5 * root[2] / max(abs(step[-1]), 1e-9))  # a depth may halve in a round, not more
        x[1:] += step[:FREE].reshape(-1, 3)
        root = root + step[FREE:]
        root[2] = max(root[2], LEAST_DEPTH_MM - x[:, 2].min())
        if np.abs(step).max() < 0.05:
            break
    x = rebuild(x, lengths_mm) if pins is None else settle(np.where(pins[1][:, None], pins[0], x), lengths_mm, pins[1])
    off = np.full(len(x), np.nan)
    off[seen] = np.linalg.norm((x[seen] + root)[:, :2] / (x[seen] + root)[:, 2:] - rays, axis=-1) / noise
    return FittedPose(x, root, np.linalg.inv(normal)[FREE:, FREE:], off)


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


def _projection_slopes(at: Float[np.ndarray, "n 3"], joints: np.ndarray) -> Float[np.ndarray, "2*n 51"]:
    """Derivative of (x/z, y/z) of some joints with respect to the free coordinates and the root."""
    x, y, z = at.T
    zero = np.zeros_like(z)
    own = np.stack([1 / z, zero, -x / z**2, zero, 1 / z, -y / z**2], axis=-1).reshape(-1, 2, 3)
    slopes = np.zeros((len(joints), 2, FREE + 3))
    slopes[:, :, FREE:] = own
    for row, joint in enumerate(joints.tolist()):
        if joint:
            slopes[row, :, 3 * joint - 3 : 3 * joint] = own[row]
    return slopes.reshape(-1, FREE + 3)


def _ties(
    x: Float[np.ndarray, "J 3"],
    lengths_mm: Float[np.ndarray, " K"],
    pins: tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None,
) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """(slope, how far off, deviation) of the bones' lengths, and of the pinned joints' coordinates."""
    way = x[CHILDREN] - x[PARENTS]
    length = np.linalg.norm(way, axis=-1)
    unit = way / np.maximum(length, 1e-6)[:, None]
    slope = np.zeros((len(way), H36M_17.count, 3))
    bones = np.arange(len(way))
    slope[bones, CHILDREN] = unit
    slope[bones, PARENTS] -= unit
    yield slope[:, 1:].reshape(len(way), FREE), length - lengths_mm, BONE_MM
    if pins is not None:
        held = np.repeat(pins[1], 3)[3:]
        yield np.eye(FREE)[held], (x - pins[0])[1:].reshape(-1)[held], PIN_MM
