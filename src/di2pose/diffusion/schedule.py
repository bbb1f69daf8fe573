"""The noise schedule: how much of a token is kept, replaced and occluded after each step. NumPy only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from di2pose.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Linear in the cumulative probabilities; steps run 0..S, step 0 is data, each array has S + 1 entries.

        keep[s]    = 1 - s/S                        alpha-bar
        occlude[s] = final_occlude * s/S            gamma-bar
        replace[s] = (1 - final_occlude) * s/S      |C| * beta-bar: the TOTAL mass, spread evenly over all codes

    They sum to 1 for every final_occlude in [0, 1], both ends included: in probabilities no constant has to keep a
    logarithm finite. float64.
    """

    codes: int
    steps: int = 100
    final_occlude: float = 0.9
    keep: np.ndarray = field(init=False, repr=False, compare=False)
    replace: np.ndarray = field(init=False, repr=False, compare=False)
    occlude: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.codes < 2 or self.steps < 1:
            raise InputError(f"a schedule needs codes >= 2 and steps >= 1, got {self.codes} and {self.steps}")
        if not 0 <= self.final_occlude <= 1:
            raise InputError(f"final_occlude must lie in [0, 1], got {self.final_occlude}")
        passed = np.arange(self.steps + 1) / self.steps
        object.__setattr__(self, "keep", 1 - passed)
        object.__setattr__(self, "replace", (1 - self.final_occlude) * passed)
        object.__setattr__(self, "occlude", self.final_occlude * passed)

    @property
    def occ(self) -> int:
        """The Occ token: one past the codes 0..C-1."""
        return self.codes

    def between(self, r: Any, s: Any) -> tuple[Any, Any, Any]:
        """(keep, replace, occlude) of the transition r -> s, r < s, of two steps or of arrays of them; replace is again
        the total mass."""
        keep = self.keep[s] / self.keep[r]
        occlude = (self.occlude[s] - self.occlude[r]) / (1 - self.occlude[r])
        # = 1 - keep - occlude, in a form that is exactly 0 where nothing is replaced.
        replace = self.replace[s] * self.keep[r] - self.keep[s] * self.replace[r]
        return keep, replace / (self.keep[r] * (1 - self.occlude[r])), occlude


def step_grid(steps: int | Sequence[int], schedule: Schedule) -> list[int]:
    """The steps that a sampler visits, from S to 0: e.g. 100, 96, ..., 4, 0 for 25 steps of 100. `steps` is their
    count, or a list of them."""
    top = schedule.steps
    if isinstance(steps, int):
        if not 1 <= steps <= top:
            raise InputError(f"the count of reverse steps must lie in 1..{top}, got {steps}")
        return [round(top * (steps - i) / steps) for i in range(steps + 1)]
    grid = list(steps)
    if len(grid) < 2 or grid[0] != top or grid[-1] != 0 or any(s <= r for s, r in pairwise(grid)):
        raise InputError(f"a list of steps must descend from {top} to 0, got {grid}")
    return grid
