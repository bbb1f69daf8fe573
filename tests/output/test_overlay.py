"""The overlay and the photo behind it."""

import base64
import io
from dataclasses import replace

import av
import numpy as np
import pytest
from output.people import CAMERA, H36M_19, SIZE, person, result, standing
from PIL import Image

from di2pose.errors import InputError
from di2pose.output.overlay import (
    LEFT,
    MIDDLE,
    MOST_SIDE,
    PAPER,
    RIGHT,
    UNSURE_MM,
    Pen,
    data_uri,
    draw_overlay,
    moved,
    photo_of,
    photos_of,
)
from di2pose.pose.skeleton import H36M_17

GREY = (128, 128, 128)
SEEN = np.array(["visible"] * 17)


def upright(scale=1.0, **changes):
    """Someone flat and upright in the middle of the picture."""
    joints, root = standing((1.6, 1.0, 0.0)), (0.0, 0.0, 3000.0 / scale)
    someone = person(joints_mm=joints, root_mm=root, state=SEEN)
    return replace(someone, **{"joints_2d": CAMERA.project(joints + np.array(root))} | changes)


def blank(size=SIZE):
    return Image.new("RGB", size, GREY)


def pixel(image, point):
    return image.getpixel((int(point[0]), int(point[1])))


def near(colour, expected, most=12):
    return np.abs(np.array(colour) - expected).max() <= most


def test_right_is_green_left_is_blue():
    someone = upright()
    drawn = draw_overlay(blank(), [someone])
    assert draw_overlay(blank(), [person(3, skeleton=H36M_19)]).tobytes() != blank().tobytes()
    for name in H36M_17.joints:
        colour = RIGHT if "right" in name else LEFT if "left" in name else MIDDLE
        assert near(pixel(drawn, someone.joints_2d[H36M_17.index(name)]), colour), name
    knee, ankle = someone.joints_2d[list(H36M_17.indices("right_knee", "right_ankle"))]
    for share in (0.3, 0.5, 0.7):
        assert near(pixel(drawn, knee + share * (ankle - knee)), RIGHT)


def test_joints_out_of_sight_are_hollow_and_bones_of_an_unsure_place_dashed():
    state, r90 = SEEN.astype("U12"), np.full(17, UNSURE_MM)
    state[list(H36M_17.indices("right_ankle", "right_wrist"))] = "occluded"
    state[H36M_17.index("left_wrist")] = "out_of_frame"
    r90[list(H36M_17.indices("left_wrist", "left_shoulder"))] = UNSURE_MM + 1
    someone = upright(2.0, state=state, r90_mm=r90)
    drawn = draw_overlay(blank(), [someone])
    at = dict(zip(H36M_17.joints, someone.joints_2d, strict=True))
    assert near(pixel(drawn, at["left_wrist"]), PAPER)
    assert near(pixel(drawn, at["right_wrist"]), PAPER)
    assert not near(pixel(drawn, at["left_elbow"]), PAPER)
    assert not near(pixel(drawn, at["left_shoulder"]), PAPER)

    def bare(a, b):
        """Share of the bone along which the photo shows."""
        return np.mean([pixel(drawn, at[a] + s * (at[b] - at[a])) == GREY for s in np.linspace(0.05, 0.95, 60)])

    assert bare("left_elbow", "left_wrist") > 0.1
    assert bare("left_shoulder", "left_elbow") > 0.1
    assert bare("right_elbow", "right_wrist") == 0


@pytest.mark.parametrize("length", [0, 5, 15, 40, 200])
def test_a_short_bone_has_a_gap_too(length):
    pen = Pen((260, 40))
    pen.dashes((20, 20), (20 + length, 20), 4, RIGHT)
    row = np.asarray(pen.over(blank((260, 40))))[20, 20 : 21 + length]
    assert near(row[0], RIGHT, 60)
    assert near(row[-1], RIGHT, 60)
    assert (row == GREY).all(-1).any() == (length > 5)


def test_without_people_the_photo_stays_and_joints_outside_or_unknown_are_skipped():
    photo = Image.effect_noise(SIZE, 50).convert("RGB")
    assert draw_overlay(photo, []).tobytes() == photo.tobytes()
    points = upright().joints_2d.copy()
    points[3], points[5] = (-4000, 9000), np.nan
    drawn = draw_overlay(blank(), [upright(joints_2d=points)])
    assert drawn.size == SIZE
    assert near(pixel(drawn, points[2]), RIGHT)


def test_several_people_get_their_numbers():
    someone = upright()
    alone, pair = (np.asarray(draw_overlay(blank(), [someone] * count, legend=False)) for count in (1, 2))
    changed = np.argwhere((alone != pair).any(-1))
    assert len(changed) > 20
    assert changed[:, 0].max() < someone.joints_2d[:, 1].min()  # above the head, and nothing else differs


def test_a_huge_photo_is_shrunk_with_its_joints(tmp_path):
    someone = moved(upright(), 0, 0, 15.0)
    points = someone.joints_2d - (0, 3400)
    huge = result([replace(someone, joints_2d=points)], size=(9600, 300), picture=blank((9600, 300)))
    huge.save(tmp_path / "huge.jpg")
    x, y = points[H36M_17.index("left_hip")] * (MOST_SIDE / 9600)
    with Image.open(tmp_path / "huge.jpg") as drawn:
        assert drawn.size == (MOST_SIDE, 188)
        assert 0 < y < 188
        assert near(pixel(drawn, (x, y)), LEFT, 40)


def test_jpg_is_the_overlay_on_the_photo_of_the_file_which_is_needed(tmp_path):
    blank().save(tmp_path / "photo.png")
    result([upright()], image=str(tmp_path / "photo.png")).save(tmp_path / "out.jpg")
    with Image.open(tmp_path / "out.jpg") as drawn:
        assert (drawn.format, drawn.size) == ("JPEG", SIZE)
        assert near(pixel(drawn, upright().joints_2d[H36M_17.index("right_knee")]), RIGHT, 40)
    Image.new("RGB", (64, 64)).save(tmp_path / "other.png")
    other = "has 64x64 pixels, the result was made from 640x480: it is another picture now"
    for image, message in (
        (None, "an overlay needs the photo"),
        (str(tmp_path / "gone.png"), "no image file at"),
        (str(tmp_path / "other.png"), other),
    ):
        with pytest.raises(InputError, match=message):
            result([upright()], image=image).save(tmp_path / "out.jpg")


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Frame k is grey 20 k."""
    path = tmp_path_factory.mktemp("video") / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for k in range(10):
            picture = np.full((SIZE[1], SIZE[0], 3), 20 * k, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_frames_of_a_video_are_decoded_where_they_belong(film):
    frames = [result([], image=str(film), frame_index=k) for k in (2, 3, 7)]
    np.testing.assert_allclose([np.asarray(photo).mean() for photo in photos_of(frames)], [40, 60, 140], atol=4)


def test_the_photo_is_upright_and_given_pixels_come_before_the_file(tmp_path):
    lying = Image.new("RGB", (480, 640))
    exif = lying.getexif()
    exif[0x0112] = 6
    lying.save(tmp_path / "p.jpg", exif=exif)
    assert photo_of(result([], image=str(tmp_path / "p.jpg"))).size == SIZE
    shown = blank()
    assert photo_of(result([], image="gone.jpg", picture=shown)) is shown
    assert photo_of(result([])) is None
    head, _, code = data_uri(shown, 320, 85).partition(",")
    assert head == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(code))).size == (320, 240)
    assert shown.size == SIZE
