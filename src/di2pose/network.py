"""Di2Pose's network.  B images, H hypotheses, N tokens, L image tokens of width F.

    image features y -> [denoiser: noise -> tokens] -> [tokenizer: tokens -> joints] -> poses

Algorithm 1 of the paper is `loss`, Algorithm 2 `predict_tokens`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from di2pose.config import Config
from di2pose.diffusion.adapter import reading_losses
from di2pose.diffusion.denoiser import Denoiser
from di2pose.diffusion.guidance import towards_pins
from di2pose.diffusion.int8 import round_linears
from di2pose.diffusion.jump import truncated
from di2pose.diffusion.objective import diffusion_loss
from di2pose.diffusion.sampler import PredictP0, sample, step_grid
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import forward_sample
from di2pose.diffusion.trunk import Condition, withhold
from di2pose.errors import InputError
from di2pose.interruption import check
from di2pose.model import Constraints, Prediction, check_hypotheses
from di2pose.noise import Noise, uniform_integers
from di2pose.pose.metrics import mpjpe
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer


class Di2PoseNetwork(nn.Module):
    """A frozen tokenizer and the denoiser: a `model.PoseModel`."""

    kind: ClassVar[str] = "di2pose"
    config_type = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = PoseTokenizer(config.tokenizer)
        self.schedule = Schedule(config.tokenizer.codes, config.diffusion.steps, config.diffusion.final_occlude)
        self.denoiser = Denoiser(config.denoiser, self.schedule)
        self.tokenizer.requires_grad_(False)
        self._rounded = False

    def to_int8(self) -> None:
        """Round the denoiser's linear layers to 8 bits, in place: quicker on a CPU, for prediction only."""
        if self.device.type != "cpu":
            raise InputError(f"8 bits are for the CPU, the model is on {self.device}")
        round_linears(self.denoiser.blocks)
        self._rounded = True

    def parts(self) -> dict[str, nn.Module]:
        if self._rounded:
            raise InputError("a model in 8 bits cannot be saved or loaded: save it first, then call to_int8()")
        return {"tokenizer": self.tokenizer, "denoiser": self.denoiser}

    @property
    def device(self) -> torch.device:
        return self.denoiser.position.device

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """Algorithm 1 on `{"features": (B, L, F), "joints_mm": (B, 17, 3)}`: `loss`, `vlb`, `aux`, `accuracy`.

        Where `pose_weight` is above 0 (an extension), the predicted probabilities are also decoded softly by the
        frozen tokenizer: `pose`, the mean joint error in metres, joins the loss with that weight. So do the adapter's
        `regression`, where there is an adapter, and `visibility`, its cross-entropy to `batch["visibility"]` (B, 17),
        where that is given; -1 is unknown.

        The generator draws s, then the noise of k_s, then what the adapter drops; with one generator per row a sample's
        noise is its own.
        """
        if missing := {"features", "joints_mm"} - batch.keys():
            raise InputError(f"a batch needs the keys features and joints_mm, it lacks {', '.join(sorted(missing))}")
        features, joints_mm = batch["features"], batch["joints_mm"]
        if len(features) != len(joints_mm):
            raise InputError(f"a batch needs as many features as poses, got {len(features)} and {len(joints_mm)}")
        k0 = self.tokenizer.encode(joints_mm)
        s = 1 + uniform_integers((len(k0),), self.schedule.steps, generator)
        ks = forward_sample(k0, s, self.schedule, generator)
        condition = self.condition(features, generator if self.training else None)
        logits = self.denoiser(ks, s.to(ks.device), condition)
        losses = diffusion_loss(logits, k0, ks, s, self.schedule, self.config.diffusion.aux_weight)
        if self.config.diffusion.pose_weight:
            errors = mpjpe(self.tokenizer.decode_soft(logits.float().softmax(-1)), joints_mm, root=0)
            losses["pose"] = errors.mean() / MM_PER_METRE
            losses["loss"] = losses["loss"] + self.config.diffusion.pose_weight * losses["pose"]
        if condition.joints_mm is not None and condition.visibility_logits is not None:
            reading = reading_losses(condition.joints_mm, condition.visibility_logits, batch, self.config.diffusion)
            losses |= reading | {"loss": losses["loss"] + reading["loss"]}
        return losses | {"accuracy": (logits.argmax(-1) == k0).float().mean()}

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """What the denoiser knows of B images; with self-conditioning (the hint, an extension) also the codes of the
        adapter's own pose. `noise` is for what is dropped in training: in the adapter, and the hint of some images."""
        condition = self.denoiser.condition(features, noise)
        if condition.joints_mm is None or not self.config.denoiser.hint_channels:
            return condition
        hinted = self.denoiser.hinted(condition, self.tokenizer.codes(condition.joints_mm.detach()))
        return withhold(hinted, self.config.denoiser.hint_dropout, noise)

    def draw_with(self, temperature: float | None = None, top_r: float | None = None) -> None:
        """Draw tokens with another temperature or top_r from now on; None leaves it as it is."""
        old = self.config.diffusion
        new = replace(old, temperature=temperature or old.temperature, top_r=top_r or old.top_r)
        self.config = replace(self.config, diffusion=new)

    @torch.no_grad()
    def predict(
        self,
        features: Float[Tensor, "B L F"],
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:
        """Algorithm 2, H times for each image, decoded; and what the visibility head says, where there is one."""
        condition = self.condition(features)
        tokens = self.predict_tokens(condition, hypotheses, steps, generator, constraints=constraints)
        logits = condition.visibility_logits
        return Prediction(self._decode(tokens), None if logits is None else logits.softmax(-1), tokens)

    @torch.no_grad()
    def predict_tokens(
        self,
        features: Float[Tensor, "B L F"] | Condition,
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        constraints: Constraints | None = None,
    ) -> Int[Tensor, "B H N"]:
        """Algorithm 2, H times for each image; from its features, or from the condition that was made of them.

        `generator`: one, or one per row (image, hypothesis), B * H in all. Of the constraints (extensions) joints that
        are not pinned are drawn to agree with those that are; kept tokens stay.
        """
        check_hypotheses(hypotheses)
        condition = features if isinstance(features, Condition) else self.condition(features)
        known = constraints or Constraints()
        *_, tokens = self._states(condition, hypotheses, step_grid(steps, self.schedule), generator, known)
        return tokens.unflatten(0, (len(condition.keys[0]), hypotheses))

    @torch.no_grad()
    def reveal(
        self, features: Float[Tensor, "B L F"], steps: int | Sequence[int], generator: Noise
    ) -> list[tuple[int, Bool[Tensor, "B N"], Float[Tensor, "B 17 3"]]]:
        """Algorithm 2 step by step, one hypothesis an image: s, which tokens of k_s have the value already that they
        end with, and the pose that is known by then: the decoder gets those tokens, and for the others the
        probabilities that the network gives them."""
        condition, grid = self.condition(features), step_grid(steps, self.schedule)
        states = list(self._states(condition, 1, grid, generator, Constraints()))
        k0 = states[-1]
        sure = functional.one_hot(k0, self.schedule.codes).float()              # B N C
        seen = []
        for s, ks in zip(grid, states, strict=True):
            check()
            decided = ks == k0                                                  # B N
            p0 = sure
            if s:
                p0 = self.denoiser(ks, torch.full((len(ks),), s, device=ks.device), condition).float().softmax(-1)
            pose = self.tokenizer.decode_soft(torch.where(decided.unsqueeze(-1), sure, p0))
            seen.append((s, decided, pose))
        return seen

    def _states(
        self, condition: Condition, hypotheses: int, grid: list[int], generator: Noise, known: Constraints
    ) -> Iterator[Int[Tensor, "rows N"]]:
        """k_s of every (image, hypothesis), at each step of the grid."""

        drawing = self.config.diffusion.temperature, self.config.diffusion.top_r

        def of_all(ks: Tensor, s: Tensor) -> Tensor:
            return truncated(self.denoiser(ks, s, condition).float(), *drawing)

        predict_p0: PredictP0 = self.denoiser.predictor(condition, grid, *drawing)
        if known.pins is not None:
            pins_mm, pinned = (self._each(part, hypotheses) for part in known.pins)
            predict_p0 = towards_pins(of_all, self.tokenizer.decode_soft, pins_mm, pinned)
        return sample(
            predict_p0,
            self.schedule,
            grid,
            (len(condition.keys[0]) * hypotheses, self.config.tokenizer.tokens),
            generator,
            kept=None if known.kept is None
            else (self._each(known.kept[0], hypotheses), self._each(known.kept[1], hypotheses)),
            device=self.device,
            levels=self.config.tokenizer.digits,
        )  # fmt: skip

    @torch.no_grad()
    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B 17 3"]]:
        """The adapter's regression, and the probabilities of one pass from all-occluded tokens, decoded softly."""
        condition = self.condition(features)
        found = {} if condition.joints_mm is None else {"regression": condition.joints_mm}
        if self.schedule.final_occlude > 0:
            found["soft decode"] = self.tokenizer.decode_soft(self._first_guess(condition))
        return found

    @torch.no_grad()
    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"] | None:
        """Minus the mean entropy of the tokens before one is drawn, in nats; None for a model that never sees
        all-occluded tokens."""
        if not self.schedule.final_occlude:
            return None
        p0 = self._first_guess(self.condition(features))
        return (p0 * p0.clamp_min(1e-12).log()).sum(-1).mean(-1)

    def tokens_of(self, joints_mm: Float[Tensor, "B H 17 3"]) -> Int[Tensor, "B H N"]:
        return self.tokenizer.encode(joints_mm.flatten(0, 1)).unflatten(0, joints_mm.shape[:2])

    def _each(self, known: Any, hypotheses: int) -> Tensor:
        """What is known of each image, for each of its hypotheses."""
        return torch.as_tensor(known, device=self.device).repeat_interleave(hypotheses, 0)

    def _decode(self, tokens: Int[Tensor, "B H N"]) -> Float[Tensor, "B H 17 3"]:
        return self.tokenizer.decode(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])

    def _first_guess(self, condition: Condition) -> Float[Tensor, "B N C"]:
        """Probabilities of the tokens in one pass, from all-occluded ones."""
        images = len(condition.keys[0])
        ks = torch.full((images, self.config.tokenizer.tokens), self.schedule.occ, device=self.device)
        s = torch.full((images,), self.schedule.steps, device=self.device)
        return self.denoiser(ks, s, condition).float().softmax(-1)
