"""The reverse process: from noise to tokens, with the network passed in.  B batch, N tokens, C codes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from di2pose.diffusion.jump import AskP0, P0Of, jump
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import check_possible
from di2pose.errors import InputError
from di2pose.interruption import check
from di2pose.noise import Noise, mirrored, uniform, uniform_integers
from di2pose.tokenizer.fsq import check_tokens

PredictP0 = Callable[[Tensor, Tensor], Tensor | AskP0]
"""(k_s (B, N), s (B,)) -> probabilities of k_0 (B, N, C), or a function that gives those of some tokens (`jump`)."""
Kept = tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]]
"""(tokens, which of them are to stay)."""


def sample(
    predict_p0: PredictP0,
    schedule: Schedule,
    steps: int | Sequence[int],
    shape: tuple[int, int],
    generator: Noise,
    *,
    kept: Kept | None = None,
    device: torch.device | str = "cpu",
    levels: Sequence[int] = (),
) -> Iterator[Int[Tensor, "B N"]]:
    """Iterate over the start k_S, then k_r after each reverse jump, k_0 last: steps + 1 tensors of `shape` (B, N).

    `steps` is a count, spread evenly over S..0, or an explicit descending list from S to 0; jumps of any length use
    the exact posterior. `levels` are those of the codebook's channels, the fastest first: with them the channels of a
    code are drawn one after the other (`jump.draw_codes`). Where the uniforms of a jump decide every token before p0 is
    known, `predict_p0` is not called.

    Extension, off by default and not in the paper: `kept` tokens stand clean from the start on; the network takes them
    for revealed ones and fits the others to them.
    """
    grid = step_grid(steps, schedule)
    first = draw_start(schedule, shape, generator).to(device)
    stays = None
    if kept is not None:
        stays = kept[1].to(device)
        first = torch.where(stays, kept[0].to(device), first)
    check_tokens(first, schedule.codes + 1)
    check_possible(first == schedule.occ, torch.full((len(first),), grid[0]), schedule)

    def states() -> Iterator[Tensor]:
        ks = first
        yield ks
        for s, r in pairwise(grid):
            check()
            u = uniform((*shape, (len(levels) or 1) + 1), generator, ks.device)
            u = torch.cat([mirrored(u[..., :-1], generator), u[..., -1:]], dim=-1)
            ks = jump(ks, u, r, s, schedule, _ask(predict_p0, ks, s, schedule.codes), levels, stays)
            yield ks

    return states()  # not a generator function itself: bad arguments are refused by the call, not by the first step


def _ask(predict_p0: PredictP0, ks: Tensor, s: int, codes: int) -> AskP0:
    """The network is asked when the first tokens are asked for."""

    def ask(asked: Tensor) -> P0Of:
        found = predict_p0(ks, torch.full((len(ks),), s, device=ks.device))
        if not isinstance(found, Tensor):
            return found(asked)
        if tuple(found.shape) != (*ks.shape, codes):
            raise InputError(f"predict_p0 must return shape {(*ks.shape, codes)}, got {tuple(found.shape)}")
        flat = found.flatten(0, 1)
        return lambda rows: flat[rows]

    return ask


def step_grid(steps: int | Sequence[int], schedule: Schedule) -> list[int]:
    """The steps visited, from S to 0: e.g. 100, 96, ..., 4, 0 for 25 steps of 100."""
    top = schedule.steps
    if isinstance(steps, int):
        if not 1 <= steps <= top:
            raise InputError(f"the count of reverse steps must lie in 1..{top}, got {steps}")
        return [round(top * (steps - i) / steps) for i in range(steps + 1)]
    grid = list(steps)
    if len(grid) < 2 or grid[0] != top or grid[-1] != 0 or any(s <= r for s, r in pairwise(grid)):
        raise InputError(f"a list of steps must descend from {top} to 0, got {grid}")
    return grid


def draw_start(schedule: Schedule, shape: tuple[int, int], generator: Noise) -> Int[Tensor, "B N"]:
    """k_S from the stationary distribution p(k_S)."""
    fate = uniform(shape, generator)
    other = uniform_integers(shape, schedule.codes, generator)
    return torch.where(fate < schedule.final_occlude, schedule.occ, other)
