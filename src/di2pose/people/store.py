"""Rendered people on disk: shards of 500 pictures, each written whole, and the class that reads them.

people.json           what was rendered: seed, split, motion, renderer version, names of the classes
shards/00000.jpgs     the JPEG files one after the other
shards/00000.npz      labels, a row per picture, and `offsets` of the JPEGs; written last: a shard that has it is whole
"""

import io
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.pose.camera import Camera

SIZE = 256
"""Pixels along a side of a picture."""
SHARD = 500
"""Pictures in a shard, if not said otherwise."""
FORMAT_VERSION = 1
HEADER = "people.json"


class People:
    """A folder of rendered people: `len`, `image(i)`, `labels(name)`, `to_sample(i)`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / HEADER
        if not path.is_file():
            raise InputError(f"{self.folder} holds no {HEADER}: expected a folder that `di2pose people render` wrote")
        self.header: dict[str, Any] = json.loads(path.read_text())
        if self.header["format_version"] != FORMAT_VERSION:
            raise InputError(
                f"{path} has format {self.header['format_version']}, we read {FORMAT_VERSION}: render it again"
            )
        self._files = sorted((self.folder / "shards").glob("?????.npz"))
        if [file.stem for file in self._files] != [f"{number:05d}" for number in range(len(self._files))]:
            raise InputError(
                f"{self.folder} has gaps between its shards: run the same `people render` again to fill them"
            )

    @cached_property
    def _labels(self) -> dict[str, np.ndarray]:
        shards = []
        for file in self._files:
            with np.load(file) as arrays:
                shards.append({name: arrays[name] for name in arrays.files if name != "offsets"})
        if not shards:
            raise InputError(f"{self.folder} has no finished shard yet")
        return {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}

    @cached_property
    def _offsets(self) -> list[np.ndarray]:
        out = []
        for file in self._files:
            with np.load(file) as arrays:
                out.append(arrays["offsets"])
        return out

    def __len__(self) -> int:
        return len(self._labels["frame"])

    def labels(self, name: str) -> np.ndarray:
        """One label of every picture, e.g. joints_mm (n, 17, 3), visibility (n, 17), pose_class (n,)."""
        if name not in self._labels:
            raise InputError(f"no label '{name}'; there are {', '.join(self._labels)}")
        return self._labels[name]

    def names(self, label: str) -> tuple[str, ...]:
        """The words behind the numbers of `pose_class`, `occlusion` and `crop`."""
        return tuple(self.header[label])

    def image(self, index: int) -> UInt8[np.ndarray, "256 256 3"]:
        shard, row = divmod(range(len(self))[index], self.header["shard"])
        path = self._files[shard].with_suffix(".jpgs")
        start, stop = self._offsets[shard][row : row + 2]
        with path.open("rb") as file:
            file.seek(int(start))
            return decode(file.read(int(stop - start)))

    def to_sample(self, index: int) -> Sample:
        """The picture as a record; its pixels come from `image(index)`."""
        index = range(len(self))[index]
        row = {name: values[index] for name, values in self._labels.items()}
        focal = float(row["focal"])
        shard, place = divmod(index, self.header["shard"])
        words = {label: self.names(label)[int(row[label])] for label in ("pose_class", "occlusion", "crop")}
        split = str(self.header["split"])
        numbers = ("roll", "yaw", "pitch", "distance_m", "photo_fov", "side_ratio", "stature_m", "hidden")
        return Sample(
            id=f"people_{split}_{self.header['seed']}_{index:07d}",
            joints_mm=row["joints_mm"],
            root_mm=row["root_mm"],
            joints_2d=row["joints_2d"],
            visibility=row["visibility"],
            image=f"shards/{shard:05d}.jpgs#{place}",
            box=(0.0, 0.0, float(SIZE), float(SIZE)),
            camera=Camera(focal=(focal, focal), centre=(SIZE / 2, SIZE / 2), size=(SIZE, SIZE)),
            subject=str(row["subject"]),
            action=words["pose_class"],
            sequence=str(row["clip"]),
            frame=int(row["frame"]),
            split=split,
            extra={
                **words,
                **{name: float(row[name]) for name in numbers},
                "truncated": bool(row["truncated"]),
                "wardrobe": str(row["wardrobe"]).split(),
                "person": int(row["person"]),
            },
        )


def decode(jpeg: bytes) -> UInt8[np.ndarray, "256 256 3"]:
    return np.asarray(Image.open(io.BytesIO(jpeg)))


def shard_path(folder: Path, number: int) -> Path:
    return folder / "shards" / f"{number:05d}.npz"


def is_whole(folder: Path, number: int, rows: int) -> bool:
    """Is this shard there with at least so many pictures?"""
    path = shard_path(folder, number)
    if not path.is_file():
        return False
    with np.load(path) as arrays:
        return len(arrays["frame"]) >= rows


def write_shard(
    folder: Path,
    number: int,
    jpegs: Sequence[bytes],
    labels: Sequence[Mapping[str, Any]],
) -> None:
    """Write one shard; every file gets its name only when it is whole, the labels last."""
    target = shard_path(folder, number)
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = f".{os.getpid()}.tmp"
    scratch = target.with_suffix(f".jpgs{mark}")
    scratch.write_bytes(b"".join(jpegs))
    os.replace(scratch, target.with_suffix(".jpgs"))
    columns = {name: np.array([row[name] for row in labels]) for name in labels[0]}
    sizes = [0, *map(len, jpegs)]
    scratch = target.with_suffix(f".npz{mark}")
    with scratch.open("wb") as file:
        np.savez(file, **{"offsets": np.cumsum(sizes), **columns})  # type: ignore[arg-type]
    os.replace(scratch, target)
