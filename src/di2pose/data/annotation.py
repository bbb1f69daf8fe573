"""What the readers of published datasets share: the record of one annotated person in a camera frame."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from di2pose.data.record import OUT_OF_FRAME, UNKNOWN, Part, Sample, Skip
from di2pose.errors import InputError, require
from di2pose.pose.camera import Camera

PELVIS = 0
"""In H36M_17 and in SMPL_24, the skeletons that readers give."""
MARGIN = 1.2
"""Boxes are squares of 1.2 times the larger extent of the 2D joints, as in SPIN, mmpose and mmhuman3d."""

Box = tuple[float, float, float, float]


def record(
    id: str,
    camera_mm: Float[np.ndarray, "J 3"],
    joints_2d: Float[np.ndarray, "J 2"] | None = None,
    camera: Camera | None = None,
    box: Box | None = None,
    **fields: Any,
) -> Sample:
    """A Sample from joints in the camera frame (mm, not root-relative) and in pixels.

    Without a box: the square round the finite 2D joints. Joints outside the picture are marked; whether the others are
    hidden, none of these datasets tells.
    """
    visibility = None
    if joints_2d is not None:
        if box is None and np.isfinite(joints_2d).all(-1).any():
            box = box_round(joints_2d)
        if camera is not None and camera.size is not None:
            with np.errstate(invalid="ignore"):
                inside = ((joints_2d >= 0) & (joints_2d < np.array(camera.size))).all(-1)
            visibility = np.where(inside, UNKNOWN, OUT_OF_FRAME).astype(np.int8)
    return Sample(
        id=id,
        joints_mm=(camera_mm - camera_mm[PELVIS]).astype(np.float32),
        root_mm=camera_mm[PELVIS].astype(np.float64),
        joints_2d=None if joints_2d is None else joints_2d.astype(np.float32),
        visibility=visibility,
        box=box,
        camera=camera,
        **fields,
    )


def box_round(points: Float[np.ndarray, "n 2"]) -> Box:
    """x0 y0 x1 y1 of the square of MARGIN times the larger extent, round the middle of the finite points."""
    points = points[np.isfinite(points).all(-1)].astype(np.float64)
    low, high = points.min(0), points.max(0)
    return square((low + high) / 2, MARGIN * float((high - low).max()))


def square(centre: Float[np.ndarray, "2"], side: float) -> Box:
    x, y = (float(value) for value in centre)
    return x - side / 2, y - side / 2, x + side / 2, y + side / 2


def thin(count: int, every: int) -> Int[np.ndarray, " n"]:
    """Every `every`-th of `count` frames, beginning with the first."""
    if every < 1:
        raise InputError(f"--every must be 1 or more, got {every}")
    return np.arange(0, count, every)


def failed(key: str, error: InputError) -> Part:
    """A part that cannot be read: it is listed with its reason when its turn comes."""

    def samples() -> Iterator[Sample | Skip]:
        raise error

    return Part(key, samples)


def video_frames(path: Path) -> int | None:
    """How many frames the header of a video promises; None where it does not say."""
    av = require("av", extra="video")
    try:
        with av.open(str(path)) as container:
            return container.streams.video[0].frames or None
    except (OSError, IndexError, av.error.FFmpegError) as error:
        raise InputError(f"cannot read the video {path}: {error}") from error
