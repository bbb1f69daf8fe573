"""BlazePose: a frozen encoder (features, 2D landmarks, its own 3D pose of a crop) and its person detector.

B batch. On the way to its 3D landmarks the network has one residual stream, halved by max pooling. So its maps share
their channels; the landmark tokens have channels of their own.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.crop import Roi, crop, crop_rotation, roi_from_keypoints
from di2pose.image.detect import Detection, largest
from di2pose.image.encoder import EncoderOutput, FeatureLayout, TokenBlock
from di2pose.image.litert import LitertNetwork, made_network, sigmoid
from di2pose.image.movenet import OBSERVER, TOKEN_CHANNELS, MoveNet
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33

Variant = Literal["heavy", "full", "lite"]

CROP, MAPS = 256, (8, 4, 2)
"""Pixels a side of a crop, and cells a side of the maps."""
OUTPUTS = {
    "heavy": (644, 669, 694, 696, 698, 701),
    "full": (300, 316, 335, 337, 339, 342),
    "lite": (285, 295, 308, 310, 312, 315),
}
"""Tensors of the files: of each size the last map on the way to the 3D landmarks, the landmarks in 2D and in 3D, and
the probability of a person."""
WIDTHS = {"heavy": 288, "full": 288, "lite": 192}
"""Channels of the maps."""
LANDMARK_CHANNELS = 8
INPUT = 224
"""Pixels a side of the detector's input."""
SCORE, TILE_SCORE = 0.5, 0.7
"""Least score of a detected person: in the whole picture, as in MediaPipe, and in a tile, of which there are many."""
LEAST_SIDE = 80.0
"""Image pixels: people whose crop would be smaller (about 55 pixels tall) are not reported."""


class BlazePose:
    """Crops (B, 256, 256, 3), RGB uint8 -> EncoderOutput: an `image.encoder.Encoder`; weights come by `assets`.

    `movenet` adds the keypoint tokens of a second observer, in channels of their own. `runtime` is ignored (LiteRT).
    """

    size = (CROP, CROP)

    def __init__(self, variant: Variant = "heavy", movenet: bool = False, runtime: str = "litert") -> None:
        if variant not in ("heavy", "full", "lite"):
            raise InputError(f"BlazePose comes as heavy, full or lite, got '{variant}'")
        self.name = f"blazepose-{variant}{'+movenet' * movenet}"
        self.network = LitertNetwork(lambda: made_network("cut", [f"blazepose-{variant}"], OUTPUTS[variant]))
        width = WIDTHS[variant]
        blocks = [TokenBlock(f"map{n}", n * n, width, 0) for n in MAPS]
        blocks.append(TokenBlock("landmarks", 33, LANDMARK_CHANNELS, width))
        self.movenet = MoveNet() if movenet else None
        if movenet:
            blocks.append(TokenBlock(OBSERVER, 17, TOKEN_CHANNELS, width + LANDMARK_CHANNELS))
        self.layout = FeatureLayout(tuple(blocks))

    def region(self, detection: Detection) -> Roi:
        """The detector's turned square round the hips."""
        return detection.roi

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        return region.matrix(CROP)

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        return crop_rotation(camera, region)

    def encode(self, crops: UInt8[np.ndarray, "B 256 256 3"]) -> EncoderOutput:
        parts, about = self._run(crops)
        return EncoderOutput(self.layout.assemble(parts), skeleton=BLAZEPOSE_33, **about)

    def cache_parts(self, crops: UInt8[np.ndarray, "B 256 256 3"]) -> dict[str, np.ndarray]:
        """Maps in fp16; landmark tokens, MoveNet's, `landmarks_2d` (B, 33, 2) and `world_mm` (B, 33, 3) in fp32:
        fp16 has only eighths of a pixel at 256."""
        parts, about = self._run(crops)
        halved = {name: x.astype(np.float16) for name, x in parts.items() if name.startswith("map")}
        return parts | halved | {name: about[name] for name in ("landmarks_2d", "world_mm")}

    def _run(self, crops: UInt8[np.ndarray, "B 256 256 3"]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The blocks of the features, rows of a map first, and the other fields of EncoderOutput."""
        waiting = self.network.begin(crops.astype(np.float32) / 255)
        second = None if self.movenet is None else self.movenet.begin(crops)
        *maps, landmarks, world, person = waiting()
        # Of 39: x, y, z in crop pixels, visibility, presence (logits); the last 6 are helper points.
        landmarks = landmarks.reshape(-1, 39, 5)[:, :33]
        world_mm = world.reshape(-1, 39, 3)[:, :33] * 1000
        parts = {f"map{n}": x.reshape(len(x), n * n, -1) for n, x in zip(MAPS, maps, strict=True)}
        parts["landmarks"] = landmark_tokens(landmarks, world_mm)
        about = {
            "landmarks_2d": landmarks[..., :2],
            "landmark_visibility": sigmoid(landmarks[..., 3]),
            "world_mm": world_mm,
            "person": person[:, 0],
        }
        if second is not None:
            about["keypoints"], parts[OBSERVER] = second()
        return parts, about


def load(name: str, device: Any = "cpu") -> BlazePose:
    """'blazepose-VARIANT', with '+movenet' behind it for more tokens; on the CPU whatever the device is."""
    variant, *extras = name.removeprefix("blazepose-").split("+")
    if unknown := sorted(set(extras) - {"movenet"}):
        raise InputError(f"BlazePose has no tokens called {', '.join(unknown)}: +movenet can be added")
    return BlazePose(cast(Variant, variant), "movenet" in extras)


def landmark_tokens(
    landmarks: Float[np.ndarray, "B 33 5"], world_mm: Float[np.ndarray, "B 33 3"]
) -> Float[np.ndarray, "B 33 8"]:
    """A token a landmark: x, y, z over half the crop (centre 0, border 1), visibility, presence, world in metres."""
    half = CROP / 2
    centred = (landmarks[..., :3] - np.array([half, half, 0], np.float32)) / half
    return np.concatenate([centred, sigmoid(landmarks[..., 3:]), world_mm / 1000], axis=-1)


class BlazePoseDetector:
    """Finds hips and a point on the body's circle, so that regions come turned and centred.

    It finds one prominent person of its 224x224 input well. So it runs on the whole picture, then on overlapping square
    tiles of a half and a quarter of its longer side, and results with the same hips are one person. False detections
    mostly get a low `person` from the BlazePose encoder.
    """

    def __init__(self) -> None:
        self.network = LitertNetwork(lambda: fetch("blazepose-detector"))
        self.centres = _anchor_centres()

    def detect(self, image: Image.Image, max_people: int = 8, tiles: Sequence[int] = (2, 4)) -> list[Detection]:
        """The `max_people` largest, largest first; `tiles`: divisions of the longer side, after the whole picture.

        A division whose tiles would be smaller than the detector's input is left out. Without tiles it is some ten
        times faster, and finds the one prominent person.
        """
        if max_people < 1:
            raise InputError(f"max_people must be at least 1, got {max_people}")
        found = self._detect(image, _tiles(image.size, 1), SCORE)
        for division in tiles:
            if max(image.size) / division >= INPUT:
                found += self._detect(image, _tiles(image.size, division), TILE_SCORE)
        kept: list[Detection] = []
        for person in sorted(found, key=lambda each: -each.score):
            if all(_hip_distance(person, other) > 0.4 for other in kept):
                kept.append(person)
        return largest(kept, image.size, max_people)

    def _detect(self, image: Image.Image, tiles: list[Roi], least: float) -> list[Detection]:
        """The people of each tile, less those whose body is cut by the tile and not by the picture."""
        pixels = np.stack([crop(image, tile, INPUT) for tile in tiles])
        raw, logits = self.network(pixels.astype(np.float32) / 127.5 - 1)
        # Per anchor: centre x y, width height (always the same), then four points x y; 0 is the hip, 1 the top.
        points = np.stack([raw[..., 0:2], raw[..., 4:6], raw[..., 6:8]], axis=-2) + self.centres[:, None]
        found = []
        for tile, tile_points, scores in zip(tiles, points, sigmoid(logits[..., 0]), strict=True):
            for hip, top, score in _average(tile_points, scores, least):
                person = _detection(tile.to_image(hip, INPUT), tile.to_image(top, INPUT), score)
                if person.roi.side >= LEAST_SIDE and not _is_cut(person, tile, image.size):
                    found.append(person)
        return found


def _anchor_centres() -> Float[np.ndarray, "A 2"]:
    """Cell centres in input pixels: strides 8, 16, 32 with 2, 2, 6 anchors a cell; rows first."""
    grids = []
    for stride, anchors in ((8, 2), (16, 2), (32, 6)):
        line = np.arange(INPUT // stride, dtype=np.float32) * stride + stride / 2
        grids.append(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2).repeat(anchors, axis=0))
    return np.concatenate(grids)


def _tiles(size: tuple[int, int], division: int) -> list[Roi]:
    """Squares of the longer side over `division`, half overlapping, that cover the picture; 1: one round all of it."""
    side = max(size) / division
    lines = []
    for extent in size:
        count = max(1, int(np.ceil((extent - side) / (side / 2)))) + 1 if extent > side else 1
        lines.append(np.linspace(side / 2, extent - side / 2, count) if count > 1 else np.array([extent / 2]))
    return [Roi((float(x), float(y)), side) for y in lines[1] for x in lines[0]]


def _average(
    points: Float[np.ndarray, "A 3 2"], scores: Float[np.ndarray, " A"], least: float
) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """(hip, top, score) of each person in one tile: anchors whose head squares overlap vote, weighted by score."""
    order = np.argsort(-scores, kind="stable")
    left = order[scores[order] >= least]
    found = []
    while left.size:
        apart = np.abs(points[left, 0] - points[left[0], 0])
        # All squares have one side, INPUT / 5: their overlap over union exceeds 0.3 for these offsets.
        shared = np.clip(1 - apart / (INPUT / 5), 0, 1).prod(-1)
        same = shared / (2 - shared) > 0.3
        hip, top = np.average(points[left[same], 1:], axis=0, weights=scores[left[same]])
        found.append((hip, top, float(scores[left[0]])))
        left = left[~same]
    return found


def _detection(hip: np.ndarray, top: np.ndarray, score: float) -> Detection:
    (x, y), radius = hip.tolist(), float(np.linalg.norm(top - hip))
    box = (x - radius, y - radius, x + radius, y + radius)
    return Detection(box, score, roi_from_keypoints(hip.tolist(), top.tolist()), (x, y))


def _is_cut(person: Detection, tile: Roi, size: tuple[int, int]) -> bool:
    """Whether a tile's own border, not the picture's, cuts more than a quarter of the body's circle off."""
    for axis in (0, 1):
        low, high = tile.centre[axis] - tile.side / 2, tile.centre[axis] + tile.side / 2
        slack = 0.25 * (person.box[2] - person.box[0])
        if (low > 0 and person.box[axis] < low - slack) or (high < size[axis] and person.box[axis + 2] > high + slack):
            return True
    return False


def _hip_distance(a: Detection, b: Detection) -> float:
    """Between the hips, over the larger body's radius: below 0.4 they are one person."""
    (ax, ay), (bx, by) = a.roi.centre, b.roi.centre
    return float(np.hypot(ax - bx, ay - by)) / (max(a.box[2] - a.box[0], b.box[2] - b.box[0]) / 2)
