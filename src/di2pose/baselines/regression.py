"""Regression: one network from features to a pose. No hypotheses, no spread.

The adapter of Di2Pose's denoiser, alone. B crops, J joints, L image tokens of width F.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from di2pose.baselines.baseline import Baseline
from di2pose.config import TrainingConfig, TrunkConfig, added, model_skeleton
from di2pose.diffusion.adapter import Adapter, adapter_losses
from di2pose.model import Constraints, Prediction
from di2pose.noise import Noise
from di2pose.pose.skeleton import H36M_17


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
    skeleton: str = added(H36M_17.name)

    @property
    def feature_size(self) -> tuple[int, int]:
        return self.feature_tokens, self.feature_width

    @property
    def adapter(self) -> TrunkConfig:
        sizes = {each.name: getattr(self, each.name) for each in fields(TrunkConfig) if hasattr(self, each.name)}
        return TrunkConfig(adapter_tokens=1, joints=model_skeleton(self.skeleton).count, **sizes)


class Regression(Baseline):
    """A `model.PoseModel` whose hypotheses are all the same."""

    kind: ClassVar[str] = "regression"
    config_type = RegressionConfig

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        self.config = config
        self.skeleton = model_skeleton(config.skeleton)
        self.adapter = Adapter(config.adapter)

    @classmethod
    def recipe(cls, encoder: str, feature_tokens: int, feature_width: int) -> RegressionConfig:
        training = TrainingConfig(1e-3, (0.9, 0.98), weight_decay=0.05, batch=128, epochs=20, warmup=200)
        return RegressionConfig("regression", encoder, feature_tokens, feature_width, training)

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        output = self.adapter(batch["features"], generator if self.training else None)
        return adapter_losses(output, batch, self.config)

    @torch.no_grad()
    def predict(
        self, features: Float[Tensor, "B L F"], hypotheses: int, steps: int, generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        self.check_call(hypotheses, constraints)
        output = self.adapter(features)
        return Prediction(output.joints_mm[:, None].repeat(1, hypotheses, 1, 1), output.visibility_logits.softmax(-1))

    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B J 3"]]:
        return {}

    def parts(self) -> dict[str, nn.Module]:
        return {"adapter": self.adapter}
