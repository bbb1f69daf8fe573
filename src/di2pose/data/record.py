"""Sample, the one record type; and what a reader is given and gives back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton

UNKNOWN, SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME = -1, 0, 1, 2, 3

FORMAT_VERSION = 1
ARRAYS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "joints_mm": ("float32", ("J", 3)),
    "root_mm": ("float64", (3,)),
    "joints_2d": ("float32", ("J", 2)),
    "valid": ("bool", ("J",)),
    "visibility": ("int8", ("J",)),
    "box": ("float64", (4,)),
}


@dataclass(frozen=True, eq=False)
class Sample:
    """One person in one frame. Arrays as in the head of this file; None where a dataset does not tell."""

    id: str
    joints_mm: np.ndarray
    root_mm: np.ndarray | None = None
    joints_2d: np.ndarray | None = None
    visibility: np.ndarray | None = None
    valid: np.ndarray = field(default_factory=lambda: np.ones(0, bool))
    """Left out: all joints are annotated."""
    image: str | None = None
    """Path relative to the image root, or `video.mp4#12` for frame 12 (from 0) of that video."""
    box: tuple[float, float, float, float] | None = None
    camera: Camera | None = None
    subject: str = ""
    action: str = ""
    sequence: str = ""
    frame: int = 0
    split: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """Anything of JSON: the seed and rotation of a virtual camera, the wardrobe of a rendered person, ..."""

    def __post_init__(self) -> None:
        if not self.valid.size:
            object.__setattr__(self, "valid", np.ones(len(self.joints_mm), bool))

    def fault(self, skeleton: Skeleton) -> str | None:
        """Why this record cannot be used, or None. Joints that are not `valid` may hold anything."""
        joints = skeleton.count
        if self.joints_mm.shape != (joints, 3):
            return f"joints_mm has shape {self.joints_mm.shape}, {skeleton.name} needs ({joints}, 3)"
        for name in ("joints_2d", "visibility", "valid", "root_mm"):
            value, shape = getattr(self, name), row_shape(name, joints)
            if value is not None and value.shape != shape:
                return f"{name} has shape {value.shape}, expected {shape}"
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


@dataclass(frozen=True)
class Skip:
    """A record or file that a reader leaves out, to be listed."""

    file: str
    reason: str


@dataclass(frozen=True)
class Part:
    """One source file or sequence. `samples()` raises InputError when the file is damaged: it is then listed and left
    out whole. Single bad records may be yielded as Skip, or as they are: `Sample.fault` finds NaN and wrong shapes."""

    key: str
    samples: Callable[[], Iterable[Sample | Skip]]
    skeleton: Skeleton = H36M_17


@dataclass(frozen=True)
class Sources:
    """What the user pointed at. A reader module has `read(sources: Sources) -> Iterator[Part]`, which raises InputError
    before the first part if files are missing, naming each and where it comes from."""

    name: str
    src: Path
    annotations: Path | None = None
    cameras: Path | None = None
    images: Path | None = None
    smpl: Path | None = None
    seed: int = 0
    every: int = 1
    unit_mm: float = 25.4 / 0.45

    @property
    def image_root(self) -> Path:
        return self.src if self.images is None else self.images


def row_shape(name: str, joints: int) -> tuple[int, ...]:
    return tuple(joints if size == "J" else int(size) for size in ARRAYS[name][1])
