"""C3D, biomechanics' binary format (c3d.org): millimetres, Y up (see markers.py), floating point, Intel byte order.

    block 1          header: where everything is, how many points and frames
    block 2, ...     parameters in groups: POINT, ANALOG, FORCE_PLATFORM, TRIAL
    then             the data: x, y, z and one word for each point and frame

A block is 512 bytes. The word is a 16-bit integer that is kept as a float: below 0 the point is missing, else its low
byte times |POINT:SCALE| is the residual. The high byte says which cameras saw the point, which one camera need not
tell; ezc3d (1.7.2) looks for the residual there, so it stands in both bytes. Both stay below 128, or the integer would
be negative.
"""

import struct

import numpy as np
from jaxtyping import Float

from di2pose.output.markers import STILL_RATE, for_each, joint_names, y_up
from di2pose.result import Files, Person, Result

BLOCK = 512
MOST_RESIDUAL = 127
"""Of a byte whose highest bit is a sign."""
MOST_COORDINATE = 32_000
"""The scale is such that coordinates / scale would fit into 16-bit integers, as c3d.org asks of float files too."""
MOST_FRAME = 65_535
"""Of the header's 16 bits; TRIAL holds the frames of longer ones."""
Value = list[str] | list[int] | list[float]


def as_c3d(name: str, results: list[Result], fps: float | None) -> Files:
    """A file for each person. A point's residual is its spread, std_mm, to half a |POINT:SCALE|; -1 where the point is
    missing."""

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        joints = joint_names(frames)
        points = np.full((len(frames), len(joints), 3), np.nan)
        spread = np.full((len(frames), len(joints)), np.nan)
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
    """A whole file. Points that are NaN are missing; `first` is the number of the first frame, from 1."""
    there = np.isfinite(points_mm).all(-1) & np.isfinite(residual_mm)
    largest = float(np.abs(points_mm[there]).max(initial=1.0)) / MOST_COORDINATE
    scale = float(np.float32(max(largest, residual_mm[there].max(initial=0.0) / MOST_RESIDUAL)))
    byte = np.minimum(np.rint(np.where(there, residual_mm, 0.0) / scale), MOST_RESIDUAL)
    data = np.zeros((*there.shape, 4), "<f4")
    data[there, :3] = points_mm[there]
    data[..., 3] = np.where(there, byte * 256 + byte, -1.0)
    last = first + len(points_mm) - 1
    groups: dict[str, dict[str, Value]] = {
        "POINT": {
            "USED": [len(joints)], "SCALE": [-scale], "RATE": [float(rate)], "DATA_START": [0],
            "FRAMES": [min(len(points_mm), MOST_FRAME)], "LABELS": joints, "DESCRIPTIONS": [""] * len(joints),
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
    frames = min(first, MOST_FRAME), min(last, MOST_FRAME)
    header = struct.pack("<BBHHHHHfHHf", 2, 0x50, len(joints), 0, *frames, 0, -scale, start, 0, rate)
    return b"".join(map(_whole_blocks, (header, _parameters(groups), data.tobytes())))


def _parameters(groups: dict[str, dict[str, Value]]) -> bytes:
    """The parameter section, in whole blocks."""
    entries: list[tuple[bytes, bytes]] = []
    for number, (group, parameters) in enumerate(groups.items(), start=1):
        entries.append((_name(group, -number), b"\0"))
        entries += [(_name(name, number), _value(value) + b"\0") for name, value in parameters.items()]
    # Between the two parts stands how far it is from there to the next entry; 0: there is none.
    steps = [2 + len(rest) for _, rest in entries[:-1]] + [0]
    body = b"".join(name + struct.pack("<H", step) + rest for (name, rest), step in zip(entries, steps, strict=True))
    blocks = -(-(4 + len(body)) // BLOCK)
    return _whole_blocks(bytes((1, 0x50, blocks, 84)) + body)  # 84: Intel


def _name(name: str, group: int) -> bytes:
    return struct.pack("<bb", len(name), group) + name.encode("ascii")


def _value(value: Value) -> bytes:
    """Type, number of dimensions, dimensions, content. One number or one text has no dimension of its own."""
    count = b"\0" if len(value) == 1 else bytes((1, len(value)))
    if isinstance(value[0], str):
        texts = [str(text).encode("ascii", "replace") for text in value]
        width = max(1, *map(len, texts))
        sizes = (width,) if len(texts) == 1 else (width, len(texts))
        return struct.pack("<bB", -1, len(sizes)) + bytes(sizes) + b"".join(text.ljust(width) for text in texts)
    if isinstance(value[0], float):
        return struct.pack("<b", 4) + count + struct.pack(f"<{len(value)}f", *value)
    return struct.pack("<b", 2) + count + struct.pack(f"<{len(value)}H", *value)


def _whole_blocks(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)
