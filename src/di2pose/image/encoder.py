"""What an image encoder is, and the table of encoders.  B crops, L image tokens of width F, J landmarks.

An encoder is frozen and speaks numpy. It owns its crop: which region of a picture it takes for a detection, how large
the crop is, and which axes poses have in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.crop import Roi, apply, warp
from di2pose.image.detect import Detection, plug_in
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import Skeleton

ENCODERS: dict[str, str] = {
    "blazepose-heavy": "di2pose.image.blazepose:load",
    "blazepose-full": "di2pose.image.blazepose:load",
    "blazepose-lite": "di2pose.image.blazepose:load",
    "vitpose": "di2pose.image.vitpose:load",
    "vitpose-base": "di2pose.image.vitpose:load",
    "keypoints": "di2pose.image.keypoint_encoder:load",
}
"""Family name -> module:function(name, device). What stands behind ':' or '+' in a name is the encoder's own."""
PLUG_INS = "di2pose.encoders"
"""The entry point group of encoders of other distributions: family name -> load(name, device), or a class with it."""
DEFAULT_ENCODER = "blazepose-heavy+movenet"
OBSERVERS = ("movenet",)
"""Blocks of features that may be missing: a second network's, behind those of the first."""
PERSON = 0.5
"""Least probability of an encoder that a person is in the crop."""


@dataclass(frozen=True)
class TokenBlock:
    """A run of tokens of the feature sequence: `count` tokens that fill `width` channels from channel `first` on."""

    name: str
    count: int
    width: int
    first: int


@dataclass(frozen=True)
class FeatureLayout:
    """The feature sequence as named blocks; everything between them is zero."""

    blocks: tuple[TokenBlock, ...]

    @property
    def length(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def width(self) -> int:
        return max(block.first + block.width for block in self.blocks)

    def tokens(self, name: str) -> slice:
        """A block's place in the sequence."""
        start = 0
        for block in self.blocks:
            if block.name == name:
                return slice(start, start + block.count)
            start += block.count
        raise InputError(f"the features have no block '{name}', only {', '.join(block.name for block in self.blocks)}")

    @property
    def observer_tokens(self) -> int:
        """How many tokens, the last ones, are of a second observer, which may be missing."""
        return sum(block.count for block in self.blocks if block.name in OBSERVERS)

    def extends(self, other: "FeatureLayout") -> bool:
        """Whether it is the other, or the other and a second observer behind it."""
        known = len(other.blocks)
        return self.blocks[:known] == other.blocks and all(each.name in OBSERVERS for each in self.blocks[known:])

    def assemble(self, parts: Mapping[str, np.ndarray]) -> Float[np.ndarray, "B L F"]:
        """Named blocks (B, count, width) -> one fp32 sequence. A second observer that is missing has NaN."""
        whole = np.zeros((len(parts[self.blocks[0].name]), self.length, self.width), np.float32)
        for block in self.blocks:
            missing = block.name in OBSERVERS and block.name not in parts
            place = whole[:, self.tokens(block.name), block.first : block.first + block.width]
            place[:] = np.nan if missing else parts[block.name]
        return whole


@dataclass(frozen=True)
class EncoderOutput:
    """Of B crops: features always, the rest where the encoder has it."""

    features: Float[Any, "B L F"]
    """numpy's; in a pipeline PyTorch's, on the model's device."""
    landmarks_2d: Float[np.ndarray, "B J 2"] | None = None
    """Pixels of the crop."""
    landmark_visibility: Float[np.ndarray, "B J"] | None = None
    world_mm: Float[np.ndarray, "B J 3"] | None = None
    """The encoder's own 3D pose, crop axes."""
    person: Float[np.ndarray, " B"] | None = None
    """Probability that a person is in the crop; high on wrong poses too, so no measure of quality."""
    skeleton: Skeleton | None = None
    """Of the landmarks."""
    keypoints: Float[np.ndarray, "B 17 3"] | None = None
    """Of a second observer: x, y in pixels of the crop and score, COCO order."""

    def pick(self, rows: Sequence[int]) -> "EncoderOutput":
        """Some of the crops."""
        chosen = {name: part[list(rows)] for name, part in self._arrays().items()}
        return EncoderOutput(skeleton=self.skeleton, **chosen)

    def swap(self, rows: Sequence[int], others: "EncoderOutput") -> "EncoderOutput":
        """The same with the given rows replaced by the others, in order."""
        count = len(self.features)
        places = dict(zip(rows, range(count, count + len(rows)), strict=True))
        return EncoderOutput.join([self, others]).pick([places.get(row, row) for row in range(count)])

    @staticmethod
    def join(parts: Sequence["EncoderOutput"]) -> "EncoderOutput":
        """Concatenated; all of one encoder."""
        whole = {name: np.concatenate([part._arrays()[name] for part in parts]) for name in parts[0]._arrays()}
        return EncoderOutput(skeleton=parts[0].skeleton, **whole)

    def in_double_precision(self) -> "EncoderOutput":
        """The same, all but the features in 64 bits."""
        wide = {name: part.astype(np.float64) for name, part in self._arrays().items() if name != "features"}
        return EncoderOutput(self.features.astype(np.float32, copy=False), skeleton=self.skeleton, **wide)

    def _arrays(self) -> dict[str, Any]:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in named.items() if value is not None and name != "skeleton"}


@runtime_checkable
class Encoder(Protocol):
    """A frozen image encoder."""

    @property
    def name(self) -> str:
        """`load_encoder(name)` rebuilds it; stored in feature caches and checkpoints."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of its crop in pixels."""
        ...

    @property
    def layout(self) -> FeatureLayout: ...

    def region(self, detection: Detection) -> Roi:
        """The region of the picture to crop for a detected person."""
        ...

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        """Affine, crop pixels -> picture pixels."""
        ...

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        """R with joints_crop = R @ joints_camera: the axes in which poses of this crop are learned."""
        ...

    def encode(self, crops: UInt8[np.ndarray, "B H W 3"]) -> EncoderOutput: ...

    def cache_parts(self, crops: UInt8[np.ndarray, "B H W 3"]) -> dict[str, np.ndarray]:
        """What a feature cache keeps of the crops: the blocks of `layout`, and extras under other names."""
        ...


def load_encoder(name: str, device: Any = "cpu") -> Encoder:
    """The encoder of that name: 'blazepose-heavy' (-full, -lite; '+movenet' adds tokens), on the CPU whatever the
    device is; 'vitpose:FOLDER-OR-HUB-NAME'; or one of an installed distribution (PLUG_INS)."""
    family = name.partition(":")[0].partition("+")[0]
    if family == "none":
        raise InputError(
            "this model cannot look at pictures: its features come from 'none'; hand in what made them, "
            "Di2Pose(model, encoder=...), or give it features (predict_joints)"
        )
    if family in ENCODERS:
        module, function = ENCODERS[family].split(":")
        load = getattr(import_module(module), function)
    elif (load := plug_in(PLUG_INS, family)) is None:
        known = [*ENCODERS, *sorted(entry_points(group=PLUG_INS).names)]
        raise InputError(
            f"no encoder is called '{name}': choose from {', '.join(known)} (vitpose:FOLDER-OR-HUB-NAME), or hand "
            "in an object with encode(crops)"
        )
    encoder: Encoder = load(name, device)
    return encoder


def crop_pixels(encoder: Encoder, picture: Image.Image, region: Roi) -> UInt8[np.ndarray, "H W 3"]:
    """The encoder's crop of a region."""
    return warp(picture, encoder.matrix(region), encoder.size)


def to_picture(encoder: Encoder, region: Roi, points: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n 2"]:
    """2D points of the encoder's crop -> pixels of the picture."""
    return apply(encoder.matrix(region), points)
