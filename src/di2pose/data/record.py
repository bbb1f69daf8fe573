"""Sample, the one record type; and what a reader is given and gives back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton

UNKNOWN, SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME = -1, 0, 1, 2, 3
BOX_MARGIN = 1.2
"""Boxes are squares of 1.2 times the larger extent of the 2D joints, as in SPIN, mmpose and mmhuman3d."""

Box = tuple[float, float, float, float]
Extra = dict[str, Any]
"""Anything of JSON: the seed and rotation of a virtual camera, the wardrobe of a rendered person, ..."""


class Labels(TypedDict, total=False):
    """The fields of a Sample that are not arrays."""

    image: str | None
    subject: str
    action: str
    sequence: str
    frame: int
    split: str
    extra: Extra


def row_arrays(joints: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Array -> type and shape of its row for one record."""
    return {
        "joints_mm": ("float32", (joints, 3)),
        "root_mm": ("float64", (3,)),
        "joints_2d": ("float32", (joints, 2)),
        "valid": ("bool", (joints,)),
        "visibility": ("int8", (joints,)),
        "box": ("float64", (4,)),
    }


@dataclass(frozen=True, eq=False)
class Sample:
    """One person in one frame. Arrays as in the head of sample.py; None where a dataset does not have them."""

    id: str
    joints_mm: np.ndarray
    root_mm: np.ndarray | None = None
    joints_2d: np.ndarray | None = None
    visibility: np.ndarray | None = None
    valid: np.ndarray = field(default_factory=lambda: np.ones(0, bool))
    """Left out: all joints are annotated."""
    image: str | None = None
    """Path relative to the image root, or `video.mp4#12` for frame 12 (from 0) of that video."""
    box: Box | None = None
    camera: Camera | None = None
    subject: str = ""
    action: str = ""
    sequence: str = ""
    frame: int = 0
    split: str = ""
    extra: Extra = field(default_factory=dict)
    row: int | None = None
    """Its number in the dataset or feature cache that it was read from."""

    def __post_init__(self) -> None:
        if not self.valid.size:
            object.__setattr__(self, "valid", np.ones(len(self.joints_mm), bool))

    @classmethod
    def from_camera(
        cls,
        id: str,
        camera_mm: Float[np.ndarray, "J 3"],
        joints_2d: Float[np.ndarray, "J 2"],
        camera: Camera | None,
        box: Box | None = None,
        **labels: Unpack[Labels],
    ) -> "Sample":
        """From joints in the camera frame (mm, not root-relative, the pelvis first) and in pixels.

        Without a box: the square round the finite 2D joints. Joints outside the picture are OUT_OF_FRAME, the others
        UNKNOWN: no published dataset labels occlusion.
        """
        visibility = None
        if box is None and np.isfinite(joints_2d).all(-1).any():
            box = box_round(joints_2d)
        if camera is not None and camera.size is not None:
            inside = ((joints_2d >= 0) & (joints_2d < np.array(camera.size))).all(-1)
            visibility = np.where(inside, UNKNOWN, OUT_OF_FRAME).astype(np.int8)
        root = camera_mm[0].astype(np.float64)
        joints_mm = (camera_mm - camera_mm[0]).astype(np.float32)
        return cls(id, joints_mm, root, joints_2d.astype(np.float32), visibility, box=box, camera=camera, **labels)

    def fault(self, skeleton: Skeleton) -> str | None:
        """Why this record cannot be used, or None. Joints that are not `valid` may hold anything."""
        for name, (_, shape) in row_arrays(skeleton.count).items():
            value = getattr(self, name)
            if value is not None and np.shape(value) != shape:
                return f"{name} has shape {np.shape(value)}, {skeleton.name} needs {shape}"
        if not self.valid.any():
            return "no joint is annotated"
        broken = self.valid & ~np.isfinite(self.joints_mm).all(-1)
        if broken.any():
            return "NaN or infinite joints: " + ", ".join(skeleton.joints[j] for j in np.flatnonzero(broken))
        if self.root_mm is not None and not np.isfinite(self.root_mm).all():
            return "NaN or infinite root_mm"
        if self.box is not None and not (self.box[0] < self.box[2] and self.box[1] < self.box[3]):
            return f"the box is empty: {self.box}"
        return None


def box_round(points: Float[np.ndarray, "n 2"]) -> Box:
    """The square of BOX_MARGIN times the larger extent, round the middle of the finite points."""
    points = points[np.isfinite(points).all(-1)].astype(np.float64)
    low, high = points.min(0), points.max(0)
    return square((low + high) / 2, BOX_MARGIN * float((high - low).max()))


def square(centre: Float[np.ndarray, "2"], side: float) -> Box:
    x, y = (float(value) for value in centre)
    return x - side / 2, y - side / 2, x + side / 2, y + side / 2


@dataclass(frozen=True)
class Part:
    """One source file or sequence. `samples()` raises InputError when the file is damaged: it is then listed and left
    out whole. Single bad records are yielded as they are: `Sample.fault` finds NaN and wrong shapes."""

    key: str
    samples: Callable[[], Iterable[Sample]]
    skeleton: Skeleton = H36M_17

    @classmethod
    def unreadable(cls, key: str, error: InputError) -> "Part":
        """It is listed with its reason when its turn comes."""

        def samples() -> Iterable[Sample]:
            raise error

        return cls(key, samples)


@dataclass(frozen=True)
class Sources:
    """Where the files of a dataset are, and how to read them. A reader module has `read(sources) -> Iterator[Part]`,
    which raises InputError before the first part if files are missing, naming each and its origin."""

    name: str
    src: Path
    annotations: Path | None = None
    cameras: Path | None = None
    images: Path | None = None
    smpl: Path | None = None
    seed: int = 0
    every: int = 1
    unit_mm: float = 25.4 / 0.45

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"--every must be 1 or more, got {self.every}")

    @property
    def image_root(self) -> Path:
        return self.src if self.images is None else self.images

    def image_folder(self, name: str) -> str | None:
        """Where pictures are below the image root: in `name/` if there is such a folder, right there if --images points
        at them, None if there are none."""
        if (self.image_root / name).is_dir():
            return f"{name}/"
        return None if self.images is None else ""
