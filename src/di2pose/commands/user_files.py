"""Files that a user hands in beside the pictures: boxes of people, and the camera."""

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from di2pose.errors import InputError
from di2pose.image.boxes import Box, parse_boxes
from di2pose.pose.camera import Camera

NUMBERS = re.compile(r"[\d\s.,;+-]*,[\d\s.,;+-]*")
"""Boxes that were typed, and no name of a file."""
COLUMNS = ("file", "x0", "y0", "x1", "y1")


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
        self.used: set[str] = set()
        if NUMBERS.fullmatch(str(path)) and not path.is_file():
            rows = [box.split(",") for box in str(path).split(";") if box.strip()]
            self.everywhere = list(parse_boxes(rows, f"--boxes {path}"))
        else:
            for name, boxes in _box_rows(_text(path), path).items():
                self.boxes[name] = tuple(parse_boxes(boxes, f"{path}, {name}"))

    def of(self, photo: Path) -> list[Box] | None:
        """The boxes of a photo; None where the file does not name it."""
        if self.everywhere is not None:
            return list(self.everywhere)
        for key in (str(photo), photo.as_posix(), photo.name):
            if key in self.boxes:
                self.used.add(key)
                return list(self.boxes[key])
        return None

    @property
    def unused(self) -> list[str]:
        """Names that no photo had: likely misspelt."""
        return sorted(set(self.boxes) - self.used)


def read_camera(path: Path) -> Camera:
    """A camera from JSON: {"K": [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]}, or the matrix alone, or focal and centre.

    May hold "size" [width, height] of the picture that it was calibrated with, and "distortion" in OpenCV's order.
    """
    record = _json(_text(path), path)
    if isinstance(record, list):
        record = {"K": record}
    known = {"K", "focal", "centre", "size", "distortion", "rotation", "translation_mm"}
    if not isinstance(record, dict) or not ("K" in record or {"focal", "centre"} <= record.keys()):
        raise InputError(f'{path} needs "K", a 3x3 matrix, or "focal" and "centre" in pixels')
    if extra := sorted(record.keys() - known):
        raise InputError(
            f"{path} holds {', '.join(extra)}, which is not known; a camera has {', '.join(sorted(known))}"
        )
    try:
        if "K" in record:
            (fx, _, cx), (_, fy, cy), _ = record.pop("K")
            record |= {"focal": [fx, fy], "centre": [cx, cy]}
        return Camera.from_json(Camera((1.0, 1.0), (0.0, 0.0)).to_json() | record)
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise InputError(f"{path} is not a camera: {error}") from error


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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8") from error


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error


def _box_rows(text: str, path: Path) -> dict[str, list[object]]:
    """File name -> its boxes as they were written."""
    if text.lstrip().startswith("{"):
        record: dict[str, list[object]] = _json(text, path)
        if not all(isinstance(boxes, list) for boxes in record.values()):
            raise InputError(f'{path}: every file name needs a list of boxes: {{"photo.jpg": [[x0, y0, x1, y1], ...]}}')
        return record
    table = csv.DictReader(text.splitlines())
    try:
        named = table.fieldnames or ()
    except csv.Error:
        named = ()
    if not set(COLUMNS) <= set(named):
        raise InputError(f"{path} must be JSON, or CSV whose first line names the columns {','.join(COLUMNS)}")
    rows: dict[str, list[object]] = {}
    try:
        for row in table:
            rows.setdefault(row["file"], []).append([row[column] for column in COLUMNS[1:]])
    except csv.Error as error:
        raise InputError(f"{path} is not a table in CSV ({error})") from error
    return rows
