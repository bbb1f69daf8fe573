"""Words of a command line -> photos, videos and cameras, each with a unique name for its results."""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from PIL import Image, UnidentifiedImageError

from di2pose.files import printable

# fmt: off
PHOTOS = frozenset((
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".avif", ".heic", ".heif", ".tif", ".tiff", ".bmp",
    ".dib", ".gif", ".jp2", ".ppm", ".pgm", ".pnm", ".tga",
))
VIDEOS = frozenset((
    ".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".mts", ".m2ts", ".ts", ".3gp", ".3g2", ".wmv",
    ".flv", ".ogv", ".asf", ".mjpeg", ".mjpg", ".y4m", ".vob", ".mxf", ".dv",
))
# fmt: on
READ = "read are photos (jpg, png, webp, heic, tiff, ...) and videos (mp4, mov, mkv, webm, avi, ...)"
OTHER_FILES = {
    b"%PDF": "a PDF", b"PK\x03\x04": "a ZIP archive or an office document", b"\xd0\xcf\x11\xe0": "an office document",
    b"\x1f\x8b": "a packed file", b"7z\xbc\xaf": "a packed file", b"Rar!": "a packed file",
    b"\x7fELF": "a program", b"MZ": "a program", b"{\\rtf": "a text",
}  # fmt: skip
"""First bytes -> what it is. FFmpeg would try to make a video of some of them."""
Kind = Literal["photo", "video", "camera"]
OWN = (".overlay.jpg", ".overlay.mp4")
"""Pictures that this program wrote: the results of an earlier run are no inputs."""
TOGETHER = 2
"""Photos in one pass of the networks, done and written together: as quick as eight; one by one takes 1 to 7 % longer
(benchmarks/photo_batches.py)."""


@dataclass(frozen=True)
class Input:
    """One photo, video or camera."""

    kind: Kind
    source: Path | int
    """A file, or the index of a camera."""
    name: str
    """The stem of its results, unique in the run."""

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"camera {self.source}" if isinstance(self.source, int) else printable(self.source.name)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a command line."""

    found: list[Input]
    ignored: list[str]
    """Files of folders that are neither photos nor videos."""
    missing: list[str]
    """Words without an input, each with the reason."""


def sort_inputs(words: Sequence[str]) -> Inputs:
    """Photos, videos, folders (their files, not their subfolders), patterns like 'a/*.jpg', and camera numbers.

    A file that is given twice is taken once.
    """
    sources: dict[Path | int, tuple[Kind, Path | int]] = {}
    ignored: list[str] = []
    missing: list[str] = []
    for word in words:
        try:
            named, inside, problem = _look_up(word)
        except OSError as error:
            named, inside, problem = [], [], error.strerror or str(error)
        for kind, source in named:
            sources.setdefault(source.resolve() if isinstance(source, Path) else source, (kind, source))
        missing += [f"{word}: {problem}"] if problem else []
        for each in inside:
            if each.is_file() and (medium := kind_of(each)):
                sources.setdefault(each.resolve(), (medium, each))
            else:
                ignored.append(str(each))
    names = unique_names([source for _, source in sources.values()])
    found = [Input(kind, source, name) for (kind, source), name in zip(sources.values(), names, strict=True)]
    return Inputs(found, ignored, missing)


def work_batches(items: Sequence[Input]) -> list[list[Input]]:
    """The work in order: photos that are predicted together, or one video or camera. They do not depend on the number
    of processes, so the results do not, either."""
    batches: list[list[Input]] = []
    for photos, group in groupby(items, key=lambda item: item.kind == "photo"):
        run = list(group)
        size = TOGETHER if photos else 1
        batches += [run[start : start + size] for start in range(0, len(run), size)]
    return batches


def _look_up(word: str) -> tuple[list[tuple[Kind, Path | int]], list[Path], str | None]:
    """What a word names itself, the files that it leads to, and what is wrong with it."""
    path = Path(word)
    if path.is_dir():
        inside = sorted((each for each in path.iterdir() if not each.name.startswith(".")), key=lambda each: each.name)
        there = any(each.is_file() and kind_of(each) for each in inside)
        return [], inside, None if there else "no photo and no video in this folder"
    if path.is_file():
        if kind := kind_of(path) or _sniff(path):
            return [(kind, path)], [], None
        return [], [], f"{_what_else(path)}, neither a photo nor a video; {READ}"
    if word.isdecimal():
        return [("camera", int(word))], [], None
    if glob.has_magic(word):
        inside = [Path(match) for match in sorted(glob.glob(word, recursive=True)) if Path(match).is_file()]
        return [], inside, None if inside else "no file matches this pattern"
    return [], [], "no such file or folder"


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
    there is an `a`: a motion file of the first person in `a` has that name; so is `a.partial`, the name of what a
    stopped run leaves of `a`.
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


def _sniff(path: Path) -> Literal["photo", "video"] | None:
    """A file whose name says nothing: what Pillow can open is a photo; of the rest, what is nothing else that we know
    is left to the video reader."""
    try:
        with Image.open(path):
            return "photo"
    except UnidentifiedImageError:
        return None if _what_else(path) else "video"
    except Image.DecompressionBombError:
        return "photo"


def _what_else(path: Path) -> str | None:
    """'a PDF', 'a text', ...; None for other bytes."""
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:
        return "an empty file"
    for start, name in OTHER_FILES.items():
        if head.startswith(start):
            return name
    try:
        text = head.decode("utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # else a character that the 4096 bytes cut in two
            return None
        text = head[: error.start].decode(errors="replace")
    if any(ord(c) < 32 and c not in "\t\n\r\f\x1b" for c in text):
        return None
    return "an SVG drawing" if "<svg" in text else "a text"
