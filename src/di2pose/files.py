"""Whole files or none: written under a temporary name, renamed when finished."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from di2pose.errors import InputError

Json = dict[str, Any]
"""A JSON object as it was read: whoever reads it checks it."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the place of `path` when the block ends well.

    Makes missing folders. Whatever the system refuses becomes an InputError, and an older file of that name stays.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        os.chmod(temporary, 0o644)  # mkstemp makes it private
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "make room, or choose another folder"
        else:
            advice = "choose a folder that you may write to"
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> Path:
    """`content` as a whole file."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """`text` as a whole file, in UTF-8. Bytes of a file name that are no UTF-8 are escaped as JSON does, `\\udcff`."""
    return write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: object, indent: int | None = 1) -> Path:
    """`value` as a whole JSON file."""
    return write_text(path, json.dumps(value, indent=indent) + "\n")


def printable(name: object) -> str:
    """A file's name on one line: line breaks, tabs and bytes that are no text are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))
