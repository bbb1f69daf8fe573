"""Dataset: a prepared folder, memory-mapped."""

import json
import mmap
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from PIL import Image

from di2pose.data.frames import Frames
from di2pose.data.record import ARRAYS, FORMAT_VERSION, UNKNOWN, Sample, row_shape
from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import get


class Index(Sequence[dict[str, Any]]):
    """The lines of index.jsonl, parsed when asked for."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends = np.flatnonzero(np.frombuffer(self._text, np.uint8) == ord("\n"))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, i: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, i: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, i: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        start = 0 if i == 0 else int(self._ends[i - 1]) + 1
        return json.loads(self._text[start : int(self._ends[i])])


class Dataset:
    """A prepared folder: a sequence of Samples. `image_root` overrides where the images are looked for."""

    def __init__(self, folder: Path | str, image_root: Path | str | None = None) -> None:
        self.folder, self._image_root = Path(folder), image_root
        path = self.folder / "dataset.json"
        if not path.exists():
            state = "an unfinished preparation" if (self.folder / "parts.tmp").exists() else "no dataset.json"
            raise InputError(f"{self.folder} holds {state}: make it with `di2pose data prepare NAME --out {folder}`")
        self.header: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if self.header["format_version"] != FORMAT_VERSION:
            raise InputError(
                f"{path}: format version {self.header['format_version']}, this program reads {FORMAT_VERSION}: "
                "prepare it again"
            )
        self.name: str = self.header["name"]
        self.skeleton = get(self.header["skeleton"])
        for name in ARRAYS:
            array = self._open(name)
            expected = (self.header["count"], *row_shape(name, self.skeleton.count))
            if array.shape != expected:
                raise InputError(
                    f"{name}.npy in {folder} has shape {array.shape}, expected {expected}: prepare it again"
                )
            setattr(self, name, array)
        if len(self.index) != len(self):
            raise InputError(
                f"index.jsonl in {folder} has {len(self.index)} lines for {len(self)} records: prepare it again"
            )

    joints_mm: np.ndarray
    root_mm: np.ndarray
    joints_2d: np.ndarray
    valid: np.ndarray
    visibility: np.ndarray
    box: np.ndarray

    def _open(self, name: str) -> np.ndarray:
        try:
            return np.load(self.folder / f"{name}.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{name}.npy in {self.folder} cannot be read ({error}): prepare the dataset again"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self.folder, self._image_root)  # workers map the files again instead of copying them

    @cached_property
    def index(self) -> Index:
        return Index(self.folder / "index.jsonl")

    @cached_property
    def cameras(self) -> dict[str, Camera]:
        text = (self.folder / "cameras.json").read_text(encoding="utf-8")
        return {key: Camera.from_json(value) for key, value in json.loads(text).items()}

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        names = ("subject", "action", "sequence", "split")
        rows = [[line[name] for name in names] for line in self.index]
        return {name: np.array([row[k] for row in rows]) for k, name in enumerate(names)}

    def column(self, name: str) -> np.ndarray:
        """subject, action, sequence or split of every record, as an array of strings."""
        if name not in self._columns:
            raise InputError(f"no column '{name}': choose from {', '.join(self._columns)}")
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
        root_mm, joints_2d, visibility, box = (
            np.array(array[i]) for array in (self.root_mm, self.joints_2d, self.visibility, self.box)
        )
        return Sample(
            **{key: line[key] for key in ("id", "image", "subject", "action", "sequence", "frame", "split", "extra")},
            joints_mm=np.array(self.joints_mm[i]),
            valid=np.array(self.valid[i]),
            root_mm=None if np.isnan(root_mm).any() else root_mm,
            joints_2d=None if np.isnan(joints_2d).all() else joints_2d,
            visibility=None if (visibility == UNKNOWN).all() else visibility,
            box=None if np.isnan(box).any() else (float(box[0]), float(box[1]), float(box[2]), float(box[3])),
            camera=None if line["camera"] is None else self.cameras[line["camera"]],
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
