"""Continuous diffusion on root-relative joints: the same trunk as Di2Pose's, with the 17 joints as its tokens.

DDPM's training, DDIM's sampling. B crops, H hypotheses, L image tokens of width F.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from di2pose import recipes
from di2pose.config import TrainingConfig, TrunkConfig
from di2pose.diffusion.adapter import reading_losses
from di2pose.diffusion.gaussian import GaussianSchedule, Shape, Target, ddim, x0_of
from di2pose.diffusion.trunk import Condition, Trunk, initialise
from di2pose.errors import InputError
from di2pose.model import Constraints, Prediction, check_hypotheses
from di2pose.noise import Noise, normal, uniform_integers
from di2pose.tokenizer.tokenizer import JOINTS, MM_PER_METRE


@dataclass(frozen=True)
class GaussianConfig:
    """The network, its noise and its training."""

    name: str
    encoder: str
    trunk: TrunkConfig
    """Its `tokens` are the joints, its `steps` the diffusion's; `hint_channels` is 3, or 0 for no hint."""
    training: TrainingConfig
    schedule: Shape = "cosine"
    target: Target = "x0"
    """What the network says. x0: the adapter's hint is a pose, and so is the answer, and a small error stays small at
    every step. From a predicted noise x_0 follows by a division by the signal, which is nearly 0 in the last steps."""
    eta: float = 0.0
    """0: all randomness is in the start (DDIM); 1: DDPM's posterior."""
    scale_mm: float = 300.0
    """Of a coordinate: about the deviation over the poses, so that noise of deviation 1 covers them."""
    regression_weight: float = 10.0
    aligned_weight: float = 10.0
    visibility_weight: float = 0.5
    sample_steps: int = 10

    def __post_init__(self) -> None:
        if self.trunk.tokens != JOINTS or self.trunk.hint_channels not in (0, 3):
            raise InputError(
                f"trunk.tokens must be {JOINTS}, the joints, and trunk.hint_channels 3, or 0 for no hint, "
                f"got {self.trunk.tokens} and {self.trunk.hint_channels}"
            )
        if not 0 <= self.eta <= 1 or self.scale_mm <= 0:
            raise InputError(f"eta must lie in [0, 1] and scale_mm above 0, got {self.eta} and {self.scale_mm}")
        if not 1 <= self.sample_steps <= self.trunk.steps:
            raise InputError(f"sample_steps must lie in 1..{self.trunk.steps}, got {self.sample_steps}")

    @property
    def feature_size(self) -> tuple[int, int]:
        return (self.trunk.feature_tokens if self.trunk.adapter_layers else 0), self.trunk.feature_width


class Gaussian(nn.Module):
    """A `model.PoseModel`: noise -> joints, in DDIM's steps."""

    kind: ClassVar[str] = "gaussian"
    config_type = GaussianConfig

    def __init__(self, config: GaussianConfig) -> None:
        super().__init__()
        self.config = config
        self.schedule = GaussianSchedule(config.trunk.steps, config.schedule)
        self.joint_embed = nn.Linear(3, config.trunk.width)
        self.to_joints = nn.Linear(config.trunk.width, 3)
        initialise(self.to_joints)
        self.trunk = Trunk(config.trunk)

    @classmethod
    def recipe(cls, encoder: str, feature_tokens: int, feature_width: int) -> GaussianConfig:
        """Of the size of `recipes.compare`."""
        base = recipes.compare(feature_width, feature_tokens)
        trunk = recipes.trunk_of(base, tokens=JOINTS, hint_channels=3)
        return GaussianConfig("gaussian", encoder, trunk, base.denoiser_training)

    def prepare(self, features: Float[Tensor, "n L F"]) -> None:
        """Before the first step: the mean and deviation of some training features."""
        if self.trunk.adapter is not None:
            self.trunk.adapter.standardise(features)

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """The mean square error of what the network is to say (`diffusion`), and the adapter's losses."""
        joints_mm = batch["joints_mm"]
        x0 = (joints_mm - joints_mm[:, :1]) / self.config.scale_mm
        s = 1 + uniform_integers((len(x0),), self.schedule.steps, generator, x0.device)
        eps = normal(x0.shape, generator, x0.device)
        condition = self.condition(batch["features"], generator if self.training else None)
        output = self(self.schedule.noised(x0, s, eps), s, condition)
        loss = ((output - (x0 if self.config.target == "x0" else eps)) ** 2).mean()
        losses = {"loss": loss, "diffusion": loss}
        if condition.joints_mm is not None and condition.visibility_logits is not None:
            reading = reading_losses(condition.joints_mm, condition.visibility_logits, batch, self.config)
            losses |= reading | {"loss": loss + reading["loss"]}
        return losses

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """What the trunk knows of B images; its hint is the adapter's own pose, joint by joint, in metres."""
        condition = self.trunk.condition(features, noise)
        if condition.joints_mm is None or not self.config.trunk.hint_channels:
            return condition
        return self.trunk.hinted(condition, condition.joints_mm.detach() / MM_PER_METRE, noise)

    def forward(
        self, xs: Float[Tensor, "BH 17 3"], s: Int[Tensor, " BH"], condition: Condition
    ) -> Float[Tensor, "BH 17 3"]:
        return self.to_joints(self.trunk(self.joint_embed(xs), s, condition)).float()

    @torch.no_grad()
    def predict(
        self,
        features: Float[Tensor, "B L F"],
        hypotheses: int,
        steps: int,
        generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:
        check_hypotheses(hypotheses)
        if constraints is not None and constraints.any:
            raise InputError("kind 'gaussian' has no tokens: pins and kept tokens are for kind 'di2pose'")
        condition = self.condition(features)

        def predict_x0(xs: Tensor, s: Tensor) -> Tensor:
            return x0_of(self(xs, s, condition), xs, s, self.schedule, self.config.target)

        shape = (len(features) * hypotheses, JOINTS, 3)
        x = ddim(predict_x0, self.schedule, steps, shape, generator, self.config.eta, features.device)
        joints_mm = ((x - x[:, :1]) * self.config.scale_mm).unflatten(0, (len(features), hypotheses))
        logits = condition.visibility_logits
        return Prediction(joints_mm, None if logits is None else logits.softmax(-1))

    @torch.no_grad()
    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B 17 3"]]:
        joints_mm = self.trunk.condition(features).joints_mm
        return {} if joints_mm is None else {"regression": joints_mm}

    def certainty(self, features: Float[Tensor, "B L F"]) -> None:
        return None

    def tokens_of(self, joints_mm: Float[Tensor, "B H 17 3"]) -> None:
        return None

    def parts(self) -> dict[str, nn.Module]:
        return {"joint_embed": self.joint_embed, "to_joints": self.to_joints, "trunk": self.trunk}
