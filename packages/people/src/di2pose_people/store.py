"""What this room keeps on disk: caches that are built once a machine, and rendered people as a prepared dataset.

A set of rendered people is a prepared dataset (`di2pose.data.sample`) and two things more:

    people.json                     what was rendered: seed, split, motion, ...; written first, compared by later runs
    pictures/0000/0000012.jpg       the 256 x 256 crop of record 12

The labels that other datasets lack are in the records' `extra`.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from di2pose.assets import cache_dir
from di2pose.data.sample import Dataset
from di2pose.errors import InputError
from di2pose.files import write_json

HEADER = "people.json"


class People(Dataset):
    """A prepared dataset that `di2pose people render` wrote: its records, and their labels as columns."""

    def __init__(self, folder: Path | str) -> None:
        path = Path(folder) / HEADER
        if not path.is_file():
            raise InputError(f"{folder} holds no {HEADER}: expected a folder that `di2pose people render` wrote")
        if not (path.parent / "dataset.json").is_file():
            raise InputError(f"{folder} holds an unfinished set: run the same `people render` again to finish it")
        super().__init__(folder)

    def labels(self, name: str) -> np.ndarray:
        """One label of every record: an array of the dataset, e.g. joints_mm (n, 17, 3), or a key of `extra`."""
        if name in ("joints_mm", "root_mm", "joints_2d", "visibility", "box"):
            return np.asarray(getattr(self, name))
        known = self.index[0]["extra"]
        if name not in known:
            raise InputError(f"no label '{name}'; there are {', '.join(known)}")
        return np.array([line["extra"][name] for line in self.index])


def picture_path(number: int) -> str:
    """Where picture `number` is below the set's folder."""
    return f"pictures/{number // 1000:04d}/{number:07d}.jpg"


def agree(folder: Path, settings: dict[str, object]) -> None:
    """Write people.json before anything else, or compare it: a folder that holds another set is refused."""
    path = folder / HEADER
    if not path.is_file():
        write_json(path, settings)
        return
    found = json.loads(path.read_text())
    differing = [key for key in {**settings, **found} if found.get(key) != settings.get(key)]
    if differing:
        wrong = "; ".join(f"{key} {found.get(key)!r}, not {settings.get(key)!r}" for key in differing)
        raise InputError(f"{folder} holds another set ({wrong[:300]}): choose an empty --out, or the same flags")


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Folder `name` of the cache. The first call ever on a machine has `build` fill it; it appears whole or not."""
    folder = cache_dir() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        new = Path(scratch) / name
        new.mkdir()
        build(new)
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first: its folder is the same
                raise
    return folder
