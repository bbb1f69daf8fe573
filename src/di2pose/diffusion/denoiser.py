"""Pose denoiser, the network of stage 2.  B images, H hypotheses, N tokens, L image tokens, F, D widths, C codes."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import DenoiserConfig
from di2pose.diffusion.adapter import Adapter
from di2pose.diffusion.attention import Attention, QuickGELU, mlp
from di2pose.errors import InputError
from di2pose.randomness import Noise
from di2pose.tokenizer.fsq import check_tokens


class Condition(NamedTuple):
    """What the denoiser knows of B images: cross-attention keys and values of every layer, computed once."""

    keys: list[Float[Tensor, "B heads L E"]]
    values: list[Float[Tensor, "B heads L E"]]
    joints_mm: Float[Tensor, "B 17 3"] | None = None
    """The adapter's direct regression, where there is an adapter."""
    visibility_logits: Float[Tensor, "B 17 4"] | None = None
    """What the adapter thinks of each joint's visibility."""
    hint: Float[Tensor, "B N D"] | None = None
    """What the codes of the adapter's own pose say of each token."""


class Denoiser(nn.Module):
    """f_theta(k_0 | k_s, y): logits over the C codes for each token.

        condition = denoiser.condition(y)       # once an image
        logits = denoiser(ks, s, condition)     # every step, every hypothesis

    ks may hold H rows for each image of the condition, image after image; keys and values are then shared.
    """

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embed = nn.Embedding(config.codes + 1, config.width)
        self.position = nn.Parameter(torch.zeros(config.tokens, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.to_logits = nn.Linear(config.width, config.codes)
        self.apply(_initialise)
        nn.init.normal_(self.position, std=0.02)
        self.hint_embed = _hint_embed(config.hint_channels, config.width) if config.hint_channels else None
        self.adapter = self.unpack = None
        if config.adapter_layers:
            self.adapter = Adapter(config)
            self.unpack = nn.Linear(config.adapter_width, config.adapter_tokens * config.width)

    def condition(self, y: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """All keys and values of a feature sequence. `noise` is for the adapter, in training."""
        if y.ndim != 3 or y.shape[2] != self.config.feature_width:
            raise InputError(f"features must have shape (B, L, {self.config.feature_width}), got {tuple(y.shape)}")
        joints_mm = visibility_logits = None
        if self.adapter is not None and self.unpack is not None:
            gist, joints_mm, visibility_logits = self.adapter(y, noise)                 # B W, B 17 3, B 17 4
            y = self.unpack(gist).unflatten(1, (-1, self.config.width))                 # B Q D
        pairs = [block.cross_attention.keys_and_values(y) for block in self._blocks()]
        return Condition([k for k, _ in pairs], [v for _, v in pairs], joints_mm, visibility_logits)

    def hinted(self, condition: Condition, codes: Float[Tensor, "B N d"]) -> Condition:
        """The condition that also knows the codes of a pose: the denoiser then mends these, and need not find them."""
        if self.hint_embed is None:
            raise InputError("this denoiser takes no hints (hint_channels is 0)")
        return condition._replace(hint=self.hint_embed(codes))

    def forward(self, ks: Int[Tensor, "BH N"], s: Int[Tensor, " BH"], condition: Condition) -> Float[Tensor, "BH N C"]:
        self._check(ks, s, condition)
        x = self.token_embed(ks) + self.position                                        # BH N D
        if condition.hint is not None:
            x = x + condition.hint.repeat_interleave(len(x) // len(condition.hint), 0)  # BH N D
        for block, keys, values in zip(self._blocks(), condition.keys, condition.values, strict=True):
            x = block(x, s, keys, values)                                               # BH N D
        return self.to_logits(self.norm(x))                                             # BH N C

    def _blocks(self) -> list["Block"]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def _check(self, ks: Tensor, s: Tensor, condition: Condition) -> None:
        if ks.ndim != 2 or ks.shape[1] != self.config.tokens or s.shape != ks.shape[:1]:
            raise InputError(
                f"ks must have shape (B, {self.config.tokens}) and s (B,), got {tuple(ks.shape)} and {tuple(s.shape)}"
            )
        if not condition.keys or len(ks) % len(condition.keys[0]):
            raise InputError(f"{len(ks)} token rows cannot be shared out over {len(condition.keys[0])} images")
        check_tokens(ks, self.config.codes + 1)
        if s.device.type != "meta" and s.numel() and (int(s.min()) < 1 or int(s.max()) > self.config.steps):
            raise InputError(f"steps must lie in 1..{self.config.steps}, got {int(s.min())}..{int(s.max())}")


class Block(nn.Module):
    """Self-attention, cross-attention to the image, MLP, each a residual; the first two normed by step (AdaLN)."""

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        width = config.width
        self.self_norm = AdaptiveNorm(width, config.steps)
        self.self_attention = Attention(width, width, config.heads)
        self.cross_norm = AdaptiveNorm(width, config.steps)
        self.cross_attention = Attention(width, width if config.adapter_layers else config.feature_width, config.heads)
        self.mlp = mlp(width, config.mlp_ratio)

    def forward(self, x: Tensor, s: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        h = self.self_norm(x, s)                                                        # B N D
        x = x + self.self_attention(h, *self.self_attention.keys_and_values(h))         # B N D
        x = x + self.cross_attention(self.cross_norm(x, s), keys, values)               # B N D
        return x + self.mlp(x)                                                          # B N D


class AdaptiveNorm(nn.Module):
    """AdaLN: LayerNorm(x) * (1 + scale(s)) + shift(s), with an embedding of the step for each norm."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.step_embed = nn.Embedding(steps, width)
        self.to_scale_and_shift = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x: Float[Tensor, "B N D"], s: Int[Tensor, " B"]) -> Float[Tensor, "B N D"]:
        step = F.silu(self.step_embed(s - 1)).unsqueeze(1)                              # B 1 D: steps are 1..S
        scale, shift = self.to_scale_and_shift(step).chunk(2, dim=-1)                   # B 1 D
        return self.norm(x) * (1 + scale) + shift


def _hint_embed(channels: int, width: int) -> nn.Sequential:
    spread, mix = nn.Linear(channels, width), nn.Linear(width, width)
    nn.init.normal_(spread.weight)  # codes lie in [-1, 1]: this spreads them over the activation
    _initialise(mix)
    return nn.Sequential(spread, QuickGELU(), mix)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
