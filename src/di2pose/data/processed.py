"""The processed layout of Human3.6M and MPI-INF-3DHP that mmpose's converters write.

An npz with a row per picture, and a pickle of cameras whose key is ('S1', '54138969') in Human3.6M, 'TS1' or
'S4_Seq2_Cam0' in MPI-INF-3DHP. docs/data.md lists what they hold and what of it is read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from di2pose.data.frames import picture_size
from di2pose.data.pickles import load_npz, load_pickle, text
from di2pose.data.sample import Extra, Labels, Part, Sample, Sources, square
from di2pose.errors import InputError
from di2pose.files import reading
from di2pose.pose.camera import Camera, CameraFit, fit_camera
from di2pose.pose.skeleton import H36M_17, Skeleton, convert

MOST_MEDIAN_PX = 20.0
"""Beyond this the 3D is in another frame or unit, or the camera is another one: not noise of annotation."""
CAMERA_FILES = "cameras*.pkl"
CameraKey = tuple[str, ...]
Cameras = Mapping[CameraKey, Camera]


@dataclass(frozen=True)
class PictureName:
    """What a picture's file name holds."""

    camera: CameraKey
    frame: int
    labels: Labels
    """subject, action, sequence and split"""
    size: tuple[int, int]
    """(width, height) of the dataset's pictures; a picture's own size, where there is one, is taken instead."""


def find(sources: Sources, *folders: str) -> list[Path]:
    """The npz files: those of --annotations or --src, or of the first of the folders below it that has any."""
    place = sources.annotations or sources.src
    if place.is_file():
        return [place] if place.suffix == ".npz" else []
    candidates = [found for folder in folders for found in sorted(place.glob(folder), reverse=True)]
    return next(filter(None, (sorted(folder.glob("*.npz")) for folder in [*candidates, place])), [])


def read(
    sources: Sources, files: list[Path], skeleton: Skeleton, parse: Callable[[str], PictureName]
) -> Iterator[Part]:
    """One part per sequence and npz file, of joints on `skeleton`; `parse` takes the name of a picture."""
    cameras = _find_cameras(sources, files[0].parent)
    for path in files:
        try:
            arrays = _load(path, skeleton)
        except InputError as error:
            yield Part(path.name, partial(_refuse, error))
            continue
        sequences: dict[str, list[tuple[int, PictureName]]] = {}
        for row, file in enumerate(arrays["imgname"]):
            try:
                name = parse(PurePosixPath(file).name)
                sequences.setdefault(name.labels["sequence"], []).append((row, name))
            except InputError as error:
                yield Part(file, partial(_refuse, error))
        for sequence, rows in sequences.items():
            rows.sort(key=lambda item: item[1].frame)
            key = f"{path.stem}/{sequence}"
            yield Part(key, partial(_samples, sources, skeleton, arrays, cameras, rows, f"{path}: {sequence}"))


def _refuse(error: InputError) -> Iterator[Sample]:
    """Of a part that was found to be damaged before its turn."""
    raise error


def _load(path: Path, skeleton: Skeleton) -> dict[str, Any]:
    """The arrays, checked; imgname as a list of text."""
    arrays = load_npz(path, ["imgname", "S", "part"], ["center", "scale"])
    arrays["imgname"] = [text(name).replace("\\", "/") for name in np.atleast_1d(arrays["imgname"])]
    count, joints = len(arrays["imgname"]), skeleton.count
    if not count:
        raise InputError(f"{path} has no rows")
    shapes = {"S": (count, joints, 3), "part": (count, joints, 2), "center": (count, 2), "scale": (count,)}
    for name, shape in shapes.items():
        found = np.shape(arrays.get(name, np.empty(shape)))
        flagged = (*shape[:-1], shape[-1] + 1) if len(shape) == 3 else shape
        if found not in (shape, flagged):
            raise InputError(
                f"{path}: '{name}' has shape {found}, expected {shape} or {flagged}: the {joints} joints of "
                f"{skeleton.name} in a row per name"
            )
    if arrays["S"].dtype.kind != "f" or np.nanmedian(np.ptp(arrays["S"][:2000, :, :3], axis=1)) > 20:
        raise InputError(f"{path}: 'S' must be metres, but a person in it is more than 20 units large")
    return arrays


def _samples(
    sources: Sources,
    skeleton: Skeleton,
    arrays: dict[str, Any],
    cameras: Cameras | None,
    items: list[tuple[int, PictureName]],
    where: str,
) -> Iterator[Sample]:
    rows, first, files = [row for row, _ in items], items[0][1], arrays["imgname"]
    camera_mm, _ = convert(arrays["S"][rows, :, :3].astype(np.float64) * 1000, skeleton, H36M_17)
    pixels, _ = convert(arrays["part"][rows, :, :2].astype(np.float64), skeleton, H36M_17)
    folder = sources.image_folder("images")
    size = first.size if folder is None else picture_size(sources.image_root / folder / files[rows[0]]) or first.size
    camera, extra = _camera_of(cameras, first.camera, camera_mm, pixels)
    if camera is not None:
        camera = replace(camera, size=size)
        error = np.linalg.norm(camera.project(camera_mm) - pixels, axis=-1)
        if not np.isfinite(error).any() or np.nanmedian(error) > MOST_MEDIAN_PX:
            raise InputError(
                f"{where}: the 3D joints do not project onto the 2D joints: 'S' must be in the camera frame, in "
                f"metres, and the camera of {'/'.join(first.camera)} must be its own"
            )
    for at in range(0, len(items), sources.every):
        row, name = items[at]
        box = None
        if "center" in arrays and "scale" in arrays:
            box = square(arrays["center"][row], 200 * float(arrays["scale"][row]))
        image = None if folder is None else folder + files[row]
        labels = name.labels | Labels(image=image, frame=name.frame, extra=extra)
        id = f"{name.labels['sequence']}_{name.frame + 1:06d}"
        yield Sample.from_camera(id, camera_mm[at], pixels[at], camera, box, **labels)


def fit_clip(
    joints_mm: np.ndarray, joints_2d: np.ndarray, size: tuple[int, int], most_px: float, where: object
) -> CameraFit:
    """The camera that takes the 3D joints of a clip to its 2D joints; InputError where none does."""
    if len(joints_mm) != len(joints_2d):
        raise InputError(f"{where}: {len(joints_mm)} frames in 3D, {len(joints_2d)} in 2D")
    fit = fit_camera(joints_mm.reshape(-1, 3), joints_2d.reshape(-1, 2), size)
    if fit.mean_px > most_px:
        raise InputError(f"{where}: no camera takes its 3D to its 2D: the best is {fit.mean_px:.2f} px off on average")
    return fit


def _camera_of(
    cameras: Cameras | None, key: CameraKey, camera_mm: np.ndarray, pixels: np.ndarray
) -> tuple[Camera | None, Extra]:
    """The camera of the file; without a file the one that takes the 3D to the 2D, and a note about it."""
    if cameras is not None:
        if key not in cameras:
            known = ", ".join("/".join(other) for other in list(cameras)[:8])
            raise InputError(f"the camera file has no camera {'/'.join(key)}; it has {known}, ...")
        return cameras[key], {}
    try:
        fit = fit_camera(camera_mm.reshape(-1, 3), pixels.reshape(-1, 2))
    except InputError as error:
        return None, {"camera": f"not given, and {error}"}
    return fit.camera, fit.to_json()


def _find_cameras(sources: Sources, folder: Path) -> Cameras | None:
    """Of --cameras (a file or a folder), else beside the npz files, one folder up or in --src; None where there is no
    camera file. Several (train, test) are taken together."""
    places = [folder, folder.parent, sources.src] if sources.cameras is None else [sources.cameras]
    for place in places:
        if files := [place] if place.is_file() else sorted(place.glob(CAMERA_FILES)):
            return {key: camera for path in files for key, camera in _load_cameras(path).items()}
    if sources.cameras is not None:
        raise InputError(f"--cameras {sources.cameras}: neither a file nor a folder with {CAMERA_FILES}")
    return None


def _load_cameras(path: Path) -> Cameras:
    with reading(path, "expected a dictionary of cameras with f, c, k and p, as mmpose writes it"):
        return {
            tuple(map(text, key)) if isinstance(key, tuple) else (text(key),): _camera(record)
            for key, record in load_pickle(path).items()
        }


def _camera(record: Mapping[str, object]) -> Camera:
    f, c, k, p = (np.ravel(np.asarray(record.get(name, ()), np.float64)).tolist() for name in "fckp")
    (fx, fy), (cx, cy) = f, c
    (k1, k2, k3), (p1, p2) = k or (0.0,) * 3, p or (0.0,) * 2
    return Camera((fx, fy), (cx, cy), None, (k1, k2, p1, p2, k3) if k or p else ())
