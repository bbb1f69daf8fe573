"""Joint angles of people with 90 % intervals. What each angle means: docs/guide.md.

An interval is the range of the angle over poses drawn round the estimate: joints move together as the hypotheses do,
each by its calibrated covariance. An error of the body's heading thus turns all joints and bends no knee.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

from di2pose.pose.angles import basis, joint_angles, joints_of, possible, with_differences, wrapped
from di2pose.result import STATES, Person

DRAWS, SEED = 256, 0
"""Poses drawn for an interval, always with the same noise: an angle is a function of the person."""
LEVEL = 0.9
DIGITS = 1
"""Decimals in files."""


@dataclass(frozen=True)
class Angle:
    """One angle of one person, degrees; NaN where the pose leaves it open or a joint is not known."""

    degrees: float
    low: float
    """The true angle should lie between `low` and `high` in nine cases of ten."""
    high: float
    state: str
    """The worst of the states of its joints."""


def angles_of(person: Person) -> Mapping[str, Angle]:
    """Every angle by name, and for those of both sides the difference, left minus right: `knee_flexion_difference`."""
    if (skeleton := basis(person.skeleton)) != person.skeleton:
        person = person.convert(skeleton)
    estimate = with_differences(joint_angles(person.joints_mm, skeleton))
    drawn = with_differences(joint_angles(plausible_poses(person), skeleton))
    rank = np.array([STATES.index(state) for state in person.state.tolist()])
    found = {}
    for name, degrees in estimate.items():
        state = STATES[int(rank[list(skeleton.indices(*joints_of(name)))].max())]
        found[name] = Angle(float(degrees), *_interval(name, float(degrees), drawn[name]), state)
    return MappingProxyType(found)


def plausible_poses(person: Person, count: int = DRAWS) -> Float[np.ndarray, "n J 3"]:
    """Poses round the estimate: each joint varies by its calibrated covariance, together with the others as in the
    hypotheses; independently where there is only one hypothesis."""
    noise = np.random.default_rng(SEED)
    samples = person.samples_mm.astype(np.float64)
    offsets = samples - samples.mean(0)
    spread = np.sqrt(np.square(offsets).sum((0, 2)) / max(len(samples) - 1, 1))  # J, sqrt of the trace
    wanted = np.sqrt(np.trace(person.covariance_mm2, axis1=1, axis2=2))
    weights = noise.standard_normal((count, len(samples))) / np.sqrt(max(len(samples) - 1, 1))
    alone = noise.standard_normal((count, *person.joints_mm.shape)) / np.sqrt(3)
    together = np.einsum("nh,hja->nja", weights, offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = np.where(spread[:, None] > 1.0, together / spread[:, None], alone)
    return person.joints_mm + wanted[:, None] * moved


def _interval(name: str, degrees: float, drawn: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Symmetric about the angle: the larger of the two 90 % deviations, within the possible range. Noise bends a
    straight knee and straightens none; it bent the estimate too, so the truth is as likely on the other side. NaN
    where most of the drawn poses leave the angle open.
    """
    off = wrapped(drawn - degrees)
    off = off[np.isfinite(off)]
    if len(off) < len(drawn) / 2:
        return np.nan, np.nan
    reach = float(np.abs(np.quantile(off, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])).max())
    least, most = possible(name)
    return max(degrees - reach, least), min(degrees + reach, most)


def angles_json(person: Person) -> dict[str, dict[str, object]]:
    """The angles as in JSON files and pages; None for unknown numbers."""
    return {name: {key: _rounded(v) for key, v in asdict(angle).items()} for name, angle in person.angles.items()}


def _rounded(value: float | str) -> float | str | None:
    if isinstance(value, str):
        return value
    return round(value, DIGITS) if np.isfinite(value) else None
