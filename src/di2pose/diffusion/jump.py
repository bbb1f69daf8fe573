"""One reverse jump, drawn: k_r ~ p(k_r | k_s), exact, with p0 asked for only where it decides something.

B batch, N tokens, R some of the B * N tokens, C codes, d channels of a code. The distribution is that of
`transition.posterior`, whose notation this has; but where that writes out C + 1 probabilities for every token, here
most tokens are decided by one uniform before the network's head is computed.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from di2pose.diffusion.schedule import Schedule
from di2pose.errors import InputError

P0Of = Callable[[Tensor], Tensor]
"""Numbers (R,) of tokens, counted through the batch -> their probabilities of k_0 (R, C), which may be overwritten."""
AskP0 = Callable[[Tensor], P0Of]
"""Numbers of all tokens that will be asked for, ascending -> what answers for some of them at a time."""
CHUNK_ELEMENTS = 1 << 20
"""Probabilities handled at once: 4 MB a temporary in float32, whatever the batch."""
SLACK = 1 + 1e-6
"""The bound is formed in float64, what it bounds in float32."""


def jump(
    ks: Int[Tensor, "B N"],
    u: Float[Tensor, "B N d_plus_1"],
    r: int,
    s: int,
    schedule: Schedule,
    ask: AskP0,
    levels: Sequence[int] = (),
    kept: Bool[Tensor, "B N"] | None = None,
) -> Int[Tensor, "B N"]:
    """k_r from uniforms u, of which the last decides whether a token changes, the others to which code.

    Occ:        stays with probability occlude_r / occlude_s, whatever p0 is.
    Visible m:  leaves m with probability b / (C u_s) * sum over k != m of (keep_r w[k] + u_r sum(w)), which is at most
                b / (C u_s) * (keep_r + C u_r): above that the uniform has decided, below it p0 completes the decision.

    `kept` tokens stay. A jump to r = 0 asks for every token that is not kept.
    """
    odds = _odds(r, s, schedule)
    occluded = ks == schedule.occ
    undecided = (u[..., -1] < torch.where(occluded, odds.stay_occluded, odds.most)) != occluded
    if kept is not None:
        undecided &= ~kept
    asked = undecided.flatten().nonzero().squeeze(1)
    if not len(asked):
        return ks
    p0_of = ask(asked)
    tokens, uniforms = ks.flatten().clone(), u.flatten(0, 1)
    for rows in asked.split(max(1, CHUNK_ELEMENTS // schedule.codes)):
        p0 = p0_of(rows)
        if tuple(p0.shape) != (len(rows), schedule.codes):
            raise InputError(
                f"p0 of {len(rows)} tokens must have shape {(len(rows), schedule.codes)}, got {tuple(p0.shape)}"
            )
        tokens[rows] = _decide(p0, tokens[rows], uniforms[rows], odds, levels)
    return tokens.view_as(ks)


class _Odds(NamedTuple):
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
def _odds(r: int, s: int, schedule: Schedule) -> _Odds:
    C = schedule.codes
    keep_r, replace_r, occlude_r = (float(array[r]) for array in (schedule.keep, schedule.replace, schedule.occlude))
    keep_s, replace_s, occlude_s = (float(array[s]) for array in (schedule.keep, schedule.replace, schedule.occlude))
    a, b, _ = (float(x) for x in schedule.between(torch.tensor(r), torch.tensor(s)))
    stay = occlude_r / occlude_s if occlude_s else 0.0
    if not replace_s:  # a visible token can only come from itself
        return _Odds(stay, 0.0, keep_r, 0.0, 1.0, 1.0)
    most = b / replace_s * (1 - occlude_r) * SLACK
    return _Odds(stay, most, keep_r, replace_r / C, replace_s / (replace_s + C * keep_s), 1 + C * a / b)


def _decide(
    p0: Float[Tensor, "R C"], old: Int[Tensor, " R"], u: Tensor, odds: _Odds, levels: Sequence[int]
) -> Int[Tensor, " R"]:
    """What undecided tokens become: revealed ones (Occ until now) a code, visible ones a code or what they are."""
    codes = p0.shape[1]
    visible = old < codes
    m = old.clamp(max=codes - 1).unsqueeze(1)                               # R 1
    at_m = p0.gather(1, m) * visible.unsqueeze(1)                           # R 1; 0 where k_s = Occ
    p0.scatter_add_(1, m, -at_m)                                            # R C; exactly 0 at a visible m
    others = p0.sum(1)                                                      # R; not 1 - p0[m]: that would cancel
    w_m = odds.damping * at_m.squeeze(1)
    total = others + w_m
    goes = odds.keep * others + (codes - 1) * odds.even * total
    stays = odds.at_m * (odds.keep * w_m + odds.even * total)
    changes = ~visible | (u[:, -1] * (goes + stays) < goes)
    rows = changes.nonzero().squeeze(1)
    if not len(rows):
        return old
    weights, visible, m = p0[rows], visible[rows], m[rows]
    if odds.even:
        weights = weights.mul_(odds.keep).add_((odds.even * total[rows]).unsqueeze(1))
        weights.scatter_(1, m, weights.gather(1, m).masked_fill(visible.unsqueeze(1), 0))
    return old.index_copy(0, rows, draw_codes(weights, u[rows, :-1], levels))


def draw_codes(
    weights: Float[Tensor, "R C"], u: Float[Tensor, "R d"], levels: Sequence[int] = ()
) -> Int[Tensor, " R"]:
    """One draw from each row of weights, which need not sum to 1; channel by channel, each by inverse transform of a
    uniform of its own. Mirrored uniforms (`noise.mirrored`) then give codes on the other side in every channel."""
    levels = tuple(levels) or (weights.shape[1],)
    left = weights.view(len(weights), *reversed(levels))  # the slowest channel first
    rows = torch.arange(len(weights), device=weights.device)
    code = torch.zeros_like(rows)
    for channel, level in enumerate(reversed(levels)):
        digit = _inverse_transform(left.flatten(2).sum(-1) if left.ndim > 2 else left, u[:, channel])
        left, code = left[rows, digit], code * level + digit
    return code


def truncated(logits: Float[Tensor, "*rows C"], temperature: float = 1.0, top_r: float = 1.0) -> Tensor:
    """Probabilities at a temperature, of the most probable codes that together hold top_r of the mass; 1 and 1 is the
    plain softmax. Extensions of the sampler (top_r is VQ-Diffusion's truncation), not in the paper."""
    p0 = (logits / temperature if temperature != 1 else logits).softmax(-1)
    if top_r >= 1:
        return p0
    ranked, order = p0.sort(-1, descending=True)
    before = ranked.cumsum(-1) - ranked                                     # mass of the codes that are likelier
    p0 = p0.scatter(-1, order, ranked.masked_fill(before >= top_r, 0))
    return p0 / p0.sum(-1, keepdim=True)


def _inverse_transform(probs: Float[Tensor, "R L"], u: Float[Tensor, " R"]) -> Int[Tensor, " R"]:
    cumulated = probs.cumsum(-1)
    total = cumulated[:, -1:]
    # Strictly below the total, so that rounding can never reach a code of probability 0 behind the last possible one.
    point = torch.minimum(u.unsqueeze(1).to(probs.dtype) * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, point, right=True).squeeze(1).clamp_(max=probs.shape[1] - 1)
