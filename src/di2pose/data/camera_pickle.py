"""Cameras as mmpose's converters pickle them: a dictionary key -> f, c (2 1), k (3 1), p (2 1), w, h.

Human3.6M's key is ('S1', '54138969'), MPI-INF-3DHP's 'TS1' or 'S4_Seq2_Cam0'. R and T are not read: the poses beside it
are in the camera frame already.
"""

from pathlib import Path
from typing import Any

import numpy as np

from di2pose.data.numpy_pickle import load_pickle, text
from di2pose.data.record import Sources
from di2pose.errors import InputError
from di2pose.pose.camera import Camera

CameraKey = tuple[str, ...]
FILES = "cameras*.pkl"


def find_cameras(sources: Sources, folders: list[Path]) -> dict[CameraKey, Camera] | None:
    """Those of --cameras (a file or a folder), else of the first of `folders`, or the folder above it, that has camera
    files; None where there is none. Several files (train, test) are taken together."""
    if sources.cameras is not None and sources.cameras.is_file():
        return load_cameras(sources.cameras)
    places = [place for folder in folders for place in (folder, folder.parent)]
    for place in [*places, sources.src] if sources.cameras is None else [sources.cameras]:
        if found := sorted(place.glob(FILES)):
            return {key: camera for path in found for key, camera in load_cameras(path).items()}
    if sources.cameras is not None:
        raise InputError(f"--cameras {sources.cameras}: neither a file nor a folder with {FILES}")
    return None


def load_cameras(path: Path) -> dict[CameraKey, Camera]:
    """The cameras of a pickle: keys ('S1', '54138969') or 'TS1', whether written as str, bytes or int."""
    cameras = load_pickle(path)
    if not isinstance(cameras, dict) or not cameras:
        raise InputError(f"{path}: a dictionary of cameras expected, got {type(cameras).__name__}")
    return {_key(key): _camera(value, f"{path}: camera {key}") for key, value in cameras.items()}


def _key(key: Any) -> CameraKey:
    words = [text(word) for word in key] if isinstance(key, tuple | list) else [text(key)]
    if len(words) == 2 and words[0].isdecimal():
        words[0] = f"S{words[0]}"
    return tuple(words)


def _camera(value: Any, where: str) -> Camera:
    if not isinstance(value, dict) or not {"f", "c"} <= set(value):
        raise InputError(f"{where}: 'f' and 'c' expected, got {list(value) if isinstance(value, dict) else value!r}")
    try:
        numbers = {name: np.asarray(value.get(name, ()), np.float64).ravel() for name in "fckp"}
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: f, c, k and p must be numbers ({error})") from error
    f, c, k, p = numbers.values()
    distortion: tuple[float, ...] = ()
    if (len(f), len(c)) != (2, 2) or len(k) not in (0, 2, 3) or len(p) not in (0, 2):
        raise InputError(f"{where}: 2 numbers in f and c, 2 or 3 in k, 2 in p expected, got {numbers}")
    if len(k) or len(p):
        k, p = np.pad(k, (0, 3 - len(k))), np.pad(p, (0, 2 - len(p)))
        distortion = (float(k[0]), float(k[1]), float(p[0]), float(p[1]), float(k[2]))
    size = (int(value["w"]), int(value["h"])) if {"w", "h"} <= set(value) else None
    return Camera((float(f[0]), float(f[1])), (float(c[0]), float(c[1])), size, distortion)
