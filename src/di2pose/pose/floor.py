"""The floor that people stand on, up, and feet in contact, from poses in camera axes.  n frames, F joints of feet; mm.

The floor is a plane of normal `up` at a height below each person, by robust least squares over three kinds of evidence:

    ((up . p + offset + own_person) / noise)^2     joints of feet that hardly move; those above the plane soon count 0
    (up - mean line / POSTURE)^2                   ankles to head of people who stand straight
    (own_person / (SIZE offset))^2                 sizes, so distances, are not exact; people on other levels count 0

The noise of a height is that of the joint and, as the camera looks along the floor, that of the distance. Frames
CORRELATED_S apart count as independent. The camera is taken as still.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from di2pose.files import Json
from di2pose.pose.bones import SOLE
from di2pose.pose.skeleton import Skeleton

FEET = ("left_heel", "left_toe", "right_heel", "right_toe")
ANKLES = ("left_ankle", "right_ankle")
SOLE_MM = SOLE * 1700
"""Height of an ankle that stands, where there are no heels and toes."""
HEIGHT_MM, DISTANCE, SIZE = 25.0, 0.035, 0.07
"""Standard deviations: height of a foot's joint; distance and size of a person, relative."""
CORRELATED_S = 0.5
POSTURE, OF_PERSON, OF_FRAME = np.radians([2.5, 3.5, 6.5])
"""Standard deviation of up by posture, about an axis: common to all, of each person, and of independent frames."""
UPRIGHT = np.cos(np.radians(50.0))
"""Least cosine between the camera's up and the line of a person who stands."""
STILL_MM_S, DRIFT_MM_S = 200.0, 400.0
"""Standard deviation of the speed of a foot that stands, across the view and along it."""
DENSITY, LEAST_SPLINE = 2.0e6, 5
"""Of the acceleration of feet, mm^2/s^3, see `video.smooth`; least frames of a spline."""
ROUNDS = 12
BEND = np.cos(np.radians(25.0))
LEAST_STANDING = 0.2
"""Least cosine between the lines of trunk and legs of a person who stands; least share of such frames."""
SUPPORTED, MISFIT, MOST_STD_DEGREES = 0.5, 2.5, 10.0
"""A floor carries people in at least so many of their frames, fits postures within so many deviations, and is surer
than this."""
BEGIN, END, LEAST_CONTACT_S = 0.5, 0.1, 0.1
"""A contact begins with the first score and ends with the second; shorter ones are none."""


@dataclass(frozen=True, eq=False)
class Floor:
    """A plane in camera axes: `up . p + offset_mm` is the height of a point p above it."""

    up: Float[np.ndarray, " 3"]
    """Unit vector against gravity."""
    offset_mm: float
    """Height of the camera above the floor."""
    up_std_degrees: float
    """Standard deviation of up about its least certain axis."""
    source: str
    """'feet and posture', or 'posture' where the feet add less than a tenth to the evidence on up."""

    @property
    def pitch_degrees(self) -> float:
        """By which the camera looks down."""
        return float(np.degrees(np.arcsin(np.clip(-self.up[2], -1, 1))))

    @property
    def roll_degrees(self) -> float:
        """By which the picture's up leans to the left of up."""
        return float(np.degrees(np.arctan2(self.up[0], -self.up[1])))

    @property
    def rotation(self) -> Float[np.ndarray, "3 3"]:
        """R @ p has the floor level, y down: the smallest rotation of up to (0, -1, 0)."""
        half = _unit(self.up - (0.0, 1.0, 0.0))
        return (2 * np.outer(half, half) - np.eye(3)) @ (2 * np.outer(self.up, self.up) - np.eye(3))

    def height_mm(self, points_mm: Float[np.ndarray, "*B 3"]) -> Float[np.ndarray, "*B"]:
        return np.asarray(points_mm @ self.up + self.offset_mm)

    def to_json(self) -> Json:
        numbers = {"up": [round(float(value), 5) for value in self.up], "offset_mm": round(self.offset_mm, 1)}
        return numbers | {"up_std_degrees": round(self.up_std_degrees, 2), "source": self.source}

    def __str__(self) -> str:
        way = "down" if self.pitch_degrees >= 0 else "up"
        return f"floor: camera looks {way} by {abs(self.pitch_degrees):.0f} +/- {self.up_std_degrees:.0f} degrees"


@dataclass(frozen=True, eq=False)
class Walk:
    """One person through the frames in which they were found."""

    joints_mm: Float[np.ndarray, "n J 3"]
    """In camera axes, with the root in its place."""
    std_mm: Float[np.ndarray, "n J"]
    times_s: Float[np.ndarray, " n"]
    skeleton: Skeleton

    def points(self, *names: str) -> Float[np.ndarray, "n _ 3"]:
        return self.joints_mm[:, list(self.skeleton.indices(*names))].astype(np.float64)

    @property
    def feet(self) -> tuple[str, ...]:
        """Names of the joints that touch the floor; none where the skeleton has no ankles."""
        return next((names for names in (FEET, ANKLES) if set(names) <= set(self.skeleton.joints)), ())

    @cached_property
    def steady(self) -> Float[np.ndarray, "n F 3"]:
        """The feet's joints, smoothed by splines: in x / z and y / z by their own deviation, in z by the distance's."""
        points, columns = self.points(*self.feet), self.skeleton.indices(*self.feet)
        if len(points) < LEAST_SPLINE:
            return points
        from scipy.interpolate import make_smoothing_spline  # a photo does not need it

        depth, away = np.median(points[..., 2]), np.maximum(points[..., 2:], 1.0)
        smooth = np.concatenate([points[..., :2] / away * depth, away], axis=-1)
        for foot, joint in enumerate(columns):
            for axes, std in ((slice(2), self.std_mm[:, joint]), (slice(2, 3), np.full(len(points), DISTANCE * depth))):
                weight = 1 / np.maximum(std.astype(np.float64), 1.0) ** 2
                spline = make_smoothing_spline(self.times_s, smooth[:, foot, axes], weight, 1 / DENSITY)
                smooth[:, foot, axes] = spline(self.times_s)
        smooth[..., :2] *= smooth[..., 2:] / depth
        return smooth

    @property
    def sole_mm(self) -> float:
        """Height of the feet's joints above the floor on which they stand."""
        return SOLE_MM if self.feet == ANKLES else 0.0

    def soles(self, up: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "n F 3"]:
        """The feet's joints, smoothed, moved down to the floor."""
        return self.steady - self.sole_mm * up

    @property
    def stillness(self) -> Float[np.ndarray, "n F"]:
        """exp(-1/2 speed^2) of the feet's joints, the speed in deviations; 1 in a single frame."""
        if len(self.times_s) < 2:
            return np.ones(self.steady.shape[:2])
        way = _unit(self.steady)
        velocity = np.gradient(self.steady, self.times_s, axis=0)
        along = (velocity * way).sum(-1)
        across2 = (velocity**2).sum(-1) - along**2
        return np.asarray(np.exp(-(across2 / STILL_MM_S**2 + (along / DRIFT_MM_S) ** 2) / 2))

    @property
    def share(self) -> Float[np.ndarray, " n"]:
        """Of an independent observation that a frame is."""
        if len(self.times_s) < 2:
            return np.ones(len(self.times_s))
        return np.minimum(1.0, np.gradient(self.times_s) / CORRELATED_S)


def find_floor(walks: Sequence[Walk]) -> tuple[Floor | None, str]:
    """The floor of all people, or None and the reason."""
    walks = [walk for walk in walks if walk.feet and len(walk.times_s)]
    if not walks:
        return None, "no person with feet"
    lines = [line for line in map(posture, walks) if line is not None]
    if not lines:
        return None, "no person stands upright"
    up = mean = _unit(np.sum([line / variance for line, variance in lines], axis=0))
    prior = np.sqrt(POSTURE**2 + 1 / np.sum([1 / variance for _, variance in lines]))
    people, own = len(walks), np.repeat(np.arange(len(walks)), [len(walk.times_s) for walk in walks])
    still = np.concatenate([walk.stillness for walk in walks])  # frames of all people, feet
    share = np.concatenate([walk.share for walk in walks])[:, None]
    offsets = np.array([-np.percentile((walk.soles(up) @ up).min(1), 25) for walk in walks])
    offset = float(np.sort(offsets[own])[len(own) // 2])  # the level of most frames; of two alike the lower
    offsets = offsets - offset
    for turn in range(ROUNDS):
        soles = np.concatenate([walk.soles(up) for walk in walks])
        height = soles @ up + offset + offsets[own, None]
        noise = np.hypot(HEIGHT_MM, DISTANCE * np.abs(soles @ up))
        off = height / noise / max(1.0, 4.0 - turn)
        trust = np.where(off > 0, 1 / (1 + (off / 2) ** 2) ** 2, 1 / np.maximum(1, -off / 1.5))
        weight = trust * still * share / 2  # both joints of a foot are nearly one
        across = np.linalg.svd(up[None])[2][1:]
        slope = np.zeros((*height.shape, 3 + people))
        slope[..., :2], slope[..., 2] = soles @ across.T, 1.0
        slope[np.arange(len(own)), :, 3 + own] = 1.0
        pull = slope * (weight / noise**2)[..., None]
        normal, gradient = np.einsum("nfa,nfb->ab", pull, slope), np.einsum("nfa,nf->a", pull, height)
        size = SIZE * max(abs(offset), 500.0)
        level = (1 + (offsets / size) ** 2) ** -2 + 1e-6  # a person on another level counts 0 there
        tie = np.concatenate([[prior**-2] * 2, [1e-12], level / size**2])
        feet_alone = normal[:2, :2]
        normal, gradient = normal + np.diag(tie), gradient + tie * [*(across @ (up - mean)), 0.0, *offsets]
        step = -np.linalg.solve(normal, gradient)
        up, offset, offsets = _unit(up + step[:2] @ across), offset + float(step[2]), offsets + step[3:]
    excess = max(1.0, float((weight * (height / noise) ** 2).sum() / max(weight.sum(), 1e-9)))
    spread = np.linalg.inv(normal)[:2, :2] * excess
    std = float(np.degrees(np.sqrt(np.linalg.eigvalsh(spread)[-1])))
    carried = np.mean((np.abs(height) < 3 * noise).any(1))
    if carried < SUPPORTED:
        return None, "the feet do not keep to one plane: does the camera move?"
    if np.linalg.norm(up - mean) > MISFIT * prior:
        return None, "the plane of the feet contradicts the people's posture: does the camera move, or do they climb?"
    if std > MOST_STD_DEGREES:
        return None, "feet and posture do not say where up is"
    feet = np.linalg.eigvalsh(feet_alone)[0] * prior**2 > 0.1
    return Floor(up, offset, std, "feet and posture" if feet else "posture"), ""


def posture(walk: Walk) -> tuple[Float[np.ndarray, " 3"], float] | None:
    """The mean line from the ankles to the head, a unit vector, over frames in which the person stands upright, and its
    variance; None where these frames are less than a fifth."""
    names = ("pelvis", "thorax", "head", *ANKLES)
    if not set(names) <= set(walk.skeleton.joints):
        return None
    pelvis, thorax, head, *ankles = np.moveaxis(walk.points(*names), 1, 0)
    low = np.mean(ankles, axis=0)
    trunk, legs, line = (_unit(each) for each in (thorax - pelvis, pelvis - low, head - low))
    stands = ((trunk * legs).sum(-1) > BEND) & (-line[:, 1] > UPRIGHT)
    if stands.mean() < LEAST_STANDING:
        return None
    return _unit(line[stands].mean(0)), OF_PERSON**2 + OF_FRAME**2 / max(1.0, float(walk.share[stands].sum()))


def contacts(walk: Walk, floor: Floor) -> Bool[np.ndarray, "n F"]:
    """Which of the feet's joints are on the floor: low and still, with hysteresis."""
    soles = walk.soles(floor.up)
    std = walk.std_mm[:, list(walk.skeleton.indices(*walk.feet))]
    noise2 = HEIGHT_MM**2 + (DISTANCE * floor.offset_mm) ** 2 + std**2 / 2
    score = walk.stillness * np.exp(-np.maximum(floor.height_mm(soles), 0.0) ** 2 / noise2 / 2)
    touching = np.zeros(score.shape, bool)
    for foot in range(score.shape[1]):
        for begin, end in runs(score[:, foot] > END):
            long = end - begin < 2 or walk.times_s[end - 1] - walk.times_s[begin] >= LEAST_CONTACT_S
            touching[begin:end, foot] = long and score[begin:end, foot].max() > BEGIN
    return touching


def runs(flags: Bool[np.ndarray, " n"]) -> list[tuple[int, int]]:
    """First and behind-last places of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9))
