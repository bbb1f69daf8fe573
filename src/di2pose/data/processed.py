"""The processed layout of Human3.6M and MPI-INF-3DHP that mmpose's converters write.

An npz with a row per picture, and a pickle of cameras:

    imgname  n           file names that tell subject, action, camera and frame (from 1)
    S        n 17 4 (3)  metres in the CAMERA frame; the last column is a flag and is not read
    part     n 17 3 (2)  pixels of the full picture; the last column is a flag and is not read
    center   n 2         with scale (n) the box: a square of side 200 * scale
    cameras.pkl          key -> f, c (2 1), k (3 1), p (2 1), w, h. Human3.6M's key is ('S1', '54138969'), that of
                         MPI-INF-3DHP 'TS1' or 'S4_Seq2_Cam0'. R and T are not read: S is in the camera frame already
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Float
from PIL import Image, UnidentifiedImageError

from di2pose.data.pickles import load_npz, load_pickle, text
from di2pose.data.record import Extra, Labels, Part, Sample, Skip, Sources, square
from di2pose.errors import InputError
from di2pose.pose.camera import Camera, fit_camera
from di2pose.pose.skeleton import H36M_17, Skeleton, convert

MOST_MEDIAN_PX = 20.0
"""Beyond this the 3D is in another frame or unit, or the camera is another one: not noise of annotation."""
MOST_TRIED = 20
"""Pictures of a sequence that are tried until one exists."""
MOST_CENTRE = 1.5
"""A principal point this many times beyond the picture's edge: the size in the camera file is wrong."""
CAMERA_FILES = "cameras*.pkl"
CameraKey = tuple[str, ...]


@dataclass(frozen=True)
class PictureName:
    """What a picture's file name holds."""

    camera: CameraKey
    frame: int
    labels: Labels
    """subject, action, sequence and split"""
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class ProcessedLayout:
    """How one dataset fills the common layout."""

    title: str
    skeleton: Skeleton
    parse: Callable[[str], PictureName]
    folders: tuple[str, ...]
    """Folders below the source folder that may hold the npz files, the first that does is taken."""


def find(sources: Sources, layout: ProcessedLayout) -> list[Path]:
    """The npz files: those of --annotations, or of the first of the layout's folders that has any."""
    place = sources.annotations or sources.src
    if place.is_file():
        return [place] if place.suffix == ".npz" else []
    for folder in layout.folders:
        for candidate in sorted(place.glob(folder), reverse=True) if folder != "." else [place]:
            if files := sorted(candidate.glob("*.npz")):
                return files
    return []


def read(sources: Sources, layout: ProcessedLayout, files: list[Path]) -> Iterator[Part]:
    """One part per sequence and npz file."""
    cameras = _find_cameras(sources, [path.parent for path in files])
    tables: list[_Table] = []
    pictures: Counter[str] = Counter()
    for path in files:
        table = _Table(path, layout, sources, cameras)
        try:
            _ = table.sequences, table.arrays
        except InputError as error:
            yield Part.unreadable(path.name, error)
            continue
        tables.append(table)
        pictures.update({PurePosixPath(file).name for file in table.files})
    for table in tables:  # e.g. all and the valid frames of one test set: both are kept, by the files' names
        table.shared = any(pictures[PurePosixPath(file).name] > 1 for file in table.files)
        for sequence in table.sequences:
            yield Part(f"{table.path.stem}/{sequence}", partial(table.samples, sequence))


@dataclass(eq=False)
class _Table:
    """One npz file."""

    path: Path
    layout: ProcessedLayout
    sources: Sources
    cameras: Mapping[CameraKey, Camera] | None
    shared: bool = False
    """Some of its pictures are in another file too: the ids begin with the file's name."""

    @cached_property
    def files(self) -> list[str]:
        names = load_npz(self.path, ["imgname"])["imgname"]
        return [text(name).replace("\\", "/") for name in np.atleast_1d(names)]

    @cached_property
    def sequences(self) -> dict[str, list[tuple[int, PictureName | str]]]:
        """Sequence -> its rows, by frame. Rows whose name cannot be parsed stand under that name."""
        found: dict[str, list[tuple[int, PictureName | str]]] = {}
        for row, file in enumerate(self.files):
            try:
                name = self.layout.parse(PurePosixPath(file).name)
                found.setdefault(name.labels["sequence"], []).append((row, name))
            except InputError as error:
                found.setdefault(file, []).append((row, str(error)))
        for rows in found.values():
            rows.sort(key=lambda item: -1 if isinstance(item[1], str) else item[1].frame)
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
            if any((root / way(file)).exists() for file in self.files[:MOST_TRIED]):
                return way
        if (root / "images").is_dir():
            return ways[1]
        return ways[0] if self.sources.images is not None else lambda file: None

    @cached_property
    def fitted(self) -> dict[str, tuple[Camera | None, Extra]]:
        """Without a camera file: what each camera (by its last word) must be to take the 3D to the 2D, or why not."""
        rows: dict[str, list[int]] = {}
        sizes: dict[str, tuple[int, int] | None] = {}
        for items in self.sequences.values():
            for row, name in items:
                if isinstance(name, PictureName):
                    rows.setdefault(name.camera[-1], []).append(row)
                    sizes[name.camera[-1]] = name.size
        found: dict[str, tuple[Camera | None, Extra]] = {}
        for key, chosen in rows.items():
            points, pixels = self.joints(chosen)
            try:
                fit = fit_camera(points.reshape(-1, 3), pixels.reshape(-1, 2), sizes[key])
                found[key] = fit.camera, fit.to_json()
            except InputError as error:
                found[key] = None, {"camera": f"not given, and {error}"}
        return found

    def camera(self, key: CameraKey) -> tuple[Camera | None, Extra]:
        """The camera and what to note about it; InputError where the camera file lacks it."""
        if self.cameras is None:
            return self.fitted[key[-1]]
        if key not in self.cameras:
            known = ", ".join("/".join(other) for other in list(self.cameras)[:8])
            raise InputError(f"the camera file has no camera {'/'.join(key)}; it has {known}, ...")
        return self.cameras[key], {}

    def sized(self, camera: Camera, rows: list[int]) -> tuple[Camera, Extra]:
        """The camera with the size of the first of these pictures that is there, for camera files may be wrong (2048 x
        204 for 2048 x 2048). Without a picture, a size that the principal point lies far outside of is dropped."""
        stated, size = camera.size, camera.size
        for row in rows[:MOST_TRIED]:
            place = self.place(self.files[row])
            try:
                if place is not None:
                    with Image.open(self.sources.image_root / place) as picture:
                        size = picture.size
                    break
            except (OSError, UnidentifiedImageError):  # reported where the picture is read
                continue
        else:
            if stated is not None and (np.array(camera.centre) > MOST_CENTRE * np.array(stated)).any():
                size = None
        if size == stated:
            return camera, {}
        shown = f"{size[0]}x{size[1]} as the picture is" if size else "unknown"
        note = {} if stated is None else {"picture_size": f"{shown}; the camera file says {stated[0]}x{stated[1]}"}
        return dataclasses.replace(camera, size=size), note

    def samples(self, sequence: str) -> Iterator[Sample | Skip]:
        rows, names = [], []
        for row, name in self.sequences[sequence]:
            if isinstance(name, str):
                yield Skip(self.files[row], name)
            else:
                rows.append(row)
                names.append(name)
        if not names:
            return
        camera, extra = self.camera(names[0].camera)
        camera_mm, pixels = self.joints(rows)
        if camera is not None:
            camera, note = self.sized(camera, rows)
            extra = extra | note
            error = np.linalg.norm(camera.project(camera_mm) - pixels, axis=-1)
            if not np.isfinite(error).any() or np.nanmedian(error) > MOST_MEDIAN_PX:
                raise InputError(
                    f"{self.path}: the 3D joints of {sequence} do not project onto its 2D joints: 'S' must be in the "
                    f"camera frame, in metres, and the camera of {'/'.join(names[0].camera)} must be its own"
                )
        for at in range(0, len(rows), self.sources.every):
            row, name, box = rows[at], names[at], None
            if "center" in self.arrays and "scale" in self.arrays:
                box = square(self.arrays["center"][row], 200 * float(self.arrays["scale"][row]))
            labels = name.labels | Labels(image=self.place(self.files[row]), frame=name.frame, extra=extra)
            id = f"{self.path.stem}/" * self.shared + f"{sequence}_{name.frame + 1:06d}"
            yield Sample.from_camera(id, camera_mm[at], pixels[at], camera, box, **labels)


def _find_cameras(sources: Sources, folders: list[Path]) -> dict[CameraKey, Camera] | None:
    """Those of --cameras (a file or a folder), else of the first of `folders`, or the folder above it, that has camera
    files; None where there is none. Several files (train, test) are taken together."""
    if sources.cameras is not None and sources.cameras.is_file():
        return load_cameras(sources.cameras)
    places = [place for folder in folders for place in (folder, folder.parent)]
    for place in [*places, sources.src] if sources.cameras is None else [sources.cameras]:
        if found := sorted(place.glob(CAMERA_FILES)):
            return {key: camera for path in found for key, camera in load_cameras(path).items()}
    if sources.cameras is not None:
        raise InputError(f"--cameras {sources.cameras}: neither a file nor a folder with {CAMERA_FILES}")
    return None


def load_cameras(path: Path) -> dict[CameraKey, Camera]:
    """The cameras of a pickle: keys ('S1', '54138969') or 'TS1', whether written as str, bytes or int."""
    cameras = load_pickle(path)
    if not isinstance(cameras, dict) or not cameras:
        raise InputError(f"{path}: a dictionary of cameras expected, got {type(cameras).__name__}")
    return {_camera_key(key): _camera(value, f"{path}: camera {key}") for key, value in cameras.items()}


def _camera_key(key: object) -> CameraKey:
    words = [text(word) for word in key] if isinstance(key, tuple | list) else [text(key)]
    if len(words) == 2 and words[0].isdecimal():
        words[0] = f"S{words[0]}"
    return tuple(words)


def _camera(value: object, where: str) -> Camera:
    if not isinstance(value, dict) or not {"f", "c"} <= set(value):
        raise InputError(f"{where}: 'f' and 'c' expected, got {list(value) if isinstance(value, dict) else value!r}")
    try:
        numbers = {name: np.asarray(value.get(name, ()), np.float64).ravel().tolist() for name in "fckp"}
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: f, c, k and p must be numbers ({error})") from error
    f, c, k, p = numbers.values()
    if (len(f), len(c)) != (2, 2) or len(k) not in (0, 2, 3) or len(p) not in (0, 2):
        raise InputError(f"{where}: 2 numbers in f and c, 2 or 3 in k, 2 in p expected, got {numbers}")
    k1, k2, k3, p1, p2 = (*k, *[0.0] * (3 - len(k)), *p, *[0.0] * (2 - len(p)))
    size = (int(value["w"]), int(value["h"])) if {"w", "h"} <= set(value) else None
    return Camera((f[0], f[1]), (c[0], c[1]), size, (k1, k2, p1, p2, k3) if k or p else ())
