"""Attention whose keys and values are made apart, so that they can be kept.  B batch, L tokens, D, F, E widths."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Multi-head attention of B * H rows of queries to B rows of keys and values: H rows share a row of keys."""

    def __init__(self, width: int, source_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_query = nn.Linear(width, width)
        self.to_keys = nn.Linear(source_width, width)
        self.to_values = nn.Linear(source_width, width)
        self.to_output = nn.Linear(width, width)

    def keys_and_values(self, y: Float[Tensor, "B L F"]) -> tuple[Tensor, Tensor]:
        return self._split(self.to_keys(y)), self._split(self.to_values(y))             # B heads L E

    def forward(self, x: Float[Tensor, "BH N D"], keys: Tensor, values: Tensor) -> Float[Tensor, "BH N D"]:
        batch, tokens, width = x.shape
        # Hypotheses of one image become more queries to the same keys: exact, and nothing is copied.
        queries = self._split(self.to_query(x).reshape(keys.shape[0], -1, width))           # B heads H*N E
        mixed = F.scaled_dot_product_attention(queries, keys, values)                   # B heads H*N E
        return self.to_output(mixed.transpose(1, 2).reshape(batch, tokens, width))      # BH N D

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), VQ-Diffusion's GELU2."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return x * torch.sigmoid(1.702 * x)
        return (1.702 * x).sigmoid_().mul_(x)  # one temporary instead of three


def mlp(width: int, ratio: float) -> nn.Sequential:
    """Norm, widen, activate, narrow."""
    hidden = round(width * ratio)
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), QuickGELU(), nn.Linear(hidden, width))
