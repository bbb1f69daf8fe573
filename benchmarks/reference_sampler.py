"""Discrete diffusion the way public code computes it, to measure ours against.  B batch, N tokens, C codes, Occ is C.

Everything is a (B, C + 1, N) tensor of logarithms: tokens as log one-hot vectors, the posterior by log-sum-exp over all
codes, a draw by Gumbel noise and argmax; autograd goes through all of it. Keys and values of the image are computed in
every step, and hypotheses one after the other. Steps of one only, where ours may jump. The distributions are the same
(`tests/test_benchmarks.py`).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from di2pose.diffusion import Denoiser, Schedule

FLOOR = -70.0
"""Stands for the logarithm of 0."""


def log_one_hot(tokens: Tensor, count: int) -> Tensor:
    return F.one_hot(tokens, count).movedim(-1, 1).float().clamp_min(1e-30).log().clamp_min(FLOOR)


def _log(x: Any) -> Tensor:
    return torch.as_tensor(x).clamp_min(1e-30).log().float().view(-1, 1, 1)


def q_one_step(log_k: Tensor, s: Tensor, schedule: Schedule) -> Tensor:
    """log q(k_s | k_{s-1}) for a log distribution of k_{s-1}, by rows s."""
    keep, replace, occlude = schedule.between(s - 1, s)
    codes = torch.logaddexp(log_k[:, :-1] + _log(keep), _log(replace / schedule.codes).expand_as(log_k[:, :-1]))
    return torch.cat([codes, torch.logaddexp(log_k[:, -1:] + _log(1 - occlude), _log(occlude))], dim=1)


def q_cumulated(log_k0: Tensor, s: Tensor, schedule: Schedule) -> Tensor:
    """log q(k_s | k_0) for a log distribution of k_0."""
    even = _log(schedule.replace[s] / schedule.codes).expand_as(log_k0[:, :-1])
    codes = torch.logaddexp(log_k0[:, :-1] + _log(schedule.keep[s]), even)
    last = torch.logaddexp(log_k0[:, -1:] + _log(1 - schedule.occlude[s]), _log(schedule.occlude[s]))
    return torch.cat([codes, last], dim=1)


def log_posterior(log_p0: Tensor, ks: Tensor, s: Tensor, schedule: Schedule) -> Tensor:
    """log p(k_{s-1} | k_s) (B, C + 1, N) from log p0 (B, C + 1, N), whose last row is FLOOR."""
    log_ks = log_one_hot(ks, schedule.codes + 1)
    occluded = (ks == schedule.occ).unsqueeze(1)
    absent = torch.full_like(log_ks[:, -1:], FLOOR)
    seen = torch.cat([q_cumulated(log_ks, s, schedule)[:, :-1], absent], dim=1)
    hidden = _log(schedule.occlude[s]).expand_as(log_ks[:, :-1])
    likelihood = torch.where(occluded, torch.cat([hidden, absent], dim=1), seen)        # log q(k_s | k_0), by k_0
    _, _, occlude = schedule.between(s - 1, s)
    step_seen = torch.cat([q_one_step(log_ks, s, schedule)[:, :-1], absent], dim=1)
    step_hidden = torch.cat([_log(occlude).expand_as(hidden), torch.zeros_like(absent)], dim=1)
    step = torch.where(occluded, step_hidden, step_seen)                                # log q(k_s | k_{s-1})
    ratio = torch.cat([(log_p0 - likelihood)[:, :-1], absent], dim=1)
    total = ratio.logsumexp(1, keepdim=True)
    return (q_cumulated(ratio - total, s - 1, schedule) + step + total).clamp(FLOOR, 0)


def log_p0_of(logits: Tensor) -> Tensor:
    """(B, N, C) -> (B, C + 1, N), as the transposed tensors of public code have it."""
    log_p = logits.double().log_softmax(-1).float().clamp(FLOOR, 0).movedim(-1, 1)
    return torch.cat([log_p, torch.full_like(log_p[:, :1], FLOOR)], dim=1)


def reverse_step(denoiser: Denoiser, features: Tensor, ks: Tensor, s: int, schedule: Schedule) -> Tensor:
    """k_{s-1} of one hypothesis (1, N)."""
    step = torch.full((1,), s)
    logits = denoiser(ks, step, denoiser.encode_condition(features))
    log_probs = log_posterior(log_p0_of(logits), ks, step, schedule)
    gumbel = -(-(torch.rand_like(log_probs) + 1e-30).log() + 1e-30).log()
    return (log_probs + gumbel).argmax(1)


def reference_loss(logits: Tensor, k0: Tensor, ks: Tensor, s: Tensor, schedule: Schedule, aux_weight: float) -> Tensor:
    """KL of the true to the predicted posterior plus the weighted cross-entropy, by autograd over whole tensors."""
    log_p0 = log_p0_of(logits)
    log_k0 = log_one_hot(k0, schedule.codes + 1)
    true, predicted = (log_posterior(each, ks, s, schedule) for each in (log_k0, log_p0))
    divergence = (true.exp() * (true - predicted)).sum(1)
    likelihood = -(log_k0.exp() * predicted).sum(1)
    vlb = torch.where((s == 1).view(-1, 1), likelihood, divergence).mean()
    return vlb + aux_weight * -(log_k0[:, :-1].exp() * log_p0[:, :-1]).sum(1).mean()
