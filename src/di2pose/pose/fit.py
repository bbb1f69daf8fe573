"""One pose out of several hypotheses: bones kept, fitted to what was seen of it in the picture.  J = 17, K = 16 bones.

Minimised over the joints x (relative to the pelvis) and the place of the root r, by Gauss-Newton:

    (x - mean)' P (x - mean)                 P the inverse of the hypotheses' shrunken covariance
    + sum_j huber(|project(x_j + r) - seen_j| / noise_j)
    + sum_k ((|bone_k(x)| - length_k) / BONE_MM)^2
    + sum_pinned |x_j - pin_j|^2 / PIN_MM^2
    + (log r_z - log depth)^2 / depth_trust^2            what the box tells of the distance, and as loosely of x and y

Angles are used in place of pixels (x / z, y / z), so that any lens model serves. A pose with joints nearer or farther
apart than a body's can be is then moved to the next one without, mostly to where this leaves it open.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from di2pose.pose.bones import rebuild, settle
from di2pose.pose.joint_pairs import impossible, make_possible
from di2pose.pose.skeleton import H36M_17

BONE_MM, PIN_MM = 5.0, 2.0
"""Deviations with which bones keep their lengths and pinned joints their places while all is fitted."""
HUBER = 1.5
"""Deviations of a 2D joint's noise from which on it counts less."""
LEAST_DEPTH_MM = 100.0
"""No joint comes nearer to the camera's plane: what is in a picture is in front of the camera."""
ROUNDS = 12
ENOUGH_MM = 0.05
"""A pose that no coordinate moves by more has settled."""
SHRINKAGE = 0.5
"""How much of the correlations between the hypotheses' coordinates is not believed."""
FLOOR_MM = 20.0
"""What hypotheses that agree are still off by, along an axis."""
FREE = 3 * (H36M_17.count - 1)
"""Coordinates of a pose whose pelvis is at 0, as H36M_17 has it first."""
CHILDREN, PARENTS = np.array(H36M_17.bones).T
HUNG = np.flatnonzero(PARENTS > 0)
"""The bones that hang on another joint than the pelvis."""


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
    """The likeliest pose and place; `root_mm` is where the search begins. Bones have their lengths and all pairs of
    joints distances that a body can have, unless pinned joints contradict them: those are exactly at their pins."""
    return fit_poses(mean_mm[None], precision, lengths_mm, evidence, root_mm, pins)[0]


def fit_poses(
    means_mm: Float[np.ndarray, "B J 3"],
    precision: Float[np.ndarray, "48 48"],
    lengths_mm: Float[np.ndarray, " K"],
    evidence: Evidence,
    root_mm: Float[np.ndarray, " 3"],
    pins: tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None = None,
) -> FittedPose:
    """`fit_pose` from several means, all of one person in one picture. Each is fitted as if it were alone."""
    x = means_mm.astype(np.float64)
    root = np.broadcast_to(root_mm, (len(x), 3)).astype(np.float64)
    terms = _Terms(lengths_mm, evidence, root_mm, pins)
    seen, rays, noise = terms.seen, terms.rays, terms.noise
    normal = np.eye(FREE + 3)[None].repeat(len(x), 0)
    moving = np.arange(len(x))
    for _ in range(ROUNDS):
        now, place = x[moving], root[moving]
        slope, miss = terms(now, place)
        step = slope.mT @ slope
        step[:, :FREE, :FREE] += precision
        gradient = (slope.mT @ miss[..., None])[..., 0]
        gradient[:, :FREE] += (now - means_mm[moving])[:, 1:].reshape(len(now), -1) @ precision
        normal[moving] = step
        step = -np.linalg.solve(step, gradient[..., None])[..., 0]
        step *= np.minimum(1.0, 0.5 * place[:, 2:] / np.maximum(np.abs(step[:, -1:]), 1e-9))  # a depth halves at most
        now[:, 1:] += step[:, :FREE].reshape(len(now), -1, 3)
        place += step[:, FREE:]
        place[:, 2] = np.maximum(place[:, 2], LEAST_DEPTH_MM - now[..., 2].min(1))
        x[moving], root[moving] = now, place
        moving = moving[np.abs(step).max(1) >= ENOUGH_MM]
        if not len(moving):
            break
    if pins is None:
        x = rebuild(x, lengths_mm)
    else:
        x = np.stack([settle(np.where(pins[1][:, None], pins[0], each), lengths_mm, pins[1]) for each in x])
    for row in np.flatnonzero(impossible(x, lengths_mm)):
        spread_mm2 = np.linalg.inv(normal[row])[:FREE, :FREE]
        x[row] = make_possible(x[row], lengths_mm, None if pins is None else pins[1], spread_mm2)
    at = x[:, seen] + root[:, None]
    off = np.full(x.shape[:2], np.nan)
    off[:, seen] = np.linalg.norm(at[..., :2] / at[..., 2:] - rays, axis=-1) / noise
    corner = np.linalg.solve(normal, np.eye(FREE + 3)[:, FREE:])[:, FREE:]
    return FittedPose(x, root, corner, off)


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


class _Terms:
    """All that is minimised but the prior, as rows: how far off each is, in deviations, and its slopes. Most slopes are
    0, so the places of the others are known once: a row of numbers is spread over them."""

    def __init__(
        self,
        lengths_mm: Float[np.ndarray, " K"],
        evidence: Evidence,
        begin_mm: Float[np.ndarray, " 3"],
        pins: tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None,
    ) -> None:
        self.lengths_mm, self.evidence, self.begin_mm, self.pins = lengths_mm, evidence, begin_mm, pins
        self.seen = np.flatnonzero(np.isfinite(evidence.rays).all(-1))
        self.rays, self.noise = evidence.rays[self.seen], evidence.noise[self.seen]
        self.free = np.flatnonzero(self.seen > 0)  # the pelvis moves with the root alone
        self.held = np.zeros(0, int) if pins is None else np.flatnonzero(pins[1][1:]) + 1
        count, bones = len(self.seen), len(CHILDREN)
        across, down = np.arange(count), np.arange(count, 2 * count)
        bone = 2 * count + np.arange(bones).repeat(3)
        pin = 2 * count + bones + np.arange(3 * len(self.held))
        self.rows = 2 * count + bones + len(pin) + 3
        joint, xyz = 3 * self.seen[self.free] - 3, np.arange(3)
        places = [
            *((across[self.free], joint), (across[self.free], joint + 2)),
            *((down[self.free], joint + 1), (down[self.free], joint + 2)),
            *((across, FREE), (across, FREE + 2), (down, FREE + 1), (down, FREE + 2)),
            (bone, (3 * CHILDREN[:, None] - 3 + xyz).ravel()),
            (bone.reshape(-1, 3)[HUNG].ravel(), (3 * PARENTS[HUNG, None] - 3 + xyz).ravel()),
            (pin, (3 * self.held[:, None] - 3 + xyz).ravel()),
            (self.rows - 3 + xyz, FREE + xyz),
        ]
        self.places = np.concatenate([row * (FREE + 3) + column for row, column in places])

    def __call__(
        self, x: Float[np.ndarray, "B J 3"], root: Float[np.ndarray, "B 3"]
    ) -> tuple[Float[np.ndarray, "B R 51"], Float[np.ndarray, "B R"]]:
        at = x[:, self.seen] + root[:, None]
        p, q = at[..., 0] / at[..., 2], at[..., 1] / at[..., 2]
        right, below = p - self.rays[:, 0], q - self.rays[:, 1]
        far = np.hypot(right, below) / self.noise
        trust = np.sqrt(np.minimum(1, HUBER / np.maximum(far, 1e-9))) / self.noise
        pull = trust / at[..., 2]  # of (x/z, y/z) the derivative is ((1, 0, -p), (0, 1, -q)) / z
        own = [pull, -p * pull, pull, -q * pull]
        way = x[:, CHILDREN] - x[:, PARENTS]
        length = np.sqrt((way * way).sum(-1))
        unit = way / (BONE_MM * np.maximum(length, 1e-6))[..., None]
        depth = root[:, 2]
        loose = 1 / (self.evidence.depth_trust * depth[:, None])
        values = [
            *(each[:, self.free] for each in own),
            *own,
            unit.reshape(len(x), -1),
            -unit[:, HUNG].reshape(len(x), -1),
            np.full((len(x), 3 * len(self.held)), 1 / PIN_MM),
            loose.repeat(3, 1),
        ]
        slope = np.zeros((len(x), self.rows * (FREE + 3)))
        slope[:, self.places] = np.concatenate(values, axis=1)
        told = np.log(depth / self.evidence.depth_mm) / self.evidence.depth_trust
        off = [trust * right, trust * below, (length - self.lengths_mm) / BONE_MM]
        if self.pins is not None:
            off.append((x - self.pins[0])[:, self.held].reshape(len(x), -1) / PIN_MM)
        off += [loose * (root - self.begin_mm)[:, :2], told[:, None]]
        return slope.reshape(len(x), self.rows, -1), np.concatenate(off, axis=1)
