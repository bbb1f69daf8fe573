"""Boxes as users write them."""

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.image.boxes import area, intersection, outside, parse_box, parse_boxes


def test_any_four_numbers_are_a_box():
    assert parse_box(["1", 2, 3.5, np.float32(4)]) == (1.0, 2.0, 3.5, 4.0)
    assert parse_boxes(np.array([[0, 0, 9, 9], [1, 2, 3, 4]])) == ((0.0, 0.0, 9.0, 9.0), (1.0, 2.0, 3.0, 4.0))
    assert parse_boxes([]) == ()


@pytest.mark.parametrize("wrong", [3, None, "a box", (1, 2, 3), (1, 2, 3, "x"), [[1, 2, 3, 4]]])
def test_anything_else_is_not(wrong):
    with pytest.raises(InputError, match="a box is four numbers x0, y0, x1, y1 in pixels, got"):
        parse_box(wrong)


@pytest.mark.parametrize(
    "wrong", [(3, 2, 1, 4), (1, 2, 1, 4), (1, 4, 3, 2), (0, 0, float("inf"), 1), (0, 0, 1, float("nan"))]
)
def test_a_box_has_an_inside(wrong):
    with pytest.raises(InputError, match=r"here: a box needs x0 < x1 and y0 < y1"):
        parse_boxes([(0, 0, 1, 1), wrong], "here")


@pytest.mark.parametrize(
    ("box", "parts"),
    [
        (
            (0.0, 0.0, 10.0, 10.0),
            [(0.0, 0.0, 10.0, 4.0), (0.0, 6.0, 10.0, 10.0), (0.0, 4.0, 4.0, 6.0), (6.0, 4.0, 10.0, 6.0)],
        ),
        ((4.5, 4.5, 5.0, 5.0), []),
        ((20.0, 0.0, 30.0, 10.0), [(20.0, 0.0, 30.0, 10.0)]),
        ((0.0, 20.0, 10.0, 30.0), [(0.0, 20.0, 10.0, 30.0)]),
        ((5.0, 4.0, 9.0, 6.0), [(6.0, 4.0, 9.0, 6.0)]),
    ],
)
def test_what_of_a_box_lies_outside_of_another(box, parts):
    found = outside(box, (4.0, 4.0, 6.0, 6.0))
    assert sum(map(area, found)) == sum(map(area, parts))
    assert all(intersection(part, (4.0, 4.0, 6.0, 6.0)) == 0 for part in found)
    assert all(intersection(part, box) == area(part) for part in found)
