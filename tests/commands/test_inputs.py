"""Words of a command line -> photos, videos, cameras, and names that never clash."""

from pathlib import Path

import pytest
from PIL import Image

from di2pose.commands.inputs import sort_inputs, unique_names


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_a_folder_is_sorted_into_photos_videos_and_the_rest(tmp_path):
    touch(tmp_path, "b.JPG", "a.png", "walk.MOV", "notes.txt", ".hidden.jpg", "a.overlay.jpg", "deeper/c.jpg")
    inputs = sort_inputs([str(tmp_path)])
    assert [(item.kind, item.label) for item in inputs.found] == [
        ("photo", "a.png"),
        ("photo", "b.JPG"),
        ("video", "walk.MOV"),
    ]
    assert [Path(name).name for name in inputs.ignored] == ["a.overlay.jpg", "deeper", "notes.txt"]
    assert inputs.missing == []


def test_patterns_numbers_and_what_is_not_there(tmp_path):
    touch(tmp_path, "a.jpg", "x/b.jpg", "x/y/c.jpg", "x/d.txt")
    inputs = sort_inputs([str(tmp_path / "**" / "*.*"), "0", str(tmp_path / "gone.jpg"), str(tmp_path / "*.mp4")])
    assert [item.label for item in inputs.found] == ["a.jpg", "b.jpg", "c.jpg", "camera 0"]
    assert inputs.found[-1].source == 0
    assert [Path(name).name for name in inputs.ignored] == ["d.txt"]
    assert ["no such file" in inputs.missing[0], "no file matches" in inputs.missing[1]] == [True, True]


def test_an_empty_folder_is_missing_something(tmp_path):
    inputs = sort_inputs([str(tmp_path)])
    assert inputs.found == []
    assert inputs.missing == [f"{tmp_path}: no photo and no video in this folder"]


def test_a_file_that_is_given_twice_is_looked_at_once(tmp_path, monkeypatch):
    touch(tmp_path, "a.jpg")
    monkeypatch.chdir(tmp_path)
    assert len(sort_inputs(["a.jpg", str(tmp_path), "./a.jpg", "*.jpg"]).found) == 1


def test_a_named_file_without_an_ending_is_known_by_its_content(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "photo", "PNG")
    (tmp_path / "data").write_bytes(b"\x00\x01something else")
    kinds = {item.label: item.kind for item in sort_inputs([str(tmp_path / "photo"), str(tmp_path / "data")]).found}
    assert kinds == {"photo": "photo", "data": "video"}


def test_what_is_something_else_is_refused_by_name_and_the_rest_is_done(tmp_path):
    others = {
        "pic.svg": (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"></svg>', "an SVG drawing"),
        "paper.pdf": (b"%PDF-1.7 \xe2\xe3", "a PDF"),
        "notes.txt": ("größe\n".encode() * 1000, "a text"),
        "notes16.txt": ("größe\n".encode("utf-16"), "a text"),
        "letter.docx": (b"PK\x03\x04\x14\x00", "a ZIP archive or an office document"),
        "nothing.xyz": (b"", "an empty file"),
    }
    for name, (content, _) in others.items():
        (tmp_path / name).write_bytes(content)
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    inputs = sort_inputs([str(tmp_path / name) for name in (*others, "a.png")])
    assert [item.label for item in inputs.found] == ["a.png"]
    for (name, (_, what)), said in zip(others.items(), inputs.missing, strict=True):
        assert said.startswith(f"{tmp_path / name}: {what}, neither a photo nor a video; read are photos (jpg, ")


def test_a_name_that_no_file_system_takes_is_a_missing_file(tmp_path):
    touch(tmp_path, "a.jpg")
    inputs = sort_inputs(["x" * 300 + ".jpg", str(tmp_path / "a.jpg")])
    assert [item.label for item in inputs.found] == ["a.jpg"]
    assert inputs.missing == ["x" * 300 + ".jpg: File name too long"]


def test_a_name_of_two_lines_is_one_label(tmp_path):
    touch(tmp_path, "a\nb.jpg")
    (item,) = sort_inputs([str(tmp_path)]).found
    assert (item.label, item.name) == ("a\\nb.jpg", "a\nb")


def test_a_number_that_is_a_file_is_the_file(tmp_path, monkeypatch):
    (tmp_path / "7").write_bytes(b"\x00\x01")
    monkeypatch.chdir(tmp_path)
    assert [item.kind for item in sort_inputs(["7"]).found] == ["video"]


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
