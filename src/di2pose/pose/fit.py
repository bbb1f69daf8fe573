"""Poses and roots fitted to 2D joints by Gauss-Newton.  J joints, the root first, F = 3 J - 3, K bones; mm, pixels.

`place` finds the root of a known pose. `fit_poses` minimises over the joints x (relative to the pelvis) and the root r:

    (x - mean)' P (x - mean)                 P the inverse of the hypotheses' shrunken covariance
    + sum_j huber(|project(x_j + r) - seen_j| / noise_j)
    + sum_k ((|bone_k(x)| - length_k) / BONE_MM)^2
    + sum_pinned |x_j - pin_j|^2 / PIN_MM^2
    + (log r_z - log depth)^2 / depth_trust^2            the depth by the box, and as loosely x and y

in angles (x / z, y / z) instead of pixels, so that any lens model serves. A pose that no body can take is then moved to
the next possible one, mostly along what the fit leaves open.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from di2pose.errors import InputError
from di2pose.pose.bones import impossible, make_possible, rebuild
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton

FLESH = 1.15
"""A box round a body over the box round its joints."""
BONE_MM, PIN_MM = 5.0, 2.0
"""Standard deviations of bone lengths and pinned joints during the fit."""
HUBER = 1.5
"""Deviations of a 2D joint from which on it counts less."""
LEAST_DEPTH_MM = 100.0
"""Least distance of a joint from the camera's plane."""
ROUNDS, PLACE_ROUNDS = 12, 15
ENOUGH_MM = 0.05
"""A pose has converged when no coordinate moves by more."""
SHRINKAGE = 0.5
"""Share by which correlations between the hypotheses' coordinates are reduced."""
FLOOR_MM = 20.0
"""Least standard deviation along an axis."""
Box = tuple[float, float, float, float]
Pins = tuple[Float[np.ndarray, "J 3"], Bool[np.ndarray, " J"]] | None
"""Places of pinned joints, and which joints are pinned."""


@dataclass(frozen=True)
class Evidence:
    """2D observations of one person, or of several."""

    rays: Float[np.ndarray, "*P J 2"]
    """x / z and y / z of each joint; NaN where it was not seen."""
    noise: Float[np.ndarray, "*P J"]
    """Standard deviation of the rays."""
    depth_mm: float | Float[np.ndarray, "*P"]
    """Of the pelvis, by the size of the box."""
    depth_trust: float | Float[np.ndarray, "*P"]
    """Standard deviation of log(depth_mm)."""


@dataclass(frozen=True)
class FittedPose:
    """One fitted pose, or a batch."""

    joints_mm: Float[np.ndarray, "*B J 3"]
    root_mm: Float[np.ndarray, "*B 3"]
    root_covariance_mm2: Float[np.ndarray, "*B 3 3"]
    """Given the camera and the bones."""
    miss: Float[np.ndarray, "*B J"]
    """Distance between observed and fitted joint over its noise; NaN where it was not seen."""

    def __getitem__(self, row: int) -> "FittedPose":
        return FittedPose(self.joints_mm[row], self.root_mm[row], self.root_covariance_mm2[row], self.miss[row])


def fit_poses(
    means_mm: Float[np.ndarray, "B J 3"],
    precision: Float[np.ndarray, "*P F F"],
    lengths_mm: Float[np.ndarray, "*P K"],
    evidence: Evidence,
    root_mm: Float[np.ndarray, "*P 3"],
    pins: Pins = None,
    skeleton: Skeleton = H36M_17,
    person: Int[np.ndarray, " B"] | None = None,
) -> FittedPose:
    """The likeliest pose and root for each of several means, searched from `root_mm`: of one person in one picture, or
    of P people, whose row `person` is for each mean.

    Bones have their lengths and pairs of joints are within their limits, unless pinned joints, which are exactly at
    their pins, contradict them.
    """
    of = np.zeros(len(means_mm), int) if person is None else person
    F = precision.shape[-1]
    precision = precision.reshape(-1, F, F)
    lengths = lengths_mm.reshape(-1, lengths_mm.shape[-1])[of]                              # B K
    begin = root_mm.reshape(-1, 3)[of].astype(np.float64)                                   # B 3
    x, root = means_mm.astype(np.float64), begin.copy()
    terms = _Terms(lengths, evidence, of, begin, pins, skeleton)
    normal = np.eye(F + 3)[None].repeat(len(x), 0)
    moving = np.arange(len(x))
    for _ in range(ROUNDS):
        now, place = x[moving], root[moving]
        slope, miss = terms(now, place, moving)
        prior = precision[of[moving]]                                                       # M F F
        step = slope.mT @ slope
        step[:, :F, :F] += prior
        gradient = (slope.mT @ miss[..., None])[..., 0]
        gradient[:, :F] += ((now - means_mm[moving])[:, 1:].reshape(len(now), 1, -1) @ prior)[:, 0]
        normal[moving] = step
        step = -np.linalg.solve(step, gradient[..., None])[..., 0]
        step *= np.minimum(1.0, 0.5 * place[:, 2:] / np.maximum(np.abs(step[:, -1:]), 1e-9))  # a depth halves at most
        now[:, 1:] += step[:, :F].reshape(len(now), -1, 3)
        place += step[:, F:]
        place[:, 2] = np.maximum(place[:, 2], LEAST_DEPTH_MM - now[..., 2].min(1))
        x[moving], root[moving] = now, place
        moving = moving[np.abs(step).max(1) >= ENOUGH_MM]
        if not len(moving):
            break
    if pins is None:
        x = rebuild(x, lengths, skeleton)
        to_mend = np.flatnonzero(impossible(x, lengths, skeleton))
    else:
        x = np.where(pins[1][:, None], pins[0], x)
        to_mend = np.arange(len(x))  # bones at pinned joints are not exact yet
    for row in to_mend:
        spread_mm2 = np.linalg.inv(normal[row])[:F, :F]
        x[row] = make_possible(x[row], lengths[row], None if pins is None else pins[1], spread_mm2, skeleton)
    at = x + root[:, None]
    off = np.linalg.norm(at[..., :2] / at[..., 2:] - terms.rays, axis=-1) / terms.noise
    corner = np.linalg.solve(normal, np.eye(F + 3)[:, F:])[:, F:]
    return FittedPose(x, root, corner, np.where(terms.seen, off, np.nan))


def shrunken_precision(
    samples_mm: Float[np.ndarray, "H J 3"], single_mm2: Float[np.ndarray, " J"]
) -> Float[np.ndarray, "F F"]:
    """Inverse of the hypotheses' covariance with correlations halved and FLOOR_MM added along every axis.
    `single_mm2`: each joint's variance, used where there is only one hypothesis."""
    free = samples_mm[:, 1:].reshape(len(samples_mm), -1).astype(np.float64)
    if len(free) > 1:
        offset = free - free.mean(0)
        own = offset.T @ offset / (len(free) - 1)
    else:
        own = np.diag(np.repeat(single_mm2[1:], 3))
    return np.linalg.inv((1 - SHRINKAGE) * own + np.diag(SHRINKAGE * np.diag(own) + FLOOR_MM**2))


class _Terms:
    """Residuals (in deviations) and Jacobian of all terms but the prior, for B poses. The Jacobian is sparse: the
    places of its nonzero entries are computed once. A joint that was not seen has zeros."""

    def __init__(
        self,
        lengths_mm: Float[np.ndarray, "B K"],
        evidence: Evidence,
        of: Int[np.ndarray, " B"],
        begin_mm: Float[np.ndarray, "B 3"],
        pins: Pins,
        skeleton: Skeleton,
    ) -> None:
        self.lengths_mm, self.begin_mm, self.pins = lengths_mm, begin_mm, pins
        joints = skeleton.count
        rays = evidence.rays.reshape(-1, joints, 2)[of]
        self.seen = np.isfinite(rays).all(-1)
        self.rays = np.where(self.seen[..., None], rays, 0.0)
        self.noise = np.where(self.seen, evidence.noise.reshape(-1, joints)[of], 1.0)
        self.depth_mm, self.depth_trust = (np.reshape(x, -1)[of] for x in (evidence.depth_mm, evidence.depth_trust))
        self.held = np.zeros(0, int) if pins is None else np.flatnonzero(pins[1][1:]) + 1
        self.children, self.parents = np.array(skeleton.bones).T
        self.hung = np.flatnonzero(self.parents != skeleton.root)
        self.coordinates = free = 3 * (joints - 1)
        across, down = np.arange(joints), np.arange(joints, 2 * joints)
        bone = 2 * joints + np.arange(len(self.children)).repeat(3)
        pin = 2 * joints + len(self.children) + np.arange(3 * len(self.held))
        self.rows = 2 * joints + len(self.children) + len(pin) + 3
        joint, xyz = 3 * across[1:] - 3, np.arange(3)  # the root's joint moves with the root alone
        places = [
            *((across[1:], joint), (across[1:], joint + 2), (down[1:], joint + 1), (down[1:], joint + 2)),
            *((across, free), (across, free + 2), (down, free + 1), (down, free + 2)),
            (bone, (3 * self.children[:, None] - 3 + xyz).ravel()),
            (bone.reshape(-1, 3)[self.hung].ravel(), (3 * self.parents[self.hung, None] - 3 + xyz).ravel()),
            (pin, (3 * self.held[:, None] - 3 + xyz).ravel()),
            (self.rows - 3 + xyz, free + xyz),
        ]
        self.places = np.concatenate([row * (free + 3) + column for row, column in places])

    def __call__(
        self, x: Float[np.ndarray, "M J 3"], root: Float[np.ndarray, "M 3"], rows: Int[np.ndarray, " M"]
    ) -> tuple[Float[np.ndarray, "M R F_plus_3"], Float[np.ndarray, "M R"]]:
        at, rays, noise = x + root[:, None], self.rays[rows], self.noise[rows]
        p, q = at[..., 0] / at[..., 2], at[..., 1] / at[..., 2]
        right, below = p - rays[..., 0], q - rays[..., 1]
        far = np.hypot(right, below) / noise
        trust = self.seen[rows] * np.sqrt(np.minimum(1, HUBER / np.maximum(far, 1e-9))) / noise
        pull = trust / at[..., 2]  # of (x/z, y/z) the derivative is ((1, 0, -p), (0, 1, -q)) / z
        own = [pull, -p * pull, pull, -q * pull]
        way = x[:, self.children] - x[:, self.parents]
        length = np.sqrt((way * way).sum(-1))
        unit = way / (BONE_MM * np.maximum(length, 1e-6))[..., None]
        depth, depth_trust = root[:, 2], self.depth_trust[rows]
        loose = 1 / (depth_trust * depth)[:, None]
        values = [
            *(each[:, 1:] for each in own),
            *own,
            unit.reshape(len(x), -1),
            -unit[:, self.hung].reshape(len(x), -1),
            np.full((len(x), 3 * len(self.held)), 1 / PIN_MM),
            loose.repeat(3, 1),
        ]
        slope = np.zeros((len(x), self.rows * (self.coordinates + 3)))
        slope[:, self.places] = np.concatenate(values, axis=1)
        depth_off = np.log(depth / self.depth_mm[rows]) / depth_trust
        off = [trust * right, trust * below, (length - self.lengths_mm[rows]) / BONE_MM]
        if self.pins is not None:
            off.append((x - self.pins[0])[:, self.held].reshape(len(x), -1) / PIN_MM)
        off += [loose * (root - self.begin_mm[rows])[:, :2], depth_off[:, None]]
        return slope.reshape(len(x), self.rows, -1), np.concatenate(off, axis=1)


def place(
    joints_mm: Float[np.ndarray, "J 3"],
    joints_2d: Float[np.ndarray, "J 2"],
    weights: Float[np.ndarray, " J"],
    box: Box,
    camera: Camera,
    box_trust: float = 0.25,
    begin_mm: Float[np.ndarray, " 3"] | None = None,
) -> Float[np.ndarray, " 3"]:
    """The root (3,) at which a root-relative pose projects best onto 2D joints and fills the box (x0, y0, x1, y1).

    Gauss-Newton on the angles, starting from `begin_mm`, or from the box. The joints' deviation is estimated by the
    median of the fit, joints beyond it count less (Huber), and the box holds log(depth) with a deviation of
    `box_trust`. `weights` from 0 to 1, such as visibility; joints that are not finite count 0. Every joint ends up in
    front of the camera.
    """
    rays = camera.unproject_ray(joints_2d)[:, :2]
    usable = np.isfinite(rays).all(-1)
    rays, w = np.where(usable[:, None], rays, 0.0), np.where(usable, weights, 0.0).astype(np.float64)
    joints = joints_mm.astype(np.float64)
    root = place_by_box(joints, box, camera)
    if not w.any():
        return root
    box_depth = root[2]
    root = root if begin_mm is None else begin_mm.astype(np.float64)
    for _ in range(PLACE_ROUNDS):
        at = joints + root
        miss = at[:, :2] / at[:, 2:] - rays
        off = np.hypot(miss[:, 0], miss[:, 1])
        order = np.argsort(off)
        passed = np.cumsum(w[order])
        typical = max(float(off[order][np.searchsorted(passed, passed[-1] / 2)]), 1e-9)  # the weighted median
        trust = w * np.minimum(1, typical / np.maximum(off, typical)) / typical**2
        across, (p, q) = 1 / at[:, 2], (at[:, :2] / at[:, 2:]).T  # the derivative is ((1, 0, -p), (0, 1, -q)) / z
        pull = trust * across
        normal, tilt = pull @ across, pull * across @ np.stack([p, q], 1)
        along = pull * across @ (p * p + q * q) + (box_trust * root[2]) ** -2
        side, depth = pull @ miss, -pull @ (p * miss[:, 0] + q * miss[:, 1])
        depth += np.log(root[2] / box_depth) / root[2] / box_trust**2
        away = -(depth + tilt @ side / normal) / (along - tilt @ tilt / normal)
        step = np.array([*((tilt * away - side) / normal), away])
        step *= min(1.0, 0.5 * root[2] / max(abs(step[2]), 1e-9))  # the depth halves at most
        root = root + step
        root[2] = max(root[2], LEAST_DEPTH_MM - float(joints[:, 2].min()))
        if np.abs(step).max() < 1e-3:
            break
    return root


def place_by_box(joints_mm: Float[np.ndarray, "J 3"], box: Box, camera: Camera) -> Float[np.ndarray, " 3"]:
    """The root (3,) at which a pose is as large as its box (x0, y0, x1, y1), ignoring perspective: the longer side of
    the box is FLESH times that of the joints' own box, and the centres are the same."""
    low, high = joints_mm[:, :2].min(0), joints_mm[:, :2].max(0)
    corners = camera.unproject_ray(np.array([box[:2], box[2:]]))[:, :2]
    if not np.isfinite(corners).all():
        raise InputError(f"the camera's lens model cannot reach the box {box}: check its distortion")
    depth = FLESH * float((high - low).max()) / float(np.abs(corners[1] - corners[0]).max())
    depth = max(depth, LEAST_DEPTH_MM - float(joints_mm[:, 2].min()))
    return np.array([*(corners.mean(0) * depth - (low + high) / 2), depth])
