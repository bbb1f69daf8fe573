"""Pose denoiser, the network of stage 2.  B images, H hypotheses, N tokens, L image tokens, F, D widths, C codes."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from di2pose.config import DenoiserConfig
from di2pose.diffusion.jump import AskP0, P0Of, truncated
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import carry_over, carry_over_gain
from di2pose.diffusion.trunk import (
    Block,
    Condition,
    StepNorms,
    adapter_parts,
    carry,
    finish,
    hint_embed,
    initialise,
    look,
    step_norms,
)
from di2pose.errors import InputError
from di2pose.noise import Noise
from di2pose.tokenizer.fsq import check_tokens


class Denoiser(nn.Module):
    """f_theta(k_0 | k_s, y): logits over the C codes for each token.

        condition = denoiser.condition(y)       # once an image
        logits = denoiser(ks, s, condition)     # every step, every hypothesis

    ks may hold H rows for each image of the condition, image after image; keys and values are then shared. Carry-over
    needs the schedule of the noise.
    """

    gain: Tensor | None

    def __init__(self, config: DenoiserConfig, schedule: Schedule | None = None) -> None:
        super().__init__()
        self.config = config
        self.token_embed = nn.Embedding(config.codes + 1, config.width)
        self.position = nn.Parameter(torch.zeros(config.tokens, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.to_logits = nn.Linear(config.width, config.codes)
        self.apply(initialise)
        nn.init.normal_(self.position, std=0.02)
        self.hint_embed = hint_embed(config.hint_channels, config.width) if config.hint_channels else None
        self.adapter, self.unpack = adapter_parts(config)
        if config.carry_over and schedule is None:
            raise InputError("carry_over needs the schedule: Denoiser(config, schedule)")
        gain = carry_over_gain(schedule).float() if config.carry_over and schedule is not None else None
        self.register_buffer("gain", gain, persistent=False)

    def condition(self, y: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """All keys and values of a feature sequence. `noise` is for the adapter, in training."""
        return look(y, self.config, self.blocks, self.adapter, self.unpack, noise)

    def hinted(self, condition: Condition, codes: Float[Tensor, "B N d"]) -> Condition:
        """The condition that also knows the codes of a pose: the denoiser then mends these, and need not find them."""
        if self.hint_embed is None:
            raise InputError("this denoiser takes no hints (hint_channels is 0)")
        return condition._replace(hint=self.hint_embed(codes))

    def forward(self, ks: Int[Tensor, "BH N"], s: Int[Tensor, " BH"], condition: Condition) -> Float[Tensor, "BH N C"]:
        self._check(ks, s, condition)
        logits = self.head(self.trunk(ks, self.step_norms(s), condition))               # BH N C
        return self.carried(logits, ks, s.unsqueeze(1))

    def step_norms(self, s: Int[Tensor, " T"]) -> StepNorms:
        """What the norms of every block know of T steps: of each row, or of one step that all rows share."""
        return step_norms(s, self.blocks)

    def trunk(
        self,
        ks: Int[Tensor, "BH N"],
        norms: StepNorms,
        condition: Condition,
        asked: Int[Tensor, " A"] | None = None,
    ) -> Tensor:
        """All that tokens have to do with each other and with the image, (BH, N, D), or (A, D) of those that are asked
        for; `head` is each token's own affair. Nothing is checked here."""
        return carry(self.token_embed(ks) + self.position, norms, self.blocks, condition, asked)

    def head(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows C"]:
        """Logits of what the trunk gave, or of some of its tokens; without carry-over."""
        return self.to_logits(self.norm(finish(x, self.blocks)))                        # rows C

    def carried(self, logits: Float[Tensor, "*rows C"], ks: Int[Tensor, " *rows"], s: Tensor) -> Tensor:
        """Logits with what each visible token of step s says of its own k_0, where the configuration has carry-over."""
        return logits if self.gain is None else carry_over(logits, ks, self.gain[s])

    def predictor(
        self, condition: Condition, grid: Sequence[int], temperature: float = 1.0, top_r: float = 1.0
    ) -> Callable[[Tensor, Tensor], AskP0]:
        """For `sample` over the steps of `grid`: what only concerns tokens that are not asked for is not computed."""
        norms = self.step_norms(torch.tensor(grid[:-1], device=self.position.device))   # of all steps, once

        def predict_p0(ks: Tensor, s: Tensor) -> AskP0:
            at = slice(row := grid.index(int(s[0])), row + 1)                           # one step for all rows

            def ask(asked: Tensor) -> P0Of:
                x = self.trunk(ks, [(a[at], b[at]) for a, b in norms], condition, asked)

                def p0_of(rows: Tensor) -> Tensor:
                    logits = self.head(x[torch.searchsorted(asked, rows)]).float()      # R C
                    return truncated(self.carried(logits, ks.flatten()[rows], s[:1]), temperature, top_r)

                return p0_of

            return ask

        return predict_p0

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
