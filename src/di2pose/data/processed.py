"""The processed layout of Human3.6M and MPI-INF-3DHP that mmpose's converters write.

An npz with a row per picture, and a pickle of cameras:

    imgname  n           file names that tell subject, action, camera and frame (from 1)
    S        n 17 4 (3)  metres in the CAMERA frame; the last column is a flag and is not read
    part     n 17 3 (2)  pixels of the full picture; the last column is a flag and is not read
    center   n 2         with scale (n) the box: a square of side 200 * scale
    cameras.pkl          see camera_pickle.py
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Float

from di2pose.data.annotation import failed, record, square, thin
from di2pose.data.camera_pickle import CameraKey, find_cameras
from di2pose.data.human36m_names import CAMERA_SIZES, Clip
from di2pose.data.intrinsics import fit_camera
from di2pose.data.numpy_pickle import load_npz, text
from di2pose.data.record import Part, Sample, Skip, Sources
from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, MPI_INF_3DHP_17, Skeleton, convert

MOST_MEDIAN_PX = 20.0
"""Beyond this the 3D is in another frame or unit, or the camera is another one: not noise of annotation."""


@dataclass(frozen=True)
class Name:
    """What a picture's file name tells."""

    camera: CameraKey
    subject: str
    action: str
    sequence: str
    frame: int
    split: str
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Layout:
    """How one dataset fills the common layout."""

    title: str
    skeleton: Skeleton
    parse: Callable[[str], Name]
    folders: tuple[str, ...]
    """Where the npz files are looked for below the source folder, first come."""


def parse_human36m(file: str) -> Name:
    """From 'S1_Directions_1.54138969_000001.jpg'."""
    match = re.fullmatch(r"(S\d+)_(.+\.\d+)_(\d+)\.\w+", file)
    clip = None if match is None else Clip.parse(match[1], match[2])
    if match is None or clip is None:
        raise InputError(f"'{file}' is not a name like S1_Directions_1.54138969_000001.jpg")
    frame = int(match[3]) - 1
    key, size = (clip.subject, clip.camera), CAMERA_SIZES[clip.camera]
    return Name(key, clip.subject, clip.action, clip.sequence, frame, clip.split, size)


def parse_mpi_inf_3dhp(file: str) -> Name:
    """From 'S4_Seq2_Cam0_001033.jpg' (training) or 'TS1_002001.jpg' (test)."""
    match = re.fullmatch(r"((?:(S\d+)_(Seq\d+)_Cam\d+)|(TS\d+))_(\d+)\.\w+", file)
    if match is None:
        raise InputError(f"'{file}' is not a name like S4_Seq2_Cam0_001033.jpg or TS1_002001.jpg")
    sequence, subject, take, test, frame = match.groups()
    return Name((sequence,), subject or test, take or "", sequence, int(frame) - 1, "test" if test else "train")


HUMAN36M = Layout(
    "Human3.6M",
    H36M_17,
    parse_human36m,
    ("annotation_body3d/fps50", "annotation_body3d/fps*", "fps50", "fps*", "annotations", "."),
)
MPI_INF_3DHP = Layout("MPI-INF-3DHP", MPI_INF_3DHP_17, parse_mpi_inf_3dhp, ("annotations", "."))


def find(sources: Sources, layout: Layout) -> list[Path]:
    """The npz files: those of --annotations, or of the first of the layout's folders that has any."""
    place = sources.src if sources.annotations is None else sources.annotations
    if place.is_file():
        return [place] if place.suffix == ".npz" else []
    for folder in layout.folders:
        for candidate in sorted(place.glob(folder), reverse=True) if folder != "." else [place]:
            if files := sorted(candidate.glob("*.npz")):
                return files
    return []


def read(sources: Sources, layout: Layout, files: list[Path]) -> Iterator[Part]:
    """One part per sequence and npz file."""
    cameras = find_cameras(sources, [path.parent for path in files])
    for path in files:
        table = _Table(path, layout, sources, cameras)
        try:
            sequences, _ = table.sequences, table.arrays
        except InputError as error:
            yield failed(path.name, error)
            continue
        for sequence in sequences:
            yield Part(f"{path.stem}/{sequence}", partial(table.samples, sequence))


class _Table:
    """One npz file."""

    def __init__(self, path: Path, layout: Layout, sources: Sources, cameras: dict[CameraKey, Camera] | None) -> None:
        self.path, self.layout, self.sources, self.cameras = path, layout, sources, cameras

    @cached_property
    def files(self) -> list[str]:
        names = load_npz(self.path, ["imgname"])["imgname"]
        return [text(name).replace("\\", "/") for name in np.atleast_1d(names)]

    @cached_property
    def sequences(self) -> dict[str, list[tuple[int, Name | str]]]:
        """Sequence -> its rows, by frame. Rows with a name that tells nothing stand under their own name."""
        found: dict[str, list[tuple[int, Name | str]]] = {}
        for row, file in enumerate(self.files):
            try:
                name = self.layout.parse(PurePosixPath(file).name)
                found.setdefault(name.sequence, []).append((row, name))
            except InputError as error:
                found.setdefault(file, []).append((row, str(error)))
        for rows in found.values():
            rows.sort(key=lambda item: item[1].frame if isinstance(item[1], Name) else -1)
        if not found:
            raise InputError(f"{self.path} has no rows")
        return found

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        arrays = load_npz(self.path, ["S", "part"], ["center", "scale"])
        count, joints = len(self.files), self.layout.skeleton.count
        for name, widths in (("S", (3, 4)), ("part", (2, 3))):
            shape = arrays[name].shape
            if shape not in [(count, joints, width) for width in widths]:
                raise InputError(
                    f"{self.path}: '{name}' has shape {shape}, expected ({count}, {joints}, {widths[0]} or {widths[1]})"
                    f": the {joints} joints of {self.layout.title} in a row per name"
                )
        if arrays["S"].dtype.kind != "f" or np.nanmedian(np.ptp(arrays["S"][:2000, :, :3], axis=1)) > 20:
            raise InputError(f"{self.path}: 'S' must be metres, but a person in it is more than 20 units large")
        if "center" in arrays and "scale" in arrays:
            if arrays["center"].shape != (count, 2) or arrays["scale"].size != count:
                raise InputError(
                    f"{self.path}: 'center' ({count}, 2) and 'scale' ({count},) expected, got "
                    f"{arrays['center'].shape} and {arrays['scale'].shape}"
                )
            arrays["scale"] = arrays["scale"].reshape(count)
        return arrays

    def joints(self, rows: list[int]) -> tuple[Float[np.ndarray, "n 17 3"], Float[np.ndarray, "n 17 2"]]:
        """H36M's joints of these rows in the camera frame, mm, and in pixels."""
        camera_mm, _ = convert(self.arrays["S"][rows, :, :3].astype(np.float64) * 1000, self.layout.skeleton, H36M_17)
        pixels, _ = convert(self.arrays["part"][rows, :, :2].astype(np.float64), self.layout.skeleton, H36M_17)
        return camera_mm, pixels

    @cached_property
    def place(self) -> Callable[[str], str | None]:
        """From a name in the npz to the path below the image root: pictures may lie in images/ or without folders. None
        where there are none and the user named no place for them."""
        root = self.sources.image_root
        ways: list[Callable[[str], str]] = [
            lambda file: file,
            lambda file: f"images/{file}",
            lambda file: PurePosixPath(file).name,
            lambda file: f"images/{PurePosixPath(file).name}",
        ]
        for way in ways:
            if any((root / way(file)).exists() for file in self.files[:20]):
                return way
        if (root / "images").is_dir():
            return ways[1]
        return ways[0] if self.sources.images is not None else lambda file: None

    @cached_property
    def fitted(self) -> dict[str, tuple[Camera, dict[str, float]] | str]:
        """Without a camera file: what each camera (by its last word) must be to take the 3D to the 2D, or why not."""
        rows: dict[str, list[int]] = {}
        sizes: dict[str, tuple[int, int] | None] = {}
        for items in self.sequences.values():
            for row, name in items:
                if isinstance(name, Name):
                    rows.setdefault(name.camera[-1], []).append(row)
                    sizes[name.camera[-1]] = name.size
        found: dict[str, tuple[Camera, dict[str, float]] | str] = {}
        for key, chosen in rows.items():
            points, pixels = self.joints(chosen)
            try:
                fit = fit_camera(points.reshape(-1, 3), pixels.reshape(-1, 2), sizes[key])
            except InputError as error:
                found[key] = str(error)
            else:
                found[key] = fit.camera, {"camera_fit_mean_px": fit.mean_px, "camera_fit_largest_px": fit.largest_px}
        return found

    def camera(self, key: CameraKey) -> tuple[Camera | None, dict[str, Any]]:
        """The camera and what to note about it; InputError where the camera file lacks it."""
        if self.cameras is None:
            fitted = self.fitted[key[-1]]
            return (None, {"camera": f"not given, and {fitted}"}) if isinstance(fitted, str) else fitted
        if key not in self.cameras:
            known = ", ".join("/".join(other) for other in list(self.cameras)[:8])
            raise InputError(f"the camera file has no camera {'/'.join(key)}; it has {known}, ...")
        return self.cameras[key], {}

    def samples(self, sequence: str) -> Iterator[Sample | Skip]:
        items = self.sequences[sequence]
        rows = [row for row, name in items if isinstance(name, Name)]
        yield from (Skip(self.files[row], name) for row, name in items if isinstance(name, str))
        names = [name for _, name in items if isinstance(name, Name)]
        if not names:
            return
        camera, extra = self.camera(names[0].camera)
        camera_mm, pixels = self.joints(rows)
        if camera is not None:
            error = np.linalg.norm(camera.project(camera_mm) - pixels, axis=-1)
            if not np.isfinite(error).any() or np.nanmedian(error) > MOST_MEDIAN_PX:
                raise InputError(
                    f"{self.path}: the 3D joints of {sequence} do not project onto its 2D joints: 'S' must be in the "
                    f"camera frame, in metres, and the camera of {'/'.join(names[0].camera)} must be its own"
                )
        for at in thin(len(rows), self.sources.every).tolist():
            row, name = rows[at], names[at]
            box = None
            if "center" in self.arrays and "scale" in self.arrays:
                box = square(self.arrays["center"][row], 200 * float(self.arrays["scale"][row]))
            yield record(
                f"{name.sequence}_{name.frame + 1:06d}",
                camera_mm[at],
                pixels[at],
                camera,
                box,
                image=self.place(self.files[row]),
                subject=name.subject,
                action=name.action,
                sequence=name.sequence,
                frame=name.frame,
                split=name.split,
                extra=dict(extra),
            )
