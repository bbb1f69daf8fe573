"""TRC (OpenSim), and what all motion files share.

Millimetres, Y up: camera axes (x, y, z) become (x, -y, -z), a half turn about x.

The origin is the camera, "up" is the camera's: tilt the camera and the floor tilts. Someone who looks into the camera
looks along +Z, with their left to +X.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.files import encoded, printable
from di2pose.output.tables import moment
from di2pose.result import Files, Person, Result, numbered

STILL_RATE = 30.0
"""Frames a second in the file of a photo: the formats want a rate."""
UP = np.array([1.0, -1.0, -1.0])
TRC_HEADER = (
    "DataRate", "CameraRate", "NumFrames", "NumMarkers", "Units", "OrigDataRate", "OrigDataStartFrame", "OrigNumFrames"
)  # fmt: skip


def y_up(person: Person) -> Float[np.ndarray, "J 3"]:
    """The person's joints round the camera as origin, y up, mm."""
    return (person.joints_mm.astype(np.float64) + person.root_mm) * UP


def for_each(name: str, results: list[Result], content: Callable[[str, list[Person | None], int], bytes]) -> Files:
    """`content(name, frames, first)` of everybody, with their frames from the first to the last that has them, None in
    between where they were lost. One person gets the name as it is, several get `name_p0`, `name_p1`, ..."""
    everybody: dict[int, list[Person | None]] = {}
    for k, result in enumerate(results):
        for number, person in numbered(result.people):
            everybody.setdefault(number, [None] * len(results))[k] = person
    if not everybody:
        raise InputError(f"nobody was found, so there is no motion to write to {name}")
    files: Files = {}
    for number, frames in sorted(everybody.items()):
        there = [k for k, person in enumerate(frames) if person is not None]
        own = name if len(everybody) == 1 else Path(name).with_stem(f"{Path(name).stem}_p{number}").name
        files[own] = content(own, frames[there[0] : there[-1] + 1], there[0])
    return files


def as_trc(name: str, results: list[Result], fps: float | None) -> Files:
    """OpenSim's marker text. Frame numbers count from 1 at the video's start; a lost frame is NaN, for which
    both of OpenSim's readers know what to do (they refuse a row that ends in an empty cell)."""

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        joints = joint_names(frames)
        rate = f"{fps or STILL_RATE:.6g}"
        lines = [
            ["PathFileType", "4", "(X/Y/Z)", printable(name)],
            list(TRC_HEADER),
            [rate, rate, str(len(frames)), str(len(joints)), "mm", rate, str(first + 1), str(len(frames))],
            ["Frame#", "Time", *(word for joint in joints for word in (joint, "", ""))],
            ["", "", *(f"{axis}{number + 1}" for number in range(len(joints)) for axis in "XYZ")],
            [],
        ]
        for k, person in enumerate(frames, start=first):
            points = np.full((len(joints), 3), np.nan) if person is None else y_up(person)
            cells = [f"{value:.3f}" if np.isfinite(value) else "NaN" for value in points.flat]
            lines.append([str(k + 1), f"{moment(results, fps, k)[1]:.6f}", *cells])
        return encoded("".join("\t".join(line) + "\n" for line in lines))

    return for_each(name, results, one)


def joint_names(frames: list[Person | None]) -> list[str]:
    """Of the person; their frames have one skeleton."""
    found = {person.skeleton for person in frames if person is not None}
    if len(found) != 1:
        raise InputError("the frames of one person must have one skeleton: convert all of them, or none")
    return list(found.pop().joints)
