"""What a user gives on the command line -> photos, videos and cameras, each with a name of its own for its results."""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image, UnidentifiedImageError

from di2pose.errors import InputError

# fmt: off
PHOTOS = frozenset((
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".avif", ".heic", ".heif", ".tif", ".tiff", ".bmp",
    ".dib", ".gif", ".jp2", ".ppm", ".pgm", ".pnm", ".tga",
))
VIDEOS = frozenset((
    ".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".mts", ".m2ts", ".ts", ".3gp", ".3g2", ".wmv",
    ".flv", ".ogv", ".asf", ".mjpeg", ".mjpg",
))
# fmt: on
Kind = Literal["photo", "video", "camera"]
OWN = (".overlay.jpg", ".overlay.mp4")
"""Pictures that this program wrote: a folder that is looked at twice must not feed on its own results."""


@dataclass(frozen=True)
class Input:
    """One thing to look at."""

    kind: Kind
    source: Path | int
    """A file, or the index of a camera."""
    name: str
    """The stem of its results: no other input of the run has it."""

    @property
    def label(self) -> str:
        """How it is called in messages."""
        return f"camera {self.source}" if isinstance(self.source, int) else self.source.name


@dataclass(frozen=True)
class Inputs:
    """Everything that was found under the words of a command line."""

    found: list[Input]
    ignored: list[str]
    """Files of folders that are neither photos nor videos."""
    missing: list[str]
    """What is wrong with words that led nowhere."""


def sort_inputs(words: Sequence[str]) -> Inputs:
    """Photos, videos, folders (their files, not their subfolders), patterns like 'a/*.jpg', and camera numbers.

    A file that is given twice is looked at once.
    """
    sources: dict[Path | int, tuple[Kind, Path | int]] = {}
    ignored: list[str] = []
    missing: list[str] = []
    for word in words:
        path = Path(word)
        inside: list[Path] = []
        if path.is_dir():
            everything = sorted(path.iterdir(), key=lambda each: each.name)
            inside = [each for each in everything if not each.name.startswith(".")]
            if not any(each.is_file() and kind_of(each) for each in inside):
                missing.append(f"{word}: no photo and no video in this folder")
        elif path.is_file():
            sources.setdefault(path.resolve(), (kind_of(path) or _sniff(path), path))
        elif word.isdecimal():
            sources.setdefault(int(word), ("camera", int(word)))
        elif glob.has_magic(word):
            inside = [Path(match) for match in sorted(glob.glob(word, recursive=True)) if Path(match).is_file()]
            if not inside:
                missing.append(f"{word}: no file matches this pattern")
        else:
            missing.append(f"{word}: no such file or folder")
        for each in inside:
            if each.is_file() and (kind := kind_of(each)):
                sources.setdefault(each.resolve(), (kind, each))
            else:
                ignored.append(str(each))
    names = unique_names([source for _, source in sources.values()])
    found = [Input(kind, source, name) for (kind, source), name in zip(sources.values(), names, strict=True)]
    return Inputs(found, ignored, missing)


def kind_of(path: Path) -> Literal["photo", "video"] | None:
    """By the ending of the name; None for anything else, for hidden files and for our own pictures."""
    name = path.name.lower()
    if name.startswith(".") or name.endswith(OWN):
        return None
    return "photo" if path.suffix.lower() in PHOTOS else "video" if path.suffix.lower() in VIDEOS else None


def unique_names(sources: Sequence[Path | int]) -> list[str]:
    """A stem for the results of each source, in order.

    Where two files would share one, all of them carry their ending too (`a_jpg`, `a_png`), and what is still the same
    is counted (`a_jpg-2`). Upper and lower case are the same, as on macOS and Windows. `a_p0` is counted as well where
    there is an `a`: a motion file of the first person in `a` has that name; so is `a.partial`, the name of what a stopped
    run leaves of `a`.
    """
    stems = [f"camera{source}" if isinstance(source, int) else source.stem for source in sources]
    folded = [stem.casefold() for stem in stems]
    names: list[str] = []
    taken: set[str] = set()
    for source, base in zip(sources, stems, strict=True):
        if isinstance(source, Path) and folded.count(base.casefold()) > 1:
            base += f"_{source.suffix.removeprefix('.').lower()}"
        person = re.fullmatch(r"(.+)_p\d+", base.casefold())
        clash = (person is not None and person[1] in folded) or base.casefold().endswith(".partial")
        name, count = base, 1
        while clash or name.casefold() in taken:
            count, clash = count + 1, False
            name = f"{base}-{count}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _sniff(path: Path) -> Literal["photo", "video"]:
    """A file whose name says nothing: what Pillow can open is a photo, the rest is left to the video reader."""
    try:
        with Image.open(path):
            return "photo"
    except UnidentifiedImageError:
        return "video"
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Image.DecompressionBombError:
        return "photo"
