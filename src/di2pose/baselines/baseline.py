"""What the baselines share."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from di2pose.config import TrunkConfig
from di2pose.diffusion.denoiser import Condition, Trunk
from di2pose.errors import InputError
from di2pose.model import Constraints, check_hypotheses
from di2pose.randomness import Noise


class Baseline(nn.Module):
    """The parts of a `model.PoseModel` that a kind without pins, kept tokens and certainty has."""

    kind: ClassVar[str]
    no_constraints: ClassVar[str]
    """Why it has no constraints, behind "kind 'NAME' "."""
    config: Any

    def check_call(self, hypotheses: int, constraints: Constraints | None) -> None:
        check_hypotheses(hypotheses)
        if constraints is not None and constraints.any:
            raise InputError(f"kind '{self.kind}' {self.no_constraints}: pins and kept tokens are for kind 'di2pose'")

    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"] | None:
        return None

    def tokens_of(self, joints_mm: Float[Tensor, "B H 17 3"]) -> None:
        return None


class TrunkBaseline(Baseline):
    """A baseline with Di2Pose's trunk between ends of its own."""

    trunk: Trunk

    def prepare(self, features: Float[Tensor, "n L F"]) -> None:
        """Before the first step: set the adapter's mean and scale from some training features."""
        if self.trunk.adapter is not None:
            self.trunk.adapter.standardise(features)

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """The trunk's condition of B images, self-conditioned on the adapter's own pose where that is configured."""
        condition = self.trunk.encode_condition(features, noise)
        if condition.joints_mm is None or not self.trunk.config.hint_channels:
            return condition
        return self.trunk.self_condition(condition, self.latents(condition.joints_mm.detach()), noise)

    def latents(self, joints_mm: Float[Tensor, "B 17 3"]) -> Float[Tensor, "B N d"]:
        raise NotImplementedError

    @torch.no_grad()
    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B 17 3"]]:
        """The adapter's regression."""
        joints_mm = self.trunk.encode_condition(features).joints_mm
        return {} if joints_mm is None else {"regression": joints_mm}


def visibility_of(condition: Condition) -> Float[Tensor, "B 17 4"] | None:
    return None if condition.visibility_logits is None else condition.visibility_logits.softmax(-1)


def feature_size(trunk: TrunkConfig) -> tuple[int, int]:
    """(image tokens, width); without an adapter any number of tokens: 0."""
    return (trunk.feature_tokens if trunk.adapter_layers else 0), trunk.feature_width
