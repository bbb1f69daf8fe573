"""Adapter: one network over the whole feature sequence.  B images, J joints, L image tokens of width F, W width.

An extension of the paper, whose denoiser attends to the backbone's features as they are (`adapter_layers = 0`). Each
image token is standardised and narrowed; all of them, concatenated in order, go through a few wide residual layers. The
output is a summary for the denoiser, a direct regression of the pose and the visibility of each joint. On a CPU this
learns many times faster than attention over the image tokens (docs/log.md).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import TrunkConfig
from di2pose.device import in_float32
from di2pose.errors import InputError
from di2pose.noise import Noise, uniform
from di2pose.pose.metrics import mpjpe, similarity
from di2pose.tokenizer.tokenizer import MM_PER_METRE

VISIBILITIES = 4
"""Seen, hidden by the body itself, hidden by something else, out of the frame: 0 to 3, as in `data.sample`."""
SILENT = 1e-3
"""Standard deviation below which a channel counts as constant: it is centred and not scaled."""


class AdapterOutput(NamedTuple):
    summary: Float[Tensor, "B W"]
    """For the denoiser."""
    joints_mm: Float[Tensor, "B J 3"]
    """Direct regression: root-relative millimetres, root exactly 0."""
    visibility_logits: Float[Tensor, "B J 4"]


class Adapter(nn.Module):
    """Image features (B, L, F) -> `AdapterOutput`. NaN features are missing observations and count as the mean."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        L, inner = config.feature_tokens, config.adapter_width
        self.joints = config.joints
        self.dropout, self.observer_dropout = config.adapter_dropout, config.observer_dropout
        self.first = L - config.observer_tokens  # tokens that are never missing
        self.register_buffer("mean", torch.zeros(L, config.feature_width))
        self.register_buffer("scale", torch.ones(L, config.feature_width))
        self.narrow = nn.Linear(config.feature_width, config.adapter_channels)
        self.join = nn.Linear(L * config.adapter_channels, inner)
        self.layers = nn.ModuleList(AdapterLayer(inner, self.dropout) for _ in range(config.adapter_layers))
        self.norm = nn.LayerNorm(inner)
        self.to_joints = nn.Linear(inner, self.joints * 3)
        self.to_visibility = nn.Linear(inner, self.joints * VISIBILITIES)

    @torch.no_grad()
    def standardise(self, features: Float[Tensor, "n L F"]) -> None:
        """Set mean and scale of each token's channels from some of the training features."""
        self._check(features)
        count = features.isfinite().sum(0).clamp_min(1)
        mean = features.nan_to_num(0.0).sum(0) / count
        deviation = (((features - mean).nan_to_num(0.0) ** 2).sum(0) / (count - 1).clamp_min(1)).sqrt()
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(deviation > SILENT, 1 / deviation.clamp_min(SILENT), 1.0))

    def forward(self, y: Float[Tensor, "B L F"], noise: Noise | None = None) -> AdapterOutput:
        """`noise` draws what is dropped, in training; without it nothing is."""
        self._check(y)
        x = ((y - self.mean) * self.scale).nan_to_num(0.0)                              # B L F
        if noise is not None and self.observer_dropout:
            there = uniform((len(y), 1, 1), noise, y.device) >= self.observer_dropout   # B 1 1
            x = torch.cat([x[:, : self.first], x[:, self.first :] * there], dim=1)      # B L F
        x = self.narrow(x).flatten(1)                                                   # B L*channels
        x = self.join(drop(x, self.dropout, noise))                                     # B W
        for layer in self.layers:
            x = layer(x, noise)                                                         # B W
        x = self.norm(x)                                                                # B W
        joints = self.to_joints(x).float().unflatten(1, (self.joints, 3))               # B J 3, metres; the root first
        visibility = self.to_visibility(x).float().unflatten(1, (self.joints, VISIBILITIES))  # B J 4
        return AdapterOutput(x, (joints - joints[:, :1]) * MM_PER_METRE, visibility)

    def _check(self, y: Tensor) -> None:
        if y.ndim != 3 or y.shape[1:] != self.mean.shape:
            tokens, width = self.mean.shape
            raise InputError(f"features must have shape (B, {tokens}, {width}), got {tuple(y.shape)}")


class AdapterLayer(nn.Module):
    """A residual: norm, linear, activation, dropout, linear."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(width)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.activate = QuickGELU()

    def forward(self, x: Float[Tensor, "B W"], noise: Noise | None) -> Float[Tensor, "B W"]:
        h = self.activate(self.first(self.norm(x)))                                     # B W
        return x + self.second(drop(h, self.dropout, noise))                            # B W


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), VQ-Diffusion's GELU2."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return x * torch.sigmoid(1.702 * x)
        return (1.702 * x).sigmoid_().mul_(x)  # one temporary instead of three


def drop(x: Float[Tensor, "B D"], share: float, noise: Noise | None) -> Float[Tensor, "B D"]:
    """Dropout whose draws are an argument: ranks drop what one process would. None drops nothing."""
    if noise is None or share == 0:
        return x
    return x * (uniform(x.shape, noise, x.device) >= share) / (1 - share)


def adapter_losses(output: Any, batch: Mapping[str, Tensor], weights: Any) -> dict[str, Tensor]:
    """`regression`, the mean joint error in metres; `aligned`, the same after Procrustes alignment, where its weight is
    above 0; `visibility`, cross-entropy, where the batch has visibilities; and their weighted sum, `loss`.

    output: with `joints_mm` and `visibility_logits`
    weights: a configuration with `regression_weight`, `aligned_weight` and `visibility_weight`
    """
    losses = {"regression": mpjpe(output.joints_mm, batch["joints_mm"], root=0).mean() / MM_PER_METRE}
    if weights.aligned_weight:
        losses["aligned"] = aligned_error(output.joints_mm, batch["joints_mm"]).mean() / MM_PER_METRE
    if "visibility" in batch:
        losses["visibility"] = visibility_loss(output.visibility_logits, batch["visibility"])
    total = sum(getattr(weights, f"{name}_weight") * value for name, value in losses.items())
    return losses | {"loss": torch.as_tensor(total)}


def with_adapter_losses(
    losses: dict[str, Tensor], condition: Any, batch: Mapping[str, Tensor], weights: Any
) -> dict[str, Tensor]:
    """The losses with those of the adapter whose outputs the condition has, if it has any; summed in `loss`."""
    if condition.joints_mm is None:
        return losses
    own = adapter_losses(condition, batch, weights)
    return losses | own | {"loss": losses["loss"] + own["loss"]}


@in_float32
def aligned_error(joints_mm: Float[Tensor, "B J 3"], truth_mm: Float[Tensor, "B J 3"]) -> Float[Tensor, " B"]:
    """PA-MPJPE without a gradient through the alignment, which is optimal: its own gradient is 0."""
    here, there = (pose - pose.mean(1, keepdim=True) for pose in (joints_mm, truth_mm))
    with torch.no_grad():
        turn, scale = similarity(here, there)
    return (scale[:, None, None] * here @ turn - there).norm(dim=-1).mean(-1)


def visibility_loss(logits: Float[Tensor, "B J K"], visibility: Int[Tensor, "B J"]) -> Float[Tensor, ""]:
    """Cross-entropy, mean over the joints whose visibility is known (not -1); 0 where none is."""
    total = F.cross_entropy(logits.flatten(0, 1), visibility.flatten().long(), ignore_index=-1, reduction="sum")
    return total / (visibility >= 0).sum().clamp_min(1)
