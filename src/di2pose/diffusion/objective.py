"""The training objective: one-step KL of the variational bound, plus cross-entropy to the clean tokens.

B batch, N tokens, C codes.  All in closed form, a chunk of rows at a time. Where there are several, they are computed
again in the backward pass: beside the logits and their gradient only chunks are alive, where plain autograd would keep
a dozen logit-sized tensors.
"""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import as_steps, check_possible, rates, rates_between
from di2pose.errors import InputError
from di2pose.tokenizer.fsq import check_tokens

CHUNK_ELEMENTS = 1 << 20
"""Logits handled at once: 4 MB a temporary in float32."""


def diffusion_loss(
    logits: Float[Tensor, "B N C"],
    k0: Int[Tensor, "B N"],
    ks: Int[Tensor, "B N"],
    s: Int[Tensor, " B"],
    schedule: Schedule,
    aux_weight: float,
) -> dict[str, Tensor]:
    """`loss` = `vlb` + aux_weight * `aux`, where logits give p0 = f_theta(k_0 | k_s, y).

    vlb  KL(q(k_{s-1} | k_s, k_0) || p_theta(k_{s-1} | k_s)), mean over tokens and batch, NOT times S;
         at s = 1 it is the negative log-likelihood of k_0.
    aux  -log p0[k_0], mean over all tokens.
    """
    if logits.ndim != 3 or logits.shape[2] != schedule.codes or not (logits.shape[:2] == k0.shape == ks.shape):
        raise InputError(
            f"logits must have shape (B, N, {schedule.codes}), k0 and ks (B, N), "
            f"got {tuple(logits.shape)}, {tuple(k0.shape)} and {tuple(ks.shape)}"
        )
    check_tokens(k0, schedule.codes)
    check_tokens(ks, schedule.codes + 1)
    s = as_steps(s, len(k0), schedule, lowest=1)
    check_possible(ks == schedule.occ, s, schedule)

    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    table = _row_coefficients(k0.cpu(), ks.cpu(), s, schedule).to(dtype).to(logits.device)
    size = max(1, CHUNK_ELEMENTS // schedule.codes)
    chunks = list(zip(logits.flatten(0, 1).split(size), k0.flatten().split(size), ks.flatten().split(size),
                      table.flatten(1).split(size, 1), strict=True))  # fmt: skip
    kept = partial(checkpoint, _kl_and_ce, use_reentrant=False, preserve_rng_state=False)
    with torch.autocast(logits.device.type, enabled=False):
        rows = [(kept if len(chunks) > 1 else _kl_and_ce)(*chunk) for chunk in chunks]
    vlb, aux = (torch.cat(parts).mean() for parts in zip(*rows, strict=True))
    return {"loss": vlb + aux_weight * aux, "vlb": vlb, "aux": aux}


def _row_coefficients(k0: Tensor, ks: Tensor, s: Tensor, schedule: Schedule) -> Tensor:
    """The scalars of `_kl_and_ce` for each (B, N) row, stacked on the first axis; float64.

    In the notation of `posterior` with r = s - 1. Both distributions of the KL carry the same factor
    f[k] = f_any + f_m [k = m] and are f[k] * (keep w[k] + u sum(w)), with w built from the one-hot k_0 or from p0.
    """
    C, r = schedule.codes, s - 1
    a, b, g = rates_between(r, s, schedule)
    keep, replace, _ = rates(r, schedule)
    keep_s, replace_s, occlude_s = rates(s, schedule)
    u_r, u_s = replace / C, replace_s / C
    occluded = ks == schedule.occ
    certain = (u_s == 0).view(-1, 1) & ~occluded
    safe_u_s, safe_occ = torch.where(u_s > 0, u_s, 1), torch.where(occlude_s > 0, occlude_s, 1)

    def rows(of_occ: Tensor, of_visible: Tensor) -> Tensor:
        return torch.where(occluded, of_occ.view(-1, 1), of_visible.view(-1, 1))

    f_any = rows(g / safe_occ, b / (C * safe_u_s))
    f_m = rows(torch.zeros_like(a), a / safe_u_s)
    damping = rows(torch.ones_like(a), safe_u_s / (safe_u_s + keep_s))
    # A visible token of an occlude-only process is certain: its KL is 0, and so is its gradient.
    f_any, f_m = f_any.masked_fill(certain, 0), f_m.masked_fill(certain, 0)
    return torch.stack([f_any, f_m, damping, keep.view(-1, 1).expand(k0.shape), u_r.view(-1, 1).expand(k0.shape)])


def _kl_and_ce(logits: Tensor, k0: Tensor, ks: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """KL and cross-entropy of each row: logits (R, C), k0 and ks (R,), table (5, R)."""
    f_any, f_m, damping, keep, u = table
    codes = logits.shape[1]
    visible = ks < codes
    m = ks.clamp(max=codes - 1)
    same = visible & (k0 == m)  # the true code is the one that is seen

    logp = logits.to(table.dtype).log_softmax(-1)
    at_k0, at_m = (logp.gather(1, k.unsqueeze(1)).squeeze(1) for k in (k0, m))
    # sum(w): of p0, and of the one-hot k_0. The mass of the other codes is summed, not 1 - p0[m]: that would cancel.
    others = logp.scatter(1, m.unsqueeze(1), float("-inf")).logsumexp(1)
    log_total = torch.logaddexp(others, at_m + damping.log())
    true_total = torch.where(same, damping, 1)

    log_u = u.log() + log_total  # -inf where nothing was replaced before: those terms are absent
    true_m = torch.where(same, keep * damping, 0) + u * true_total
    term_m = f_any + f_m, true_m, torch.logaddexp((keep * damping).log() + at_m, log_u)
    term_k0 = f_any, keep + u * true_total, torch.logaddexp(keep.log() + at_k0, log_u)

    def divergence(factor: Tensor, true: Tensor, log_predicted: Tensor) -> Tensor:
        return factor * (torch.special.xlogy(true, true) - true * log_predicted)

    # The codes that are neither k_0 nor m all have true weight u * true_total.
    scale = torch.where(u > 0, keep / torch.where(u > 0, u, 1) * (-log_total).exp(), 0)
    excess = torch.log1p(scale.unsqueeze(1) * logp.exp())
    excess_k0, excess_m = (excess.gather(1, k.unsqueeze(1)).squeeze(1) for k in (k0, m))
    counted = excess.sum(1) - excess_k0 - torch.where(visible & ~same, excess_m, 0)
    count = codes - 1 - (visible & ~same).to(u.dtype)
    rest = f_any * u * true_total * (count * (true_total.log() - log_total) - counted)

    kl = rest + torch.where(visible, divergence(*term_m), 0) + torch.where(same, 0, divergence(*term_k0))
    return kl, -at_k0
