"""Seen and hidden joints: which are which, how well a model tells them apart, and whether its spread follows its error.

n records, K joints. A joint's spread is sqrt(trace(C)), C the unbiased covariance of its hypotheses; its error is that
of their mean. Both are distances in mm, aligned at the same root.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import spearmanr

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN
from di2pose.errors import InputError
from di2pose.text_table import markdown

STATES = ("seen", "occluded", "out_of_frame")
"""What is said of a joint; `occluded`: by the body itself or by something else."""
GROUPS = ("seen", "hidden", "self_occluded", "occluded", "out_of_frame")


def joint_groups(visibility: Int[np.ndarray, "*n K"], rest_seen: bool = False) -> dict[str, Bool[np.ndarray, "*n K"]]:
    """The joints of each of GROUPS that has one. `rest_seen`: joints of which nothing is known count as seen."""
    ways = {"self_occluded": SELF_OCCLUDED, "occluded": OCCLUDED, "out_of_frame": OUT_OF_FRAME}
    seen = (visibility == SEEN) | (rest_seen & (visibility == UNKNOWN))
    groups = {"seen": seen, "hidden": visibility > SEEN}
    groups |= {name: visibility == state for name, state in ways.items()}
    return {name: mask for name, mask in groups.items() if mask.any()}


@dataclass(frozen=True)
class Confusion:
    """counts[true][said] of the joints whose visibility is known."""

    counts: tuple[tuple[int, ...], ...]

    @property
    def accuracy(self) -> float:
        table = np.array(self.counts)
        return float(np.trace(table) / table.sum())

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the shares found of each state that occurs."""
        table = np.array(self.counts, dtype=np.float64)
        occurring = table.sum(1) > 0
        return float((np.diag(table)[occurring] / table.sum(1)[occurring]).mean())

    def text(self) -> str:
        """Rows are the truth, columns what was said; a row's shares in brackets."""
        rows = [
            [state, *(f"{count} ({count / max(sum(counts), 1):.0%})" for count in counts)]
            for state, counts in zip(STATES, self.counts, strict=True)
        ]
        table = markdown(["true state", *(f"said {state}" for state in STATES)], rows)
        return f"{table}\n\nAccuracy {self.accuracy:.3f}, mean over the states {self.balanced_accuracy:.3f}."


def true_states(visibility: Int[np.ndarray, "n J"]) -> np.ndarray:
    """(n, J) strings; '' where nobody knows."""
    named = np.where(visibility == SEEN, "seen", np.where(visibility == OUT_OF_FRAME, "out_of_frame", "occluded"))
    return np.where(visibility < SEEN, "", named)


def confusion(true: np.ndarray, said: np.ndarray) -> Confusion:
    """Both (n, J) strings; joints whose true state is '' do not count."""
    if true.shape != said.shape or not (true != "").any():
        raise InputError(f"expected equal tables of states with a known one, got {true.shape} and {said.shape}")
    return Confusion(tuple(tuple(int(((true == t) & (said == s)).sum()) for s in STATES) for t in STATES))


def spread_figures(
    spread_mm: Float[np.ndarray, "*n K"],
    error_mm: Float[np.ndarray, "*n K"],
    groups: Mapping[str, Bool[np.ndarray, "*n K"]],
) -> dict[str, dict[str, Any]]:
    """Means and Spearman's rank correlation (None where spread or error does not vary) of every group of two joints or
    more. `hidden_over_seen`, where both are known: ratios of spread and error, and of the one to the other, which is 1
    where the spread is right.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, mask in groups.items():
        spread, error = spread_mm[mask], error_mm[mask]
        if len(spread) >= 2:
            constant = np.ptp(spread) == 0 or np.ptp(error) == 0
            found[name] = {
                "joints": len(spread),
                "spread_mm": float(spread.mean()),
                "error_mm": float(error.mean()),
                "rank_correlation": None if constant else float(spearmanr(spread, error).statistic),
            }
    seen, hidden = found.get("seen"), found.get("hidden")
    if seen and hidden and seen["spread_mm"] and seen["error_mm"]:
        ratio, expected = (hidden[part] / seen[part] for part in ("spread_mm", "error_mm"))
        found["hidden_over_seen"] = {"spread": ratio, "error": expected, "spread_over_error": ratio / expected}
    return found
