"""The reverse process in numpy: `diffusion.sampler` and `diffusion.jump`, draw for draw.  B rows, N tokens, C codes.

The same noise gives the same tokens, up to draws that fall on the edge of two codes to the last bits of a float32.
Why each line is right, those files say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from di2pose.config import added
from di2pose.errors import InputError
from di2pose.noise import AntitheticNoise, antithetic_mirrored, antithetic_uniform

P0Of = Callable[[np.ndarray], np.ndarray]
"""Numbers (R,) of tokens, counted through the batch -> their probabilities of k_0 (R, C)."""
PredictP0 = Callable[[np.ndarray, int], P0Of]
Kept = tuple[Int[np.ndarray, "B N"], Bool[np.ndarray, "B N"]]
CHUNK_ELEMENTS = 1 << 20
SLACK = 1 + 1e-6


@dataclass(frozen=True)
class Schedule:
    """`diffusion.schedule.Schedule`, as a folder tells it: keep, replace, occlude after steps 0..S."""

    codes: int
    final_occlude: float
    keep: tuple[float, ...]
    replace: tuple[float, ...]
    occlude: tuple[float, ...]
    carry_over: bool = added(False)
    """Whether the head gives p(k_0 | all tokens but its own, y): that is p0 / q(k_s | k_0) already, so that the visible
    code is not damped."""

    @property
    def steps(self) -> int:
        return len(self.keep) - 1

    @property
    def occ(self) -> int:
        return self.codes


class Odds(NamedTuple):
    """The scalars of a jump s -> r: see `diffusion.jump`."""

    stay_occluded: float
    most: float
    keep: float
    even: float
    damping: float
    at_m: float


def odds_of(r: int, s: int, schedule: Schedule) -> Odds:
    C = schedule.codes
    keep_r, replace_r, occlude_r = schedule.keep[r], schedule.replace[r], schedule.occlude[r]
    keep_s, replace_s, occlude_s = schedule.keep[s], schedule.replace[s], schedule.occlude[s]
    stay = occlude_r / occlude_s if occlude_s else 0.0
    if not replace_s:
        return Odds(stay, 0.0, keep_r, 0.0, 1.0, 1.0)
    a = keep_s / keep_r
    b = (replace_s * keep_r - keep_s * replace_r) / (keep_r * (1 - occlude_r))
    most = b / replace_s * (1 - occlude_r) * SLACK
    damping = 1.0 if schedule.carry_over else replace_s / (replace_s + C * keep_s)
    return Odds(stay, most, keep_r, replace_r / C, damping, 1 + C * a / b)


def sample(
    predict_p0: PredictP0,
    schedule: Schedule,
    steps: int,
    shape: tuple[int, int],
    noise: Sequence[AntitheticNoise],
    levels: Sequence[int] = (),
    kept: Kept | None = None,
) -> Int[np.ndarray, "B N"]:
    """k_0 after `steps` reverse jumps from the stationary distribution."""
    if not 1 <= steps <= schedule.steps:
        raise InputError(f"the count of reverse steps must lie in 1..{schedule.steps}, got {steps}")
    grid = [round(schedule.steps * (steps - i) / steps) for i in range(steps + 1)]
    fate = antithetic_uniform(shape, noise)
    other = (antithetic_uniform(shape, noise) * np.float32(schedule.codes)).astype(np.int64)
    ks = np.where(fate < np.float32(schedule.final_occlude), schedule.occ, np.minimum(other, schedule.codes - 1))
    stays = None
    if kept is not None:
        ks, stays = np.where(kept[1], kept[0], ks), kept[1]
    for s, r in pairwise(grid):
        u = antithetic_uniform((*shape, (len(levels) or 1) + 1), noise)
        u = np.concatenate([antithetic_mirrored(u[..., :-1], noise), u[..., -1:]], axis=-1)
        ks = jump(ks, u, odds_of(r, s, schedule), schedule.codes, partial(predict_p0, ks, s), levels, stays)
    return ks


def jump(
    ks: Int[np.ndarray, "B N"],
    u: Float[np.ndarray, "B N d_plus_1"],
    odds: Odds,
    codes: int,
    ask: Callable[[], P0Of],
    levels: Sequence[int] = (),
    kept: Bool[np.ndarray, "B N"] | None = None,
) -> Int[np.ndarray, "B N"]:
    """k_r from uniforms; `ask` runs the trunk, and is called only where the uniforms leave a token undecided."""
    occluded = ks == codes
    bound = np.where(occluded, np.float32(odds.stay_occluded), np.float32(odds.most))
    undecided = (u[..., -1] < bound) != occluded
    if kept is not None:
        undecided &= ~kept
    asked = np.flatnonzero(undecided)
    if not len(asked):
        return ks
    p0_of = ask()
    tokens, uniforms = ks.flatten(), u.reshape(-1, u.shape[-1])
    chunk = max(1, CHUNK_ELEMENTS // codes)
    for first in range(0, len(asked), chunk):
        rows = asked[first : first + chunk]
        tokens[rows] = _decide(p0_of(rows), tokens[rows], uniforms[rows], odds, levels)
    return tokens.reshape(ks.shape)


def _decide(
    p0: Float[np.ndarray, "R C"], old: Int[np.ndarray, " R"], u: np.ndarray, odds: Odds, levels: Sequence[int]
) -> Int[np.ndarray, " R"]:
    codes = p0.shape[1]
    visible = old < codes
    every, m = np.arange(len(old)), np.minimum(old, codes - 1)
    at_m = p0[every, m] * visible
    p0[every, m] -= at_m
    others = p0.sum(1)
    w_m = odds.damping * at_m
    total = others + w_m
    goes = odds.keep * others + (codes - 1) * odds.even * total
    stays = odds.at_m * (odds.keep * w_m + odds.even * total)
    changes = ~visible | (u[:, -1] * (goes + stays) < goes)
    rows = np.flatnonzero(changes)
    weights = p0[rows]
    if odds.even:
        weights = weights * odds.keep + (odds.even * total[rows])[:, None]
        weights[np.arange(len(rows)), m[rows]] *= ~visible[rows]
    new = old.copy()
    new[rows] = draw_codes(weights, u[rows, :-1], levels)
    return new


def draw_codes(
    weights: Float[np.ndarray, "R C"], u: Float[np.ndarray, "R d"], levels: Sequence[int] = ()
) -> Int[np.ndarray, " R"]:
    """One draw from each row of weights, channel by channel."""
    levels = tuple(levels) or (weights.shape[1],)
    left = weights.reshape(len(weights), *reversed(levels))
    rows, code = np.arange(len(weights)), np.zeros(len(weights), np.int64)
    for channel, level in enumerate(reversed(levels)):
        digit = _inverse_transform(left.reshape(*left.shape[:2], -1).sum(-1), u[:, channel])
        left, code = left[rows, digit], code * level + digit
    return code


def _inverse_transform(probs: Float[np.ndarray, "R L"], u: Float[np.ndarray, " R"]) -> Int[np.ndarray, " R"]:
    cumulated = probs.cumsum(-1)
    total = cumulated[:, -1:]
    point = np.minimum(u[:, None] * total, np.nextafter(total, np.zeros_like(total)))
    return np.minimum((cumulated <= point).sum(1), probs.shape[1] - 1)
