"""The overlay: sides by colour, guesses hollow and dashed."""

import dataclasses

import numpy as np
import pytest
from output.people import CAMERA, OFFSETS, SIZE, person, result
from PIL import Image

from di2pose.errors import InputError
from di2pose.output.overlay import LEFT, MIDDLE, MOST_SIDE, PAPER, RIGHT, draw_overlay, moved
from di2pose.pose.skeleton import H36M_17

GREY = (128, 128, 128)
SEEN = np.array(["seen"] * 17)


def standing(scale=1.0, **changes):
    """Someone flat and upright in the middle of the picture, each joint where the test knows it."""
    joints = np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        joints[child] = joints[parent] + OFFSETS[child] * (1.6, 1.0, 0.0)
    root = (0.0, 0.0, 3000.0 / scale)
    someone = person(joints_mm=joints, root_mm=root, state=SEEN)
    return dataclasses.replace(someone, **{"joints_2d": CAMERA.project(joints + np.array(root))} | changes)


def pixel(image, point):
    return image.getpixel((int(point[0]), int(point[1])))


def near(colour, expected):
    return np.abs(np.array(colour) - expected).max() <= 12


def test_right_is_green_left_is_blue():
    someone = standing()
    drawn = draw_overlay(Image.new("RGB", SIZE, GREY), [someone])
    for name in H36M_17.joints:
        wanted = RIGHT if "right" in name else LEFT if "left" in name else MIDDLE
        assert near(pixel(drawn, someone.joints_2d[H36M_17.index(name)]), wanted), name
    knee, ankle = someone.joints_2d[list(H36M_17.indices("right_knee", "right_ankle"))]
    for share in (0.3, 0.5, 0.7):
        assert near(pixel(drawn, knee + share * (ankle - knee)), RIGHT)
    assert RIGHT[1] > max(RIGHT[0], RIGHT[2])
    assert LEFT[2] > max(LEFT[0], LEFT[1])


def test_guessed_joints_are_hollow_and_their_bones_dashed():
    state = SEEN.astype("U12")
    state[H36M_17.index("right_ankle")] = "occluded"
    state[H36M_17.index("left_wrist")] = "out_of_frame"
    someone = standing(2.0, state=state)
    drawn = draw_overlay(Image.new("RGB", SIZE, GREY), [someone])
    at = dict(zip(H36M_17.joints, someone.joints_2d, strict=True))
    assert near(pixel(drawn, at["left_wrist"]), PAPER)
    assert not near(pixel(drawn, at["left_elbow"]), PAPER)

    def bare(a, b):
        """Share of the bone along which the photo shows."""
        line = [pixel(drawn, at[a] + s * (at[b] - at[a])) for s in np.linspace(0.05, 0.95, 60)]
        return np.mean([colour == GREY for colour in line])

    assert bare("left_elbow", "left_wrist") > 0.1
    assert bare("right_elbow", "right_wrist") == 0


def test_nobody_leaves_the_photo_as_it_is():
    photo = Image.effect_noise(SIZE, 50).convert("RGB")
    assert draw_overlay(photo, []).tobytes() == photo.tobytes()


def test_joints_outside_of_the_picture_or_not_known_are_no_trouble():
    points = standing().joints_2d.copy()
    points[3] = (-4000, 9000)
    points[5] = np.nan
    someone = standing(joints_2d=points)
    drawn = draw_overlay(Image.new("RGB", SIZE, GREY), [someone])
    assert drawn.size == SIZE
    assert near(pixel(drawn, points[2]), RIGHT)


def test_several_people_get_their_numbers():
    someone = standing()
    blank = Image.new("RGB", SIZE, GREY)
    alone, pair = (np.asarray(draw_overlay(blank, [someone] * count, legend=False)) for count in (1, 2))
    changed = np.argwhere((alone != pair).any(-1))
    top = someone.joints_2d[:, 1].min()
    assert len(changed) > 20
    assert changed[:, 0].max() < top  # the label stands above the head, and nothing else differs


def test_a_huge_photo_is_shrunk_with_its_joints(tmp_path):
    someone = moved(standing(), 0, 0, 15.0)
    huge = result([someone], size=(9600, 300), picture=Image.new("RGB", (9600, 300), GREY))
    huge.save(tmp_path / "huge.jpg")
    with Image.open(tmp_path / "huge.jpg") as drawn:
        assert drawn.size == (MOST_SIDE, 188)
    part = result([dataclasses.replace(someone, joints_2d=someone.joints_2d - (0, 3400))], picture=huge.picture)
    part.save(tmp_path / "part.jpg")
    x, y = (someone.joints_2d - (0, 3400))[H36M_17.index("left_hip")] * (MOST_SIDE / 9600)
    with Image.open(tmp_path / "part.jpg") as drawn:
        assert 0 < y < 188
        assert np.abs(np.array(pixel(drawn, (x, y))) - LEFT).max() < 40


def test_jpg_is_the_overlay_on_the_photo_of_the_file(tmp_path):
    Image.new("RGB", SIZE, GREY).save(tmp_path / "photo.png")
    someone = standing()
    result([someone], image=str(tmp_path / "photo.png")).save(tmp_path / "out.jpg")
    with Image.open(tmp_path / "out.jpg") as drawn:
        assert (drawn.format, drawn.size) == ("JPEG", SIZE)
        x, y = someone.joints_2d[H36M_17.index("right_knee")].astype(int)
        assert np.abs(np.array(drawn.getpixel((x, y))) - RIGHT).max() < 40


def test_an_overlay_without_the_photo_is_refused(tmp_path):
    with pytest.raises(InputError, match="an overlay needs the photo"):
        result([standing()]).save(tmp_path / "out.jpg")
    with pytest.raises(InputError, match="no image file at"):
        result([standing()], image=str(tmp_path / "gone.png")).save(tmp_path / "out.jpg")
    Image.new("RGB", (64, 64)).save(tmp_path / "other.png")
    with pytest.raises(InputError, match="has 64x64 pixels, the result was made from 640x480"):
        result([standing()], image=str(tmp_path / "other.png")).save(tmp_path / "out.jpg")
