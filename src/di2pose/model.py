"""What a pose model is, the table of kinds, and a model's folder.  B crops, H hypotheses, N tokens.

A model turns image features into poses; it knows nothing of pictures, detectors or encoders. A new kind is one class
with `loss` and `predict` and one line in KINDS: `train`, `evaluate`, `calibrate` and `predict` then take it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from di2pose import checkpoint
from di2pose.config import TokenizerConfig, TrainingConfig, from_json
from di2pose.errors import InputError
from di2pose.randomness import Noise

KINDS: dict[str, str] = {
    "di2pose": "di2pose.network:Di2PoseNetwork",
    "regression": "di2pose.baselines.regression:Regression",
    "gaussian": "di2pose.baselines.gaussian:Gaussian",
    "pct": "di2pose.baselines.pct:PCT",
}
"""Kind -> module:class."""

Pins = tuple[Float[Tensor, "... 17 3"], Bool[Tensor, "... 17"]]
"""(joints in mm from the pelvis, which of them are known)."""


@dataclass(frozen=True)
class Constraints:
    """What is known of the poses already; a kind that cannot use something refuses it."""

    pins: Pins | None = None
    """Joints (B, 17, 3) that are known, in the axes of each crop."""
    kept: tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]] | None = None
    """(tokens, which of them are to stay)."""
    warm: tuple[Int[Tensor, "B H N"], int] | None = None
    """(tokens of a moment ago, the diffusion step to which they are noised again)."""

    @property
    def any(self) -> bool:
        return not (self.pins is None and self.kept is None and self.warm is None)


@dataclass(frozen=True)
class Prediction:
    """What a model makes of B crops, in the axes of the crops."""

    joints_mm: Float[Tensor, "B H 17 3"]
    """Root-relative, pelvis at 0."""
    visibility: Float[Tensor, "B 17 4"] | None = None
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[Tensor, "B H N"] | None = None


@runtime_checkable
class ModelConfig(Protocol):
    """What every kind's configuration tells; the rest is the kind's own. A frozen dataclass."""

    @property
    def name(self) -> str: ...

    @property
    def encoder(self) -> str:
        """The encoder whose features it takes, as `image.encoder.load_encoder` knows it."""
        ...

    @property
    def sample_steps(self) -> int:
        """Reverse steps when a call names none; 1 where there are none."""
        ...

    @property
    def feature_size(self) -> tuple[int, int]:
        """(image tokens, width); 0 tokens: any number."""
        ...


@runtime_checkable
class PoseModel(Protocol):
    """Features in, poses out; also an nn.Module."""

    kind: ClassVar[str]

    @property
    def config(self) -> ModelConfig: ...

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """Of `{"features": (B, L, F), "joints_mm": (B, 17, 3)}`: named scalars, of which `loss` is minimised."""
        ...

    def predict(
        self,
        features: Float[Tensor, "B L F"],
        hypotheses: int,
        steps: int,
        generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:
        """`generator`: one, or one for each (crop, hypothesis), crops outermost."""
        ...

    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B 17 3"]]:
        """Other poses that the model can give without drawing, by name; for comparison."""
        ...

    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"] | None:
        """How sure it is before anything is drawn: chooses among crops. None where it cannot tell."""
        ...

    def tokens_of(self, joints_mm: Float[Tensor, "B H 17 3"]) -> Int[Tensor, "B H N"] | None:
        """The tokens of poses, for models that have tokens."""
        ...

    def parts(self) -> dict[str, nn.Module]:
        """The trained parts, by the names of their files."""
        ...


@runtime_checkable
class Recipe(Protocol):
    """What `train model KIND` asks a class for: a configuration for features of this size."""

    @classmethod
    def recipe(cls, encoder: str, feature_tokens: int, feature_width: int) -> "ModelConfig": ...


@runtime_checkable
class TokenRecipe(Protocol):
    """The same of a class whose models stand on a frozen tokenizer, their part `tokenizer`, that was trained before."""

    @classmethod
    def token_recipe(
        cls, encoder: str, feature_tokens: int, feature_width: int, tokenizer: TokenizerConfig
    ) -> "ModelConfig": ...


def kind_of(name: str) -> type[nn.Module]:
    """The class of a kind."""
    if name not in KINDS:
        raise InputError(f"no model is of kind '{name}': choose from {', '.join(KINDS)}")
    module, function = KINDS[name].split(":")
    found: type[nn.Module] = getattr(import_module(module), function)
    return found


def load_model(folder: Path | str | None = None, device: torch.device | str = "cpu") -> PoseModel:
    """The model of a checkpoint folder, of a run of `di2pose train`, or of a name in the package (None: `small`).

    In evaluation mode.
    """
    place = find_model(folder)
    kind, config = checkpoint.read_kind(place)
    cls = kind_of(kind)
    settings = from_json(cls.config_type, config)  # type: ignore[attr-defined]
    try:
        with _Uninitialised():
            model = cls(settings)
    except (RuntimeError, MemoryError, ArithmeticError, TypeError) as error:  # no memory for it, sizes that do not fit
        raise InputError(f"{place / 'config.json'} describes no model that can be built here ({error})") from error
    if not isinstance(model, PoseModel):
        wanted = ("config", "loss", "predict", "point_estimates", "certainty", "tokens_of", "parts")
        lacks = [name for name in wanted if not hasattr(model, name)]
        raise InputError(f"{KINDS[kind]} is no PoseModel: it lacks {', '.join(lacks)} (see di2pose.model.PoseModel)")
    checkpoint.load(place, model.parts())
    model.to(device).eval()
    return model


class _Uninitialised(TorchFunctionMode):
    """Inside, parameters are made and not filled with random numbers: a checkpoint holds all of them. Most of the time
    that a model takes to load goes there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


def find_model(folder: Path | str | None = None) -> Path:
    """The folder of a model: of a name in the package, of RUN/model, or the folder itself."""
    place = checkpoint.find("small" if folder is None else folder)
    return place / "model" if (place / "model" / "config.json").is_file() else place


def save_model(model: PoseModel, folder: Path | str, half: bool = False, **notes: str | float) -> Path:
    """Write a checkpoint folder, atomically; `half` in 16 bits. Notes are kept in its config.json."""
    return checkpoint.save(folder, model.config, model.parts(), notes, half, kind=model.kind)


@torch.no_grad()
def average_in(model: PoseModel, others: Sequence[Path | str]) -> None:
    """Make the weights of `model` the mean of its own and those of other folders. Of runs that began with the same
    weights the mean is often better than each, and on data that none of them saw (Wortsman et al., 2022)."""
    parts = model.parts()
    states = {name: [part.state_dict()] for name, part in parts.items()}
    for other in others:
        place = find_model(other)
        if (kind := checkpoint.read_kind(place)[0]) != model.kind:
            raise InputError(f"{other} is of kind '{kind}', expected '{model.kind}', as the others are")
        for name, part in parts.items():
            state = checkpoint.read_part(place, name)
            checkpoint.check_state(state, part.state_dict(), place)
            states[name].append(state)
    for name, part in parts.items():
        first, *rest = states[name]
        part.load_state_dict({key: _mean_of([value, *(state[key] for state in rest)]) for key, value in first.items()})


def _mean_of(values: Sequence[Tensor]) -> Tensor:
    """Of weights; numbers that are counts or the like must agree."""
    first = values[0]
    if first.is_floating_point():
        return torch.stack([value.to(first) for value in values]).mean(0)
    if not all(torch.equal(value.to(first), first) for value in values):
        raise InputError("these models differ in more than weights: they have no mean")
    return first


def training_of(config: ModelConfig) -> TrainingConfig:
    """How a kind that learns in one stage is trained."""
    training = getattr(config, "training", None)
    if not isinstance(training, TrainingConfig):
        raise InputError(f"{type(config).__name__} has no field `training`: such a kind is trained by its own commands")
    return training


def check_hypotheses(hypotheses: int) -> None:
    if hypotheses < 1:
        raise InputError(f"hypotheses must be 1 or more, got {hypotheses}")
