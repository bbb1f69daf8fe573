"""Every hyper-parameter, once: frozen dataclasses, validated at construction, exact JSON round trip."""

import dataclasses
import math
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17, SKELETONS, Skeleton

T = TypeVar("T")


def added(default: Any) -> Any:
    """A field that checkpoints of earlier versions lack: they get the default, which is how they were made."""
    return field(default=default, metadata={"added": True})


MOST, MOST_LAYERS = 1e7, 1000
"""No hyper-parameter is larger: a damaged or crafted config.json would build a network for ever."""
REMOVED: dict[str, Any] = {
    "TokenizerConfig.joint_dropout": 0.0,
    "TokenizerConfig.code_noise": 0.0,
    "DiffusionConfig.importance_sampling": False,
}
"""Options that older files may have, with the one value that is what the code does."""
LATER: dict[str, Any] = {"architecture": "transformer", "skeleton": H36M_17.name, "joints": H36M_17.count,
                         "simulated_observers": 0.0, "lift": None}  # fmt: skip
"""Fields that came after the first stored runs, with their defaults: `without_later`."""


def _positive(config: object, *names: str) -> None:
    for name in names:
        value, most = getattr(config, name), MOST_LAYERS if name.endswith(("blocks", "layers")) else MOST
        if not 0 < value <= most:
            raise InputError(f"{type(config).__name__}.{name} must be above 0 and at most {most:g}, got {value}")


def _below_one(config: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{type(config).__name__}.{name} must lie in [0, 1), got {getattr(config, name)}")


def model_skeleton(name: str) -> Skeleton:
    """The skeleton of that name; poses are relative to its root, which must be its first joint."""
    fit = [each.name for each in SKELETONS.values() if each.root == 0]
    if name not in fit:
        raise InputError(f"a model's skeleton must be one of {', '.join(fit)}, got '{name}'")
    return SKELETONS[name]


@dataclass(frozen=True)
class TokenizerConfig:
    """Stage 1, the pose quantisation step. The defaults are the paper's."""

    tokens: int = 100
    """N, tokens of a pose."""
    levels: tuple[int, ...] = (7, 5, 5, 5, 5)
    """FSQ levels per channel; their product is the size of the codebook."""
    encoder_blocks: int = 4
    encoder_width: int = 2048
    decoder_blocks: int = 1
    decoder_width: int = 512
    block: Literal["local", "mixer"] = "local"
    """Local-MLP (with AS-MLP's two residuals) or PCT's Mixer."""
    local_joints: int = 3
    """X, joints that see each other in a Local-MLP block; odd."""
    mlp_ratio: float = 1.0
    joint_order: Literal["index", "chain"] = "index"
    """Along which order joints are neighbours: the skeleton's own, or limb after limb."""
    code_embed: Literal["linear", "mlp", "table"] = "mlp"
    """How the decoder reads a code. `linear` leaves each joint only d independent numbers: docs/paper.md."""
    loss: Literal["l1", "mpjpe"] = "l1"
    quantiser: Literal["fsq", "vq"] = added("fsq")
    """FSQ, or PCT's learned codebook, of as many codes as the levels have."""
    vq_channels: int = added(64)
    """d, width of VQ's codes; FSQ has a channel a level."""
    commitment: float = added(0.02)
    """Of VQ: weight of the mean squared distance of latents to their codes."""
    joint_embed: bool = added(False)
    """Learned vector of each joint at the encoder's and the decoder's input: Local-MLP blocks share their weights over
    the joints, and nothing else distinguishes these."""
    token_mix: bool = added(False)
    """Norm and GELU between the map from joints to tokens and that to channels; without them the two linear maps
    commute, and each channel of the N tokens has rank J, the number of joints."""
    augment: bool = added(True)
    """Train on mirrored poses of other bodies, turned as crops are; the paper has no augmentation."""
    skeleton: str = added(H36M_17.name)
    """The joints of a pose, by the skeleton's name in `pose.skeleton.SKELETONS`."""

    def __post_init__(self) -> None:
        model_skeleton(self.skeleton)
        _positive(self, "tokens", "encoder_width", "decoder_width", "mlp_ratio", "encoder_blocks", "decoder_blocks")
        _positive(self, "vq_channels", "commitment")
        if not self.levels or any(level < 2 for level in self.levels):
            raise InputError(f"FSQ levels must be one or more integers >= 2, got {list(self.levels)}")
        narrowest = min(self.encoder_width, self.decoder_width)
        if self.local_joints % 2 == 0 or not 1 <= self.local_joints <= narrowest:
            raise InputError(f"local_joints must be odd and within 1..{narrowest}, got {self.local_joints}")

    @property
    def codes(self) -> int:
        return math.prod(self.levels)

    @property
    def channels(self) -> int:
        """d, numbers of a code."""
        return len(self.levels) if self.quantiser == "fsq" else self.vq_channels

    @property
    def digits(self) -> tuple[int, ...]:
        """Levels of the channels by which a code's number is read; none of VQ's, whose numbers say nothing."""
        return self.levels if self.quantiser == "fsq" else ()


@dataclass(frozen=True)
class DiffusionConfig:
    """The noise process and the objective. The defaults are the paper's."""

    steps: int = 100
    """S, steps of the forward process."""
    final_occlude: float = 0.9
    """Share of Occ tokens at step S: 0 is replace-only, 1 is occlude-only."""
    aux_weight: float = 5e-4
    """Lambda, weight of the cross-entropy to the clean tokens."""
    pose_weight: float = 0.0
    """Weight of the softly decoded pose's mean joint error, in metres; 0 is the paper's objective."""
    regression_weight: float = 0.0
    """Weight of the adapter's own regression error, in metres, where there is an adapter."""
    visibility_weight: float = 0.0
    """Weight of the adapter's cross-entropy to the joints' visibility, where it is known."""
    aligned_weight: float = added(0.0)
    """Weight of the adapter's regression error after Procrustes alignment, in metres."""
    temperature: float = added(1.0)
    """Of the sampler: p0 is raised to 1 / temperature before a token is drawn; 1 is Algorithm 2."""
    top_r: float = added(1.0)
    """Of the sampler: only the most probable codes that together hold this mass are drawn (VQ-Diffusion's truncation);
    1 is Algorithm 2."""

    def __post_init__(self) -> None:
        _positive(self, "steps", "temperature", "top_r")
        for name in ("final_occlude", "top_r"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"DiffusionConfig.{name} must lie in [0, 1], got {getattr(self, name)}")
        for name in ("aux_weight", "pose_weight", "regression_weight", "visibility_weight", "aligned_weight"):
            if getattr(self, name) < 0:
                raise InputError(f"DiffusionConfig.{name} must be 0 or above, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrunkConfig:
    """A transformer over tokens with cross-attention to an image, and its adapter. The defaults are the paper's."""

    tokens: int = 100
    steps: int = 100
    feature_width: int = 768
    """F, width of the image features; 768 is ViTPose-B."""
    width: int = 1024
    layers: int = 21
    heads: int = 16
    mlp_ratio: float = 4.0
    adapter_layers: int = 0
    """Layers of the adapter between features and denoiser; 0 is the paper's: none."""
    adapter_width: int = 0
    adapter_channels: int = 0
    """Channels to which the adapter narrows each image token before it reads them all at once."""
    adapter_tokens: int = 0
    """Q, tokens into which the denoiser unpacks the adapter's output."""
    adapter_dropout: float = 0.0
    feature_tokens: int = 0
    """L, image tokens; only for an adapter."""
    hint_channels: int = 0
    """d, where the denoiser gets the tokenizer's codes of the adapter's own pose (self-conditioning, an extension); 0:
    it does not."""
    hint_dropout: float = added(0.0)
    """Share of the training crops without self-conditioning, so that the denoiser learns to use the image, too."""
    observer_tokens: int = added(0)
    """How many image tokens, the last ones, are of a second observer that may be missing."""
    observer_dropout: float = added(0.0)
    """Share of the training crops from which the adapter withholds them."""
    simulated_observers: float = added(0.0)
    """Share of the training crops in which these tokens are of a simulated observer, drawn anew (an extension)."""
    joints: int = added(H36M_17.count)
    """J, joints that the adapter regresses, with their visibility."""

    def __post_init__(self) -> None:
        _positive(self, "tokens", "steps", "feature_width", "width", "layers", "heads", "mlp_ratio", "joints")
        if self.width % self.heads:
            raise InputError(f"width must be a multiple of heads, got {self.width} and {self.heads}")
        if self.adapter_layers:
            _positive(self, "adapter_width", "adapter_channels", "adapter_tokens", "feature_tokens")
        _below_one(self, "adapter_dropout", "hint_dropout", "observer_dropout", "simulated_observers")
        if self.observer_tokens and not 0 < self.observer_tokens < self.feature_tokens:
            raise InputError(
                f"observer_tokens are some of the {self.feature_tokens} image tokens, got {self.observer_tokens}"
            )
        if self.hint_channels and not self.adapter_layers:
            raise InputError("a hint is the code of the adapter's pose: hint_channels needs adapter_layers")

    @property
    def feature_size(self) -> tuple[int, int]:
        """(image tokens, width) of the features; 0 tokens without an adapter: any number."""
        return (self.feature_tokens if self.adapter_layers else 0), self.feature_width


@dataclass(frozen=True)
class DenoiserConfig(TrunkConfig):
    """The transformer that predicts the clean tokens. The defaults are the paper's."""

    codes: int = 4375
    architecture: str = added("transformer")
    """Class of the denoiser, by its name in `network.DENOISERS` or the entry point group "di2pose.denoisers"."""
    carry_over: bool = added(False)
    """Add what a visible token says of k_0 in closed form (`transition.carry_over`); the network learns the rest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "codes")


@dataclass(frozen=True)
class TrainingConfig:
    """One stage's optimiser: AdamW, linear warm-up, cosine decay, clipping, EMA."""

    learning_rate: float
    betas: tuple[float, float]
    weight_decay: float
    batch: int
    epochs: int
    warmup: int = 500
    """Iterations of linear warm-up."""
    clip: float = 1.0
    """Largest gradient norm."""
    ema: float = 0.999
    """Decay of the averaged weights, per iteration; less in runs so short that it would span over a tenth of them."""
    iterations: int = 0
    """Length of the training; 0 is as long as the epochs need."""

    def __post_init__(self) -> None:
        _positive(self, "learning_rate", "batch", "epochs", "clip")
        _below_one(self, "ema")
        if self.iterations < 0 or self.warmup < 0:
            raise InputError(f"iterations and warmup must be 0 or above, got {self.iterations} and {self.warmup}")


@dataclass(frozen=True)
class Config:
    """All of a model: what a checkpoint stores."""

    name: str
    tokenizer: TokenizerConfig
    diffusion: DiffusionConfig
    denoiser: DenoiserConfig
    tokenizer_training: TrainingConfig
    adapter_training: TrainingConfig
    """Of the adapter alone, before the denoiser's; unused without an adapter."""
    denoiser_training: TrainingConfig
    encoder: str = "vitpose:usyd-community/vitpose-base-simple"
    """The frozen image encoder that made the features, as `image.encoder.load_encoder` knows it."""
    sample_steps: int = field(default=25)
    """Reverse steps when a call names none."""
    lift: DenoiserConfig | None = field(default=None, metadata={"added": True})
    """A second denoiser, which sees the second observer's keypoints alone and draws half of the hypotheses."""

    def __post_init__(self) -> None:
        pairs = (
            ("tokens", self.denoiser.tokens, self.tokenizer.tokens),
            ("codes", self.denoiser.codes, self.tokenizer.codes),
            ("steps", self.denoiser.steps, self.diffusion.steps),
            ("joints", self.denoiser.joints, self.skeleton.count),
        )
        if self.denoiser.hint_channels not in (0, self.tokenizer.channels):
            raise InputError(
                f"the denoiser's hint_channels must be 0 or {self.tokenizer.channels}, as the tokenizer has it, "
                f"got {self.denoiser.hint_channels}"
            )
        if self.lift is not None:
            pairs += tuple((name, getattr(self.lift, name), wanted) for name, _, wanted in pairs)
        for name, given, wanted in pairs:
            if given != wanted:
                raise InputError(f"the denoiser's {name} must equal {wanted}, as the other parts have it, got {given}")
        if not 1 <= self.sample_steps <= self.diffusion.steps:
            raise InputError(f"sample_steps must lie in 1..{self.diffusion.steps}, got {self.sample_steps}")

    @property
    def skeleton(self) -> Skeleton:
        return SKELETONS[self.tokenizer.skeleton]

    @property
    def feature_size(self) -> tuple[int, int]:
        return self.denoiser.feature_size


def to_json(config: Any) -> dict[str, Any]:
    """A dataclass as plain JSON values."""
    return dataclasses.asdict(config)


def without_later(data: Any) -> Any:
    """JSON values without the LATER fields at their defaults, to compare runs with those that were stored before."""
    if not isinstance(data, dict):
        return data
    return {key: without_later(value) for key, value in data.items() if LATER.get(key, ...) != value}


def from_json(kind: type[T], data: Any) -> T:
    """The dataclass back. A missing, unknown or mistyped key is an error that names it; what was added since the first
    version may be missing, and what was REMOVED is left out."""
    if not isinstance(data, dict):
        raise InputError(f"{kind.__name__} must be a JSON object, got {type(data).__name__}")
    hints = get_type_hints(kind)
    added = {each.name for each in dataclasses.fields(cast(Any, kind)) if each.metadata.get("added")}
    if missing := sorted(hints.keys() - data.keys() - added):
        raise InputError(f"{kind.__name__} lacks {', '.join(missing)}")
    for name in sorted(data.keys() - hints.keys()):
        if (where := f"{kind.__name__}.{name}") not in REMOVED:
            raise InputError(f"{kind.__name__} does not know {name}")
        if data[name] != REMOVED[where]:
            raise InputError(f"{where} was removed: only {REMOVED[where]!r} can be read, got {data[name]!r}")
    known = {name: hint for name, hint in hints.items() if name in data}
    return kind(**{name: _value(hint, data[name], f"{kind.__name__}.{name}") for name, hint in known.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is UnionType:  # X | None
        return None if value is None else _value(get_args(hint)[0], value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, got {value!r}")
        return tuple(_value(get_args(hint)[0], item, where) for item in value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(f"{where} must be one of {', '.join(get_args(hint))}, got {value!r}")
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise InputError(f"{where} must be of type {hint.__name__}, got {value!r}")
    return value
