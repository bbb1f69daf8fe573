"""Di2Pose's network.  B images, H hypotheses, J joints, N tokens, C codes, L image tokens of width F.

    image features y -> [denoiser: noise -> tokens] -> [tokenizer: tokens -> joints] -> poses

Algorithm 1 of the paper is `loss`. Algorithm 2 is `predict_tokens`, by `diffusion.fast_sampler`; `diffusion.sampler` is
its readable reference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.config import Config
from di2pose.diffusion.adapter import with_adapter_losses
from di2pose.diffusion.denoiser import Condition, Denoiser, truncated
from di2pose.diffusion.fast_sampler import LazyP0, fast_sample
from di2pose.diffusion.guidance import towards_pins
from di2pose.diffusion.objective import diffusion_loss
from di2pose.diffusion.schedule import Schedule, step_grid
from di2pose.diffusion.transition import forward_sample
from di2pose.errors import InputError
from di2pose.interruption import check
from di2pose.model import Constraints, Prediction, check_hypotheses
from di2pose.noise import Noise, mirrored, share, uniform, uniform_integers
from di2pose.pose.keypoints import by_body
from di2pose.pose.metrics import mpjpe
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer

DENOISERS: dict[str, type[nn.Module]] = {"transformer": Denoiser}
"""`DenoiserConfig.architecture` -> class. Other packages add theirs under the entry point group "di2pose.denoisers"."""


def denoiser_class(architecture: str) -> type[nn.Module]:
    """A class with Denoiser's constructor, `encode_condition` and call; `lazy_p0` and `adapter` are optional."""
    others = {each.name: each for each in entry_points(group="di2pose.denoisers")}
    if architecture in DENOISERS:
        return DENOISERS[architecture]
    if architecture not in others:
        raise InputError(f"no denoiser is called '{architecture}': choose from {', '.join([*DENOISERS, *others])}")
    return others[architecture].load()


def lift_features(features: Float[Tensor, "B L F"]) -> Float[Tensor, "B 17 68"]:
    """The keypoints of the second observer, the last 17 tokens of an image's features (x, y, two spreads, score,
    correlation), as `data lift` has them: place, score and 1 in channels of their own; 0 where one is missing."""
    places, score = features[:, -17:, -6:-4], features[:, -17:, -2:-1]
    there = 1 - places[..., :1].isnan().to(places)                                      # B 17 1
    places, score = places.nan_to_num(0.0), score.nan_to_num(0.0) * there
    tokens = torch.cat([by_body(places, there), score, there], dim=-1)                  # B 17 4
    apart = torch.eye(17, dtype=tokens.dtype, device=tokens.device).unsqueeze(-1)       # 17 17 1
    return (apart * tokens.unsqueeze(-2)).flatten(2)                                    # B 17 68


class Di2PoseNetwork(nn.Module):
    """A frozen tokenizer and the denoiser: a `model.PoseModel`."""

    kind: ClassVar[str] = "di2pose"
    config_type = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.skeleton = config, config.skeleton
        self.tokenizer = PoseTokenizer(config.tokenizer)
        self.schedule = Schedule(config.tokenizer.codes, config.diffusion.steps, config.diffusion.final_occlude)
        self.denoiser: Any = denoiser_class(config.denoiser.architecture)(config.denoiser, self.schedule)
        self.lift = None if config.lift is None else Denoiser(config.lift, self.schedule)
        self.tokenizer.requires_grad_(False)

    def parts(self) -> dict[str, nn.Module]:
        parts = {"tokenizer": self.tokenizer, "denoiser": self.denoiser}
        return parts if self.lift is None else parts | {"lift": self.lift}

    def with_lift(self, other: "Di2PoseNetwork") -> "Di2PoseNetwork":
        """This model, in which the other one, of keypoints alone and with the same tokenizer, draws half of the
        hypotheses."""
        if not (self.config.encoder.endswith("+movenet") and other.config.encoder.startswith("keypoints")):
            raise InputError(
                "keypoints draw hypotheses beside a model with an encoder '...+movenet', by a model of `data lift` "
                f"(encoder 'keypoints'); got '{self.config.encoder}' and '{other.config.encoder}'"
            )
        if self.config.tokenizer != other.config.tokenizer or not self.same_tokenizer(other):
            raise InputError("the model of keypoints has another tokenizer: train its denoiser with this one")
        joined = Di2PoseNetwork(replace(self.config, lift=other.config.denoiser))
        for part, state in (("tokenizer", self.tokenizer), ("denoiser", self.denoiser), ("lift", other.denoiser)):
            joined.parts()[part].load_state_dict(state.state_dict())
        return joined.eval()

    def same_tokenizer(self, other: "Di2PoseNetwork") -> bool:
        """Whether the other one's, of the same configuration, has the same weights."""
        own, others = self.tokenizer.state_dict(), other.tokenizer.state_dict()
        return all(bool((own[name] == others[name]).all()) for name in own)

    @property
    def device(self) -> torch.device:
        return next(self.denoiser.parameters()).device

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """Algorithm 1 on `{"features": (B, L, F), "joints_mm": (B, J, 3)}`: `loss`, `vlb`, `aux`, `accuracy`, and the
        terms of `with_extensions`.

        The generator draws s, then the noise of k_s, then what the adapter drops; with one generator per row a sample's
        noise is its own.
        """
        if missing := {"features", "joints_mm"} - batch.keys():
            raise InputError(f"a batch needs the keys features and joints_mm, it lacks {', '.join(sorted(missing))}")
        features, joints_mm = batch["features"], batch["joints_mm"]
        if len(features) != len(joints_mm):
            raise InputError(f"a batch needs as many features as poses, got {len(features)} and {len(joints_mm)}")
        k0 = self.tokenizer.encode(joints_mm)                                           # B N
        s = 1 + uniform_integers((len(k0),), self.schedule.steps, generator)            # B
        ks = forward_sample(k0, s, self.schedule, generator)                            # B N
        condition = self.condition(features, generator if self.training else None)
        logits = self.denoiser(ks, s.to(ks.device), condition)                          # B N C
        losses = diffusion_loss(logits, k0, ks, s, self.schedule, self.config.diffusion.aux_weight)
        losses = self.with_extensions(losses, logits, condition, batch)
        return losses | {"accuracy": (logits.argmax(-1) == k0).float().mean()}

    def with_extensions(
        self, losses: dict[str, Tensor], logits: Float[Tensor, "B N C"], condition: Condition, batch: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """The losses with the terms that the paper does not have, weighted by the configuration: `pose`, the joint
        error in metres of the softly decoded probabilities; the adapter's `regression`, `aligned` and `visibility`,
        the last where the batch has "visibility" (B, J), -1 for unknown."""
        weights = self.config.diffusion
        if weights.pose_weight:
            errors = mpjpe(self.tokenizer.decode_soft(logits.float().softmax(-1)), batch["joints_mm"], root=0)
            losses["pose"] = errors.mean() / MM_PER_METRE
            losses["loss"] = losses["loss"] + weights.pose_weight * losses["pose"]
        return with_adapter_losses(losses, condition, batch, weights)

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """The denoiser's condition of B images; with self-conditioning (an extension) also the latents of the adapter's
        own pose. `noise` is for dropout in training."""
        return self.denoiser.encode_condition(features, noise, self.tokenizer.latents)

    def lift_condition(
        self, features: Float[Tensor, "B L F"], window: Float[Tensor, "B T F"] | None = None
    ) -> Condition:
        """The condition of the denoiser of keypoints: those of the image's second observer, or of a window of frames
        (`video.windows`) where there is one."""
        assert self.lift is not None
        if window is None or not window.shape[1]:
            window = lift_features(features)
        seen = window[..., : self.lift.config.feature_width]                            # B T 68
        return self.lift.encode_condition(seen, None, self.tokenizer.latents)

    def draw_with(self, temperature: float | None = None, top_r: float | None = None) -> None:
        """Draw tokens with another temperature or top_r from now on; None leaves it as it is."""
        old = self.config.diffusion
        new = replace(old, temperature=temperature or old.temperature, top_r=top_r or old.top_r)
        self.config = replace(self.config, diffusion=new)

    @torch.no_grad()
    def predict(
        self, features: Float[Tensor, "B L F"], hypotheses: int, steps: int | Sequence[int], generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        """Algorithm 2, H times for each image, decoded; and the visibility of the joints, where there is an adapter.
        Where there is a denoiser of keypoints it draws the last half of the hypotheses."""
        length = (self.lift and self.config.denoiser.feature_tokens) or features.shape[1]
        features, window = features[:, :length], features[:, length:]
        condition = self.condition(features)
        mine = hypotheses if self.lift is None else hypotheses - hypotheses // 2
        own = share(generator, range(mine), hypotheses)
        tokens = self.predict_tokens(condition, mine, steps, own, constraints)
        if mine < hypotheses:
            others = share(generator, range(mine, hypotheses), hypotheses)
            seen = self.lift_condition(features, window)
            more = self.predict_tokens(seen, hypotheses - mine, steps, others, constraints, self.lift)
            tokens = torch.cat([tokens, more], dim=1)
        joints_mm = self.tokenizer.decode(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])
        return Prediction(joints_mm, condition.visibility, tokens)

    @torch.no_grad()
    def predict_tokens(
        self, features: Float[Tensor, "B L F"] | Condition, hypotheses: int, steps: int | Sequence[int],
        generator: Noise, constraints: Constraints | None = None, denoiser: Any = None,
    ) -> Int[Tensor, "B H N"]:  # fmt: skip
        """Algorithm 2, H times for each image; from its features, or from the condition that was made of them.

        generator: one, or one per row (image, hypothesis), B * H in all
        constraints: extensions. Kept tokens stay; with pinned joints the others are drawn to agree with them
        denoiser: of the condition; None: that of images
        """
        check_hypotheses(hypotheses)
        condition = features if isinstance(features, Condition) else self.condition(features)
        grid = step_grid(steps, self.schedule)
        known = constraints or Constraints()
        *_, tokens = self._states(denoiser or self.denoiser, condition, hypotheses, grid, generator, known)
        return tokens.unflatten(0, (condition.images, hypotheses))

    @torch.no_grad()
    def reveal(
        self, features: Float[Tensor, "B L F"], steps: int | Sequence[int], generator: Noise
    ) -> list[tuple[int, Bool[Tensor, "B N"], Float[Tensor, "B J 3"]]]:
        """Algorithm 2 step by step, one hypothesis an image: s, which tokens of k_s have their final value already, and
        the pose of those tokens and of the predicted probabilities of the others."""
        condition, grid = self.condition(features), step_grid(steps, self.schedule)
        states = list(self._states(self.denoiser, condition, 1, grid, generator, Constraints()))
        final = F.one_hot(states[-1], self.schedule.codes).float()                      # B N C
        found = []
        for s, ks in zip(grid, states, strict=True):
            check()
            decided = ks == states[-1]                                                  # B N
            p0 = self._p0(ks, s, condition) if s else final                             # B N C
            found.append((s, decided, self.tokenizer.decode_soft(torch.where(decided.unsqueeze(-1), final, p0))))
        return found

    def _states(
        self, denoiser: Any, condition: Condition, hypotheses: int, grid: list[int], generator: Noise,
        known: Constraints,
    ) -> Iterator[Int[Tensor, "BH N"]]:  # fmt: skip
        """k_s of every (image, hypothesis), at each step of the grid."""

        def of_rows(values: Any) -> Tensor:
            """Something of each image, for each of its hypotheses."""
            return torch.as_tensor(values, device=self.device).repeat_interleave(hypotheses, 0)

        return fast_sample(
            self._lazy_p0(denoiser, condition, grid, known.pins and [of_rows(part) for part in known.pins]),
            self.schedule,
            grid,
            (condition.images * hypotheses, self.config.tokenizer.tokens),
            partial(uniform, noise=generator, device=self.device),
            partial(mirrored, noise=generator),
            self.config.tokenizer.digits,
            None if known.kept is None else (of_rows(known.kept[0]), of_rows(known.kept[1])),
        )

    def _lazy_p0(self, denoiser: Any, condition: Condition, grid: list[int], pins: list[Tensor] | None) -> LazyP0:
        """Lazy where the denoiser is and no joint is pinned: pins concern all tokens at once."""
        diffusion = self.config.diffusion
        to_p0 = partial(truncated, temperature=diffusion.temperature, top_r=diffusion.top_r)
        if pins is None and hasattr(denoiser, "lazy_p0"):
            return denoiser.lazy_p0(condition, grid, to_p0)

        def of_all(ks: Tensor, s: Tensor) -> Tensor:
            return to_p0(denoiser(ks, s, condition).float())

        predict = of_all if pins is None else towards_pins(of_all, self.tokenizer.decode_soft, *pins)

        def of_some(ks: Tensor, s: int, asked: Tensor) -> list[Tensor]:
            return [predict(ks, torch.full((len(ks),), s, device=ks.device)).flatten(0, 1)[asked]]

        return of_some

    def _p0(self, ks: Int[Tensor, "B N"], s: int, condition: Condition) -> Float[Tensor, "B N C"]:
        return self.denoiser(ks, torch.full((len(ks),), s, device=ks.device), condition).float().softmax(-1)

    def _first_p0(self, condition: Condition) -> Float[Tensor, "B N C"]:
        """p0 of all-occluded tokens, before one is drawn."""
        ks = torch.full((condition.images, self.config.tokenizer.tokens), self.schedule.occ, device=self.device)
        return self._p0(ks, self.schedule.steps, condition)

    @torch.no_grad()
    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B J 3"]]:
        """The adapter's regression, and the probabilities of one pass from all-occluded tokens, decoded softly."""
        condition = self.condition(features)
        found = {} if condition.joints_mm is None else {"regression": condition.joints_mm}
        if self.schedule.final_occlude > 0:
            found["soft decode"] = self.tokenizer.decode_soft(self._first_p0(condition))
        return found

    @torch.no_grad()
    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"] | None:
        """Minus the mean entropy of the tokens before one is drawn, in nats; None for a model without Occ tokens."""
        if not self.schedule.final_occlude:
            return None
        p0 = self._first_p0(self.condition(features))
        return (p0 * p0.clamp_min(1e-12).log()).sum(-1).mean(-1)

    def tokens_of(self, joints_mm: Float[Tensor, "B H J 3"]) -> Int[Tensor, "B H N"]:
        return self.tokenizer.encode(joints_mm.flatten(0, 1)).unflatten(0, joints_mm.shape[:2])
