"""Results -> the files that were asked for, each whole or not at all."""

import errno
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from di2pose.errors import InputError
from di2pose.result import Motion, Result

FORMATS: dict[str, str] = {
    "json": ".json",
    "csv": ".csv",
    "npz": ".npz",
    "trc": ".trc",
    "c3d": ".c3d",
    "bvh": ".bvh",
    "html": ".html",
    "overlay": ".overlay.jpg",
    "png": ".png",
}
"""Name on the command line -> ending of the file; a video's overlay is .overlay.mp4."""
PICTURES = ("html", "overlay", "png")
"""Formats that show the photo; the others hold numbers alone."""
NEED_SOMEBODY = ("trc", "c3d", "bvh")
"""Motion files: nothing can stand in them where nobody was found."""


@dataclass
class Written:
    """What became of one input's results."""

    files: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Formats that do not apply, each with the reason."""
    failed: list[str] = field(default_factory=list)
    """What could not be written, and why."""
    disk_full: bool = False


def parse_formats(text: str) -> tuple[str, ...]:
    """'json,html' -> ('json', 'html'), each once."""
    names = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if wrong := [name for name in names if name not in FORMATS]:
        raise InputError(f"--format knows {', '.join(FORMATS)}; got {', '.join(wrong)}")
    if not names:
        raise InputError(f"--format needs one or several of {', '.join(FORMATS)}, with commas between them")
    return names


def ready_folder(folder: Path) -> Path:
    """The output folder, made and tried before any work is done for it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the output must be a folder, {folder} is a file: give another with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror or error}; choose a folder that you may write to, with -o"
        ) from error
    return folder


def write_result(folder: Path, name: str, formats: tuple[str, ...], numbers: Result, shown: Result) -> Written:
    """One photo. `numbers` is in pixels of the original; `shown` in those of its picture, which may be smaller."""
    written = Written()
    for kind in _possible(written, formats, bool(numbers.people)):
        _keep(written, shown if kind in PICTURES else numbers, folder / f"{name}{FORMATS[kind]}")
    return written


def write_motion(
    written: Written, folder: Path, name: str, formats: tuple[str, ...], motion: Motion, shown: Motion
) -> None:
    """One video, but for its overlay. `shown` is what goes on the page: with pictures, and maybe fewer frames."""
    if "png" in formats:
        written.skipped.append("no png of a video")
    for kind in _possible(written, formats, bool(motion.tracks)):
        if kind not in ("overlay", "png"):
            _keep(written, shown if kind in PICTURES else motion, folder / f"{name}{FORMATS[kind]}")


def _possible(written: Written, formats: tuple[str, ...], somebody: bool) -> list[str]:
    """The formats that can be written; the others are noted."""
    empty = [kind for kind in formats if kind in NEED_SOMEBODY and not somebody]
    if empty:
        written.skipped.append(f"no {', '.join(empty)} without people")
    return [kind for kind in formats if kind not in empty]


def _keep(written: Written, result: Result | Motion, path: Path) -> None:
    try:
        written.files += result.save(path)
    except InputError as error:
        written.failed.append(str(error))
        written.disk_full |= is_disk_full(error)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error comes from a full disk or quota: then nothing more can be written."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
