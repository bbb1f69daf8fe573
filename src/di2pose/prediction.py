"""What a model is told of poses, and what it makes of them.  B crops, H hypotheses, N tokens.

In PyTorch's arrays or in numpy's, as the model has them.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int

from di2pose.errors import InputError

Pins = tuple[Float[Any, "... 17 3"], Bool[Any, "... 17"]]
"""(joints in mm from the pelvis, which of them are known)."""


@dataclass(frozen=True)
class Constraints:
    """What is known of the poses already; a kind that cannot use something refuses it."""

    pins: Pins | None = None
    """Joints (B, 17, 3) that are known, in the axes of each crop."""
    kept: tuple[Int[Any, "B N"], Bool[Any, "B N"]] | None = None
    """(tokens, which of them are to stay)."""

    @property
    def any(self) -> bool:
        return not (self.pins is None and self.kept is None)


@dataclass(frozen=True)
class Prediction:
    """What a model makes of B crops, in the axes of the crops."""

    joints_mm: Float[Any, "B H 17 3"]
    """Root-relative, pelvis at 0."""
    visibility: Float[Any, "B 17 4"] | None = None
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[Any, "B H N"] | None = None


@runtime_checkable
class Predicts(Protocol):
    """What of a model the road from pixels to people asks: see `model.PoseModel`, whose noise is PyTorch's."""

    def predict(
        self,
        features: Float[Any, "B L F"],
        hypotheses: int,
        steps: int,
        generator: Any,
        constraints: Constraints | None = None,
    ) -> Prediction: ...

    def certainty(self, features: Float[Any, "B L F"]) -> Float[Any, " B"] | None: ...

    def tokens_of(self, joints_mm: Float[Any, "B H 17 3"]) -> Int[Any, "B H N"] | None: ...


def check_hypotheses(hypotheses: int) -> None:
    if hypotheses < 1:
        raise InputError(f"hypotheses must be 1 or more, got {hypotheses}")
