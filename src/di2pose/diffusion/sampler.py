"""Algorithm 2 as the paper writes it: the readable reference for `fast_sampler`, which predictions use.

B batch, N tokens, C codes. Both draw from the same distribution (`tests/diffusion/test_fast_sampler.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from di2pose.diffusion.fast_sampler import inverse_transform
from di2pose.diffusion.schedule import Schedule, step_grid
from di2pose.diffusion.transition import forward_sample, posterior
from di2pose.errors import InputError
from di2pose.interruption import check
from di2pose.noise import Noise, uniform

PredictP0 = Callable[[Tensor, Tensor], Tensor]
"""(k_s (B, N), s (B,)) -> probabilities of k_0 (B, N, C)."""


def sample(
    predict_p0: PredictP0,
    schedule: Schedule,
    steps: int | Sequence[int],
    shape: tuple[int, int],
    generator: Noise,
    device: torch.device | str = "cpu",
) -> Iterator[Int[Tensor, "B N"]]:
    """Iterate over the start k_S, then k_r after each reverse jump, k_0 last: steps + 1 tensors of `shape` (B, N).

    `steps` is a count, spread evenly over S..0, or an explicit descending list from S to 0; jumps of any length use
    the exact posterior.
    """
    grid = step_grid(steps, schedule)
    ks = draw_start(schedule, shape, generator).to(device)
    yield ks
    for s, r in pairwise(grid):
        check()
        p0 = predict_p0(ks, torch.full((len(ks),), s, device=ks.device))
        if tuple(p0.shape) != (*ks.shape, schedule.codes):
            raise InputError(f"predict_p0 must return shape {(*ks.shape, schedule.codes)}, got {tuple(p0.shape)}")
        ks = draw(posterior(p0, ks, r, s, schedule), generator)
        yield ks


def draw_start(schedule: Schedule, shape: tuple[int, int], generator: Noise) -> Int[Tensor, "B N"]:
    """k_S ~ p(k_S), the stationary distribution: q(k_S | k_0), which is the same for every k_0."""
    return forward_sample(torch.zeros(shape, dtype=torch.int64), schedule.steps, schedule, generator)


def draw(probs: Float[Tensor, "B N K"], generator: Noise) -> Int[Tensor, "B N"]:
    """One draw from each row of probabilities."""
    u = uniform(probs.shape[:2], generator, probs.device)
    return inverse_transform(probs.flatten(0, 1), u.flatten()).view(u.shape)
