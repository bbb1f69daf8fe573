"""The figure for papers: panels, resolution, direction of the views."""

import dataclasses

import numpy as np
import pytest
from output.people import H36M_19, SIZE, person, result, video
from PIL import Image

from di2pose.errors import InputError
from di2pose.output.figure import CAPTION, HEIGHT, _turn, draw_figure, draw_view


def test_png_is_a_figure_of_300_dots_an_inch_with_the_photo_where_there_is_one(tmp_path):
    photo = Image.new("RGB", SIZE, (90, 90, 90))
    people = [person(1), person(2, root_mm=(900.0, 0.0, 4000.0))]
    result(people, picture=photo).save(tmp_path / "f.png")
    bare = draw_figure(result(people))
    with Image.open(tmp_path / "f.png") as figure:
        assert figure.height == HEIGHT + CAPTION
        assert figure.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        assert figure.width > bare.width + 200
        assert figure.getpixel((5, 5)) == (90, 90, 90)
    assert bare.getpixel((5, 5)) == (255, 255, 255)


def test_hypotheses_are_drawn():
    someone = person(hypotheses=6)
    alone = dataclasses.replace(someone, samples_mm=np.repeat(someone.joints_mm[None], 6, axis=0))
    inked = [np.mean(np.asarray(draw_view([p], 0.0, 0.0)) != 255) for p in (someone, alone)]
    assert inked[0] > inked[1]


def test_the_views_are_from_the_cameras_left_and_from_above():
    near, far, right = np.array([0.0, 0, -1]), np.array([0.0, 0, 1]), np.array([1.0, 0, 0])
    np.testing.assert_allclose(_turn(0, 0), np.eye(3), atol=1e-12)
    side, above = _turn(90, 0), _turn(0, 20)
    assert (side @ near)[0] > 0.99  # from the camera's left, what is near the camera is on the right
    assert (side @ right)[2] > 0.99  # and the camera's right is far away
    assert (above @ far)[1] < 0 < (above @ near)[1]  # y points down: the far floor is higher in the picture


def test_a_small_person_far_away_does_not_shrink_the_others():
    near, far = person(1, root_mm=(0.0, 0.0, 2500.0)), person(2, root_mm=(1500.0, -200.0, 14000.0))
    photo = Image.linear_gradient("L").resize(SIZE).convert("RGB")
    alone, both = (draw_figure(result(people, picture=photo)) for people in ([near], [far, near]))
    panels = (0, 0, alone.width, HEIGHT)
    views = np.s_[:, alone.width - 900 :]
    np.testing.assert_array_equal(*(np.asarray(figure.crop(panels))[views] for figure in (alone, both)))
    dark = np.flatnonzero((np.asarray(both.crop(panels))[views].max(-1) < 60).any(1))  # the outlines of bones
    assert np.ptp(dark) > 0.6 * HEIGHT
    assert (alone.height, both.height) == (HEIGHT + CAPTION, HEIGHT + 2 * CAPTION)
    assert (np.asarray(both)[HEIGHT + CAPTION :] < 100).any()  # a line says who is left out
    assert both.width == alone.width


@pytest.mark.parametrize("people", [[], [person().convert("coco17")], [person(skeleton=H36M_19)]])
def test_nobody_and_unknown_joints_give_a_figure(people):
    assert draw_figure(result(people)).height == HEIGHT + CAPTION


@pytest.mark.parametrize("name", ["f.png", "f.jpg"])
def test_a_video_has_no_figure(tmp_path, name):
    with pytest.raises(InputError, match=r"save a single frame, motion\[12\].save"):
        video([person(k, track=0) for k in range(2)]).save(tmp_path / name)
