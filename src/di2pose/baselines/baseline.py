"""What the baselines share: the parts of a `model.PoseModel` without pins, kept tokens and certainty."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from di2pose.diffusion.adapter import Adapter
from di2pose.errors import InputError
from di2pose.model import Constraints, check_hypotheses
from di2pose.pose.skeleton import Skeleton


class Baseline(nn.Module):
    kind: ClassVar[str]
    skeleton: Skeleton

    def prepare(self, features: Float[Tensor, "n L F"]) -> None:
        """Before the first step: set the adapter's mean and scale from some training features."""
        for module in self.modules():
            if isinstance(module, Adapter):
                module.standardise(features)

    def check_call(self, hypotheses: int, constraints: Constraints | None) -> None:
        check_hypotheses(hypotheses)
        if constraints is not None and constraints.any:
            raise InputError(f"pins and kept tokens are for kind 'di2pose', this model is of kind '{self.kind}'")

    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"] | None:
        return None

    def tokens_of(self, joints_mm: Float[Tensor, "B H J 3"]) -> None:
        return None
