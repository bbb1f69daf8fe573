"""One person, one detection: what several looks of several networks found, joined.

Overlap alone cannot tell whether two boxes are one person: a half-body box in the whole body's is the same one, a child
before its father another. Where keypoints are known, they and the head's place decide.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from di2pose.image.boxes import Box, area, intersection, iou
from di2pose.image.keypoint_region import HEAD, SURE

SAME_BOX, INSIDE = 0.5, 0.75
"""Two boxes are one person's from this intersection over union on; over the smaller one: it lies in the other."""
COVERED = 0.85
"""A box without a head of its own, of which people with keypoints cover this share, is made of their parts."""
LOOSE_BOX = 0.1
"""Least intersection over union of a person's box and of the part of them that keypoints are known of."""


@dataclass(frozen=True)
class Sight:
    """Somebody as one network or several see them, in image pixels."""

    box: Box
    strength: float
    """Score over the threshold of its network, at 1 it is somebody; summed over the networks that agree."""
    keypoints: Float[np.ndarray, "17 3"] | None = None
    """x, y, score; COCO order."""

    @property
    def head(self) -> tuple[float, float] | None:
        """Its middle, where a keypoint of it is sure."""
        if self.keypoints is None:
            return None
        sure = self.keypoints[HEAD][self.keypoints[HEAD, 2] >= SURE]
        return None if not len(sure) else (float(sure[:, 0].mean()), float(sure[:, 1].mean()))


def distinct_poses(poses: Iterable[Sight]) -> list[Sight]:
    """Strongest first, without those that are made of the keypoints of stronger ones."""
    kept: list[Sight] = []
    for pose in _strongest_first(poses):
        if all(_shared_keypoints(pose, other) < 0.5 for other in kept):
            kept.append(pose)
    return kept


def join(people: Iterable[Sight], boxes: Iterable[Sight]) -> list[Sight]:
    """People, and what a network without keypoints found: each box goes to the person whom it fits best, and is a new
    person where it shows none of those that are known. One box a person: the strongest that fits."""
    joined = list(people)
    free = set(range(len(joined)))
    for found in _strongest_first(boxes):
        place = _owner(found, joined, free)
        if place is not None:
            person = joined[place]
            joined[place] = replace(person, box=found.box, strength=person.strength + found.strength)
            free.discard(place)
        elif _is_new(found, joined):
            joined.append(found)
    return _strongest_first(joined)


def add_new(people: Iterable[Sight], found: Iterable[Sight]) -> list[Sight]:
    """People, and those found who are none of them."""
    everybody = list(people)
    for each in _strongest_first(found):
        if _is_new(each, everybody):
            everybody.append(each)
    return everybody


def _owner(found: Sight, people: list[Sight], free: set[int]) -> int | None:
    """The person without a box of this network whom a box fits; else one of whom it shows more than their own box
    does, as close-ups have a box round the face for keypoints."""
    fits = [(iou(found.box, people[place].box), place) for place in sorted(free)]
    best, owner = max(fits, default=(0.0, -1))
    if best > SAME_BOX:
        return owner
    around = [place for fit, place in fits if fit > LOOSE_BOX and _holds(found.box, people[place])]
    return around[0] if len(around) == 1 else None


def same_person(found: Sight, person: Sight) -> bool:
    """Whether a box shows a person who is known already, by keypoints or by a box."""
    if iou(found.box, person.box) > SAME_BOX:
        return True
    if intersection(found.box, person.box) < INSIDE * min(area(found.box), area(person.box)):
        return False
    if person.head is None:
        return _same_top(found.box, person.box)
    return _holds_head(found.box, person.box, person.head)


def covered(box: Box, people: Iterable[Sight]) -> float:
    """The share of a box that lies in boxes of people, to a percent or two."""
    x0, y0, x1, y1 = box
    x, y = np.meshgrid(np.linspace(x0, x1, 24), np.linspace(y0, y1, 24))
    inside = np.zeros_like(x, dtype=bool)
    for left, top, right, bottom in (person.box for person in people):
        inside |= (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
    return float(inside.mean())


def _is_new(found: Sight, people: Sequence[Sight]) -> bool:
    """Whether a box shows nobody of those who are known, and is not made of their parts either."""
    if any(same_person(found, person) for person in people):
        return False
    return covered(found.box, [person for person in people if person.keypoints is not None]) <= COVERED


def _strongest_first(sights: Iterable[Sight]) -> list[Sight]:
    return sorted(sights, key=lambda each: -each.strength)


def _shared_keypoints(a: Sight, b: Sight) -> float:
    """Of a's sure keypoints, the share that b has within 5 % of its size; of all, where none is sure."""
    assert a.keypoints is not None
    assert b.keypoints is not None
    size = max(b.box[2] - b.box[0], b.box[3] - b.box[1])
    near = np.linalg.norm(a.keypoints[:, :2] - b.keypoints[:, :2], axis=1) < 0.05 * size
    sure = a.keypoints[:, 2] >= SURE
    return float(near[sure].mean() if sure.any() else near.mean())


def _holds_head(box: Box, person: Box, head: tuple[float, float]) -> bool:
    """Whether a person's head lies where the one of the box's own person would: in its upper part; anywhere in a box
    that is a part of the person's."""
    x0, y0, x1, y1 = box
    deep = 1.0 if area(box) < area(person) else 0.4
    return x0 <= head[0] <= x1 and y0 - 0.1 * (y1 - y0) <= head[1] <= y0 + deep * (y1 - y0)


def _holds(box: Box, person: Sight) -> bool:
    """Whether a box has a person's head and all else of them in it."""
    if person.head is None or intersection(box, person.box) < INSIDE * area(person.box):
        return False
    return box[0] <= person.head[0] <= box[2] and box[1] <= person.head[1] <= box[3]


def _same_top(a: Box, b: Box) -> bool:
    """Whether both boxes begin at one head, as those of a body and of its upper half do."""
    small, large = sorted((a, b), key=area)
    return abs(a[1] - b[1]) < 0.2 * (small[3] - small[1]) and large[0] <= (small[0] + small[2]) / 2 <= large[2]
