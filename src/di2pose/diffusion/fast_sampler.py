"""The sampler of predictions: Algorithm 2 with lazy evaluation of the network's head, on PyTorch's or NumPy's arrays.

B batch, N tokens, A undecided ones of the B * N tokens, R some of those, C codes, d channels of a code.

The distribution is that of `sampler.sample` and `transition.posterior`, whose notation this has. But where the
posterior is C + 1 probabilities for every token, here one uniform decides most tokens before p0 is known, and p0 is
computed for the others only. Codes are drawn channel by channel from uniforms that may be mirrored (antithetic).
Imports no PyTorch: the ONNX model samples with it.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from di2pose.diffusion.schedule import Schedule
from di2pose.errors import InputError
from di2pose.interruption import check

LazyP0 = Callable[[Any, int, Any], Iterable[Any]]
"""(k_s (B, N), s, ascending numbers (A,) of tokens, counted through the batch) -> the probabilities of k_0 of those
tokens (A, C), in one or several blocks of rows, which may be overwritten."""
Draw = Callable[[tuple[int, ...]], Any]
"""Shape, rows first -> uniforms in [0, 1), float32."""
CHUNK_ELEMENTS = 1 << 20
"""Probabilities in a block of p0: 4 MB in float32, whatever the batch."""
SLACK = 1 + 1e-6
"""The bound is formed in float64, what it bounds in float32."""


def fast_sample(
    predict_p0: LazyP0,
    schedule: Schedule,
    grid: Sequence[int],
    shape: tuple[int, int],
    draw: Draw,
    mirror: Callable[[Any], Any],
    levels: Sequence[int] = (),
    kept: tuple[Any, Any] | None = None,
) -> Iterator[Int[Any, "B N"]]:
    """k_s at every step of the grid (`schedule.step_grid`), from k_S to k_0.

    `mirror` mirrors those rows of uniforms that are to be mirrored. `levels` are those of the codebook's channels, the
    fastest first; without them a code is drawn as a whole. `kept` (an extension): tokens (B, N) and which of them stay.
    """
    ks = draw_start(schedule, shape, draw)
    stays = None
    if kept is not None:
        tokens, stays = kept
        if bool((stays & ((tokens < 0) | (tokens >= schedule.codes))).any()):
            raise InputError(f"kept tokens must lie in 0..{schedule.codes - 1}")
        ks = _arrays_of(ks).where(stays, tokens, ks)
    yield ks
    for s, r in pairwise(grid):
        check()
        u = draw((*shape, (len(levels) or 1) + 1))
        u = _arrays_of(u).concatenate([mirror(u[..., :-1]), u[..., -1:]], -1)
        ks = jump(ks, u, r, s, schedule, predict_p0, levels, stays)
        yield ks


def draw_start(schedule: Schedule, shape: tuple[int, int], draw: Draw) -> Int[Any, "B N"]:
    """k_S from the stationary distribution p(k_S)."""
    fate, other = draw(shape), draw(shape)
    xp = _arrays_of(other)
    code = xp.asarray(other * schedule.codes, dtype=xp.int64)
    return xp.where(fate < schedule.final_occlude, schedule.occ, code.clip(max=schedule.codes - 1))


def jump(
    ks: Int[Any, "B N"],
    u: Float[Any, "B N d_plus_1"],
    r: int,
    s: int,
    schedule: Schedule,
    predict_p0: LazyP0,
    levels: Sequence[int] = (),
    kept: Bool[Any, "B N"] | None = None,
) -> Int[Any, "B N"]:
    """k_r ~ p(k_r | k_s) from uniforms u, of which the last decides whether a token changes, the others to which code.

    Occ:        stays with probability occlude_r / occlude_s, whatever p0 is.
    Visible m:  leaves m with probability b / (C u_s) * sum over k != m of (keep_r w[k] + u_r sum(w)), which is at most
                b / (C u_s) * (keep_r + C u_r): above that the uniform has decided, below it p0 completes the decision.

    `kept` tokens stay. p0 is computed for the undecided tokens, if there are any; in a jump to r = 0 these are all that
    are not kept.
    """
    xp = _arrays_of(ks)
    step = _step_coefficients(r, s, schedule)
    changing = u[..., -1]
    undecided = xp.where(ks == schedule.occ, changing >= step.stay_occluded, changing < step.most)
    if kept is not None:
        undecided &= ~kept
    asked = xp.where(undecided.reshape(-1))[0]
    if not len(asked):
        return ks
    tokens, uniforms, done = ks.reshape(-1) + 0, u.reshape(-1, u.shape[-1]), 0  # + 0: a copy
    for p0 in predict_p0(ks, s, asked):
        rows = asked[done : done + len(p0)]
        if tuple(p0.shape) != (len(rows), schedule.codes):
            raise InputError(
                f"p0 of {len(asked)} tokens must have shape {(len(asked), schedule.codes)}, got a block "
                f"{tuple(p0.shape)} for {len(rows)} of them"
            )
        changed, codes = _decide(p0, tokens[rows], uniforms[rows], step, levels)
        tokens[rows[changed]] = codes
        done += len(rows)
    return tokens.reshape(ks.shape)


class _StepCoefficients(NamedTuple):
    """The scalars of a jump s -> r, in the notation of `posterior`."""

    stay_occluded: float
    most: float
    """The largest probability with which a visible token changes, whatever p0 is."""
    keep: float
    even: float
    """u_r"""
    damping: float
    """w[m] / p0[m]"""
    at_m: float
    """How much likelier m is than another code of the same mixture: 1 + C a / b."""


@lru_cache(maxsize=1024)
def _step_coefficients(r: int, s: int, schedule: Schedule) -> _StepCoefficients:
    C = schedule.codes
    keep_r, replace_r, occlude_r = (float(array[r]) for array in (schedule.keep, schedule.replace, schedule.occlude))
    keep_s, replace_s, occlude_s = (float(array[s]) for array in (schedule.keep, schedule.replace, schedule.occlude))
    a, b, _ = schedule.between(r, s)
    stay = occlude_r / occlude_s if occlude_s else 0.0
    if not replace_s:  # a visible token can only come from itself
        return _StepCoefficients(stay, 0.0, keep_r, 0.0, 1.0, 1.0)
    most, damping = b / replace_s * (1 - occlude_r) * SLACK, replace_s / (replace_s + C * keep_s)
    return _StepCoefficients(stay, float(most), keep_r, replace_r / C, damping, float(1 + C * a / b))


def _decide(
    p0: Float[Any, "R C"], old: Int[Any, " R"], u: Any, step: _StepCoefficients, levels: Sequence[int]
) -> tuple[Int[Any, " c"], Int[Any, " c"]]:
    """Which of the undecided tokens change, and the codes that they become: all Occ tokens, some visible ones."""
    codes, every = p0.shape[1], _numbers(old)
    visible, m = old < codes, old.clip(max=codes - 1)
    at_m = p0[every, m] * visible                                           # R; 0 where k_s = Occ
    p0[every, m] -= at_m                                                    # R C; exactly 0 at a visible m
    others = p0.sum(1)                                                      # R; not 1 - p0[m]: that would cancel
    w_m = step.damping * at_m
    total = others + w_m
    goes = step.keep * others + (codes - 1) * step.even * total
    stays = step.at_m * (step.keep * w_m + step.even * total)
    changed = _arrays_of(p0).where(~visible | (u[:, -1] * (goes + stays) < goes))[0]
    weights = p0[changed]                                                   # c C
    if step.even:
        weights *= step.keep
        weights += (step.even * total[changed])[:, None]
        weights[_numbers(changed), m[changed]] *= ~visible[changed]
    return changed, draw_codes(weights, u[changed, :-1], levels)


def draw_codes(weights: Float[Any, "R C"], u: Float[Any, "R d"], levels: Sequence[int] = ()) -> Int[Any, " R"]:
    """One draw from each row of weights, which need not sum to 1; channel by channel, each by inverse transform of a
    uniform of its own. Mirrored uniforms then give codes on the other side in every channel."""
    levels = tuple(levels) or (weights.shape[1],)
    left = weights.reshape(len(weights), *reversed(levels))                 # the slowest channel first
    rows, code = _numbers(weights), _numbers(weights) * 0
    for channel, level in enumerate(reversed(levels)):
        digit = inverse_transform(left.reshape(len(left), level, math.prod(left.shape[2:])).sum(-1), u[:, channel])
        left, code = left[rows, digit], code * level + digit
    return code


def inverse_transform(weights: Float[Any, "R L"], u: Float[Any, " R"]) -> Int[Any, " R"]:
    """One draw from each row of weights."""
    xp = _arrays_of(weights)
    cumulated = weights.cumsum(-1)
    total = cumulated[:, -1:]
    # Strictly below the total, so that rounding can never reach a code of probability 0 behind the last possible one.
    point = xp.minimum(u[:, None] * total, xp.nextafter(total, xp.zeros_like(total)))
    return (cumulated <= point).sum(1).clip(max=weights.shape[1] - 1)


def _arrays_of(x: Any) -> Any:
    """The module of an array's functions: NumPy or PyTorch, which is imported where there are tensors."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def _numbers(x: Any) -> Int[Any, " R"]:
    """0, 1, ... of the rows of an array, on its device."""
    return np.arange(len(x)) if isinstance(x, np.ndarray) else sys.modules["torch"].arange(len(x), device=x.device)
