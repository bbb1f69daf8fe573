"""Whether a file is the one that is wanted: by its sha256, computed once and remembered until somebody touches it."""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from di2pose.errors import InputError
from di2pose.files import write_text

SETTLED_NS = 2_000_000_000
"""What changed more recently may change again without a new time: some file systems' clocks tick so slowly."""


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def has_sha256(path: Path, wanted: str) -> bool:
    """Whether the file has that sha256. It is remembered beside the file, with the file's number, size and times; of
    these the time of the last change cannot be set back, so whoever writes to the file has it read again."""
    before = path.stat()
    note, seen = _note(path), _seen(before, wanted)
    with suppress(OSError, ValueError):
        if note.read_text() == seen:
            return True
    if sha256_of(path) != wanted:
        return False
    if time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > SETTLED_NS:
        with suppress(InputError):  # a cache that may only be read is read every time
            write_text(note, seen)
    return True


def forget(path: Path) -> None:
    """Remove a file, and what is remembered of it."""
    for each in (path, _note(path)):
        with suppress(OSError):
            each.unlink()


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.checked")


def _seen(status: os.stat_result, wanted: str) -> str:
    return f"{wanted} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n"
