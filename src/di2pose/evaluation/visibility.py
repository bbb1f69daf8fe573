"""The visibility head against the truth: what is said of joints that are seen, occluded or out of the frame."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from di2pose.data.sample import OUT_OF_FRAME, SEEN
from di2pose.errors import InputError

STATES = ("seen", "occluded", "out_of_frame")
"""`occluded`: by the body itself or by something else."""


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
        occurring = table[table.sum(1) > 0]
        return float((np.diag(table)[table.sum(1) > 0] / occurring.sum(1)).mean())


def true_states(visibility: Int[np.ndarray, "n J"]) -> np.ndarray:
    """(n, J) strings; '' where nobody knows."""
    named = np.where(visibility == SEEN, "seen", np.where(visibility == OUT_OF_FRAME, "out_of_frame", "occluded"))
    return np.where(visibility < SEEN, "", named)


def confusion(true: np.ndarray, said: np.ndarray) -> Confusion:
    """Both (n, J) strings; joints whose true state is '' do not count."""
    known = true != ""
    if true.shape != said.shape or not known.any():
        raise InputError(f"expected equal tables of states with a known one, got {true.shape} and {said.shape}")
    counts = tuple(tuple(int(((true == t) & (said == s)).sum()) for s in STATES) for t in STATES)
    return Confusion(counts)
