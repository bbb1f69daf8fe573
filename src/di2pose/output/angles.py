"""Joint angles of people with 90 % intervals. What each angle means: docs/angles.md.

An interval is what the angle does over poses as they might be: the estimate, moved as the hypotheses differ from each
other, each joint as far as its calibrated covariance says. Which joints move together is thus told by the hypotheses,
and how far by the calibration: an error of the whole body's heading turns all joints and bends no knee.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

from di2pose.pose.angles import joint_angles, joints_of, possible, with_differences, wrapped
from di2pose.pose.skeleton import H36M_17
from di2pose.result import STATES, Person

DRAWS, SEED = 256, 0
"""Poses that an interval is taken from; the same noise for everybody, so that an angle is a function of the person."""
LEVEL = 0.9
DIGITS = 1
"""Decimals in files: a tenth of a degree."""


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
    person = person if person.skeleton == H36M_17 else person.convert(H36M_17)
    estimate = with_differences(joint_angles(person.joints_mm))
    drawn = with_differences(joint_angles(plausible_poses(person)))
    rank = np.array([STATES.index(state) for state in person.state.tolist()])
    found = {}
    for name, degrees in estimate.items():
        state = STATES[int(rank[list(H36M_17.indices(*joints_of(name)))].max())]
        found[name] = Angle(float(degrees), *_interval(name, float(degrees), drawn[name]), state)
    return MappingProxyType(found)


def plausible_poses(person: Person, count: int = DRAWS) -> Float[np.ndarray, "n 17 3"]:
    """Poses round the estimate that vary, joint by joint, by the calibrated covariance, together as the hypotheses do;
    each joint on its own where there is but one hypothesis."""
    noise = np.random.default_rng(SEED)
    samples = person.samples_mm.astype(np.float64)
    offsets = samples - samples.mean(0)
    spread = np.sqrt(np.square(offsets).sum((0, 2)) / max(len(samples) - 1, 1))  # 17, sqrt of the trace
    wanted = np.sqrt(np.trace(person.covariance_mm2, axis1=1, axis2=2))
    weights = noise.standard_normal((count, len(samples))) / np.sqrt(max(len(samples) - 1, 1))
    alone = noise.standard_normal((count, *person.joints_mm.shape)) / np.sqrt(3)
    together = np.einsum("nh,hja->nja", weights, offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = np.where(spread[:, None] > 1.0, together / spread[:, None], alone)
    return person.joints_mm + wanted[:, None] * moved


def _interval(name: str, degrees: float, drawn: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """As far to either side as 90 % of the drawn angles go to the farther one, within what is possible.

    To one side they often go further: noise bends a straight knee and straightens none. It bent the estimate in the
    same way, so that the truth lies as likely on the other side. NaN where most of the drawn poses leave it open.
    """
    off = wrapped(drawn - degrees)
    off = off[np.isfinite(off)]
    if len(off) < len(drawn) / 2:
        return np.nan, np.nan
    reach = float(np.abs(np.quantile(off, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])).max())
    least, most = possible(name)
    return max(degrees - reach, least), min(degrees + reach, most)


def angles_json(person: Person) -> dict[str, dict[str, object]]:
    """As it stands in JSON files and on pages: null for what is not known."""
    return {
        name: {"degrees": _rounded(a.degrees), "low": _rounded(a.low), "high": _rounded(a.high), "state": a.state}
        for name, a in person.angles.items()
    }


def _rounded(degrees: float) -> float | None:
    return round(degrees, DIGITS) if np.isfinite(degrees) else None
