"""Whole files or none: written under a temporary name, renamed when finished.

A killed process leaves its temporary file behind, `.walk.di2pose-k2n8x_3q.json`; `remove_leftovers` removes it later.
"""

import csv
import errno
import json
import os
import pickle
import re
import shutil
import struct
import tempfile
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from di2pose.errors import InputError

Json = dict[str, Any]
"""A JSON object as it was read, unchecked."""
DAMAGED = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, EOFError, OSError, SyntaxError,
    MemoryError, RuntimeError, AssertionError, struct.error, tokenize.TokenError, pickle.UnpicklingError,
    zipfile.BadZipFile, zlib.error, csv.Error,
)  # fmt: skip
"""What readers raise for a truncated, overwritten or crafted file; TokenError is of numpy's headers."""
LEFTOVER = re.compile(r"\..*\.di2pose-\w{8}(\.[^.]*)?", re.DOTALL)
LEFTOVER_AGE_S = 3600.0
"""A temporary file that did not change for an hour has no writer any more, on whatever machine it was."""


@contextmanager
def replacing(path: Path, final: Callable[[], Path] | None = None) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the place of `path` when the block ends well, or of what
    `final` then says, where the name is not known before.

    Makes missing folders. Whatever the system refuses becomes an InputError, and an older file of that name stays.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        start = f".{path.stem[:24]}.di2pose-"  # a whole stem might be too long with this
        handle, name = tempfile.mkstemp(prefix=start, suffix=path.suffix, dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        yield temporary
        os.chmod(temporary, 0o644)  # mkstemp makes it private
        os.replace(temporary, final() if final else path)
    except OSError as error:
        full, long = "make room, or choose another folder", "give it a shorter name"
        known = {errno.ENOSPC: full, errno.EDQUOT: full, errno.EFBIG: full, errno.ENAMETOOLONG: long}
        advice = known.get(error.errno or 0, "choose a folder that you may write to")
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def reading(what: object, advice: str) -> Iterator[None]:
    """Around the reading of a file: whatever is wrong with it becomes an InputError that says what to do."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {what}: {error.strerror or error}; {advice}") from error
    except DAMAGED as error:
        cause = f"{type(error).__name__}: {str(error)[:200]}"
        raise InputError(f"{what} is damaged, or not what it should be ({cause}): {advice}") from error


def read_json(path: Path, advice: str) -> Any:
    """What a JSON file holds, with or without a byte order mark, unchecked."""
    with reading(path, advice):
        text = path.read_text(encoding="utf-8-sig")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): {advice}") from error


def replace_folder(folder: Path, new: Path) -> None:
    """Put the folder `new` in the place of `folder`."""
    if not folder.exists():
        os.rename(new, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent)) / "old"
    os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old.parent)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the temporary files of processes that were killed, by their age."""
    removed = []
    for path in folder.iterdir():
        with suppress(OSError):  # another run may clean up at the same time
            if LEFTOVER.fullmatch(path.name) and time.time() - path.stat().st_mtime > LEFTOVER_AGE_S:
                path.unlink()
                removed.append(path)
    return removed


def write_bytes(path: Path, content: bytes) -> Path:
    """`content` as a whole file."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Whole files by their names, in a folder."""
    return [write_bytes(folder / name, content) for name, content in contents.items()]


def encoded(text: str) -> bytes:
    """UTF-8. Bytes of a file name that are no UTF-8 are escaped as JSON does, `\\udcff`."""
    return text.encode(errors="backslashreplace")


def write_text(path: Path, text: str) -> Path:
    """`text` as a whole file, `encoded`."""
    return write_bytes(path, encoded(text))


def write_json(path: Path, value: object, indent: int | None = 1) -> Path:
    """`value` as a whole JSON file."""
    return write_text(path, json.dumps(value, indent=indent) + "\n")


def printable(name: object) -> str:
    """A file's name on one line: line breaks, tabs and bytes that are no text are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))
