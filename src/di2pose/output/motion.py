"""Motion files: TRC (OpenSim) and C3D (c3d.org), a file for each person. Millimetres, Y up.

Camera axes (x, y, z) become (x, -y, -z), a half turn about x. The origin is the camera and "up" is the camera's: a
tilted camera tilts the floor, unless `save` is given up="floor". Someone who faces the camera faces +Z, with their left
to +X.

C3D, in blocks of 512 bytes, floating point, Intel byte order:

    block 1          header: counts of points and frames, number of the data's first block
    block 2, ...     parameters in groups: POINT, ANALOG, FORCE_PLATFORM, TRIAL
    then             the data: x, y, z and one word for each point and frame

The word is a 16-bit integer stored as a float: negative where the point is missing, else its low byte times
|POINT:SCALE| is the residual. The high byte holds camera flags, which one camera does not need; ezc3d (1.7.2) reads
and writes the residual there (so it cannot replace this writer), which is why it is in both bytes. Both stay below
128, or the integer would be negative.
"""

import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.files import encoded, printable
from di2pose.output.tables import frame_and_time
from di2pose.pose.bones import rebuild
from di2pose.pose.skeleton import bone_lengths
from di2pose.result import Files, Person, Result, ending_of, numbered

STILL_RATE = 30.0
"""Frames a second in the file of a photo: the formats need a rate."""
UP = np.array([1.0, -1.0, -1.0])
TRC_HEADER = (
    "DataRate", "CameraRate", "NumFrames", "NumMarkers", "Units", "OrigDataRate", "OrigDataStartFrame", "OrigNumFrames"
)  # fmt: skip
BLOCK = 512
MAX_RESIDUAL = 127
"""Of a byte whose highest bit is a sign."""
MAX_COORDINATE = 32_000
"""The scale is chosen so that coordinates / scale would fit into 16-bit integers, as c3d.org asks of float files."""
MAX_FRAME = 65_535
"""Of the header's 16 bits; TRIAL holds the frame numbers of longer files."""
Value = list[str] | list[int] | list[float]


def y_up(person: Person) -> Float[np.ndarray, "J 3"]:
    """The person's joints with the camera as origin, y up, mm."""
    return (person.joints_mm.astype(np.float64) + person.root_mm) * UP


def for_each(name: str, results: list[Result], content: Callable[[str, list[Person | None], int], bytes]) -> Files:
    """`content(name, frames, first)` for each person, with their frames from the first to the last that has them, None
    where they are missing in between. One person's file has the given name, several people's `name_p0`, `name_p1`."""
    people: dict[int, list[Person | None]] = {}
    for k, result in enumerate(results):
        for number, person in numbered(result.people):
            people.setdefault(number, [None] * len(results))[k] = person
    if not people:
        raise InputError(f"nobody was found, so there is no motion to write to {name}")
    files: Files = {}
    for number, frames in sorted(people.items()):
        present = [k for k, person in enumerate(frames) if person is not None]
        if len({person.skeleton for person in frames if person is not None}) != 1:
            raise InputError("the frames of one person must have one skeleton: convert all of them, or none")
        ending = len(ending_of(name))
        own = name if len(people) == 1 else f"{name[:-ending]}_p{number}{name[-ending:]}"
        files[own] = content(own, frames[present[0] : present[-1] + 1], present[0])
    return files


def evenly(results: list[Result], fps: float | None) -> tuple[list[Result], float | None]:
    """The results at a fixed rate, and the rate: `fps`, or that of the median step where they differ twofold.
    Frames whose times are off by more than half a frame are replaced by even ones, with joints and pelvis interpolated
    along each track, all else of the nearest frame."""
    times = np.array([np.nan if result.time_s is None else result.time_s for result in results])
    if fps is None or len(times) < 2 or not (np.diff(times) > 0).all():
        return results, fps
    usual = 1 / float(np.median(np.diff(times)))
    rate = fps if 0.5 < fps / usual < 2 else usual
    places = (times - times[0]) * rate
    if np.abs(places - np.arange(len(times))).max() <= 0.5:
        return results, rate
    even = []
    for k in range(round(places[-1]) + 1):
        after = int(np.clip(np.searchsorted(places, k), 1, len(places) - 1))
        share = float(np.clip((k - places[after - 1]) / (places[after] - places[after - 1]), 0, 1))
        near, far = (results[after - 1], results[after])[:: 1 if share < 0.5 else -1]
        others = dict(numbered(far.people))
        people = [
            _between(one, others.get(number, one), min(share, 1 - share)) for number, one in numbered(near.people)
        ]
        even.append(replace(near, people=people, frame_index=k, time_s=times[0] + k / rate))
    return even, rate


def _between(near: Person, far: Person, share: float) -> Person:
    """The nearer person, with joints and pelvis moved by that share of the way to the other; bones stay as long."""
    joints, root = ((1 - share) * getattr(near, of) + share * getattr(far, of) for of in ("joints_mm", "root_mm"))
    if np.isfinite(joints).all():
        joints = rebuild(joints, bone_lengths(near.joints_mm.astype(np.float64), near.skeleton), near.skeleton)
    return replace(near, joints_mm=joints, root_mm=root)

def times_of(results: list[Result], fps: float | None) -> Float[np.ndarray, " F"]:
    """Seconds of every frame; InputError where they do not increase."""
    times = np.array([frame_and_time(results, fps, k)[1] for k in range(len(results))])
    if (np.diff(times) <= 0).any():
        raise InputError(f"the times of a motion's frames must increase, got steps of {np.diff(times).min():g} s")
    return times


def joint_names(frames: list[Person | None]) -> list[str]:
    return next(list(person.skeleton.joints) for person in frames if person is not None)


def as_trc(name: str, results: list[Result], fps: float | None) -> Files:
    """OpenSim's marker text. Frame numbers count from 1 at the video's start; a missing frame is NaN, which both of
    OpenSim's readers accept (they refuse a row that ends in an empty cell)."""
    results, fps = evenly(results, fps)

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        joints, rate = joint_names(frames), f"{fps or STILL_RATE:.6g}"
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
            lines.append([str(k + 1), f"{frame_and_time(results, fps, k)[1]:.6f}", *cells])
        return encoded("".join("\t".join(line) + "\n" for line in lines))

    return for_each(name, results, one)


def as_c3d(name: str, results: list[Result], fps: float | None) -> Files:
    """C3D. A point's residual is its std_mm, to half a |POINT:SCALE|; -1 where the point is missing."""
    results, fps = evenly(results, fps)

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        joints = joint_names(frames)
        points, spread = np.full((len(frames), len(joints), 3), np.nan), np.full((len(frames), len(joints)), np.nan)
        for k, person in enumerate(frames):
            if person is not None:
                points[k], spread[k] = y_up(person), person.std_mm
        return c3d_bytes(joints, points, spread, fps or STILL_RATE, first + 1)

    return for_each(name, results, one)


def c3d_bytes(
    joints: list[str],
    points_mm: Float[np.ndarray, "F J 3"],
    residual_mm: Float[np.ndarray, "F J"],
    rate: float,
    first: int,
) -> bytes:
    """A whole file. NaN points are missing; `first` is the number of the first frame, from 1."""
    there = np.isfinite(points_mm).all(-1) & np.isfinite(residual_mm)
    largest = float(np.abs(points_mm[there]).max(initial=1.0)) / MAX_COORDINATE
    scale = float(np.float32(max(largest, residual_mm[there].max(initial=0.0) / MAX_RESIDUAL)))
    byte = np.minimum(np.rint(np.where(there, residual_mm, 0.0) / scale), MAX_RESIDUAL)
    data = np.zeros((*there.shape, 4), "<f4")
    data[there, :3] = points_mm[there]
    data[..., 3] = np.where(there, byte * 256 + byte, -1.0)
    last = first + len(points_mm) - 1
    groups: dict[str, dict[str, Value]] = {
        "POINT": {
            "USED": [len(joints)], "SCALE": [-scale], "RATE": [float(rate)], "DATA_START": [0],
            "FRAMES": [min(len(points_mm), MAX_FRAME)], "LABELS": joints, "DESCRIPTIONS": [""] * len(joints),
            "UNITS": ["mm"], "X_SCREEN": ["+X"], "Y_SCREEN": ["+Y"],
        },
        "ANALOG": {"USED": [0], "GEN_SCALE": [1.0], "RATE": [0.0]},
        "FORCE_PLATFORM": {"USED": [0]},
        "TRIAL": {
            "ACTUAL_START_FIELD": [first % 2**16, first // 2**16],
            "ACTUAL_END_FIELD": [last % 2**16, last // 2**16],
            "CAMERA_RATE": [float(rate)],
        },
    }  # fmt: skip
    start = 2 + len(_parameters(groups)) // BLOCK  # of the data; its number does not change the length
    groups["POINT"]["DATA_START"] = [start]
    frames = min(first, MAX_FRAME), min(last, MAX_FRAME)
    header = struct.pack("<BBHHHHHfHHf", 2, 0x50, len(joints), 0, *frames, 0, -scale, start, 0, rate)
    return b"".join(map(_whole_blocks, (header, _parameters(groups), data.tobytes())))


def _parameters(groups: dict[str, dict[str, Value]]) -> bytes:
    """The parameter section, in whole blocks."""
    entries: list[tuple[bytes, bytes]] = []
    for number, (group, parameters) in enumerate(groups.items(), start=1):
        entries.append((_name(group, -number), b"\0"))
        entries += [(_name(name, number), _value(value) + b"\0") for name, value in parameters.items()]
    # Between the two parts of an entry stands the distance from there to the next entry; 0 in the last one.
    steps = [2 + len(rest) for _, rest in entries[:-1]] + [0]
    body = b"".join(name + struct.pack("<H", step) + rest for (name, rest), step in zip(entries, steps, strict=True))
    blocks = -(-(4 + len(body)) // BLOCK)
    return _whole_blocks(bytes((1, 0x50, blocks, 84)) + body)  # 84: Intel


def _name(name: str, group: int) -> bytes:
    return struct.pack("<bb", len(name), group) + name.encode("ascii")


def _value(value: Value) -> bytes:
    """Type, number of dimensions, dimensions, content. A single number or text has no dimension of its own."""
    if isinstance(value[0], str):
        texts = [str(text).encode("ascii", "replace") for text in value]
        width = max(1, *map(len, texts))
        sizes = (width,) if len(texts) == 1 else (width, len(texts))
        return struct.pack("<bB", -1, len(sizes)) + bytes(sizes) + b"".join(text.ljust(width) for text in texts)
    kind, letter = (4, "f") if isinstance(value[0], float) else (2, "H")
    count = b"\0" if len(value) == 1 else bytes((1, len(value)))
    return struct.pack("<b", kind) + count + struct.pack(f"<{len(value)}{letter}", *value)


def _whole_blocks(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)
