"""Pose denoiser, the network of stage 2, in one file: Denoiser, Trunk, Block, AdaptiveNorm, Attention.

B images, H hypotheses, J joints, N tokens, A some of their B * H * N, L image tokens of width F, Q of an adapter,
D width, E = D / heads, C codes, T steps.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import DenoiserConfig, TrunkConfig
from di2pose.diffusion.adapter import Adapter, QuickGELU
from di2pose.diffusion.fast_sampler import CHUNK_ELEMENTS, LazyP0
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import carry_over, carry_over_gain
from di2pose.errors import InputError
from di2pose.noise import Noise, uniform
from di2pose.tokenizer.fsq import check_tokens

MANY = 0.8
"""Share of a row's tokens above which the last block computes all of them."""
FEW = 0.75
"""Share of rows up to which those without an undecided token are left out: others would need copies of the keys."""
ToLatents = Callable[[Tensor], Tensor]
"""Joints (B, J, 3) in mm -> latents (B, N, d) of the self-condition."""
StepNorms = list[tuple[Tensor, Tensor]]
"""For each block, scale and shift (T, 2 D) of its norm before self-attention and of that before cross-attention."""


class Condition(NamedTuple):
    """The encoded condition of B images: cross-attention keys and values of every layer, computed once."""

    keys: list[Float[Tensor, "B heads L E"]]
    values: list[Float[Tensor, "B heads L E"]]
    joints_mm: Float[Tensor, "B J 3"] | None = None
    """The adapter's direct regression, where there is an adapter."""
    visibility_logits: Float[Tensor, "B J 4"] | None = None
    self_condition: Float[Tensor, "B N D"] | None = None
    """Embedding of the adapter's own pose, added to each token."""

    @property
    def images(self) -> int:
        return len(self.keys[0])

    def rows(self, images: Int[Tensor, " R"]) -> "Condition":
        """What the blocks need, a row for each of these images."""
        keys, values = ([part[images] for part in parts] for parts in (self.keys, self.values))
        embedded = self.self_condition
        return Condition(keys, values, self_condition=None if embedded is None else embedded[images])

    @property
    def visibility(self) -> Float[Tensor, "B J 4"] | None:
        return None if self.visibility_logits is None else self.visibility_logits.softmax(-1)


class Trunk(nn.Module):
    """Transformer blocks between a position embedding and a norm, with the adapter for the image features. The denoiser
    without its ends, which the baselines replace by others.

        condition = trunk.encode_condition(y)   # once an image
        x = trunk(x, s, condition)              # every step, every hypothesis
    """

    def __init__(self, config: TrunkConfig, codes: int = 0) -> None:
        """codes: of the denoiser's ends, made here so that the order of the parameters stays that of older runs."""
        super().__init__()
        self.config = config
        if codes:
            self.token_embed = nn.Embedding(codes + 1, config.width)
        self.position = nn.Parameter(torch.zeros(config.tokens, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        if codes:
            self.to_logits = nn.Linear(config.width, codes)
        self.apply(initialise)
        nn.init.normal_(self.position, std=0.02)
        self.hint_embed = _self_condition_embed(config) if config.hint_channels else None
        self.adapter = Adapter(config) if config.adapter_layers else None
        self.unpack = None
        if config.adapter_layers:
            self.unpack = nn.Linear(config.adapter_width, config.adapter_tokens * config.width)

    def encode_condition(
        self, y: Float[Tensor, "B L F"], noise: Noise | None = None, to_latents: ToLatents | None = None
    ) -> Condition:
        """Keys and values of a feature sequence for all blocks. `noise` is for dropout, in training. `to_latents` is
        for the self-condition on the adapter's own pose, where that is configured: the denoiser then corrects this pose
        instead of finding one."""
        width, joints_mm, visibility_logits = self.config.width, None, None
        if y.ndim != 3 or y.shape[2] != self.config.feature_width:
            raise InputError(f"features must have shape (B, L, {self.config.feature_width}), got {tuple(y.shape)}")
        if self.adapter is not None and self.unpack is not None:
            summary, joints_mm, visibility_logits = self.adapter(y, noise)              # B W, B J 3, B J 4
            y = self.unpack(summary).reshape(summary.shape[0], -1, width)              # B Q D
        pairs = [block.cross_attention.keys_and_values(y) for block in self._blocks()]
        condition = Condition([k for k, _ in pairs], [v for _, v in pairs], joints_mm, visibility_logits)
        if joints_mm is None or to_latents is None or self.hint_embed is None:
            return condition
        embedded = self.hint_embed(to_latents(joints_mm.detach()))                      # B N D
        if noise is not None and self.config.hint_dropout:  # the denoiser learns to use the image, too
            kept = uniform((len(embedded), 1, 1), noise, embedded.device) >= self.config.hint_dropout
            embedded = embedded * kept                                                  # B N D
        return condition._replace(self_condition=embedded)

    def step_norms(self, s: Int[Tensor, " T"]) -> StepNorms:
        """Scale and shift of every norm for T steps: one for each row, or one step that all rows share."""
        return [(block.self_norm.scale_and_shift(s), block.cross_norm.scale_and_shift(s)) for block in self._blocks()]

    def forward(
        self, x: Float[Tensor, "BH N D"], s: Int[Tensor, " BH"], condition: Condition
    ) -> Float[Tensor, "BH N D"]:
        x = self.run_blocks(x, self.step_norms(s), condition)                           # BH N D
        return self.norm(self.last_mlp(x))                                              # BH N D

    def run_blocks(
        self,
        x: Float[Tensor, "BH N D"],
        norms: StepNorms,
        condition: Condition,
        asked: Int[Tensor, " A"] | None = None,
    ) -> Tensor:
        """All blocks but the MLP of the last one (`last_mlp`), which is applied token by token. x holds H rows for each
        image of the condition, image after image. `asked`: the output is (A, D), for these tokens only."""
        x = x + self.position                                                           # BH N D
        if condition.self_condition is not None:
            rows = x.reshape(condition.self_condition.shape[0], -1, *x.shape[1:])       # B H N D
            x = (rows + condition.self_condition.unsqueeze(1)).reshape(x.shape)         # BH N D
        *others, last = zip(self._blocks(), norms, condition.keys, condition.values, strict=True)
        for block, norm, keys, values in others:
            x = block(x, norm, keys, values)                                            # BH N D
        block, norm, keys, values = last
        if asked is None:
            return block.attend(x, norm, keys, values)                                  # BH N D
        return block.attend_some(x, norm, keys, values, asked)                          # A D

    def last_mlp(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """The MLP of the last block, for all tokens or for some."""
        return x + cast(Block, self.blocks[-1]).mlp(x)                                  # rows D

    def _blocks(self) -> Iterable["Block"]:
        return cast(Iterable[Block], self.blocks)


class Denoiser(Trunk):
    """f_theta(k_0 | k_s, y): logits over the C codes for each token.

        condition = denoiser.encode_condition(y)    # once an image
        logits = denoiser(ks, s, condition)         # every step, every hypothesis

    ks may hold H rows for each image of the condition, image after image; keys and values are then shared. Carry-over
    needs the schedule of the noise.
    """

    config: DenoiserConfig
    gain: Tensor | None

    def __init__(self, config: DenoiserConfig, schedule: Schedule | None = None) -> None:
        super().__init__(config, config.codes)
        if config.carry_over and schedule is None:
            raise InputError("carry_over needs the schedule: Denoiser(config, schedule)")
        gain = carry_over_gain(schedule).float() if config.carry_over and schedule is not None else None
        self.register_buffer("gain", gain, persistent=False)

    def forward(self, ks: Int[Tensor, "BH N"], s: Int[Tensor, " BH"], condition: Condition) -> Float[Tensor, "BH N C"]:
        self._check(ks, s, condition)
        x = self.token_embed(ks)                                                        # BH N D
        x = self.run_blocks(x, self.step_norms(s), condition)                           # BH N D
        return self.head(x, ks, s.unsqueeze(1))                                         # BH N C

    def head(self, x: Float[Tensor, "*rows D"], ks: Int[Tensor, " *rows"], s: Tensor) -> Float[Tensor, "*rows C"]:
        """Logits of all tokens of `run_blocks` or of some, at step s; with carry-over where it is configured."""
        logits = self.to_logits(self.norm(self.last_mlp(x)))                            # rows C
        return logits if self.gain is None else carry_over(logits, ks, self.gain[s])    # rows C

    def lazy_p0(
        self, condition: Condition, grid: Sequence[int], to_p0: Callable[[Tensor], Tensor] = lambda x: x.softmax(-1)
    ) -> LazyP0:
        """For `fast_sample` over the steps of `grid`: the last block and the head run for undecided tokens only.
        `to_p0`: logits -> probabilities."""
        steps = torch.tensor(grid[:-1], device=self.position.device)                    # T
        norms = self.step_norms(steps)                                                  # of all steps, once

        def predict(ks: Tensor, s: int, asked: Tensor) -> Iterator[Tensor]:
            at = slice(row := grid.index(s), row + 1)                                   # one step for all rows
            seen, (busy, rows) = condition, (asked // ks.shape[1]).unique(return_inverse=True)
            if len(busy) <= FEW * len(ks):
                seen = condition.rows(busy // (len(ks) // condition.images))
                ks, asked = ks[busy], rows * ks.shape[1] + asked % ks.shape[1]
            x = self.run_blocks(self.token_embed(ks), [(a[at], b[at]) for a, b in norms], seen, asked)  # A D
            size = max(1, CHUNK_ELEMENTS // self.config.codes)
            for some, tokens in zip(x.split(size), asked.split(size), strict=True):
                yield to_p0(self.head(some, ks.flatten()[tokens], steps[at]).float())   # R C

        return predict

    def _check(self, ks: Tensor, s: Tensor, condition: Condition) -> None:
        if ks.ndim != 2 or ks.shape[1] != self.config.tokens or s.shape != ks.shape[:1]:
            raise InputError(
                f"ks must have shape (B, {self.config.tokens}) and s (B,), got {tuple(ks.shape)} and {tuple(s.shape)}"
            )
        if not condition.keys or len(ks) % condition.images:
            raise InputError(f"{len(ks)} token rows cannot be shared out over {condition.images} images")
        check_tokens(ks, self.config.codes + 1)
        if s.device.type != "meta" and s.numel() and (int(s.min()) < 1 or int(s.max()) > self.config.steps):
            raise InputError(f"steps must lie in 1..{self.config.steps}, got {int(s.min())}..{int(s.max())}")


class Block(nn.Module):
    """Self-attention, cross-attention to the image, MLP, each a residual; the first two normed by step (AdaLN)."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        width, hidden = config.width, round(config.width * config.mlp_ratio)
        self.self_norm = AdaptiveNorm(width, config.steps)
        self.self_attention = Attention(width, width, config.heads)
        self.cross_norm = AdaptiveNorm(width, config.steps)
        self.cross_attention = Attention(width, width if config.adapter_layers else config.feature_width, config.heads)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), QuickGELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor, norms: tuple[Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        x = self.attend(x, norms, keys, values)                                         # BH N D
        return x + self.mlp(x)                                                          # BH N D

    def attend(self, x: Tensor, norms: tuple[Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        h = self.self_norm(x, norms[0])                                                 # BH N D
        x = x + self.self_attention(h, *self.self_attention.keys_and_values(h))         # BH N D
        return x + self.cross_attention(self.cross_norm(x, norms[1]), keys, values)     # BH N D

    def attend_some(
        self, x: Tensor, norms: tuple[Tensor, Tensor], keys: Tensor, values: Tensor, asked: Int[Tensor, " A"]
    ) -> Float[Tensor, "A D"]:
        """`attend` for some tokens, counted through the rows, ascending: queries for these only, keys and values from
        all. M is the largest count in a row."""
        wanted = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)            # BH N
        wanted.view(-1)[asked] = True
        most = int(wanted.sum(1).max())
        if most > MANY * x.shape[1]:
            return self.attend(x, norms, keys, values).flatten(0, 1)[asked]             # A D
        places = wanted.byte().argsort(dim=1, descending=True, stable=True)[:, :most]   # BH M: wanted ones, then any
        taken, places = wanted.gather(1, places), places.unsqueeze(2).expand(-1, -1, x.shape[2])
        h = self.self_norm(x, norms[0])                                                 # BH N D
        keys_and_values = self.self_attention.keys_and_values(h)                        # BH heads N E, twice
        x = x.gather(1, places) + self.self_attention(h.gather(1, places), *keys_and_values)  # BH M D
        x = x + self.cross_attention(self.cross_norm(x, norms[1]), keys, values)        # BH M D
        return x[taken]                                                                 # A D


class AdaptiveNorm(nn.Module):
    """AdaLN: LayerNorm(x) * (1 + scale(s)) + shift(s), with an embedding of the step for each norm."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.step_embed = nn.Embedding(steps, width)
        self.to_scale_and_shift = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def scale_and_shift(self, s: Int[Tensor, " T"]) -> Float[Tensor, "T two_D"]:
        """For each of T steps, 1 to S: 1 + scale, then shift."""
        step = F.silu(self.step_embed(s - 1))                                           # T D
        scale, shift = self.to_scale_and_shift(step).to(step.dtype).chunk(2, dim=-1)    # T D; float32 under autocast
        return torch.cat([1 + scale, shift], dim=-1)                                    # T 2D

    def forward(self, x: Float[Tensor, "B N D"], norm: Float[Tensor, "T two_D"]) -> Float[Tensor, "B N D"]:
        """`norm`: scale and shift of each row, or of the one step of all rows."""
        scale, shift = norm.chunk(2, dim=-1)                                            # T D
        if len(norm) == 1:
            return F.layer_norm(x, self.norm.normalized_shape, scale[0], shift[0], self.norm.eps)  # one pass over x
        return self.norm(x) * scale.unsqueeze(1) + shift.unsqueeze(1)                   # B N D


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
        queries = self._split(self.to_query(x).reshape(keys.shape[0], -1, width))       # B heads H*N E
        mixed = F.scaled_dot_product_attention(queries, keys, values)                   # B heads H*N E
        return self.to_output(mixed.transpose(1, 2).reshape(batch, tokens, width))      # BH N D

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(1, 2)                 # B heads L E


def truncated(logits: Float[Tensor, "*rows C"], temperature: float = 1.0, top_r: float = 1.0) -> Tensor:
    """Probabilities at a temperature, of the most probable codes that together hold top_r of the mass; 1 and 1 is the
    plain softmax. Extensions of the sampler (top_r is VQ-Diffusion's truncation), not in the paper."""
    p0 = (logits / temperature if temperature != 1 else logits).softmax(-1)
    if top_r >= 1:
        return p0
    ranked, order = p0.sort(-1, descending=True)
    before = ranked.cumsum(-1) - ranked                                     # mass of the codes that are likelier
    p0 = p0.scatter(-1, order, ranked.masked_fill(before >= top_r, 0))
    return p0 / p0.sum(-1, keepdim=True)


def _self_condition_embed(config: TrunkConfig) -> nn.Sequential:
    spread, mix = nn.Linear(config.hint_channels, config.width), nn.Linear(config.width, config.width)
    nn.init.normal_(spread.weight)  # latents lie in [-1, 1]: this spreads them over the activation
    initialise(mix)
    return nn.Sequential(spread, QuickGELU(), mix)


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
