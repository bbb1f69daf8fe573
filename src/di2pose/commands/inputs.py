"""What a user hands in: words of a command line -> photos, videos and cameras; files with boxes; a camera file."""

import csv
import dataclasses
import glob
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

from PIL import Image, UnidentifiedImageError
from tyro.constructors import PrimitiveConstructorSpec

from di2pose.errors import InputError
from di2pose.files import printable, read_json, reading
from di2pose.image.boxes import Box, parse_boxes
from di2pose.image.read import count_frames
from di2pose.pose.camera import Camera

# fmt: off
PHOTOS = frozenset((
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".avif", ".heic", ".heif", ".tif", ".tiff", ".bmp",
    ".dib", ".gif", ".jp2", ".ppm", ".pgm", ".pnm", ".tga",
))
VIDEOS = frozenset((
    ".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".mts", ".m2ts", ".ts", ".3gp", ".3g2", ".wmv",
    ".flv", ".ogv", ".asf", ".mjpeg", ".mjpg", ".y4m", ".vob", ".mxf", ".dv",
))
MOVING = (".gif", ".webp")
"""Photos that are videos where they have several frames."""
# fmt: on
UNKNOWN = (
    "neither a photo (jpg, png, webp, heic, tiff, ...) nor a video (mp4, mov, mkv, webm, avi, ...) by its name and "
    "content: give it the ending of its format"
)
Kind = Literal["photo", "video", "camera"]
OWN = (".overlay.jpg", ".overlay.mp4")
"""Pictures that this program wrote: the results of an earlier run are no inputs."""
TOGETHER = 2
"""Photos in one pass of the networks, done and written together: as quick as eight; one by one takes 1-7 % longer."""
NUMBERS = re.compile(r"[\d\s.,;+-]*,[\d\s.,;+-]*")
TIME = re.compile(r"(\d+:){0,2}\d+(\.\d*)?")
NUMBERS_OF_PEOPLE = re.compile(r"\d{1,6}(,\d{1,6})*")
"""Boxes that were typed, and no name of a file."""
COLUMNS = ("file", "x0", "y0", "x1", "y1")
BOXES_ADVICE = 'it must be JSON, {"photo.jpg": [[x0, y0, x1, y1], ...]}, or CSV with the columns file,x0,y0,x1,y1'


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
            found, others, problem = _look_up(word)
        except OSError as error:
            found, others, problem = [], [], error.strerror or str(error)
        for kind, source in found:
            sources.setdefault(source.resolve() if isinstance(source, Path) else source, (kind, source))
        ignored += map(str, others)
        missing += [f"{word}: {problem}"] if problem else []
    names = unique_names([source for _, source in sources.values()])
    inputs = [Input(kind, source, name) for (kind, source), name in zip(sources.values(), names, strict=True)]
    return Inputs(inputs, ignored, missing)


def _look_up(word: str) -> tuple[list[tuple[Kind, Path | int]], list[Path], str]:
    """The inputs that a word names, other files of its folder or pattern, and what is wrong with it."""
    path = Path(word)
    if path.is_file():
        kind = kind_of(path) or ("photo" if _is_picture(path) else None)
        return ([(kind, path)], [], "") if kind else ([], [], UNKNOWN)
    if path.is_dir():
        inside, problem = [each for each in path.iterdir() if not each.name.startswith(".")], "no photo and no video"
    elif word.isdecimal():
        return [("camera", int(word))], [], ""
    elif glob.has_magic(word):
        inside = [each for match in glob.glob(word, recursive=True) if (each := Path(match)).is_file()]
        problem = "no file matches this pattern"
    else:
        return [], [], "no such file or folder"
    kinds = {each: kind_of(each) if each.is_file() else None for each in sorted(inside)}
    found: list[tuple[Kind, Path | int]] = [(kind, each) for each, kind in kinds.items() if kind]
    none = f"{problem} in this folder" if path.is_dir() else "" if inside else problem
    return found, [each for each, kind in kinds.items() if not kind], "" if found else none


def kind_of(path: Path) -> Literal["photo", "video"] | None:
    """By the ending of the name; None for anything else, for hidden files and for our own pictures."""
    name = path.name.lower()
    if name.startswith(".") or name.endswith(OWN):
        return None
    if name.endswith(MOVING) and count_frames(path) > 1:
        return "video"
    return "photo" if path.suffix.lower() in PHOTOS else "video" if path.suffix.lower() in VIDEOS else None


def _is_picture(path: Path) -> bool:
    """Whether Pillow knows the content of a file whose name does not say it."""
    try:
        with Image.open(path):
            return True
    except UnidentifiedImageError:
        return False
    except Image.DecompressionBombError:
        return True


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


def work_batches(items: Sequence[Input]) -> list[list[Input]]:
    """The work in order: photos that are predicted together, or one video or camera. They do not depend on the number
    of processes, so the results do not, either."""
    batches: list[list[Input]] = []
    for photos, group in groupby(items, key=lambda item: item.kind == "photo"):
        run = list(group)
        size = TOGETHER if photos else 1
        batches += [run[start : start + size] for start in range(0, len(run), size)]
    return batches


def parse_seconds(text: str) -> float:
    """Seconds of '90', '1:30' or '0:01:30.5'."""
    if not TIME.fullmatch(text):
        raise ValueError(f"a time is in seconds or MM:SS, as 90 or 1:30, got '{text}'")
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def parse_height(text: str) -> float | dict[int, float]:
    """Metres, '1.78', or by the number of the person, '0=1.78,1=1.20'."""
    try:
        if "=" not in text:
            return float(text)
        pairs = [pair.split("=") for pair in text.split(",")]
        heights = {int(number): float(metres) for number, metres in pairs}
    except ValueError:
        heights, pairs = {}, []
    if not heights or len(heights) < len(pairs):
        raise ValueError(f"a height is in metres, 1.78, or by person, each once, 0=1.78,1=1.20; got '{text}'")
    return heights


def parse_people(text: str) -> tuple[int, ...] | Literal["largest"]:
    """'largest', or track numbers, '0,2'."""
    if text == "largest":
        return "largest"
    if not NUMBERS_OF_PEOPLE.fullmatch(text):
        raise ValueError(f"people are 'largest', or their numbers with commas between, as 0,2; got '{text}'")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def one_word(parse: Callable[[str], Any], metavar: str) -> Any:
    """How tyro reads a flag of one word by `parse`, which raises a ValueError."""
    return PrimitiveConstructorSpec(
        1, metavar, lambda words: parse(words[0]), lambda _: True, lambda value: [f"{value}"]
    )


Seconds = Annotated[float | None, one_word(parse_seconds, "SECONDS|MM:SS")]
Heights = Annotated[float | dict[int, float] | None, one_word(parse_height, "METRES|PERSON=METRES,...")]
People = Annotated[tuple[int, ...] | Literal["largest"] | None, one_word(parse_people, "largest|NUMBER,...")]


class BoxFile:
    """Where the people of each photo are: x0, y0, x1, y1 in pixels of the upright picture.

    JSON   {"photo.jpg": [[x0, y0, x1, y1], ...], "other.jpg": []}      an empty list: nobody
    CSV    file,x0,y0,x1,y1 in the first line, then a line for each person

    A key is a file's name, or its path where names repeat. Photos that the file does not name are searched as usual.
    In place of a file the numbers themselves, "x0,y0,x1,y1;x0,y0,x1,y1": boxes of every photo.
    """

    def __init__(self, path: Path) -> None:
        self.everywhere: list[Box] | None = None
        self.boxes: dict[str, tuple[Box, ...]] = {}
        if NUMBERS.fullmatch(str(path)) and not path.is_file():
            rows = [box.split(",") for box in str(path).split(";") if box.strip()]
            self.everywhere = list(parse_boxes(rows, f"--boxes {path}"))
            return
        with reading(path, BOXES_ADVICE):
            text = path.read_text(encoding="utf-8-sig")
            named: dict[str, list[object]] = json.loads(text) if text.lstrip().startswith("{") else _csv_boxes(text)
            for name, boxes in named.items():
                self.boxes[name] = parse_boxes(boxes, f"{path}, {name}")

    def of(self, photo: Path) -> list[Box] | None:
        """The boxes of a photo; None where the file does not name it."""
        if self.everywhere is not None:
            return list(self.everywhere)
        key = self._key(photo)
        return None if key is None else list(self.boxes[key])

    def unused(self, photos: Iterable[Path]) -> list[str]:
        """Names that none of the photos has: likely misspelt."""
        return sorted(set(self.boxes) - set(map(self._key, photos)))

    def _key(self, photo: Path) -> str | None:
        return next((key for key in (str(photo), photo.as_posix(), photo.name) if key in self.boxes), None)


def _csv_boxes(text: str) -> dict[str, list[object]]:
    """File name -> its boxes as they were written."""
    rows: dict[str, list[object]] = {}
    table = csv.DictReader(text.splitlines(), strict=True)
    if not set(COLUMNS) <= set(table.fieldnames or ()):
        raise ValueError("no such columns in the first line")
    for row in table:
        rows.setdefault(row["file"], []).append([row[column] for column in COLUMNS[1:]])
    return rows


def read_camera(path: Path) -> Camera:
    """A camera from JSON: {"K": [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]}, or the matrix alone, or focal and centre.

    May hold "size" [width, height] of the picture that it was calibrated with, and "distortion" in OpenCV's order.
    """
    advice = 'it needs "K", a 3x3 matrix, or "focal" and "centre" in pixels'
    record = read_json(path, advice)
    with reading(path, advice):
        record = {"K": record} if isinstance(record, list) else dict(record)
        whole = Camera((1.0, 1.0), (0.0, 0.0)).to_json()
        if extra := sorted(record.keys() - {"K", *whole}):
            raise InputError(f"{path} holds {', '.join(extra)}, which is not known; a camera has K, {', '.join(whole)}")
        if "K" in record:
            (fx, _, cx), (_, fy, cy), _ = record.pop("K")
            record |= {"focal": [fx, fy], "centre": [cx, cy]}
        if not {"focal", "centre"} <= record.keys():
            raise InputError(f"{path} is no camera: {advice}")
        return Camera.from_json(whole | record)


def fitted_camera(camera: Camera, size: tuple[int, int]) -> Camera:
    """The camera for a picture of that size: scaled where the picture is the calibrated one made smaller or larger."""
    if camera.size is None or camera.size == size:
        return dataclasses.replace(camera, size=size)
    across, down = size[0] / camera.size[0], size[1] / camera.size[1]
    if abs(across / down - 1) > 0.01:
        raise InputError(
            f"the camera was calibrated at {camera.size[0]}x{camera.size[1]} and the picture has {size[0]}x{size[1]}: "
            "another shape, so it was cut or turned. Calibrate at this size, or leave --camera out"
        )
    return scaled_camera(camera, (across, down), size)


def scaled_camera(camera: Camera, scale: tuple[float, float], size: tuple[int, int]) -> Camera:
    """The same camera for a picture whose pixels are smaller by `scale`, of the given size."""
    (fx, fy), (cx, cy) = camera.focal, camera.centre
    focal, centre = (fx * scale[0], fy * scale[1]), (cx * scale[0], cy * scale[1])
    return dataclasses.replace(camera, focal=focal, centre=centre, size=size)
