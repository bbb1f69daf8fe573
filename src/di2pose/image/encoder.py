"""What an image encoder is, and the table of those we have.  B crops, L image tokens of width F, J landmarks.

An encoder is frozen and handed in: to the pipeline, to `di2pose features`, to whoever looks at pictures. It owns its
crop: which region of a picture it wants for a detection, how large the crop is, and which axes poses have in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from di2pose.arrays import concatenate
from di2pose.errors import InputError
from di2pose.image.crop import Roi, apply, warp
from di2pose.image.detect import Detection
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import Skeleton

ENCODERS: dict[str, str] = {
    "blazepose-heavy": "di2pose.image.blazepose:load",
    "blazepose-full": "di2pose.image.blazepose:load",
    "blazepose-lite": "di2pose.image.blazepose:load",
    "vitpose": "di2pose.image.vitpose:load",
    "vitpose-base": "di2pose.image.vitpose:load",
}
"""Family name -> module:function(name, runtime). What stands behind ':' or '+' in a name is the encoder's own."""
DEFAULT_ENCODER = "blazepose-heavy+movenet"
OBSERVERS = ("movenet",)
"""Blocks of features that may be missing: a second network's, behind those of the first."""
PERSON = 0.5
"""Least probability of an encoder that somebody is in the crop."""


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
        """Where a block's tokens stand in the sequence."""
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

    def assemble(self, parts: Mapping[str, Any]) -> Float[Any, "B L F"]:
        """Named blocks (B, count, width), PyTorch's -> one fp32 sequence, fresh or out of a cache. A second observer
        that is not there has NaN."""
        import torch

        first = parts[self.blocks[0].name]
        rows = []
        for block in self.blocks:
            if block.name in parts or block.name not in OBSERVERS:
                part = parts[block.name].float()
            else:
                part = first.new_full((first.shape[0], block.count, block.width), torch.nan, dtype=torch.float32)
            rows.append(torch.nn.functional.pad(part, (block.first, self.width - block.first - block.width)))
        return torch.cat(rows, dim=1)


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder tells of B crops, in PyTorch's arrays or all in numpy's. Features always; the rest where it has
    it."""

    features: Float[Any, "B L F"]
    landmarks_2d: Float[Any, "B J 2"] | None = None
    """Pixels of the crop."""
    landmark_visibility: Float[Any, "B J"] | None = None
    world_mm: Float[Any, "B J 3"] | None = None
    """The encoder's own 3D pose, crop axes."""
    person: Float[Any, " B"] | None = None
    """Probability that somebody is in the crop."""
    skeleton: Skeleton | None = None
    """Of the landmarks."""
    keypoints: Float[Any, "B 17 3"] | None = None
    """What a second observer saw: x, y in pixels of the crop and score, COCO's order."""

    def pick(self, rows: Sequence[int]) -> "EncoderOutput":
        """Some of the crops."""
        chosen = {name: part[list(rows)] for name, part in self._arrays().items()}
        return EncoderOutput(skeleton=self.skeleton, **chosen)

    def swap(self, rows: Sequence[int], others: "EncoderOutput") -> "EncoderOutput":
        """The same, but for the given rows the others, in order."""
        count = len(self.features)
        places = dict(zip(rows, range(count, count + len(rows)), strict=True))
        return EncoderOutput.join([self, others]).pick([places.get(row, row) for row in range(count)])

    @staticmethod
    def join(parts: Sequence["EncoderOutput"]) -> "EncoderOutput":
        """One after the other; they are of one encoder."""
        whole = {name: concatenate([part._arrays()[name] for part in parts]) for name in parts[0]._arrays()}
        return EncoderOutput(skeleton=parts[0].skeleton, **whole)

    def _arrays(self) -> dict[str, Any]:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in named.items() if value is not None and name != "skeleton"}


@runtime_checkable
class Encoder(Protocol):
    """A frozen image encoder."""

    @property
    def name(self) -> str:
        """What rebuilds it: `load_encoder(name)`; stored in feature caches and checkpoints."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of its crop in pixels."""
        ...

    @property
    def layout(self) -> FeatureLayout: ...

    def region(self, detection: Detection) -> Roi:
        """The region of the picture that it wants to see of a detected person."""
        ...

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        """Affine, crop pixels -> picture pixels."""
        ...

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        """R with joints_crop = R @ joints_camera: the axes in which poses of this crop are learned."""
        ...

    def encode(self, crops: UInt8[Any, "B H W 3"]) -> EncoderOutput: ...

    def cache_parts(self, crops: UInt8[np.ndarray, "B H W 3"]) -> dict[str, np.ndarray]:
        """What a feature cache keeps of the crops: the blocks of `layout`, and extras under other names."""
        ...


def load_encoder(name: str, device: Any = "cpu", runtime: str = "litert") -> Encoder:
    """The encoder of that name: 'blazepose-heavy' (-full, -lite; '+movenet' adds tokens), or
    'vitpose:FOLDER-OR-HUB-NAME'.

    `runtime` is BlazePose's: 'litert' runs on the CPU whatever the device is, 'torch' on the device.
    """
    if runtime not in ("litert", "torch"):
        raise InputError(f"the runtime is 'litert' or 'torch', got '{runtime}'")
    family = name.partition(":")[0].partition("+")[0]
    if family == "none":
        raise InputError(
            "this model cannot look at pictures: its features come from 'none'; hand in what made them, "
            "Di2Pose(model, encoder=...), or give it features (predict_joints)"
        )
    if family not in ENCODERS:
        raise InputError(
            f"no encoder is called '{name}': choose from {', '.join(ENCODERS)} (vitpose:FOLDER-OR-HUB-NAME), or hand "
            "in an object with encode(crops)"
        )
    module, function = ENCODERS[family].split(":")
    encoder: Encoder = getattr(import_module(module), function)(name, runtime).to(device)
    return encoder


def crop_pixels(encoder: Encoder, picture: Image.Image, region: Roi) -> UInt8[np.ndarray, "H W 3"]:
    """The encoder's crop of a region."""
    return warp(picture, encoder.matrix(region), encoder.size)


def to_picture(encoder: Encoder, region: Roi, points: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n 2"]:
    """2D points of the encoder's crop -> pixels of the picture."""
    return apply(encoder.matrix(region), points)
