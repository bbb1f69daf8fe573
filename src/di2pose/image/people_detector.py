"""The default detector: EfficientDet-Lite0 gives boxes, MoveNet MultiPose people with keypoints; merged.

Either network misses some people and invents others; a person is who one of them is sure of, or both half sure. Large
pictures with room for small people are searched again in tiles, and crowds by both networks in squares, as MultiPose
finds about six people at a look. The keypoints also give the encoder's first region.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.boxes import Box, area, iou
from di2pose.image.crop import roi_from_box
from di2pose.image.detect import Detection, largest
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.merge import Candidate, add_new, covered, distinct_poses, merge
from di2pose.image.movenet import LONG_SIDE, MultiPose
from di2pose.image.region import region_of

BOX, POSE, TILE = 0.45, 0.25, 0.45
"""Thresholds: EfficientDet's score, MultiPose's, EfficientDet's in a tile."""
HALF_SURE = 0.5
"""Of a threshold: enough where both networks find a person."""
LARGE, FILLED, TILE_SHARE = 1000, 0.5, 0.6
"""Tiles are for pictures with a longer side of this many pixels at least, less than this share of which is filled with
people; each covers this share of either side."""
WEAK_BOX, WEAK_SIDE = 0.06, 0.4
"""And in which EfficientDet gives a box of this score, of at most this share of the longer side, that is no found
person's: `has_unexplained_box`."""
ENOUGH = 1280
"""Pixels of the longer side that suffice: a tile has more than twice what the network gets of it."""
MANY = 6
"""From so many people on a picture, or a square of it, is searched again in squares: MultiPose finds about as many."""
STEP, AROUND, CUT = 0.67, 0.05, 0.015
"""Of a square's side: to the next square at most, and how near to its border a box is cut by it; of all people's longer
side: what is searched beyond their boxes."""
LEAST_HEIGHT = 24.0
"""Image pixels of a box's longer side: smaller people are not reported."""

Window = tuple[int, int, int, int]
"""x0, y0, x1, y1 of a part of a picture."""


@dataclass(frozen=True)
class _Found:
    """Detections of one search or several, not yet merged; in image pixels."""

    poses: list[Candidate]
    boxes: list[Candidate]
    weak_boxes: Float[np.ndarray, "S 4"]
    """EfficientDet's, of a score from WEAK_BOX on."""

    def people(self) -> list[Candidate]:
        merged = merge(distinct_poses(self.poses), _distinct_boxes(self.boxes))
        return [person for person in merged if person.strength >= 1]


class PeopleDetector:
    """Finds people of any size, each with a box, keypoints and the first region to crop."""

    def __init__(self) -> None:
        self.boxes, self.poses = EfficientDet(), MultiPose()

    def detect(self, image: Image.Image, max_people: int = 8, tiles: Sequence[int] = (2,)) -> list[Detection]:
        """The `max_people` largest of all who are found, by the area of their boxes in the picture, largest first.

        tiles: how many a side, after the whole picture; (): only the whole picture, about three times faster. Crowds
            are searched again in squares, unless more than `max_people` are known already
        """
        if max_people < 1:
            raise InputError(f"max_people must be at least 1, got {max_people}")
        factor = max(1, max(image.size) // ENOUGH)
        near = image.reduce(factor) if factor > 1 else image  # once, for all passes
        found = self._search(near, (0, 0, *near.size))
        people, small = found.people(), list[Candidate]()  # small: found in tiles
        for count in tiles:
            unexplained = not people or has_unexplained_box(found.weak_boxes, people, WEAK_SIDE * max(near.size))
            if max(image.size) >= LARGE and unexplained and covered((0.0, 0.0, *near.size), people) < FILLED:
                small += self._tiles(near, count, 3 / factor)
                people = add_new(people, small)
        if tiles and MANY <= len(people) < max_people:
            people = add_new(self._search_squares(near, found, people), small)
        if factor > 1:
            people = [_enlarged(person, factor, image.size) for person in people]
        big = [person for person in people if _longer_side(person.box) >= LEAST_HEIGHT]
        return largest([_detection(person) for person in big], image.size, max_people)

    def _search_squares(self, image: Image.Image, found: "_Found", people: Sequence[Candidate]) -> list[Candidate]:
        """The people of a crowd, by squares of the picture, and by squares of those that show many."""
        waiting = squares(_around(people, image.size), image.size)
        while waiting:
            window = waiting.pop(0)
            seen = self._search(image, window)
            found = replace(found, poses=found.poses + seen.poses, boxes=found.boxes + seen.boxes)
            if len(seen.people()) >= MANY and _longer_side(window) > LONG_SIDE:
                waiting += squares(window, image.size)
        return found.people()

    def _search(self, image: Image.Image, window: Window) -> "_Found":
        """Who is found in a part of the picture, but for those whom its own border cuts; in pixels of the picture."""
        x0, y0, x1, y1 = window
        part = image if (x1 - x0, y1 - y0) == image.size else image.crop(window)
        waiting = self.poses.begin(part, least=HALF_SURE * POSE)
        ((boxes, scores),) = self.boxes.begin([part], least=WEAK_BOX)()
        half_sure, poses = scores >= HALF_SURE * BOX, waiting()
        shift = np.array([x0, y0, x0, y0])
        places = _inside(poses.boxes + shift, image.size)
        people = [
            Candidate(box, float(score) / POSE, keypoints + np.array([x0, y0, 0]))
            for box, score, keypoints in zip(places, poses.scores, poses.keypoints, strict=True)
            if score >= HALF_SURE * POSE and area(box) > 0
        ]
        boxed = _candidates(boxes[half_sure] + shift, scores[half_sure], BOX, image.size)
        whole = [[each for each in some if not _is_cut(each.box, window, image.size)] for some in (people, boxed)]
        return _Found(whole[0], whole[1], boxes + shift)

    def _tiles(self, image: Image.Image, count: int, near: float) -> list[Candidate]:
        """People who are small in a tile and not cut by its own border, or within `near` pixels of it."""
        found = []
        tiles = tiling(image.size, count)
        answers = self.boxes.begin([image.crop(tile) for tile in tiles], least=TILE)()
        for (x0, y0, x1, y1), (boxes, scores) in zip(tiles, answers, strict=True):
            for person in _candidates(boxes + np.array([x0, y0] * 2), scores, TILE, image.size):
                left, top, right, bottom = person.box
                cut = [left < x0 + near and x0 > 0, top < y0 + near and y0 > 0]
                cut += [right > x1 - near and x1 < image.width, bottom > y1 - near and y1 < image.height]
                if not any(cut) and _longer_side(person.box) <= 0.5 * max(x1 - x0, y1 - y0):
                    found.append(person)
        return found


def tiling(size: tuple[int, int], count: int) -> list[tuple[int, int, int, int]]:
    """count x count parts of a picture, neighbours overlapping by a third: x0, y0, x1, y1."""
    lines = []
    for extent in size:
        side = round(min(1.0, 2 * TILE_SHARE / count) * extent)
        lines.append([(round(start), round(start) + side) for start in np.linspace(0, extent - side, count)])
    return [(x0, y0, x1, y1) for y0, y1 in lines[1] for x0, x1 in lines[0]]


def has_unexplained_box(boxes: Float[np.ndarray, "S 4"], people: Sequence[Candidate], most: float) -> bool:
    """Whether one of the boxes, of a longer side of at most `most`, is neither a person's nor within a person's."""
    free = boxes[(boxes[:, 2:] - boxes[:, :2]).max(1, initial=0) <= most]
    for person in people:
        x0, y0, x1, y1 = person.box
        low, high = np.maximum(free[:, :2], (x0, y0)), np.minimum(free[:, 2:], (x1, y1))
        own = (free[:, 2:] - free[:, :2]).prod(1)
        shared = np.maximum(high - low, 0).prod(1)
        free = free[(shared <= 0.8 * own) & (shared <= 0.4 * (own + area(person.box) - shared))]
    return len(free) > 0


def squares(window: Window, size: tuple[int, int]) -> list[Window]:
    """Overlapping squares in a picture that cover a part of it, each `TILE_SHARE` of its longer side wide."""
    side = round(TILE_SHARE * _longer_side(window))
    lines = []
    for low, high, extent in zip(window[:2], window[2:], size, strict=True):
        span = min(side, extent)
        count = max(1, math.ceil((high - low - span) / (span * STEP)) + 1)
        first = np.clip((low + high - span) / 2, 0, extent - span) if count == 1 else low
        starts = np.linspace(first, max(high - span, first), count)
        lines.append([(round(start), round(start) + span) for start in starts])
    return [(x0, y0, x1, y1) for y0, y1 in lines[1] for x0, x1 in lines[0]]


def _around(people: Sequence[Candidate], size: tuple[int, int]) -> Window:
    """All of their boxes, and a little more."""
    boxes = np.array([person.box for person in people])
    low, high = boxes[:, :2].min(0), boxes[:, 2:].max(0)
    more = AROUND * (high - low).max()
    (box,) = _inside(np.array([[*(low - more), *(high + more)]]), size)
    x0, y0, x1, y1 = map(round, box)
    return x0, y0, x1, y1


def _is_cut(box: Box, window: Window, size: tuple[int, int]) -> bool:
    """Whether a box reaches a border of the part that is none of the picture's."""
    near = CUT * _longer_side(window)
    begins, ends = zip(window[:2], box[:2], strict=True), zip(window[2:], box[2:], size, strict=True)
    return any(edge > 0 and at < edge + near for edge, at in begins) or any(
        edge < extent and at > edge - near for edge, at, extent in ends
    )


def _enlarged(person: Candidate, factor: int, size: tuple[int, int]) -> Candidate:
    """Found in a picture that was reduced by the factor."""
    (box,) = _inside(np.array([person.box]) * factor, size)
    keypoints = None if person.keypoints is None else person.keypoints * (factor, factor, 1)
    return replace(person, box=box, keypoints=keypoints)


def _detection(person: Candidate) -> Detection:
    """The score is 0.5 at the threshold, and nears 1 where both networks are sure. Keypoints that MultiPose did not
    find score 0."""
    keypoints = np.zeros((17, 3)) if person.keypoints is None else person.keypoints
    roi = region_of(keypoints, person.box) or roi_from_box(person.box)
    return Detection(person.box, 1 - 0.5**person.strength, roi, keypoints=keypoints)


def _candidates(
    boxes: Float[np.ndarray, "S 4"], scores: Float[np.ndarray, " S"], threshold: float, size: tuple[int, int]
) -> list[Candidate]:
    """Boxes, cut at the picture's border, without those that overlap surer ones."""
    every = zip(_inside(boxes, size), scores, strict=True)
    return _distinct_boxes([Candidate(box, float(score) / threshold) for box, score in every if area(box) > 0])


def _distinct_boxes(boxes: Iterable[Candidate]) -> list[Candidate]:
    """Strongest first, without those that overlap stronger ones."""
    kept: list[Candidate] = []
    for found in sorted(boxes, key=lambda each: -each.strength):
        if all(iou(found.box, other.box) <= 0.5 for other in kept):
            kept.append(found)
    return kept


def _inside(boxes: Float[np.ndarray, "A 4"], size: tuple[int, int]) -> list[Box]:
    x0, y0, x1, y1 = np.clip(boxes, 0, np.array([*size, *size])).T.tolist()
    return list(zip(x0, y0, x1, y1, strict=True))


def _longer_side(box: Box) -> float:
    return max(box[2] - box[0], box[3] - box[1])
