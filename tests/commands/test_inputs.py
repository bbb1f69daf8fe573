"""What a user hands in: words of a command line, boxes, cameras."""

import json
from pathlib import Path

import pytest
from PIL import Image

from di2pose.commands.inputs import BoxFile, Input, fitted_camera, read_camera, sort_inputs, unique_names, work_batches
from di2pose.errors import InputError
from di2pose.pose.camera import Camera

K = [[1000, 0, 320], [0, 1100, 240], [0, 0, 1]]


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_a_folder_is_sorted_into_photos_videos_and_the_rest(tmp_path):
    touch(tmp_path, "b.JPG", "a.png", "walk.MOV", "notes.txt", ".hidden.jpg", "a.overlay.jpg", "deeper/c\nd.jpg")
    inputs = sort_inputs([str(tmp_path)])
    kinds = [("photo", "a.png"), ("photo", "b.JPG"), ("video", "walk.MOV")]
    assert [(item.kind, item.label) for item in inputs.found] == kinds
    assert [Path(name).name for name in inputs.ignored] == ["a.overlay.jpg", "deeper", "notes.txt"]
    assert inputs.missing == []
    (odd,) = sort_inputs([str(tmp_path / "deeper")]).found
    assert (odd.label, odd.name) == ("c\\nd.jpg", "c\nd")
    (tmp_path / "empty").mkdir()
    assert sort_inputs([str(tmp_path / "empty")]).missing == [f"{tmp_path}/empty: no photo and no video in this folder"]


def test_gif_and_webp_of_several_frames_are_videos(tmp_path):
    frames = [Image.new("RGB", (20, 20), (80 * k, 0, 0)) for k in range(3)]
    for name, count in (("a.gif", 3), ("b.GIF", 1), ("c.webp", 3), ("d.webp", 1), ("e.tif", 3)):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:count])
    (tmp_path / "f.gif").write_text("no picture")
    kinds = {item.label: item.kind for item in sort_inputs([str(tmp_path)]).found}
    assert [name for name, kind in kinds.items() if kind == "video"] == ["a.gif", "c.webp"]
    assert len(kinds) == 6


def test_patterns_numbers_and_what_is_not_there(tmp_path):
    touch(tmp_path, "a.jpg", "x/b.jpg", "x/y/c.jpg", "x/d.txt")
    words = [tmp_path / "**" / "*.*", "0", tmp_path / "gone.jpg", tmp_path / "*.mp4", "x" * 300 + ".jpg"]
    inputs = sort_inputs([str(word) for word in words])
    assert [item.label for item in inputs.found] == ["a.jpg", "b.jpg", "c.jpg", "camera 0"]
    assert inputs.found[-1].source == 0
    assert [Path(name).name for name in inputs.ignored] == ["d.txt"]
    problems = ["no such file or folder", "no file matches this pattern", "File name too long"]
    assert [problem.split(": ")[1] for problem in inputs.missing] == problems


def test_a_file_that_is_given_twice_is_taken_once(tmp_path, monkeypatch):
    touch(tmp_path, "a.jpg")
    monkeypatch.chdir(tmp_path)
    assert len(sort_inputs(["a.jpg", str(tmp_path), "./a.jpg", "*.jpg"]).found) == 1


def test_a_named_file_without_an_ending_is_a_photo_by_its_content_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (20, 20)).save("7", "PNG")  # and no camera
    touch(tmp_path, "nothing.xyz")
    Path("notes.txt").write_text("mine")
    inputs = sort_inputs(["7", "nothing.xyz", "notes.txt"])
    assert [(item.kind, item.label) for item in inputs.found] == [("photo", "7")]
    for name, problem in zip(("nothing.xyz", "notes.txt"), inputs.missing, strict=True):
        assert problem.startswith(f"{name}: neither a photo (jpg, ")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a.jpg", "b.jpg"], ["a", "b"]),
        (["a.jpg", "a.png"], ["a_jpg", "a_png"]),
        (["x/a.jpg", "y/a.jpg", "z/A.JPG"], ["a_jpg", "a_jpg-2", "A_jpg-3"]),
        (["a.jpg", "a_p0.jpg"], ["a", "a_p0-2"]),
        (["a_p0.jpg", "b.jpg"], ["a_p0", "b"]),
        (["a.jpg", "a.png", "a_jpg.png"], ["a_jpg", "a_png", "a_jpg-2"]),
        (["a.partial.mp4"], ["a.partial-2"]),
    ],
)
def test_no_two_inputs_share_the_name_of_their_results(paths, names):
    assert unique_names([Path(path) for path in paths]) == names


def test_batches_are_two_photos_or_one_video():
    kinds = ["photo"] * 3 + ["video", "video", "photo"]
    items = [Input(kind, Path(f"{k}.x"), str(k)) for k, kind in enumerate(kinds)]
    batches = [[item.name for item in batch] for batch in work_batches(items)]
    assert batches == [["0", "1"], ["2"], ["3"], ["4"], ["5"]]


def test_boxes_in_json_and_csv_are_the_same_and_unused_names_are_known(tmp_path):
    (tmp_path / "a.json").write_text(
        '{"a.jpg": [[1, 2, 30, 40], [5, 6, 70, 80.5]], "x/b.jpg": [[0, 0, 9, 9]], "c.jpg": []}'
    )
    (tmp_path / "a.csv").write_text(
        "\ufefffile,x0,y0,x1,y1,who\na.jpg,1,2,30,40,me\na.jpg,5,6,70,80.5,you\nx/b.jpg,0,0,9,9,\n"
    )
    for name in ("a.json", "a.csv"):
        boxes = BoxFile(tmp_path / name)
        assert boxes.of(Path("somewhere/a.jpg")) == [(1, 2, 30, 40), (5, 6, 70, 80.5)]
        assert boxes.of(Path("other.jpg")) is None
        assert boxes.of(Path("x/b.jpg")) == [(0, 0, 9, 9)]
        more = ["c.jpg"] if name == "a.json" else []
        assert boxes.unused([Path("z/a.jpg")]) == [*more, "x/b.jpg"]
        assert boxes.unused([Path("a.jpg"), Path("x/b.jpg")]) == more
    assert BoxFile(tmp_path / "a.json").of(Path("c.jpg")) == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'{"a.jpg": [[30, 2, 1, 40]]}', "x0 < x1 and y0 < y1"),
        ("a.json", b'{"a.jpg": [[1, 2, 30]]}', "a box is four numbers"),
        ("a.json", b'{"a.jpg": 3}', "it must be JSON"),
        ("a.json", b'{"a.jpg": [', "it must be JSON"),
        ("a.json", b"\xff\xd8\xff\xe0", "it must be JSON"),
        ("a.csv", b"a.jpg,1,2,3,4\n", "CSV with the columns file,x0,y0,x1,y1"),
        ("a.csv", b"file,x0,y0,x1,y1\na.jpg,1,2,x,4\n", "a box is four numbers"),
        ("a.csv", b"file,x0,y0,x1,y1\na.jpg,1,2\n", "a box is four numbers"),
        ("gone.json", None, "No such file"),
    ],
)
def test_a_wrong_file_of_boxes_is_refused_by_name(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        BoxFile(tmp_path / name)
    assert name in str(caught.value)


def test_a_camera_is_a_matrix_alone_or_named_or_focal_and_centre(tmp_path):
    wanted = Camera((1000.0, 1100.0), (320.0, 240.0))
    for record in (K, {"K": K}, {"focal": [1000, 1100], "centre": [320, 240]}, wanted.to_json()):
        (tmp_path / "k.json").write_text(json.dumps(record))
        assert read_camera(tmp_path / "k.json") == wanted
    (tmp_path / "k.json").write_text(json.dumps({"K": K, "size": [640, 480], "distortion": [0.1, 0, 0, 0]}))
    assert read_camera(tmp_path / "k.json").distortion == (0.1, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"size": [3, 3]}, 'needs "K"'),
        ({"K": K, "zoom": 2}, "holds zoom"),
        ({"K": [[1, 2], [3, 4]]}, 'needs "K", a 3x3 matrix'),
        ({"K": [["a", 0, 1], [0, 1, 1], [0, 0, 1]]}, 'needs "K", a 3x3 matrix'),
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
