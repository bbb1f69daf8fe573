"""The plain baseline: one network reads a pose off the features. No hypotheses, no spread.

The same reader as the adapter before Di2Pose's denoiser, on its own. B crops, L image tokens of width F.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from di2pose.config import TrainingConfig, added
from di2pose.diffusion.adapter import Adapter, reading_losses
from di2pose.errors import InputError
from di2pose.model import Constraints, Prediction, check_hypotheses
from di2pose.noise import Noise


@dataclass(frozen=True)
class RegressionConfig:
    """The network and its training."""

    name: str
    encoder: str
    feature_tokens: int
    feature_width: int
    training: TrainingConfig
    adapter_layers: int = 2
    adapter_width: int = 1024
    adapter_channels: int = 32
    adapter_dropout: float = 0.2
    regression_weight: float = 10.0
    visibility_weight: float = 0.5
    sample_steps: int = 1
    aligned_weight: float = added(0.0)
    observer_tokens: int = added(0)
    observer_dropout: float = added(0.0)

    @property
    def feature_size(self) -> tuple[int, int]:
        return self.feature_tokens, self.feature_width


class Regression(nn.Module):
    """A `model.PoseModel` whose hypotheses are all the same."""

    kind: ClassVar[str] = "regression"
    config_type = RegressionConfig

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.adapter = Adapter(config)

    @classmethod
    def recipe(cls, encoder: str, feature_tokens: int, feature_width: int) -> RegressionConfig:
        training = TrainingConfig(1e-3, (0.9, 0.98), weight_decay=0.05, batch=128, epochs=20, warmup=200)
        return RegressionConfig("regression", encoder, feature_tokens, feature_width, training)

    def prepare(self, features: Float[Tensor, "n L F"]) -> None:
        """Before the first step: the mean and deviation of some training features."""
        self.adapter.standardise(features)

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        reading = self.adapter(batch["features"], generator if self.training else None)
        return reading_losses(reading.joints_mm, reading.visibility_logits, batch, self.config)

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
            raise InputError("a regression draws nothing: pins and kept tokens are for kind 'di2pose'")
        reading = self.adapter(features)
        return Prediction(reading.joints_mm[:, None].repeat(1, hypotheses, 1, 1), reading.visibility_logits.softmax(-1))

    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B 17 3"]]:
        return {}

    def certainty(self, features: Float[Tensor, "B L F"]) -> None:
        return None

    def tokens_of(self, joints_mm: Float[Tensor, "B H 17 3"]) -> None:
        return None

    def parts(self) -> dict[str, nn.Module]:
        return {"adapter": self.adapter}
