"""Does the spread of hypotheses tell how wrong they are? Raw spread against error, for seen and for hidden joints.

A joint's spread is sqrt(trace(C)), C the unbiased covariance of its hypotheses; its error is that of their mean. Both
are distances in mm, aligned at the same root.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from di2pose.errors import InputError


@dataclass(frozen=True)
class SpreadFigures:
    """Of one group of joints."""

    joints: int
    spread_mm: float
    """Mean over the joints, as is the error."""
    error_mm: float
    rank_correlation: float
    """Spearman's, of spread and error over all joints of the group."""


def spread_figures(
    spread_mm: Float[np.ndarray, "n K"],
    error_mm: Float[np.ndarray, "n K"],
    groups: Mapping[str, Bool[np.ndarray, "n K"]],
) -> dict[str, SpreadFigures]:
    """The figures of every group that has two joints or more."""
    return {
        name: SpreadFigures(
            joints=int(mask.sum()),
            spread_mm=float(spread_mm[mask].mean()),
            error_mm=float(error_mm[mask].mean()),
            rank_correlation=spearman(spread_mm[mask], error_mm[mask]),
        )
        for name, mask in groups.items()
        if mask.sum() >= 2
    }


def ratio_gap(figures: Mapping[str, SpreadFigures]) -> dict[str, float]:
    """`spread` and `error`: hidden over seen; `spread_over_error`: the one over the other, 1 where the spread is right.

    Empty where nothing is known to be hidden, or to be seen.
    """
    if not {"seen", "hidden"} <= figures.keys() or not figures["seen"].spread_mm or not figures["seen"].error_mm:
        return {}
    spread = figures["hidden"].spread_mm / figures["seen"].spread_mm
    error = figures["hidden"].error_mm / figures["seen"].error_mm
    return {"spread": spread, "error": error, "spread_over_error": spread / error}


def spearman(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Rank correlation, equal values sharing their mean rank; NaN where one side does not vary."""
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2:
        raise InputError(f"a rank correlation needs two lists of equal length, 2 or more, got {a.shape} and {b.shape}")
    ranks = [_ranks(values) for values in (a, b)]
    x, y = (rank - rank.mean() for rank in ranks)
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """1 for the smallest; equal values get the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = count.cumsum() - (count - 1) / 2
    return np.asarray(mean_rank[place], dtype=np.float64)
