"""The trunk: what carries a row of tokens to what is said of them, looking at the image.

B images, H hypotheses, N tokens, L image tokens, Q of an adapter, F, D widths.

Di2Pose's denoiser is a trunk between codes and codes (`denoiser.py`); the baselines put other ends to the same trunk.
"""

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import TrunkConfig
from di2pose.diffusion.adapter import Adapter
from di2pose.diffusion.attention import Attention, QuickGELU, mlp
from di2pose.errors import InputError
from di2pose.noise import Noise, uniform

MANY = 0.8
"""Of a row's tokens: where more are asked for, all are computed."""


class Condition(NamedTuple):
    """What a trunk knows of B images: cross-attention keys and values of every layer, computed once."""

    keys: list[Float[Tensor, "B heads L E"]]
    values: list[Float[Tensor, "B heads L E"]]
    joints_mm: Float[Tensor, "B 17 3"] | None = None
    """The adapter's direct regression, where there is an adapter."""
    visibility_logits: Float[Tensor, "B 17 4"] | None = None
    """What the adapter thinks of each joint's visibility."""
    hint: Float[Tensor, "B N D"] | None = None
    """What the adapter's own pose says of each token."""


StepNorms = list[tuple[Tensor, Tensor]]
"""Of every block, scale and shift (T, 2 D) of its norm before self-attention and of that before cross-attention."""


class Trunk(nn.Module):
    """Blocks with positions before them and a norm behind, and the adapter that reads the image for them: a denoiser
    without its ends.

        condition = trunk.condition(y)          # once an image
        x = trunk(x, s, condition)              # every step, every hypothesis
    """

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        self.config = config
        self.position = nn.Parameter(torch.zeros(config.tokens, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.apply(initialise)
        nn.init.normal_(self.position, std=0.02)
        self.hint_embed = hint_embed(config.hint_channels, config.width) if config.hint_channels else None
        self.adapter, self.unpack = adapter_parts(config)

    def condition(self, y: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """All keys and values of a feature sequence. `noise` is for the adapter, in training."""
        return look(y, self.config, self.blocks, self.adapter, self.unpack, noise)

    def hinted(self, condition: Condition, hint: Float[Tensor, "B N d"], noise: Noise | None = None) -> Condition:
        """The condition that also knows what the adapter's pose says of each token; with `noise`, in training, some
        images' are withheld."""
        assert self.hint_embed is not None
        return withhold(condition._replace(hint=self.hint_embed(hint)), self.config.hint_dropout, noise)

    def forward(
        self, x: Float[Tensor, "BH N D"], s: Int[Tensor, " BH"], condition: Condition
    ) -> Float[Tensor, "BH N D"]:
        x = carry(x + self.position, step_norms(s, self.blocks), self.blocks, condition)
        return self.norm(finish(x, self.blocks))


def look(
    y: Float[Tensor, "B L F"],
    config: TrunkConfig,
    blocks: nn.ModuleList,
    adapter: Adapter | None,
    unpack: nn.Linear | None,
    noise: Noise | None,
) -> Condition:
    """The condition of B images, without a hint."""
    if y.ndim != 3 or y.shape[2] != config.feature_width:
        raise InputError(f"features must have shape (B, L, {config.feature_width}), got {tuple(y.shape)}")
    joints_mm = visibility_logits = None
    if adapter is not None and unpack is not None:
        gist, joints_mm, visibility_logits = adapter(y, noise)                          # B W, B 17 3, B 17 4
        y = unpack(gist).reshape(gist.shape[0], -1, config.width)                       # B Q D
    pairs = [block.cross_attention.keys_and_values(y) for block in _each(blocks)]
    return Condition([k for k, _ in pairs], [v for _, v in pairs], joints_mm, visibility_logits)


def step_norms(s: Int[Tensor, " T"], blocks: nn.ModuleList) -> StepNorms:
    """What the norms of every block know of T steps: of each row, or of one step that all rows share."""
    return [(block.self_norm.scale_and_shift(s), block.cross_norm.scale_and_shift(s)) for block in _each(blocks)]


def carry(
    x: Float[Tensor, "BH N D"],
    norms: StepNorms,
    blocks: nn.ModuleList,
    condition: Condition,
    asked: Int[Tensor, " A"] | None = None,
) -> Tensor:
    """x, with the hint, through all that tokens have to do with each other and with the image; what is left, `finish`,
    is each token's own affair. x may hold H rows for each image of the condition, image after image. `asked`: only
    these tokens (A, D) are wanted, counted through the rows."""
    if condition.hint is not None:
        rows = x.reshape(condition.hint.shape[0], -1, *x.shape[1:])                     # B H N D
        x = (rows + condition.hint.unsqueeze(1)).reshape(x.shape)
    *others, last = zip(_each(blocks), norms, condition.keys, condition.values, strict=True)
    for block, norm, keys, values in others:
        x = block(x, norm, keys, values)                                                # BH N D
    block, norm, keys, values = last
    if asked is None:
        return block.attend(x, norm, keys, values)                                      # BH N D
    return block.attend_some(x, norm, keys, values, asked)                              # A D


def finish(x: Float[Tensor, "*rows D"], blocks: nn.ModuleList) -> Float[Tensor, "*rows D"]:
    """The last block's MLP, of all tokens or of some."""
    return x + cast(Block, blocks[-1]).mlp(x)


def withhold(condition: Condition, share: float, noise: Noise | None) -> Condition:
    """The condition without the hints of a share of the images, in training (with noise)."""
    if noise is None or not share or condition.hint is None:
        return condition
    told = uniform((len(condition.hint), 1, 1), noise, condition.hint.device) >= share
    return condition._replace(hint=condition.hint * told)


def adapter_parts(config: TrunkConfig) -> tuple[Adapter | None, nn.Linear | None]:
    """The adapter and what unpacks its reading into tokens, where there is one."""
    if not config.adapter_layers:
        return None, None
    return Adapter(config), nn.Linear(config.adapter_width, config.adapter_tokens * config.width)


def _each(blocks: nn.ModuleList) -> Iterable["Block"]:
    return cast(Iterable[Block], blocks)


class Block(nn.Module):
    """Self-attention, cross-attention to the image, MLP, each a residual; the first two normed by step (AdaLN)."""

    def __init__(self, config: TrunkConfig) -> None:
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

    def attend_some(
        self, x: Tensor, norms: tuple[Tensor, Tensor], keys: Tensor, values: Tensor, asked: Int[Tensor, " A"]
    ) -> Float[Tensor, "A D"]:
        """Of `attend` some tokens, counted through the rows, ascending: the others are looked at, and do not look."""
        wanted = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)            # B N
        wanted.view(-1)[asked] = True
        most = int(wanted.sum(1).max())
        if most > MANY * x.shape[1]:
            return self.attend(x, norms, keys, values).flatten(0, 1)[asked]
        places = wanted.byte().argsort(dim=1, descending=True, stable=True)[:, :most]   # B M: wanted ones, then any
        taken, places = wanted.gather(1, places), places.unsqueeze(2).expand(-1, -1, x.shape[2])
        h = self.self_norm(x, norms[0])                                                 # B N D
        own = x.gather(1, places) + self.self_attention(
            h.gather(1, places), *self.self_attention.keys_and_values(h)
        )                                                                               # B M D
        own = own + self.cross_attention(self.cross_norm(own, norms[1]), keys, values)  # B M D
        return own[taken]                                                               # A D


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
        scale, shift = self.to_scale_and_shift(step).to(step.dtype).chunk(2, dim=-1)    # T D; float32 under autocast
        return torch.cat([1 + scale, shift], dim=-1)

    def forward(self, x: Float[Tensor, "B N D"], norm: Float[Tensor, "T two_D"]) -> Float[Tensor, "B N D"]:
        """`norm`: scale and shift of each row, or of the one step of all rows."""
        scale, shift = norm.chunk(2, dim=-1)                                            # T D
        if len(norm) == 1:
            return F.layer_norm(x, self.norm.normalized_shape, scale[0], shift[0], self.norm.eps)  # one pass over x
        return self.norm(x) * scale.unsqueeze(1) + shift.unsqueeze(1)


def hint_embed(channels: int, width: int) -> nn.Sequential:
    spread, mix = nn.Linear(channels, width), nn.Linear(width, width)
    nn.init.normal_(spread.weight)  # codes lie in [-1, 1]: this spreads them over the activation
    initialise(mix)
    return nn.Sequential(spread, QuickGELU(), mix)


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
