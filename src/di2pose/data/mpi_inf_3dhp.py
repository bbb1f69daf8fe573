"""MPI-INF-3DHP: the official annot.mat (training) and annot_data.mat (test), or the processed npz layout.

Poses are the true ones (annot3); the height-normalised `univ_annot3` is not read.
"""

import re
import zlib
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.data import processed
from di2pose.data.frames import frames_of_poses
from di2pose.data.pickles import DAMAGED
from di2pose.data.processed import PictureName, ProcessedLayout
from di2pose.data.record import Labels, Part, Sample, Skip, Sources
from di2pose.errors import InputError, require
from di2pose.pose.camera import Camera, fit_camera
from di2pose.pose.skeleton import H36M_17, MPI_INF_3DHP_17, MPI_INF_3DHP_28, Skeleton, convert

SITE = "vcai.mpi-inf.mpg.de/3dhp-dataset"
CAMERAS = (0, 1, 2, 4, 5, 6, 7, 8)
"""The eight cameras of the 14 that the literature uses: the others are on the ceiling or the floor."""
ACTIVITIES = ("Stand/Walk", "Exercise", "Sit on Chair", "Reach/Crouch", "On Floor", "Sports", "Misc")
"""`activity_annotation` of the test set, counted from 1."""
VARIABLES = ("annot2", "annot3", "valid_frame", "activity_annotation")
TEST_SIZES = {"TS5": (1920, 1080), "TS6": (1920, 1080)}
"""The two outdoor sequences; the others are 2048 x 2048."""

MISSING = f"""no MPI-INF-3DHP annotations found in {{src}}. One of these two layouts is needed:
  official:   S1/Seq1/annot.mat and camera.calibration, with imageSequence/video_0.avi, ... for pictures (training);
              TS1/annot_data.mat with imageSequence/img_000001.jpg, ... (test); by the scripts of {SITE}
  processed:  annotations/mpi_inf_3dhp_train.npz, cameras_train.pkl, ... and images/S1_Seq1_Cam0_000001.jpg, ...
              (written by mmpose's preprocess_mpi_inf_3dhp.py), or their places by --annotations, --cameras, --images"""


def read(sources: Sources) -> Iterator[Part]:
    """The parts of whichever layout `sources` holds; one per sequence and camera."""
    if sources.annotations is None and sources.name != "mpi-inf-3dhp-processed":
        train, test = (sorted(sources.src.rglob(name)) for name in ("annot.mat", "annot_data.mat"))
        if train or test:
            return _read_official(sources, train, test)
    if files := processed.find(sources, PROCESSED):
        return processed.read(sources, PROCESSED, files)
    raise InputError(MISSING.format(src=sources.src))


def _parse_picture(file: str) -> PictureName:
    """From 'S4_Seq2_Cam0_001033.jpg' (training) or 'TS1_002001.jpg' (test)."""
    match = re.fullmatch(r"((?:(S\d+)_(Seq\d+)_Cam\d+)|(TS\d+))_(\d+)\.\w+", file)
    if match is None:
        raise InputError(f"'{file}' is not a name like S4_Seq2_Cam0_001033.jpg or TS1_002001.jpg")
    sequence, subject, take, test, frame = match.groups()
    split = "test" if test else "train"
    labels = Labels(subject=subject or test, action=take or "", sequence=sequence, split=split)
    return PictureName((sequence,), int(frame) - 1, labels)


PROCESSED = ProcessedLayout("MPI-INF-3DHP", MPI_INF_3DHP_17, _parse_picture, ("annotations", "."))


def _read_official(sources: Sources, train: list[Path], test: list[Path]) -> Iterator[Part]:
    for path in train:
        for camera in CAMERAS:
            folder = path.parent.relative_to(sources.src).as_posix()
            yield Part(f"{folder}/camera {camera}", partial(_train_samples, sources, path, camera))
    for path in test:
        yield Part(path.parent.relative_to(sources.src).as_posix(), partial(_test_samples, sources, path))


def _train_samples(sources: Sources, path: Path, number: int) -> Iterator[Sample | Skip]:
    subject, take = path.parts[-3:-1]
    sequence = f"{subject}_{take}_Cam{number}"
    camera = read_calibration(path.with_name("camera.calibration")).get(number)
    if camera is None:
        raise InputError(f"{path.with_name('camera.calibration')} has no camera {number}")
    data = _load_mat(path)
    joints_mm, joints_2d = (
        _joints(_cell(data, key, number, path), MPI_INF_3DHP_28, width, f"{path}: {key}, camera {number}")
        for key, width in (("annot3", 3), ("annot2", 2))
    )
    video = path.parent.relative_to(sources.src) / "imageSequence" / f"video_{number}.avi"
    count = min(len(joints_mm), len(joints_2d))
    filmed = frames_of_poses(sources.image_root, video, count)  # some sequences have more annotations than pictures
    if filmed == 0:
        yield Skip(video.as_posix(), f"the video is missing: its {count} poses are left out")
        return
    labels = Labels(subject=subject, action=take, sequence=sequence, split="train")
    for frame in range(0, filmed or count, sources.every):
        labels |= {"image": f"{video.as_posix()}#{frame}" if filmed else None, "frame": frame}
        id = f"{sequence}_{frame + 1:06d}"
        yield Sample.from_camera(id, joints_mm[frame], joints_2d[frame], camera, **labels)


def _test_samples(sources: Sources, path: Path) -> Iterator[Sample | Skip]:
    subject = path.parent.name
    data = _load_mat(path)
    missing = [key for key in ("annot2", "annot3", "valid_frame") if key not in data]
    if missing:
        raise InputError(f"{path} has no {', '.join(missing)}")
    joints_mm, joints_2d = (
        _joints(_frames_first(data[key], width), MPI_INF_3DHP_17, width, f"{path}: {key}")
        for key, width in (("annot3", 3), ("annot2", 2))
    )
    valid = np.flatnonzero(np.asarray(data["valid_frame"]).ravel())
    if len(valid) and valid[-1] >= min(len(joints_mm), len(joints_2d)):
        raise InputError(f"{path}: 'valid_frame' names frame {valid[-1]} of {len(joints_mm)} poses")
    activity = np.asarray(data.get("activity_annotation", ())).ravel().astype(int)
    points, pixels = joints_mm[valid].reshape(-1, 3), joints_2d[valid].reshape(-1, 2)
    fit = fit_camera(points, pixels, TEST_SIZES.get(subject, (2048, 2048)))
    if fit.mean_px > processed.MOST_MEDIAN_PX:
        raise InputError(f"{path}: no camera takes annot3 to annot2: the best is {fit.mean_px:.1f} px off on average")
    folder = path.parent.relative_to(sources.src) / "imageSequence"
    pictures = (sources.image_root / folder).is_dir()
    labels = Labels(subject=subject, sequence=subject, split="test", extra=fit.to_json())
    for frame in valid[:: sources.every].tolist():
        known = frame < len(activity) and 1 <= activity[frame] <= len(ACTIVITIES)
        labels |= {"action": ACTIVITIES[activity[frame] - 1] if known else "", "frame": frame}
        labels["image"] = f"{folder.as_posix()}/img_{frame + 1:06d}.jpg" if pictures else None
        id = f"{subject}_{frame + 1:06d}"
        yield Sample.from_camera(id, joints_mm[frame], joints_2d[frame], fit.camera, **labels)


def _joints(flat: np.ndarray, skeleton: Skeleton, width: int, where: str) -> Float[np.ndarray, "F 17 D"]:
    """H36M's 17 joints from rows of joints * width numbers."""
    if flat.dtype.kind != "f" or flat.ndim < 2 or flat[0].size != skeleton.count * width:
        raise InputError(f"{where} has shape {flat.shape}, expected (frames, {skeleton.count * width})")
    joints, _ = convert(flat.reshape(-1, skeleton.count, width).astype(np.float64), skeleton, H36M_17)
    return joints


def _cell(data: dict[str, np.ndarray], key: str, number: int, path: Path) -> np.ndarray:
    cells = data.get(key)
    if cells is None or cells.dtype != object or cells.size <= number:
        raise InputError(f"{path}: '{key}' must be a cell array with an entry for camera {number}")
    return np.asarray(cells.ravel()[number])


def _frames_first(array: np.ndarray, width: int) -> np.ndarray:
    """Matlab's (width, 17, 1, frames) as (frames, 17 * width); HDF5 has the axes the other way round already."""
    array = array.T if array.shape[:1] == (width,) and array.shape[-1:] != (width,) else array
    return array.reshape(len(array), -1)


@lru_cache(maxsize=1)  # all cameras of a sequence are read from one file
def _load_mat(path: Path) -> dict[str, np.ndarray]:
    """The variables of a .mat file: by scipy up to version 7, by h5py from version 7.3, as the test set is."""
    matlab = require("scipy.io", extra="mpi")
    try:
        with path.open("rb") as file:
            head = file.read(128)
        if head.startswith(b"MATLAB 7.3") or head.startswith(b"\x89HDF"):
            h5py = require("h5py", extra="mpi")
            with h5py.File(path, "r") as file:
                return {key: np.array(file[key]) for key in VARIABLES if key in file}
        variables = matlab.loadmat(str(path), variable_names=VARIABLES)
        return {key: value for key, value in variables.items() if key in VARIABLES}
    except (*DAMAGED, matlab.matlab.MatReadError, RuntimeError, zlib.error) as error:  # RuntimeError: h5py's
        raise InputError(f"{path} is damaged or not a .mat file ({error}): fetch it again from {SITE}") from error


def read_calibration(path: Path) -> dict[int, Camera]:
    """Camera number -> camera, of a 'Skeletool Camera Calibration File': blocks of `name N`, `size`, `intrinsic` and
    `extrinsic` (4 x 4 matrices; the latter takes the world to the camera, mm)."""
    if not path.exists():
        raise InputError(f"{path} is missing: it lies beside annot.mat in the download of {SITE}")
    cameras = {}
    for block in re.split(r"^\s*name\s+", path.read_text(encoding="latin-1"), flags=re.MULTILINE)[1:]:
        words = {line[0]: line[1:] for line in map(str.split, block.splitlines()[1:]) if line}
        try:
            k, pose = (np.array(words[key], np.float64).reshape(4, 4) for key in ("intrinsic", "extrinsic"))
            width, height = (int(word) for word in words["size"])
            number = int(block.split()[0])
        except (KeyError, ValueError, IndexError) as error:
            raise InputError(f"{path} is damaged near camera '{block[:8].strip()}' ({error})") from error
        cameras[number] = Camera.from_matrices(k, pose, (width, height))
    return cameras
