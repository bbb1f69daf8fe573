"""Finite scalar quantisation.  d channels, L_i levels of channel i, C = prod L_i codes.

Each channel is bounded, rounded to one of L_i integers and divided by L_i // 2: a code lies in [-1, 1]^d.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from di2pose.errors import InputError

BOUND_SLACK = 1e-3
"""The bound reaches a little past the outer levels, so that they can be rounded to. Written as (1 + slack):
with (1 - slack) the shift of an L = 2 channel is atanh of a number above 1."""


class FSQ(nn.Module):
    """`fsq(z) -> (codes, indices)`: quantise the last axis of z to the implied codebook.

    The paper's bound, floor(L / 2) * tanh(z), gives L + 1 values where L is even; the half-step offset of the FSQ
    paper gives exactly L. For odd L the two agree up to the slack.
    """

    levels: Tensor
    basis: Tensor

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        if not levels or any(level < 2 for level in levels):
            raise InputError(f"FSQ levels must be one or more integers >= 2, got {list(levels)}")
        self.codebook_size = math.prod(levels)
        self.register_buffer("levels", torch.tensor(levels), persistent=False)
        basis = [math.prod(levels[:i]) for i in range(len(levels))]
        self.register_buffer("basis", torch.tensor(basis), persistent=False)

    def bound(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Squash z so that rounding it gives each of the L integers from -(L // 2) up, and no other."""
        levels = self.levels.to(z.dtype)
        half = (levels - 1) * (1 + BOUND_SLACK) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0).to(z.dtype)
        return torch.tanh(z + torch.atanh(offset / half)) * half - offset

    def forward(self, z: Float[Tensor, "*batch d"]) -> tuple[Float[Tensor, "*batch d"], Int[Tensor, " *batch"]]:
        """Codes in [-1, 1] with a straight-through gradient, and their indices in 0..C-1; float32 at least."""
        if z.shape[-1] != len(self.levels):
            raise InputError(f"FSQ expected {len(self.levels)} channels on the last axis, got shape {tuple(z.shape)}")
        with torch.autocast(z.device.type, enabled=False):
            z = z if z.dtype == torch.float64 else z.float()
            bounded = self.bound(z)
            rounded = bounded.round()
            half_width = self.levels // 2
            indices = ((rounded.detach().long() + half_width) * self.basis).sum(-1)
            codes = (bounded + (rounded - bounded).detach()) / half_width
        return codes, indices

    def bounded_latents(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Latents before rounding, in the units of the codes: in about [-1, 1]^d."""
        return self.bound(z.float()) / (self.levels // 2)

    def indices_to_codes(self, indices: Int[Tensor, " *batch"]) -> Float[Tensor, "*batch d"]:
        """The codes, in [-1, 1]^d, of the indices 0..C-1."""
        check_tokens(indices, self.codebook_size)
        digits = indices.unsqueeze(-1) // self.basis % self.levels - self.levels // 2
        return digits.float() / (self.levels // 2)


def check_tokens(tokens: Tensor, count: int) -> None:
    """Refuse token ids that are not integers in 0..count-1."""
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise InputError(f"token ids must be integers, got {tokens.dtype}")
    if tokens.numel() and tokens.device.type != "meta":
        low, high = tokens.min().item(), tokens.max().item()
        if low < 0 or high >= count:
            raise InputError(f"token ids must lie in 0..{count - 1}, got {low}..{high}")
