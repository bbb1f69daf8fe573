"""What a pose model is, the table of kinds, and a model's folder.  B crops, H hypotheses, J joints, N tokens.

A model turns image features into poses; it knows nothing of pictures, detectors or encoders. A new kind is one class
with `loss` and `predict` and one line in KINDS, or in another distribution an entry point of the group `di2pose.models`
(kind = "module:class"): `train`, `evaluate`, `calibrate` and `predict` then take it.

The pipeline uses a `NumpyModel`: `TorchModel` makes one of a PyTorch model, `di2pose.onnx` has another.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from di2pose.config import TokenizerConfig, from_json
from di2pose.errors import InputError
from di2pose.noise import Noise
from di2pose.pose.skeleton import H36M_17, Skeleton

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
else:
    Tensor = Module = Any  # imported where it is used: an ONNX model does without PyTorch

KINDS: dict[str, str] = {
    "di2pose": "di2pose.network:Di2PoseNetwork",
    "regression": "di2pose.baselines.regression:Regression",
    "gaussian": "di2pose.baselines.gaussian:Gaussian",
    "pct": "di2pose.baselines.pct:PCT",
}
"""Kind -> module:class."""
GROUP = "di2pose.models"
Pins = tuple[Float[Any, "... J 3"], Bool[Any, "... J"]]
"""(joints in mm from the root, which of them are known)."""


@dataclass(frozen=True)
class Constraints:
    """What is known of the poses already. A kind of model that cannot use it raises InputError."""

    pins: Pins | None = None
    """Known joints (B, J, 3) in the axes of each crop."""
    kept: tuple[Int[Any, "B N"], Bool[Any, "B N"]] | None = None
    """(tokens, which of them to keep)."""

    @property
    def any(self) -> bool:
        return not (self.pins is None and self.kept is None)


@dataclass(frozen=True)
class Prediction:
    """Poses of B crops, in the axes of the crops. Arrays of PyTorch or of numpy, as the model has them."""

    joints_mm: Float[Any, "B H J 3"]
    """Root-relative, the skeleton's root at 0."""
    visibility: Float[Any, "B J 4"] | None = None
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[Any, "B H N"] | None = None


def check_hypotheses(hypotheses: int) -> None:
    if hypotheses < 1:
        raise InputError(f"hypotheses must be 1 or more, got {hypotheses}")


@runtime_checkable
class ModelConfig(Protocol):
    """What the configuration of every kind has; the rest is the kind's own. A frozen dataclass."""

    @property
    def name(self) -> str: ...

    @property
    def encoder(self) -> str:
        """The encoder whose features it takes, a name of `image.encoder.load_encoder`."""

    @property
    def sample_steps(self) -> int:
        """Default of reverse steps; 1 where there are none."""

    @property
    def feature_size(self) -> tuple[int, int]:
        """(image tokens, width); 0 tokens: any number."""


@runtime_checkable
class NumpyModel(Protocol):
    """The part of a model that the pipeline uses: numpy arrays in, numpy arrays out."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def skeleton(self) -> Skeleton: ...

    def predict(
        self, features: Float[np.ndarray, "B L F"], hypotheses: int, steps: int, noise: Any,
        constraints: Constraints | None = None, /,
    ) -> Prediction: ...  # fmt: skip

    def certainty(self, features: Float[np.ndarray, "B L F"], /) -> Float[np.ndarray, " B"] | None: ...

    def tokens_of(self, joints_mm: Float[np.ndarray, "B H J 3"], /) -> Int[np.ndarray, "B H N"] | None: ...


@runtime_checkable
class PoseModel(Protocol):
    """Features in, poses out: an nn.Module whose arrays are PyTorch's."""

    kind: ClassVar[str]

    @property
    def config(self) -> ModelConfig: ...

    @property
    def skeleton(self) -> Skeleton:
        """The joints of its poses."""

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """Of `{"features": (B, L, F), "joints_mm": (B, J, 3)}`: named scalars, of which `loss` is minimised."""

    def predict(
        self, features: Float[Tensor, "B L F"], hypotheses: int, steps: int, generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        """`generator`: one, or one for each (crop, hypothesis), crops outermost."""

    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B J 3"]]:
        """Other poses that the model gives without drawing, by name; for comparison."""

    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"] | None:
        """Certainty before anything is drawn, to choose among crops; None where the kind has none."""

    def tokens_of(self, joints_mm: Float[Tensor, "B H J 3"]) -> Int[Tensor, "B H N"] | None:
        """The tokens of poses, for models that have tokens."""

    def parts(self) -> dict[str, Module]:
        """The trained parts, by the names of their files."""


class TorchModel:
    """A PyTorch model as a `NumpyModel`: arrays go to its device and come back."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.skeleton: Skeleton = getattr(model, "skeleton", H36M_17)  # kinds of other distributions may name none

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    def predict(
        self, features: Float[np.ndarray, "B L F"], hypotheses: int, steps: int, noise: Any,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        found = self._run(self.model.predict, features, hypotheses, steps, noise, constraints)
        visibility = None if found.visibility is None else _array(found.visibility.float())
        return Prediction(_array(found.joints_mm.float()), visibility, _array(found.tokens))

    def point_estimates(self, features: Float[np.ndarray, "B L F"]) -> dict[str, Float[np.ndarray, "B J 3"]]:
        return {name: _array(pose.float()) for name, pose in self._run(self.model.point_estimates, features).items()}

    def certainty(self, features: Float[np.ndarray, "B L F"]) -> Float[np.ndarray, " B"] | None:
        return _array(self._run(self.model.certainty, features))

    def tokens_of(self, joints_mm: Float[np.ndarray, "B H J 3"]) -> Int[np.ndarray, "B H N"] | None:
        return _array(self._run(self.model.tokens_of, joints_mm))

    def _run(self, method: Any, values: np.ndarray, *others: Any) -> Any:
        import torch

        with torch.no_grad():
            return method(torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device), *others)


def _array(values: Any) -> Any:
    return None if values is None else values.cpu().numpy()


@runtime_checkable
class Recipe(Protocol):
    """A class that `train model KIND` trains: it gives a configuration for features of this size."""

    @classmethod
    def recipe(cls, encoder: str, feature_tokens: int, feature_width: int) -> "ModelConfig": ...


@runtime_checkable
class TokenRecipe(Protocol):
    """The same of a class whose models have a frozen tokenizer, their part `tokenizer`, that was trained before."""

    @classmethod
    def token_recipe(
        cls, encoder: str, feature_tokens: int, feature_width: int, tokenizer: TokenizerConfig
    ) -> "ModelConfig": ...


def kinds() -> dict[str, str]:
    """Kind -> module:class: our own, and those of other installed distributions."""
    return KINDS | {each.name: each.value for each in entry_points(group=GROUP) if each.name not in KINDS}


def kind_of(name: str) -> type[Module]:
    """The class of a kind."""
    known = kinds()
    if name not in known:
        raise InputError(f"no model is of kind '{name}': choose from {', '.join(known)}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def load_model(folder: Path | str | None = None, device: Any = "cpu") -> PoseModel:
    """The `PoseModel` of a checkpoint folder, of a run of `di2pose train`, or of a name in the package (None: `small`),
    in evaluation mode."""
    from di2pose import checkpoint  # with PyTorch, which an ONNX model does without

    place = find_model(folder)
    kind, config = checkpoint.read_kind(place)
    cls: Any = kind_of(kind)
    settings = from_json(cls.config_type, config)
    try:
        with checkpoint.uninitialised():
            model: Any = cls(settings)
    except (RuntimeError, MemoryError, ArithmeticError, TypeError) as error:  # no memory for it, sizes that do not fit
        raise InputError(f"{place / 'config.json'} describes no model that can be built here ({error})") from error
    wanted = ("config", "loss", "predict", "point_estimates", "certainty", "tokens_of", "parts")
    if lacks := [name for name in wanted if not hasattr(model, name)]:
        raise InputError(f"{kinds()[kind]} is no PoseModel: it lacks {', '.join(lacks)} (see di2pose.model.PoseModel)")
    checkpoint.load(place, model.parts())
    return model.to(device).eval()


def find_model(folder: Path | str | None = None) -> Path:
    """The folder of a model (`checkpoint.find`); None is the packaged `small`."""
    from di2pose import checkpoint

    return checkpoint.find("small" if folder is None else folder)


def save_model(model: PoseModel, folder: Path | str, half: bool = False, **notes: str | float) -> Path:
    """Write a checkpoint folder, atomically; `half` in 16 bits. Notes are kept in its config.json."""
    from di2pose import checkpoint

    return checkpoint.save(folder, model.config, model.parts(), notes, half, kind=model.kind)
