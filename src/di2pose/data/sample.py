"""Records, and the one prepared form on disk: Writer writes it, Dataset reads it.

A prepared folder holds memory-mapped arrays with a row per record (`row_arrays`), and

    index.jsonl     a line per record: id, image, camera, subject, action, sequence, frame, split, extra
    cameras.json    camera id -> Camera
    dataset.json    name, skeleton, count, image root, licence, source, what was skipped; written last, so a folder
                    that has it is whole
"""

import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload
from urllib.parse import quote, unquote

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.data.frames import Frames
from di2pose.errors import InputError
from di2pose.files import Json, read_json, reading, replacing, write_json
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton, get

FORMAT_VERSION = 1
AGAIN = "prepare the dataset again"
INDEX_LINE: dict[str, Any] = {
    "id": str, "image": str | None, "camera": str | None, "subject": str, "action": str, "sequence": str, "frame": int,
    "split": str, "extra": dict,
}  # fmt: skip
COLUMNS = ("subject", "action", "sequence", "split")
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
        "joints_mm": ("float32", (joints, 3)),  # camera axes (x right, y down, z away), minus the root; NaN: not valid
        "root_mm": ("float64", (3,)),  # the root in the camera frame; NaN: not known
        "joints_2d": ("float32", (joints, 2)),  # pixels of the full image; NaN: not known
        "valid": ("bool", (joints,)),  # joints that are annotated
        "visibility": ("int8", (joints,)),  # UNKNOWN, SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME
        "box": ("float64", (4,)),  # x0 y0 x1 y1 in pixels of the full image; NaN: not known
    }


@dataclass(frozen=True, eq=False)
class Sample:
    """One person in one frame. Arrays as in `row_arrays`; None where a dataset does not have them."""

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


class Index:
    """The lines of index.jsonl, parsed on access."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with reading(path, AGAIN), path.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends = np.flatnonzero(np.frombuffer(self._text, np.uint8) == ord("\n"))

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[Json]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Json:
        i = range(len(self))[i]
        start = 0 if i == 0 else int(self._ends[i - 1]) + 1
        with reading(f"line {i + 1} of {self._path}", AGAIN):
            line: Json = json.loads(self._text[start : int(self._ends[i])])
            if set(line) != set(INDEX_LINE) or not all(isinstance(line[key], INDEX_LINE[key]) for key in line):
                raise ValueError(f"the keys {', '.join(INDEX_LINE)} with text, a frame number and an object expected")
        return line


class Dataset:
    """A prepared folder: a sequence of Samples. `image_root` replaces the folder of the images."""

    joints_mm: np.ndarray
    root_mm: np.ndarray
    joints_2d: np.ndarray
    valid: np.ndarray
    visibility: np.ndarray
    box: np.ndarray

    def __init__(self, folder: Path | str, image_root: Path | str | None = None) -> None:
        self.folder, self._image_root = Path(folder), image_root
        path = self.folder / "dataset.json"
        if not path.exists():
            state = "an unfinished preparation" if (self.folder / "parts.tmp").exists() else "no dataset.json"
            raise InputError(f"{self.folder} holds {state}: make it with `di2pose data prepare NAME --out {folder}`")
        self.header: Json = read_json(path, AGAIN)
        with reading(path, AGAIN):
            if (version := self.header["format_version"]) != FORMAT_VERSION:
                raise InputError(f"{path}: format version {version}, this program reads {FORMAT_VERSION}: {AGAIN}")
            kinds = {"count": int, "name": str, "skeleton": str, "image_root": str | None}
            if not all(isinstance(self.header[key], kind) for key, kind in kinds.items()) or self.header["count"] < 0:
                raise TypeError("a count, and text for name, skeleton and image_root expected")
        self.name = self.header["name"]
        self.skeleton = get(self.header["skeleton"])
        for name, (_, shape) in row_arrays(self.skeleton.count).items():
            file = self.folder / f"{name}.npy"
            with reading(file, AGAIN):
                setattr(self, name, array := np.load(file, mmap_mode="r"))
            if array.shape != (len(self), *shape):
                raise InputError(f"{file} has shape {array.shape}, expected {(len(self), *shape)}: {AGAIN}")
        if len(self.index) != len(self):
            raise InputError(f"index.jsonl in {folder} has {len(self.index)} lines for {len(self)} records: {AGAIN}")

    def __reduce__(self) -> tuple[type["Dataset"], tuple[Path, Path | str | None]]:
        return Dataset, (self.folder, self._image_root)  # workers map the files again instead of copying them

    @cached_property
    def index(self) -> Index:
        return Index(self.folder / "index.jsonl")

    @cached_property
    def cameras(self) -> dict[str, Camera]:
        path = self.folder / "cameras.json"
        with reading(path, AGAIN):
            return {key: Camera.from_json(value) for key, value in read_json(path, AGAIN).items()}

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        rows = [[line[name] for name in COLUMNS] for line in self.index]
        return {name: np.array(column) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)}

    def column(self, name: str) -> np.ndarray:
        """subject, action, sequence or split of every record, as an array of strings."""
        if name not in COLUMNS:
            raise InputError(f"no column '{name}': choose from {', '.join(COLUMNS)}")
        return self._columns[name]

    def select(self, **wanted: str | Sequence[str]) -> np.ndarray:
        """Row numbers of the records that match all of e.g. split="test", subject=("S9", "S11")."""
        keep = np.ones(len(self), bool)
        for name, values in wanted.items():
            keep &= np.isin(self.column(name), [values] if isinstance(values, str) else list(values))
        return np.flatnonzero(keep)

    def __len__(self) -> int:
        return int(self.header["count"])

    @overload
    def __getitem__(self, i: int) -> Sample: ...
    @overload
    def __getitem__(self, i: slice) -> list[Sample]: ...
    def __getitem__(self, i: int | slice) -> Sample | list[Sample]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        line = self.index[i]
        camera = line.pop("camera")
        if camera is not None and camera not in self.cameras:
            raise InputError(f"{self.folder}: record {i} has a camera that is not in cameras.json: {AGAIN}")
        root_mm, joints_2d, visibility = (np.array(a[i]) for a in (self.root_mm, self.joints_2d, self.visibility))
        x0, y0, x1, y1 = self.box[i].tolist()
        return Sample(
            **line,
            row=i,
            joints_mm=np.array(self.joints_mm[i]),
            valid=np.array(self.valid[i]),
            root_mm=None if np.isnan(root_mm).any() else root_mm,
            joints_2d=None if np.isnan(joints_2d).all() else joints_2d,
            visibility=None if (visibility == UNKNOWN).all() else visibility,
            box=None if np.isnan(self.box[i]).any() else (x0, y0, x1, y1),
            camera=None if camera is None else self.cameras[camera],
        )

    @cached_property
    def frames(self) -> Frames:
        root = self.header["image_root"] if self._image_root is None else os.path.abspath(self._image_root)
        if root is None:
            raise InputError(f"{self.folder}: the dataset '{self.name}' has no images")
        return Frames(self.folder / root)

    def read_image(self, sample: Sample) -> Image.Image:
        """The whole picture, RGB, turned upright by its own EXIF tag."""
        if sample.image is None:
            raise InputError(f"record {sample.id} of {self.name} has no image")
        return self.frames.read(sample.image)


class Writer:
    """Writes a prepared folder part by part. Finished parts survive a kill and are not written again:

    writer = Writer(folder, "h36m", H36M_17, settings={"every": 5})
    for key in keys:
        if not writer.has(key):
            writer.write(key, samples)
    writer.finish()
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        skeleton: Skeleton,
        *,
        image_root: str | None = None,
        licence: str = "",
        source: str = "",
        settings: Extra | None = None,
    ) -> None:
        self.folder, self.skeleton = Path(folder), skeleton
        self.header: Json = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "skeleton": skeleton.name.lower(),
            "image_root": image_root,
            "licence": licence,
            "source": source,
            "settings": settings or {},
        }
        self.parts = self.folder / "parts.tmp"
        self.skipped: list[dict[str, str]] = []
        if (self.folder / "dataset.json").exists():
            raise InputError(f"{self.folder} is already a finished dataset: delete it, or write to another folder")
        stamp, header = self.parts / "header.json", json.loads(json.dumps(self.header))
        if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) != header:
            raise InputError(
                f"{self.folder} holds an unfinished preparation with other settings (see {stamp}): "
                "rerun with the same ones, or delete the folder"
            )
        write_json(stamp, header)

    def _file(self, key: str) -> Path:
        name = quote(key, safe="")  # a leading point is kept for files that are being written
        return self.parts / f"{'%2E' + name[1:] if name.startswith('.') else name}.npz"

    def has(self, key: str) -> bool:
        """Is this part already on disk?"""
        return self._file(key).exists()

    def write(self, key: str, samples: Sequence[Sample], skipped: Sequence[dict[str, str]] = ()) -> None:
        """A whole part, or nothing of it; `skipped` is kept with it and listed in the header."""
        for sample in samples:
            if fault := sample.fault(self.skeleton):
                raise InputError(f"record {sample.id}: {fault}")
        arrays = {}
        for name, (kind, shape) in row_arrays(self.skeleton.count).items():
            unknown = np.full(shape, UNKNOWN if name == "visibility" else np.nan)
            rows = [unknown if (row := getattr(sample, name)) is None else row for sample in samples]
            arrays[name] = np.array(rows, kind).reshape(len(samples), *shape)
        arrays["joints_mm"][~arrays["valid"]] = np.nan
        lines = [
            {key: getattr(sample, key) for key in INDEX_LINE} | {"camera": sample.camera and sample.camera.to_json()}
            for sample in samples
        ]
        text = json.dumps({"lines": lines, "skipped": list(skipped)}, allow_nan=False)
        with replacing(self._file(key)) as temporary:
            np.savez(temporary, allow_pickle=False, text=np.frombuffer(text.encode(), np.uint8), **arrays)

    def finish(self) -> Path:
        """Join the parts in the order of their keys, so the result does not depend on interruptions; the header comes
        last, and the parts stay until then."""
        files = sorted(self.parts.glob("[!.]*.npz"), key=lambda path: unquote(path.stem))
        counts = []
        for path in files:
            with np.load(path) as part:
                counts.append(len(part["valid"]))
        if not sum(counts):
            reasons = "".join(f"\n  {skip['file']}: {skip['reason']}" for skip in self.skipped[:10])
            shutil.rmtree(self.parts)
            raise InputError(f"nothing to write to {self.folder}: the source gave no usable record{reasons}")
        targets = {
            name: np.lib.format.open_memmap(self.folder / f"{name}.npy", "w+", kind, (sum(counts), *shape))
            for name, (kind, shape) in row_arrays(self.skeleton.count).items()
        }
        cameras: dict[str, str] = {}  # camera as text -> id
        seen: set[str] = set()
        with (self.folder / "index.jsonl").open("w", encoding="utf-8") as index:
            for path, count in zip(files, counts, strict=True):
                with np.load(path) as part:
                    text = json.loads(part["text"].tobytes())
                    for name, target in targets.items():
                        target[len(seen) : len(seen) + count] = part[name]
                self.skipped += text["skipped"]
                for line in text["lines"]:
                    if line["id"] in seen:
                        raise InputError(f"the id {line['id']} occurs twice (again in {unquote(path.stem)})")
                    seen.add(line["id"])
                    if line["camera"] is not None:
                        line["camera"] = cameras.setdefault(json.dumps(line["camera"]), str(len(cameras)))
                    index.write(json.dumps(line, separators=(",", ":")) + "\n")
        for target in targets.values():
            target.flush()
        write_json(self.folder / "cameras.json", {key: json.loads(text) for text, key in cameras.items()}, None)
        write_json(self.folder / "dataset.json", self.header | {"count": len(seen), "skipped": self.skipped})
        shutil.rmtree(self.parts)
        return self.folder
