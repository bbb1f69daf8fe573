"""Pose denoiser, the network of stage 2.  B images, H hypotheses, N tokens, L image tokens, F, D widths, C codes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import DenoiserConfig
from di2pose.diffusion.adapter import Adapter
from di2pose.diffusion.attention import Attention, QuickGELU, mlp
from di2pose.diffusion.jump import P0Of
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


StepNorms = list[tuple[Tensor, Tensor]]
"""Of every block, scale and shift (T, 2 D) of its norm before self-attention and of that before cross-attention."""


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
        return self.head(self.trunk(ks, self.step_norms(s), condition))                 # BH N C

    def step_norms(self, s: Int[Tensor, " T"]) -> StepNorms:
        """What the norms of every block know of T steps: of each row, or of one step that all rows share."""
        return [(block.self_norm.scale_and_shift(s), block.cross_norm.scale_and_shift(s)) for block in self._blocks()]

    def trunk(self, ks: Int[Tensor, "BH N"], norms: StepNorms, condition: Condition) -> Float[Tensor, "BH N D"]:
        """All that tokens have to do with each other and with the image; `head` is each token's own affair. Nothing is
        checked here."""
        x = self.token_embed(ks) + self.position                                        # BH N D
        if condition.hint is not None:
            x = (x.unflatten(0, (len(condition.hint), -1)) + condition.hint.unsqueeze(1)).flatten(0, 1)
        *blocks, last = zip(self._blocks(), norms, condition.keys, condition.values, strict=True)
        for block, norm, keys, values in blocks:
            x = block(x, norm, keys, values)                                            # BH N D
        block, norm, keys, values = last
        return block.attend(x, norm, keys, values)                                      # BH N D

    def head(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows C"]:
        """Logits of what the trunk gave, or of some of its tokens."""
        x = x + self._blocks()[-1].mlp(x)                                               # rows D
        return self.to_logits(self.norm(x))                                             # rows C

    def predictor(self, condition: Condition, grid: Sequence[int]) -> Callable[[Tensor, Tensor], P0Of]:
        """For `sample` over the steps of `grid`: the head is computed for those tokens only that are asked for."""
        norms = self.step_norms(torch.tensor(grid[:-1], device=self.position.device))   # of all steps, once

        def predict_p0(ks: Tensor, s: Tensor) -> P0Of:
            at = slice(row := grid.index(int(s[0])), row + 1)                           # one step for all rows
            x = self.trunk(ks, [(a[at], b[at]) for a, b in norms], condition).flatten(0, 1)
            return lambda rows: self.head(x[rows]).float().softmax(-1)

        return predict_p0

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

    def forward(self, x: Tensor, norms: tuple[Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        x = self.attend(x, norms, keys, values)                                         # B N D
        return x + self.mlp(x)                                                          # B N D

    def attend(self, x: Tensor, norms: tuple[Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        h = self.self_norm(x, norms[0])                                                 # B N D
        x = x + self.self_attention(h, *self.self_attention.keys_and_values(h))         # B N D
        return x + self.cross_attention(self.cross_norm(x, norms[1]), keys, values)     # B N D


class AdaptiveNorm(nn.Module):
    """AdaLN: LayerNorm(x) * (1 + scale(s)) + shift(s), with an embedding of the step for each norm."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.step_embed = nn.Embedding(steps, width)
        self.to_scale_and_shift = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def scale_and_shift(self, s: Int[Tensor, " T"]) -> Float[Tensor, "T two_D"]:
        """Of each of T steps, 1 to S: 1 + scale, then shift."""
        step = F.silu(self.step_embed(s - 1))                                           # T D
        scale, shift = self.to_scale_and_shift(step).chunk(2, dim=-1)                   # T D
        return torch.cat([1 + scale, shift], dim=-1)

    def forward(self, x: Float[Tensor, "B N D"], norm: Float[Tensor, "T two_D"]) -> Float[Tensor, "B N D"]:
        """`norm`: scale and shift of each row, or of the one step of all rows."""
        scale, shift = norm.chunk(2, dim=-1)                                            # T D
        if len(norm) == 1:
            return F.layer_norm(x, x.shape[-1:], scale[0], shift[0], self.norm.eps)     # in one pass over x
        return self.norm(x) * scale.unsqueeze(1) + shift.unsqueeze(1)


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
