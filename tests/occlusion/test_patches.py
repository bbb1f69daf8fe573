import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.occlusion.patches import Rectangle, keyed_generator, paste


def painted(rectangle, clip=None):
    """Pixels of a black picture, 20 wide and 10 high, with a red patch whose green tells the texture's column."""

    def red(pixels, extent, generator):
        columns = np.broadcast_to(np.arange(pixels), (pixels, pixels))
        return np.stack([np.full_like(columns, 255), columns, 0 * columns], -1).astype(np.uint8)

    image = Image.new("RGB", (20, 10))
    found = np.asarray(paste(image, rectangle, 40, red, np.random.default_rng(0), clip))
    assert not np.asarray(image).any()  # the original picture is left alone
    return found


@pytest.mark.parametrize(
    ("square", "clip", "rows", "columns"),
    [
        ((2.4, 1.0, 6.4, 5.0), None, range(1, 5), range(2, 6)),  # pixels whose centre is inside
        ((-3, 2, 5, 10), None, range(2, 10), range(5)),
        ((30, 2, 38, 10), None, (), ()),
        ((2, 2, 8, 8), (0, 0, 5, 20), range(2, 8), range(2, 5)),
    ],
)
def test_pixels_inside_of_square_picture_and_clip_are_painted_and_no_others(square, clip, rows, columns):
    pixels = painted(Rectangle(*square), None if clip is None else Rectangle(*clip))
    found = [np.unique(axis).tolist() for axis in np.nonzero(pixels[..., 0])]
    assert found == [list(rows), list(columns)]
    if square[0] < 0:
        assert pixels[2, 0, 1] == 3  # cut off without moving the texture: the first visible column is its fourth


def test_points_on_the_border_are_contained_but_not_strictly():
    square = Rectangle(0, 0, 10, 10)
    points = np.array([[5, 5], [0, 5], [10, 10], [10.1, 5], [np.nan, 5]])
    assert square.strictly_contains(points).tolist() == [True, False, False, False, False]
    assert square.contains(points).tolist() == [True, True, True, False, False]
    with pytest.raises(InputError, match="x0 < x1"):
        Rectangle(3, 0, 3, 5)


def test_a_keyed_generator_depends_on_every_part_of_its_key():
    keys = ((0, "a", 1), (0, "a", 1), (1, "a", 1), (0, "a", 2), (0, "a1"))
    draws = [keyed_generator(*key).integers(1 << 60) for key in keys]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4
