"""Continuous diffusion: Gaussian noise instead of occluded and replaced tokens.  Steps run 0..S, step 0 is data.

    x_s = signal[s] x_0 + noise[s] eps,     signal^2 + noise^2 = 1,     eps ~ N(0, 1)

The baseline's probability, apart from its network (`baselines/gaussian.py`) as Di2Pose's is from its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from di2pose.errors import InputError
from di2pose.interruption import check
from di2pose.noise import Noise, normal

Shape = Literal["cosine", "linear"]
Target = Literal["x0", "eps"]
PredictX0 = Callable[[Tensor, Tensor], Tensor]
"""(x_s (B, ...), s (B,)) -> x_0 (B, ...)."""
COSINE_OFFSET, LARGEST_BETA = 0.008, 0.999
BOUND = 6.0
"""No coordinate lies so many deviations from its mean: where x_0 follows from a predicted noise it is cut there."""


@dataclass(frozen=True)
class GaussianSchedule:
    """alpha-bar[s] = signal[s]^2, float64, S + 1 entries.

    cosine: cos^2 of s/S (Nichol and Dhariwal), 1 at step 0. linear: DDPM's betas from 1e-4 to 0.02 for 1000
    steps, scaled by 1000 / S so that the last step is as noisy for every S.
    """

    steps: int = 100
    shape: Shape = "cosine"
    alpha_bar: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        passed = torch.arange(self.steps + 1, dtype=torch.float64, device="cpu") / self.steps
        if self.shape == "cosine":
            angle = (passed + COSINE_OFFSET) / (1 + COSINE_OFFSET) * math.pi / 2
            beta = 1 - (angle[1:].cos() / angle[:-1].cos()) ** 2
        else:
            beta = torch.linspace(1e-4, 0.02, self.steps, dtype=torch.float64) * 1000 / self.steps
        kept = (1 - beta.clamp(max=LARGEST_BETA)).cumprod(0)
        object.__setattr__(self, "alpha_bar", torch.cat([torch.ones_like(kept[:1]), kept]))

    def levels(self, s: Int[Tensor, " B"] | int, like: Tensor) -> tuple[Tensor, Tensor]:
        """(signal, noise) of the steps, shaped to multiply rows of `like`."""
        squared = self.alpha_bar[torch.as_tensor(s).cpu()].reshape(-1, *[1] * (like.ndim - 1))
        return squared.sqrt().to(like), (1 - squared).sqrt().to(like)

    def noised(self, x0: Float[Tensor, "B *rest"], s: Int[Tensor, " B"], eps: Tensor) -> Float[Tensor, "B *rest"]:
        """x_s ~ q(x_s | x_0)."""
        signal, noise = self.levels(s, x0)
        return signal * x0 + noise * eps


def x0_of(output: Tensor, xs: Tensor, s: Tensor, schedule: GaussianSchedule, target: Target) -> Tensor:
    """x_0 as a network says it that predicts x_0, or the noise."""
    if target == "x0":
        return output
    signal, noise = schedule.levels(s, xs)
    return ((xs - noise * output) / signal).clamp(-BOUND, BOUND)


def ddim(
    predict_x0: PredictX0,
    schedule: GaussianSchedule,
    steps: int,
    shape: tuple[int, ...],
    generator: Noise,
    eta: float = 0.0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """x_0, drawn in any number of steps from x_S ~ N(0, 1).

    eta 0: all randomness is in the start; eta 1: DDPM's own posterior. Each row's draws are its generator's alone.
    """
    if not 1 <= steps <= schedule.steps:
        raise InputError(f"the count of reverse steps must lie in 1..{schedule.steps}, got {steps}")
    grid = [round(schedule.steps * (steps - i) / steps) for i in range(steps + 1)]
    x = normal(shape, generator, device, mirrors=True)
    for s, r in pairwise(grid):
        check()
        x0 = predict_x0(x, torch.full(shape[:1], s, device=x.device))
        signal, noise = schedule.levels(s, x)
        eps = (x - signal * x0) / noise
        there, left = schedule.levels(r, x)  # at r = 0: 1 and 0
        fresh = eta * left / noise * (1 - (signal / there) ** 2).clamp_min(0).sqrt()
        x = there * x0 + (left**2 - fresh**2).clamp_min(0).sqrt() * eps
        if eta and r:
            x = x + fresh * normal(shape, generator, device, mirrors=True)
    return x
