"""The noise schedule: how much of a token is kept, replaced and occluded after each step."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from di2pose.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Linear in the cumulative probabilities; steps run 0..S, step 0 is data, each array has S + 1 entries.

        keep[s]    = 1 - s/S                        alpha-bar
        occlude[s] = final_occlude * s/S            gamma-bar
        replace[s] = (1 - final_occlude) * s/S      |C| * beta-bar: the TOTAL mass, spread evenly over all codes

    They sum to 1 for every final_occlude in [0, 1], both ends included: in probabilities no constant has to keep a
    logarithm finite. float64 on the CPU, whatever the device of the network.
    """

    codes: int
    steps: int = 100
    final_occlude: float = 0.9
    keep: Tensor = field(init=False, repr=False, compare=False)
    replace: Tensor = field(init=False, repr=False, compare=False)
    occlude: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.codes < 2 or self.steps < 1:
            raise InputError(f"a schedule needs codes >= 2 and steps >= 1, got {self.codes} and {self.steps}")
        if not 0 <= self.final_occlude <= 1:
            raise InputError(f"final_occlude must lie in [0, 1], got {self.final_occlude}")
        passed = torch.arange(self.steps + 1, dtype=torch.float64, device="cpu") / self.steps
        object.__setattr__(self, "keep", 1 - passed)
        object.__setattr__(self, "replace", (1 - self.final_occlude) * passed)
        object.__setattr__(self, "occlude", self.final_occlude * passed)

    @property
    def occ(self) -> int:
        """The Occ token: one past the codes 0..C-1."""
        return self.codes

    def between(self, r: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(keep, replace, occlude) of the transition r -> s, r < s; replace is again the total mass."""
        keep = self.keep[s] / self.keep[r]
        occlude = (self.occlude[s] - self.occlude[r]) / (1 - self.occlude[r])
        # = 1 - keep - occlude, in a form that is exactly 0 where nothing is replaced.
        replace = self.replace[s] * self.keep[r] - self.keep[s] * self.replace[r]
        return keep, replace / (self.keep[r] * (1 - self.occlude[r])), occlude
