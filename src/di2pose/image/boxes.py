"""Boxes of people, as users write them."""

import math
from collections.abc import Iterable, Sequence

from di2pose.errors import InputError

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the upright picture."""


def parse_box(values: object, where: str = "") -> Box:
    """Four numbers of any kind as floats. `where` it was found begins the message of what is wrong with it."""
    where = f"{where}: " if where else ""
    try:
        x0, y0, x1, y1 = (float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}a box is four numbers x0, y0, x1, y1 in pixels, got {values!r}") from error
    if not (math.isfinite(x0 + y0 + x1 + y1) and x0 < x1 and y0 < y1):
        raise InputError(f"{where}a box needs x0 < x1 and y0 < y1 (left, top, right, bottom), got {values!r}")
    return x0, y0, x1, y1


def parse_boxes(boxes: Iterable[object], where: str = "") -> tuple[Box, ...]:
    """All boxes of one picture."""
    return tuple(parse_box(box, where) for box in boxes)


def area(box: Sequence[float]) -> float:
    x0, y0, x1, y1 = box
    return max(0.0, x1 - x0) * max(0.0, y1 - y0)


def intersection(a: Sequence[float], b: Sequence[float]) -> float:
    """Area that two boxes share."""
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union."""
    shared = intersection(a, b)
    return shared / max(area(a) + area(b) - shared, 1e-9)


def outside(box: Box, kept: Box) -> list[Box]:
    """The parts of a box that lie outside of another, as boxes: above, below, left and right of it."""
    (x0, y0, x1, y1), (a0, b0, a1, b1) = box, kept
    top, bottom = min(max(b0, y0), y1), max(min(b1, y1), y0)
    parts = [(x0, y0, x1, top), (x0, bottom, x1, y1)]
    parts += [(x0, top, min(max(a0, x0), x1), bottom), (max(min(a1, x1), x0), top, x1, bottom)]
    if top >= bottom:  # beside it
        parts = [box]
    return [(left, up, right, down) for left, up, right, down in parts if left < right and up < down]
