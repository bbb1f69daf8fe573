"""BlazePose's person detector: hips and a point on the body's circle, so that its regions come turned and centred.

It sees the one most prominent person of its 224x224 input well. So it looks at the whole picture, then at overlapping
square tiles of a half and a quarter of its longer side, and looks at the same hips are one person. What it takes for a
person and is none mostly gets a low `person` from the BlazePose encoder, which comes for free.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.crop import Roi, crop, roi_from_keypoints
from di2pose.image.detect import Detection, largest
from di2pose.image.litert import LitertGraph
from di2pose.image.tflite_file import TfliteFile

INPUT = 224
SCORE, TILE_SCORE = 0.5, 0.7
"""The least score of a person: in the whole picture, as in MediaPipe, and in a tile, as many more looks are taken."""
LEAST_SIDE = 80.0
"""Image pixels: people whose crop would be smaller (about 55 pixels tall) are not reported."""


class BlazePoseDetector(nn.Module):
    """The person detector of BlazePose; `detect(image)` gives people, largest first, and an empty list for nobody."""

    centres: Tensor

    def __init__(self, runtime: Literal["torch", "litert"] = "litert") -> None:
        super().__init__()
        file = TfliteFile(fetch("blazepose-detector"))
        outputs = (file.output_named("Identity"), file.output_named("Identity_1"))
        self.graph: nn.Module
        if runtime == "litert":
            self.graph = LitertGraph(file, outputs)
        else:
            from di2pose.image.tflite_graph import TfliteGraph

            self.graph = TfliteGraph(file, outputs)
        self.register_buffer("centres", _anchor_centres(), persistent=False)

    def detect(self, image: Image.Image, max_people: int = 8, tiles: Sequence[int] = (2, 4)) -> list[Detection]:
        """The `max_people` largest; `tiles` are the divisions of the longer side after the look at the whole picture.

        A division whose tiles would be smaller than the detector's input is left out. Without tiles it is some ten
        times faster, and finds the one prominent person.
        """
        if max_people < 1:
            raise InputError(f"max_people must be at least 1, got {max_people}")
        found = self._look(image, _tiles(image.size, 1), SCORE)
        for division in tiles:
            if max(image.size) / division >= INPUT:
                found += self._look(image, _tiles(image.size, division), TILE_SCORE)
        return largest(_merge(found), image.size, max_people)

    @torch.inference_mode()
    def _look(self, image: Image.Image, tiles: list[Roi], least: float) -> list[Detection]:
        """The people of each tile, less those whose body is cut by the tile and not by the picture."""
        pixels = torch.from_numpy(np.stack([crop(image, tile, INPUT) for tile in tiles]))
        points, scores = self(pixels)
        found = []
        for tile, tile_points, tile_scores in zip(tiles, points.cpu().numpy(), scores.cpu().numpy(), strict=True):
            for hip, top, score in _average(tile_points, tile_scores, least):
                person = _detection(tile.to_image(hip, INPUT), tile.to_image(top, INPUT), score)
                if person.roi.side >= LEAST_SIDE and not _is_cut(person, tile, image.size):
                    found.append(person)
        return found

    def forward(self, pixels: Tensor) -> tuple[Float[Tensor, "B A 3 2"], Float[Tensor, "B A"]]:
        """Squares (B, 224, 224, 3) uint8 -> (centre of the head and shoulders, hip, top) and score of each anchor."""
        device = next(self.graph.parameters(), torch.empty(0)).device  # the CPU for litert
        raw, logits = (x.to(self.centres.device) for x in self.graph(pixels.to(device).float() / 127.5 - 1))
        # Per anchor: centre x y, width height (always the same), then four points x y; 0 is the hip, 1 the top.
        points = torch.stack([raw[..., 0:2], raw[..., 4:6], raw[..., 6:8]], dim=-2) + self.centres[:, None]
        return points, logits[..., 0].sigmoid()


def _anchor_centres() -> Float[Tensor, "A 2"]:
    """Cell centres in input pixels: strides 8, 16, 32 with 2, 2, 6 anchors a cell; rows first."""
    grids = []
    for stride, anchors in ((8, 2), (16, 2), (32, 6)):
        line = torch.arange(INPUT // stride) * stride + stride / 2
        y, x = torch.meshgrid(line, line, indexing="ij")
        grids.append(torch.stack([x, y], dim=-1).reshape(-1, 1, 2).expand(-1, anchors, -1).reshape(-1, 2))
    return torch.cat(grids)


def _tiles(size: tuple[int, int], division: int) -> list[Roi]:
    """Squares of the longer side over `division`, half overlapping, that cover the picture; 1: one round all of it."""
    side = max(size) / division
    lines = []
    for extent in size:
        count = max(1, int(np.ceil((extent - side) / (side / 2)))) + 1 if extent > side else 1
        lines.append(np.linspace(side / 2, extent - side / 2, count) if count > 1 else np.array([extent / 2]))
    return [Roi((float(x), float(y)), side) for y in lines[1] for x in lines[0]]


def _average(points: np.ndarray, scores: np.ndarray, least: float) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """(hip, top, score) of each person in one look: anchors whose head squares overlap vote, weighted by score."""
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
    return Detection(box, score, roi_from_keypoints(hip.tolist(), top.tolist()), (x, y), (float(top[0]), float(top[1])))


def _is_cut(person: Detection, tile: Roi, size: tuple[int, int]) -> bool:
    """Whether a tile's own border, not the picture's, cuts more than a quarter of the body's circle off."""
    for axis in (0, 1):
        low, high = tile.centre[axis] - tile.side / 2, tile.centre[axis] + tile.side / 2
        slack = 0.25 * (person.box[2] - person.box[0])
        if (low > 0 and person.box[axis] < low - slack) or (high < size[axis] and person.box[axis + 2] > high + slack):
            return True
    return False


def _merge(found: list[Detection]) -> list[Detection]:
    """One detection a person, surest first: looks are of one person when their hips lie within 0.4 of its radius."""
    kept: list[Detection] = []
    for person in sorted(found, key=lambda each: -each.score):
        if all(_hip_distance(person, other) > 0.4 for other in kept):
            kept.append(person)
    return kept


def _hip_distance(a: Detection, b: Detection) -> float:
    """Between the hips, over the larger body's radius."""
    (ax, ay), (bx, by) = a.roi.centre, b.roi.centre
    return float(np.hypot(ax - bx, ay - by)) / (max(a.box[2] - a.box[0], b.box[2] - b.box[0]) / 2)
