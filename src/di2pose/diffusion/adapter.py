"""Adapter: many image tokens -> a few that know the joints.  B images, L image tokens of width F, Q queries, D width.

An extension of the paper, whose denoiser looks at the backbone's features as they are (`adapter_layers = 0`). Each
image token is standardised and told its place; Q learned queries, the first 17 of them joints, collect what they need.
The denoiser then looks at Q tokens instead of L. The joints' queries also give a plain regression, for comparison, and
say whether each joint is seen.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import DenoiserConfig
from di2pose.diffusion.attention import Attention, mlp
from di2pose.errors import InputError
from di2pose.tokenizer.tokenizer import JOINTS, MM_PER_METRE

VISIBILITIES = 4
"""Seen, hidden by the body itself, hidden by something else, out of the frame: 0 to 3, as in `data.sample`."""
SILENT = 1e-3
"""A channel that varies less than this over the data is a constant: it is centred and not blown up."""


class Adapter(nn.Module):
    """Image features (B, L, F) -> condition tokens (B, Q, D)."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        L, width = config.feature_tokens, config.width
        self.register_buffer("mean", torch.zeros(L, config.feature_width))
        self.register_buffer("scale", torch.ones(L, config.feature_width))
        self.embed = nn.Linear(config.feature_width, width)
        self.place = nn.Parameter(torch.empty(L, width).normal_(std=0.02))
        self.queries = nn.Parameter(torch.empty(config.adapter_queries, width).normal_(std=0.02))
        self.layers = nn.ModuleList(AdapterLayer(config) for _ in range(config.adapter_layers))
        self.norm = nn.LayerNorm(width)
        self.to_joint = nn.Linear(width, 3)
        self.to_visibility = nn.Linear(width, VISIBILITIES)

    @torch.no_grad()
    def standardise(self, features: Float[Tensor, "n L F"]) -> None:
        """Take mean and deviation of each token's channels from some of the training features."""
        self._check(features)
        deviation = features.std(0)
        self.mean.copy_(features.mean(0))
        self.scale.copy_(torch.where(deviation > SILENT, 1 / deviation.clamp_min(SILENT), 1.0))

    def forward(self, y: Float[Tensor, "B L F"]) -> Float[Tensor, "B Q D"]:
        self._check(y)
        y = self.embed((y - self.mean) * self.scale) + self.place           # B L D
        x = self.queries.expand(len(y), -1, -1)                             # B Q D
        for layer in self.layers:
            x = layer(x, y)                                                 # B Q D
        return self.norm(x)

    def joints_mm(self, tokens: Float[Tensor, "B Q D"]) -> Float[Tensor, "B 17 3"]:
        """Direct regression from the joints' tokens: root-relative millimetres, pelvis exactly 0."""
        joints = self.to_joint(tokens[:, :JOINTS]).float()                  # B 17 3, metres
        return (joints - joints[:, :1]) * MM_PER_METRE

    def visibility_logits(self, tokens: Float[Tensor, "B Q D"]) -> Float[Tensor, "B 17 4"]:
        """How likely each joint is seen, hidden by the body, hidden by something else, or out of the frame."""
        logits: Tensor = self.to_visibility(tokens[:, :JOINTS]).float()
        return logits

    def _check(self, y: Tensor) -> None:
        if y.ndim != 3 or y.shape[1:] != self.mean.shape:
            tokens, width = self.mean.shape
            raise InputError(f"features must have shape (B, {tokens}, {width}), got {tuple(y.shape)}")


class AdapterLayer(nn.Module):
    """Queries look at the image, then at each other, then think; each a residual."""

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.image_norm, self.query_norm, self.self_norm = (nn.LayerNorm(width) for _ in range(3))
        self.image_attention, self.self_attention = (Attention(width, width, heads) for _ in range(2))
        self.mlp = mlp(width, config.mlp_ratio)

    def forward(self, x: Float[Tensor, "B Q D"], y: Float[Tensor, "B L D"]) -> Float[Tensor, "B Q D"]:
        x = x + self.image_attention(self.query_norm(x), *self.image_attention.keys_and_values(self.image_norm(y)))
        h = self.self_norm(x)
        x = x + self.self_attention(h, *self.self_attention.keys_and_values(h))
        return x + self.mlp(x)


def visibility_loss(logits: Float[Tensor, "B J K"], visibility: Int[Tensor, "B J"]) -> Float[Tensor, ""]:
    """Cross-entropy, mean over the joints whose visibility is known (not -1); 0 where none is."""
    total = F.cross_entropy(logits.flatten(0, 1), visibility.flatten().long(), ignore_index=-1, reduction="sum")
    return total / (visibility >= 0).sum().clamp_min(1)
