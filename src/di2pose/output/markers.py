"""TRC (OpenSim) and C3D. Millimetres, Y up: camera axes (x, y, z) become (x, -y, -z), a half turn about x.

The origin is the camera, "up" is the camera's: tilt the camera and the floor tilts. Someone who looks into the camera
looks along +Z, with their left to +X.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError, require
from di2pose.files import replacing, write_text
from di2pose.output.tables import moment
from di2pose.result import Person, Result, numbered

STILL_RATE = 30.0
"""Frames a second in the file of a photo: the formats want a rate."""
UP = np.array([1.0, -1.0, -1.0])
TRC_HEADER = (
    "DataRate", "CameraRate", "NumFrames", "NumMarkers", "Units", "OrigDataRate", "OrigDataStartFrame", "OrigNumFrames"
)  # fmt: skip
MOST_RESIDUAL_MM = 255.0
"""C3D keeps a residual in one byte."""


def y_up(person: Person) -> Float[np.ndarray, "J 3"]:
    """The person's joints round the camera as origin, y up, mm."""
    return (person.joints_mm.astype(np.float64) + person.root_mm) * UP


def write_each(
    path: Path, results: list[Result], write: Callable[[Path, list[Person | None], int], None]
) -> list[Path]:
    """Call `write(path, frames, first)` for everybody, with their frames from the first to the last that has them, None
    in between where they were lost. One person gets the path as it is, several get `name_p0`, `name_p1`, ..."""
    everybody: dict[int, list[Person | None]] = {}
    for k, result in enumerate(results):
        for number, person in numbered(result.people):
            everybody.setdefault(number, [None] * len(results))[k] = person
    if not everybody:
        raise InputError(f"nobody was found, so there is no motion to write to {path}")
    written = []
    for number, frames in sorted(everybody.items()):
        there = [k for k, person in enumerate(frames) if person is not None]
        own = path if len(everybody) == 1 else path.with_stem(f"{path.stem}_p{number}")
        write(own, frames[there[0] : there[-1] + 1], there[0])
        written.append(own)
    return written


def write_trc(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """OpenSim's marker text. Frame numbers count from 1 at the video's start; lost frames have empty cells."""

    def one(path: Path, frames: list[Person | None], first: int) -> None:
        joints = _joints(frames)
        rate = f"{fps or STILL_RATE:.6g}"
        lines = [
            ["PathFileType", "4", "(X/Y/Z)", path.name],
            list(TRC_HEADER),
            [rate, rate, str(len(frames)), str(len(joints)), "mm", rate, str(first + 1), str(len(frames))],
            ["Frame#", "Time", *(word for joint in joints for word in (joint, "", ""))],
            ["", "", *(f"{axis}{number + 1}" for number in range(len(joints)) for axis in "XYZ")],
            [],
        ]
        for k, person in enumerate(frames, start=first):
            points = np.full((len(joints), 3), np.nan) if person is None else y_up(person)
            cells = [f"{value:.3f}" if np.isfinite(value) else "" for value in points.flat]
            lines.append([str(k + 1), f"{moment(results, fps, k)[1]:.6f}", *cells])
        write_text(path, "".join("\t".join(line) + "\n" for line in lines))

    return write_each(path, results, one)


def write_c3d(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """Biomechanics' binary format. A point's residual is its spread (std_mm, whole mm, at most 255), -1 where the
    point is missing."""
    ezc3d = require("ezc3d", extra="mocap")

    def one(path: Path, frames: list[Person | None], first: int) -> None:
        joints = _joints(frames)
        points = np.full((4, len(joints), len(frames)), np.nan)
        residual = np.full((1, len(joints), len(frames)), -1.0)
        for k, person in enumerate(frames):
            if person is not None:
                points[:3, :, k] = y_up(person).T
                spread = np.clip(np.round(person.std_mm), 0, MOST_RESIDUAL_MM)
                residual[0, :, k] = np.where(np.isfinite(spread), spread, -1.0)
        points[3] = 1.0
        file = ezc3d.c3d()
        for name, value in (("UNITS", ["mm"]), ("RATE", [fps or STILL_RATE]), ("LABELS", joints)):
            file["parameters"]["POINT"][name]["value"] = value
        file.add_parameter("POINT", "X_SCREEN", ["+X"])
        file.add_parameter("POINT", "Y_SCREEN", ["+Y"])
        file["header"]["points"]["first_frame"] = first
        file["data"]["points"] = points
        file["data"]["meta_points"]["residuals"] = residual
        with replacing(path) as temporary:
            file.write(str(temporary))
            _check_length(temporary, 16 * len(joints) * len(frames))

    return write_each(path, results, one)


def _joints(frames: list[Person | None]) -> list[str]:
    found = {person.skeleton for person in frames if person is not None}
    if len(found) != 1:
        raise InputError("the frames of one person must have one skeleton: convert all of them, or none")
    return list(found.pop().joints)


def _check_length(path: Path, data: int) -> None:
    """ezc3d does not notice a full disk: compare the length with the header, whose 9th word is the data's block."""
    content = path.read_bytes()
    start = (struct.unpack_from("<H", content, 16)[0] - 1) * 512 if len(content) >= 512 else 0
    if start <= 0 or len(content) < start + data:
        raise OSError(28, "No space left on device")
