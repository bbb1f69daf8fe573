import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.occlusion.patches import Rectangle, keyed_generator, paste


def red(pixels, extent, generator):
    """A texture that tells its column in green."""
    square = np.zeros((pixels, pixels, 3), np.uint8)
    square[..., 0] = 255
    square[..., 1] = np.arange(pixels)
    return square


def painted(rectangle, clip=None):
    image = Image.new("RGB", (20, 10))
    return np.asarray(paste(image, rectangle, 40, red, np.random.default_rng(0), clip))


def test_pixels_whose_centre_is_inside_are_painted_and_no_others():
    pixels = painted(Rectangle(2.4, 1.0, 6.4, 5.0))
    assert [tuple(range_) for range_ in (np.unique(axis) for axis in np.nonzero(pixels[..., 0]))] == [
        (1, 2, 3, 4),
        (2, 3, 4, 5),
    ]


def test_the_original_picture_is_left_alone():
    image = Image.new("RGB", (20, 10))
    paste(image, Rectangle(0, 0, 5, 5), 40, red, np.random.default_rng(0))
    assert not np.asarray(image).any()


def test_what_falls_outside_is_cut_off_without_moving_the_texture():
    pixels = painted(Rectangle(-3, 2, 5, 10))
    assert (pixels[2:, :5, 0] == 255).all()
    assert pixels[2, 0, 1] == 3  # the first visible column is the texture's fourth
    assert not pixels[:2].any()
    assert not pixels[:, 5:].any()


def test_a_patch_wholly_outside_changes_nothing():
    assert not painted(Rectangle(30, 2, 38, 10)).any()


def test_clip_cuts_the_square_at_a_border_inside_of_the_picture():
    pixels = painted(Rectangle(2, 2, 8, 8), clip=Rectangle(0, 0, 5, 20))
    assert sorted(set(np.nonzero(pixels[..., 0])[1])) == [2, 3, 4]


def test_points_on_the_border_are_contained_but_not_strictly():
    square = Rectangle(0, 0, 10, 10)
    points = np.array([[5, 5], [0, 5], [10, 10], [10.1, 5], [np.nan, 5]])
    assert square.strictly_contains(points).tolist() == [True, False, False, False, False]
    assert square.contains(points).tolist() == [True, True, True, False, False]


def test_an_empty_rectangle_is_refused():
    with pytest.raises(InputError, match="x0 < x1"):
        Rectangle(3, 0, 3, 5)


def test_a_keyed_generator_depends_on_every_part_of_its_key():
    draws = [
        keyed_generator(*key).integers(1 << 60)
        for key in ((0, "a", 1), (0, "a", 1), (1, "a", 1), (0, "a", 2), (0, "a1"))
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4
