"""The default detector: EfficientDet-Lite0 gives boxes, MoveNet MultiPose people with keypoints; together everybody.

Either network misses some and invents others; a person is who one of them is sure of, or both half sure. Large pictures
with room for small people are looked at again in tiles. The keypoints also give the first region for the encoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.boxes import Box, area, iou
from di2pose.image.crop import roi_from_box
from di2pose.image.detect import Detection, largest
from di2pose.image.glance import Boxes, Poses
from di2pose.image.join import Sight, add_new, covered, distinct_poses, join
from di2pose.image.keypoint_region import region_of

BOX, POSE, TILE, LONE = 0.45, 0.25, 0.45, 0.4
"""Thresholds: EfficientDet's score, MultiPose's, EfficientDet's in a tile, and where it is alone."""
HALF_SURE = 0.5
"""Of a threshold: what counts where both networks see somebody."""
LARGE, FILLED, TILE_SHARE = 1000, 0.5, 0.6
"""Tiles are for pictures with a longer side of this many pixels at least, less than this share of which is filled with
people; each covers this share of either side."""
ENOUGH = 1280
"""Pixels of the longer side that all looks get by with: a tile has more than twice what the network sees of it."""
LEAST_HEIGHT = 24.0
"""Image pixels of a box's longer side: smaller people are not reported."""


@runtime_checkable
class BoxLook(Protocol):
    """A network that gives boxes: `glance.look_for_boxes`."""

    def begin(self, images: Sequence[Image.Image]) -> Callable[[], list[Boxes]]: ...


@runtime_checkable
class PoseLook(Protocol):
    """A network that gives people with keypoints: `glance.look_for_poses`."""

    def begin(self, image: Image.Image, least: float = 0.0) -> Callable[[], Poses]:
        """`least`: of the score; whoever scores less may be left out."""
        ...


class PeopleDetector:
    """`detect(image)` gives people, the largest first, and an empty list for nobody. Without `poses` EfficientDet alone
    looks, which comes by pip; it finds fewer people in groups and no keypoints."""

    def __init__(self, boxes: BoxLook, poses: PoseLook | None) -> None:
        self.boxes, self.poses = boxes, poses

    @classmethod
    def load(
        cls, poses: bool = True, runtime: Literal["torch", "litert"] = "litert", device: Any = "cpu"
    ) -> "PeopleDetector":
        """With both networks in Google's runtime, on the CPU, or in PyTorch, on the device."""
        from di2pose.image.efficientdet import EfficientDet
        from di2pose.image.multipose import MultiPose

        return cls(EfficientDet(runtime).to(device), MultiPose(runtime=runtime).to(device) if poses else None)

    def detect(self, image: Image.Image, max_people: int = 8, tiles: Sequence[int] = (2,)) -> list[Detection]:
        """The `max_people` largest of all who are found, by the area of their boxes in the picture.

        tiles: how many a side, after the look at the whole picture; (): only that look, about three times faster.
        """
        if max_people < 1:
            raise InputError(f"max_people must be at least 1, got {max_people}")
        factor = max(1, max(image.size) // ENOUGH)
        near = image.reduce(factor) if factor > 1 else image  # once, for all looks
        people = self._whole(near)
        for count in tiles:
            if max(image.size) >= LARGE and covered((0.0, 0.0, *near.size), people) < FILLED:
                people = add_new(people, self._tiles(near, count, 3 / factor))
        if factor > 1:
            people = [_enlarged(person, factor, image.size) for person in people]
        big = [person for person in people if max(_extent(person.box)) >= LEAST_HEIGHT]
        return largest([_detection(person, self.poses is not None) for person in big], image.size, max_people)

    def _whole(self, image: Image.Image) -> list[Sight]:
        asked = None if self.poses is None else self.poses.begin(image, least=HALF_SURE * POSE)
        ((boxes, scores),) = self.boxes.begin([image])()
        if asked is None:
            return join([], _sights(boxes, scores, LONE, 1.0, image.size))
        poses = asked()
        people = [
            Sight(box, float(score) / POSE, keypoints)
            for box, score, keypoints in zip(
                _inside(poses.boxes, image.size), poses.scores, poses.keypoints, strict=True
            )
            if score >= HALF_SURE * POSE and area(box) > 0
        ]
        joined = join(distinct_poses(people), _sights(boxes, scores, BOX, HALF_SURE, image.size))
        return [person for person in joined if person.strength >= 1]

    def _tiles(self, image: Image.Image, count: int, near: float) -> list[Sight]:
        """Whoever is small in a tile and not cut by its own border; `near` that many pixels it counts as cut."""
        found = []
        tiles = tiling(image.size, count)
        looks = self.boxes.begin([image.crop(tile) for tile in tiles])()
        for (x0, y0, x1, y1), (boxes, scores) in zip(tiles, looks, strict=True):
            for person in _sights(boxes + np.array([x0, y0] * 2), scores, TILE, 1.0, image.size):
                left, top, right, bottom = person.box
                cut = [left < x0 + near and x0 > 0, top < y0 + near and y0 > 0]
                cut += [right > x1 - near and x1 < image.width, bottom > y1 - near and y1 < image.height]
                if not any(cut) and max(_extent(person.box)) <= 0.5 * max(x1 - x0, y1 - y0):
                    found.append(person)
        return found


def tiling(size: tuple[int, int], count: int) -> list[tuple[int, int, int, int]]:
    """count x count parts of a picture, neighbours overlapping by a third: x0, y0, x1, y1."""
    lines = []
    for extent in size:
        side = round(min(1.0, 2 * TILE_SHARE / count) * extent)
        lines.append([(round(start), round(start) + side) for start in np.linspace(0, extent - side, count)])
    return [(x0, y0, x1, y1) for y0, y1 in lines[1] for x0, x1 in lines[0]]


def _enlarged(person: Sight, factor: int, size: tuple[int, int]) -> Sight:
    """Seen in a picture of a part of the size."""
    (box,) = _inside(np.array([person.box]) * factor, size)
    keypoints = None if person.keypoints is None else person.keypoints * (factor, factor, 1)
    return replace(person, box=box, keypoints=keypoints)


def _detection(person: Sight, poses: bool) -> Detection:
    """The score is 0.5 at the threshold, and nears 1 for whom both networks see clearly. Where the network of poses was
    asked and saw nobody, all keypoints score 0."""
    roi = None if person.keypoints is None else region_of(person.keypoints, person.box)
    keypoints = np.zeros((17, 3)) if poses and person.keypoints is None else person.keypoints
    return Detection(person.box, 1 - 0.5**person.strength, roi or roi_from_box(person.box), keypoints=keypoints)


def _sights(
    boxes: Float[np.ndarray, "A 4"],
    scores: Float[np.ndarray, " A"],
    threshold: float,
    least: float,
    size: tuple[int, int],
) -> list[Sight]:
    """Boxes that reach `least` of the threshold, cut at the picture's border, without those that overlap surer ones."""
    sure = np.flatnonzero(scores >= least * threshold)
    order = sure[np.argsort(-scores[sure], kind="stable")]
    kept: list[Sight] = []
    for box, score in zip(_inside(boxes[order], size), scores[order], strict=True):
        if area(box) > 0 and all(iou(box, other.box) <= 0.5 for other in kept):
            kept.append(Sight(box, float(score) / threshold))
    return kept


def _inside(boxes: Float[np.ndarray, "A 4"], size: tuple[int, int]) -> list[Box]:
    x0, y0, x1, y1 = np.clip(boxes, 0, np.array([*size, *size])).T.tolist()
    return list(zip(x0, y0, x1, y1, strict=True))


def _extent(box: Box) -> tuple[float, float]:
    return box[2] - box[0], box[3] - box[1]
