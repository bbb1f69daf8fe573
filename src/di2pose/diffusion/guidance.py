"""Guide the reverse process towards known joints.  B rows, N tokens, C codes, J joints.

An extension, not in the paper. A token is no joint: each joint is decoded from all tokens. A known joint therefore
fixes no token; it changes the probabilities of all, by the gradient through the frozen decoder.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from di2pose.diffusion.sampler import PredictP0
from di2pose.errors import InputError
from di2pose.interruption import check

DecodeSoft = Callable[[Tensor], Tensor]
"""Probabilities (B, N, C) -> joints (B, J, 3) in millimetres."""
PULLS = 16
TRUST_MM = 15.0
"""Standard deviation of a pinned joint: about the tokenizer's own error."""


def towards_pins(
    predict_p0: PredictP0,
    decode_soft: DecodeSoft,
    pins_mm: Float[Tensor, "B J 3"],
    pinned: Bool[Tensor, "B J"],
) -> PredictP0:
    """`predict_p0` with probabilities whose soft decoding has the pinned joints at `pins_mm`.

    The p that minimises KL(p | p0) + |joints(p) - pins|^2 / (2 TRUST^2), by PULLS steps of gradient descent on the
    logits: the rest of the pose changes no more than it must.
    """
    if pins_mm.shape[:2] != pinned.shape or pins_mm.shape[2:] != (3,):
        raise InputError(f"pins (B, J, 3) need a mask (B, J), got {tuple(pins_mm.shape)} and {tuple(pinned.shape)}")

    def guided(ks: Tensor, s: Tensor) -> Tensor:
        log_p0 = predict_p0(ks, s).detach().clamp_min(1e-12).log()

        def cost(logits: Tensor) -> Tensor:
            log_p = logits.log_softmax(-1)
            p = log_p.exp()
            divergence = (p * (log_p - log_p0)).sum((1, 2))
            off = (decode_soft(p) - pins_mm).square().sum(-1)
            return divergence + (off * pinned).sum(1) / (2 * TRUST_MM**2)

        return _descend(cost, log_p0, PULLS).softmax(-1)

    return guided


@torch.enable_grad()
def _descend(cost: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """Gradient descent of (B, N, C) rows, each with its own step length: doubled after a gain, quartered else."""
    best, best_cost = start.clone(), cost(start).detach()
    length = torch.ones(len(start), 1, 1, device=start.device)
    for _ in range(steps):
        check()
        point = best.clone().requires_grad_()
        (slope,) = torch.autograd.grad(cost(point).sum(), point)
        # The largest change of a logit in a row is `length`: gradients of probabilities span many orders.
        trial = best - length * slope / slope.abs().amax((1, 2), keepdim=True).clamp_min(1e-12)
        trial_cost = cost(trial).detach()
        better = trial_cost < best_cost
        best = torch.where(better.view(-1, 1, 1), trial, best)
        best_cost = torch.where(better, trial_cost, best_cost)
        length = torch.where(better.view(-1, 1, 1), 2 * length, length / 4)
    return best.detach()
