"""Boxes and cameras that a user hands in."""

import json
from pathlib import Path

import pytest

from di2pose.commands.user_files import BoxFile, fitted_camera, read_camera
from di2pose.errors import InputError
from di2pose.pose.camera import Camera

K = [[1000, 0, 320], [0, 1100, 240], [0, 0, 1]]


def test_json_and_csv_say_the_same(tmp_path):
    (tmp_path / "a.json").write_text(
        '{"a.jpg": [[1, 2, 30, 40], [5, 6, 70, 80.5]], "x/b.jpg": [[0, 0, 9, 9]], "c.jpg": []}'
    )
    (tmp_path / "a.csv").write_text(
        "\ufefffile,x0,y0,x1,y1,who\na.jpg,1,2,30,40,me\na.jpg,5,6,70,80.5,you\nx/b.jpg,0,0,9,9,\n"
    )
    for name in ("a.json", "a.csv"):
        boxes = BoxFile(tmp_path / name)
        assert boxes.of(Path("somewhere/a.jpg")) == [(1, 2, 30, 40), (5, 6, 70, 80.5)]
        assert boxes.of(Path("x/b.jpg")) == [(0, 0, 9, 9)]
        assert boxes.of(Path("other.jpg")) is None
    assert BoxFile(tmp_path / "a.json").of(Path("c.jpg")) == []


def test_names_that_no_photo_has_are_told(tmp_path):
    (tmp_path / "a.json").write_text('{"a.jpg": [], "mistyped.jpg": []}')
    boxes = BoxFile(tmp_path / "a.json")
    boxes.of(Path("a.jpg"))
    assert boxes.unused == ["mistyped.jpg"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"a.jpg": [[30, 2, 1, 40]]}', "x0 < x1 and y0 < y1"),
        ("a.json", '{"a.jpg": [[1, 2, 30]]}', "a box is four numbers"),
        ("a.json", '{"a.jpg": 3}', "needs a list of boxes"),
        ("a.json", '{"a.jpg": [', "is not JSON"),
        ("a.csv", "a.jpg,1,2,3,4\n", "first line names the columns file,x0,y0,x1,y1"),
        ("a.csv", "file,x0,y0,x1,y1\na.jpg,1,2,x,4\n", "a box is four numbers"),
        ("a.csv", "file,x0,y0,x1,y1\na.jpg,1,2\n", "a box is four numbers"),
    ],
)
def test_a_wrong_file_of_boxes_is_refused_by_name(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        BoxFile(tmp_path / name)
    assert name in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        BoxFile(tmp_path / "gone.json")
    (tmp_path / "a.json").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(InputError, match="not a text file"):
        BoxFile(tmp_path / "a.json")


def test_a_matrix_alone_or_named_or_focal_and_centre(tmp_path):
    wanted = Camera((1000.0, 1100.0), (320.0, 240.0))
    for record in (K, {"K": K}, {"focal": [1000, 1100], "centre": [320, 240]}):
        (tmp_path / "k.json").write_text(json.dumps(record))
        assert read_camera(tmp_path / "k.json") == wanted
    (tmp_path / "k.json").write_text(json.dumps({"K": K, "size": [640, 480], "distortion": [0.1, 0, 0, 0]}))
    assert read_camera(tmp_path / "k.json").distortion == (0.1, 0.0, 0.0, 0.0)
    (tmp_path / "k.json").write_text(json.dumps(wanted.to_json()))
    assert read_camera(tmp_path / "k.json") == wanted


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"fx": 3}, 'needs "K"'),
        ({"K": K, "zoom": 2}, "holds zoom"),
        ({"K": [[1, 2], [3, 4]]}, "is not a camera"),
        ({"K": [["a", 0, 1], [0, 1, 1], [0, 0, 1]]}, "is not a camera"),
        ({"focal": [-5, 3], "centre": [1, 1]}, "positive focal"),
    ],
)
def test_a_wrong_camera_is_refused(tmp_path, record, words):
    (tmp_path / "k.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=words):
        read_camera(tmp_path / "k.json")


def test_a_camera_follows_the_picture_that_was_made_smaller():
    camera = Camera((1000.0, 1100.0), (320.0, 240.0), (640, 480))
    half = fitted_camera(camera, (320, 240))
    assert (half.focal, half.centre, half.size) == ((500.0, 550.0), (160.0, 120.0), (320, 240))
    assert fitted_camera(Camera((1000.0, 1100.0), (320.0, 240.0)), (99, 98)).size == (99, 98)
    with pytest.raises(InputError, match="calibrated at 640x480 and the picture has 480x640"):
        fitted_camera(camera, (480, 640))
