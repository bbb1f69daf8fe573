"""A file's sha256 is computed once, and again whenever somebody has touched the file."""

import hashlib
import os
import time

import pytest

from di2pose import checked
from di2pose.checked import has_sha256

GOOD = hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def read(monkeypatch):
    """The files that were read whole."""
    seen, original = [], checked.sha256_of

    def watched(path):
        seen.append(path)
        return original(path)

    monkeypatch.setattr(checked, "sha256_of", watched)
    return seen


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(checked, "SETTLED_NS", 0)
    path = tmp_path / "network.bin"
    path.write_bytes(b"weights")
    time.sleep(0.02)
    return path


def test_a_file_that_nobody_touches_is_read_once(file, read):
    assert [has_sha256(file, GOOD) for _ in range(3)] == [True] * 3
    assert read == [file]


def test_a_change_is_noticed_even_where_size_and_time_are_as_before(file, read):
    assert has_sha256(file, GOOD)
    before = file.stat()
    with file.open("r+b") as stream:
        stream.write(b"W")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert not has_sha256(file, GOOD)
    assert not has_sha256(file, GOOD)  # what is wrong is not remembered


def test_another_file_in_its_place_is_read(file, read, tmp_path):
    assert has_sha256(file, GOOD)
    other = tmp_path / "other"
    other.write_bytes(b"WEIGHTS")
    os.replace(other, file)
    assert not has_sha256(file, GOOD)


def test_another_sha256_is_not_the_one_that_was_remembered(file, read):
    assert has_sha256(file, GOOD)
    assert not has_sha256(file, "0" * 64)


def test_a_file_that_changed_a_moment_ago_is_read_again(file, read, monkeypatch):
    monkeypatch.setattr(checked, "SETTLED_NS", 2_000_000_000)
    assert has_sha256(file, GOOD)
    assert has_sha256(file, GOOD)
    assert len(read) == 2


def test_a_note_that_is_no_text_counts_for_nothing(file, read):
    checked._note(file).write_bytes(b"\xff\xfe\x00")
    assert has_sha256(file, GOOD)
    assert read == [file]
