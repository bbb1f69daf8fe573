"""Whole files or none, under any name; and what killed processes left behind."""

import os
import time

import pytest

from di2pose import files
from di2pose.errors import InputError
from di2pose.files import LEFTOVER, printable, remove_leftovers, replacing, write_json, write_text


def test_temporary_files_that_did_not_change_for_an_hour_are_removed_and_nothing_else(tmp_path):
    old, new = tmp_path / ".walk.di2pose-k2n8x_3q.mp4", tmp_path / ".walk.di2pose-k2n8x_3r.mp4"
    for path in (old, new, tmp_path / ".walk.k2n8x_3q.json", tmp_path / "walk.json"):
        path.touch()
        if path != new:
            os.utime(path, (time.time() - 2 * files.LEFTOVER_AGE_S,) * 2)
    assert remove_leftovers(tmp_path) == [old]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_temporary_name_is_known_again(tmp_path):
    for name in ("a.json", "a b\nc.overlay.mp4", "no_ending", "x" * 240 + ".trc", "größe.csv"):
        with replacing(tmp_path / name) as temporary:
            assert LEFTOVER.fullmatch(temporary.name), temporary.name
            assert temporary.name.endswith((tmp_path / name).suffix)
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError()])
def test_whatever_goes_wrong_leaves_the_older_file_and_nothing_half(tmp_path, error):
    write_text(tmp_path / "a.json", "older")

    def write():
        with replacing(tmp_path / "a.json") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "older"


def test_a_name_is_printed_on_one_line():
    assert printable("a\nb\tc\r.jpg") == "a\\nb\\tc\\r.jpg"
    assert printable("größe 人.jpg") == "größe 人.jpg"
    assert printable(os.fsdecode(b"\xff.jpg")) == "\\udcff.jpg"


def test_text_with_a_name_that_is_no_utf8_can_be_written(tmp_path):
    name = os.fsdecode(b"\xff.jpg")
    write_json(tmp_path / "a.json", {"image": name})
    write_text(tmp_path / "b.json", f'{{"image": "{name}"}}')
    assert (tmp_path / "b.json").read_text() == '{"image": "\\udcff.jpg"}'
    with pytest.raises(InputError, match="File name too long; give it a shorter name"):
        write_text(tmp_path / ("x" * 300), "")
    assert len(list(tmp_path.iterdir())) == 2
