"""One detection a person: merges what several networks and tiles found.

Overlap alone cannot tell whether two boxes are one person: a half-body box in the whole body's is the same one, a child
in front of an adult another. Where keypoints are known, they and the head's place decide.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from di2pose.image.boxes import Box, area, intersection, iou
from di2pose.image.region import HEAD, SURE

SAME_BOX, INSIDE = 0.5, 0.75
"""Two boxes are one person's from this intersection over union on; over the smaller one: it lies in the other."""
COVERED = 0.85
"""A box without a head of its own, of which people with keypoints cover this share, is made of their parts."""
LOOSE_BOX = 0.1
"""Least intersection over union of a person's box and of the part of them that has keypoints."""
SAME_HEAD, ROUND_HEAD = 0.06, 0.4
"""Two poses have one head where its middles are nearer than this share of the smaller box's longer side, and the boxes
have this intersection over union at least."""


@dataclass(frozen=True)
class Candidate:
    """A person as one network or several found them, in image pixels."""

    box: Box
    strength: float
    """Score over the threshold of its network: a person from 1 on; summed over the networks that agree."""
    keypoints: Float[np.ndarray, "17 3"] | None = None
    """x, y, score; COCO order."""

    @property
    def head(self) -> tuple[float, float] | None:
        """Its middle, where a keypoint of it is sure."""
        if self.keypoints is None:
            return None
        sure = self.keypoints[HEAD][self.keypoints[HEAD, 2] >= SURE]
        return None if not len(sure) else (float(sure[:, 0].mean()), float(sure[:, 1].mean()))


def distinct_poses(poses: Iterable[Candidate]) -> list[Candidate]:
    """Strongest first, without those that are made of the keypoints of stronger ones, or that have their head."""
    kept: list[Candidate] = []
    for pose in _strongest_first(poses):
        if all(_shared_keypoints(pose, other) < 0.5 and not _same_head(pose, other) for other in kept):
            kept.append(pose)
    return kept


def merge(people: Iterable[Candidate], boxes: Iterable[Candidate]) -> list[Candidate]:
    """People, and boxes of a network without keypoints: each box goes to the person whom it fits best, and is a new
    person where it fits none. One box a person: the strongest that fits."""
    merged = list(people)
    free = set(range(len(merged)))
    for found in _strongest_first(boxes):
        place = _owner(found, merged, free)
        if place is not None:
            person = merged[place]
            merged[place] = replace(person, box=found.box, strength=person.strength + found.strength)
            free.discard(place)
        elif _is_new(found, merged):
            merged.append(found)
    return _strongest_first(merged)


def add_new(people: Iterable[Candidate], found: Iterable[Candidate]) -> list[Candidate]:
    """The people, and those of `found` who are not among them."""
    merged = list(people)
    for each in _strongest_first(found):
        if _is_new(each, merged):
            merged.append(each)
    return merged


def same_person(found: Candidate, person: Candidate) -> bool:
    """Whether a box shows a person who is known already, by keypoints or by a box."""
    if iou(found.box, person.box) > SAME_BOX:
        return True
    if intersection(found.box, person.box) < INSIDE * min(area(found.box), area(person.box)):
        return False
    x0, y0, x1, y1 = found.box
    if person.head is None:  # both boxes begin at one head, as those of a body and of its upper half do
        small, large = sorted((found.box, person.box), key=area)
        near = abs(y0 - person.box[1]) < 0.2 * (small[3] - small[1])
        return near and large[0] <= (small[0] + small[2]) / 2 <= large[2]
    # The head lies where that of the box's own person would: in its upper part; anywhere in a part of the person's box.
    deep = 1.0 if area(found.box) < area(person.box) else 0.4
    return x0 <= person.head[0] <= x1 and y0 - 0.1 * (y1 - y0) <= person.head[1] <= y0 + deep * (y1 - y0)


def covered(box: Box, people: Iterable[Candidate]) -> float:
    """The share of a box that lies in boxes of people, to a percent or two."""
    x0, y0, x1, y1 = box
    x, y = np.meshgrid(np.linspace(x0, x1, 24), np.linspace(y0, y1, 24))
    inside = np.zeros_like(x, dtype=bool)
    for left, top, right, bottom in (person.box for person in people):
        inside |= (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
    return float(inside.mean())


def _owner(found: Candidate, people: list[Candidate], free: set[int]) -> int | None:
    """The person without a box of this network whom a box fits; else the one whose head and keypoints all lie in it, as
    close-ups have a box round the face for keypoints."""
    fits = [(iou(found.box, people[place].box), place) for place in sorted(free)]
    best, owner = max(fits, default=(0.0, -1))
    if best > SAME_BOX:
        return owner
    around = [place for fit, place in fits if fit > LOOSE_BOX and _holds(found.box, people[place])]
    return around[0] if len(around) == 1 else None


def _holds(box: Box, person: Candidate) -> bool:
    if person.head is None or intersection(box, person.box) < INSIDE * area(person.box):
        return False
    return box[0] <= person.head[0] <= box[2] and box[1] <= person.head[1] <= box[3]


def _is_new(found: Candidate, people: Sequence[Candidate]) -> bool:
    """Whether a box shows none of the known people, and is not made of their parts either, but for somebody
    who stands between two."""
    if any(same_person(found, person) for person in people):
        return False
    known = [person for person in people if person.keypoints is not None]
    return covered(found.box, known) <= COVERED or _stands_between(found.box, known)


def _stands_between(box: Box, people: Iterable[Candidate]) -> bool:
    """Whether a box begins above the heads of those whose boxes it meets, which lie on both sides of it, none in it."""
    heads = [person.head for person in people if intersection(box, person.box) and person.head is not None]
    between = any(x < box[0] for x, _ in heads) and any(x > box[2] for x, _ in heads)
    return between and all(box[1] < y and not box[0] <= x <= box[2] for x, y in heads)


def _strongest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda each: -each.strength)


def _same_head(a: Candidate, b: Candidate) -> bool:
    """Whether two poses, with boxes that overlap, have their heads in one place."""
    if a.head is None or b.head is None or iou(a.box, b.box) < ROUND_HEAD:
        return False
    size = min(max(box[2] - box[0], box[3] - box[1]) for box in (a.box, b.box))
    return float(np.hypot(a.head[0] - b.head[0], a.head[1] - b.head[1])) < SAME_HEAD * size


def _shared_keypoints(a: Candidate, b: Candidate) -> float:
    """Of a's sure keypoints, the share that b has within 5 % of its size; of all, where none is sure."""
    assert a.keypoints is not None
    assert b.keypoints is not None
    size = max(b.box[2] - b.box[0], b.box[3] - b.box[1])
    near = np.linalg.norm(a.keypoints[:, :2] - b.keypoints[:, :2], axis=1) < 0.05 * size
    sure = a.keypoints[:, 2] >= SURE
    return float(near[sure].mean() if sure.any() else near.mean())
