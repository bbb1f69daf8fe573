import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.occlusion.heatmap import HEADER, ZOOM, colour, draw_heatmap
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import CROP_WIDTH, advocc_placements

CROP = Rectangle(0, 0, 192, 256)


def test_each_placements_error_is_painted_at_the_centre_of_its_patch():
    placements = advocc_placements(80)
    errors = np.full(len(placements), 50.0)
    errors[100], errors[101] = 90.0, np.nan
    black = Image.new("RGB", (192, 256))
    picture = np.asarray(draw_heatmap(black, black, CROP, 80, errors))

    def at(index):
        x = CROP_WIDTH * ZOOM + 20 + ZOOM * (placements[index].x + 40)
        return picture[HEADER + ZOOM * (placements[index].y + 40), x]

    high, low = ((0.6 * colour(np.asarray(level))).astype(np.uint8) for level in (1.0, 0.0))
    assert at(100).tolist() == high.tolist()
    assert at(99).tolist() == low.tolist()
    assert at(101).tolist() == [0, 0, 0]


def test_the_wrong_number_of_errors_is_refused():
    black = Image.new("RGB", (192, 256))
    with pytest.raises(InputError, match="advocc-40 needs 391 placement errors"):
        draw_heatmap(black, black, CROP, 40, np.zeros(247))
