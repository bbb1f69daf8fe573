"""MPI-INF-3DHP: the official annot.mat (training) and annot_data.mat (test), or the processed npz layout.

Poses are the true ones (annot3); the height-normalised `univ_annot3` is not read. The official files' 2D (annot2) was
made by projecting their 3D, so each camera follows from the two; camera.calibration is not read.
"""

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.data import processed
from di2pose.data.frames import video_references
from di2pose.data.processed import MOST_MEDIAN_PX, PictureName, fit_clip
from di2pose.data.sample import Labels, Part, Sample, Sources
from di2pose.errors import InputError, require
from di2pose.files import reading
from di2pose.pose.skeleton import H36M_17, MPI_INF_3DHP_17, MPI_INF_3DHP_28, Skeleton, convert

SITE = "vcai.mpi-inf.mpg.de/3dhp-dataset"
CAMERAS = (0, 1, 2, 4, 5, 6, 7, 8)
"""The eight cameras of the 14 that the literature uses: the others are on the ceiling or the floor."""
ACTIVITIES = ("Stand/Walk", "Exercise", "Sit on Chair", "Reach/Crouch", "On Floor", "Sports", "Misc")
"""`activity_annotation` of the test set, counted from 1."""
VARIABLES = ("annot2", "annot3", "valid_frame", "activity_annotation")
SIZE = (2048, 2048)
OUTDOOR_SIZES = {"TS5": (1920, 1080), "TS6": (1920, 1080)}

MISSING = f"""no MPI-INF-3DHP annotations found in {{src}}. One of these two layouts is needed:
  official:   S1/Seq1/annot.mat, with imageSequence/video_0.avi, ... for pictures (training);
              TS1/annot_data.mat with imageSequence/img_000001.jpg, ... (test); by the scripts of {SITE}
  processed:  annotations/mpi_inf_3dhp_train.npz, cameras_train.pkl, ... and images/S1_Seq1_Cam0_000001.jpg, ...
              (written by mmpose's preprocess_mpi_inf_3dhp.py), or their places by --annotations, --cameras, --images"""


def read(sources: Sources) -> Iterator[Part]:
    """The parts of whichever layout `sources` holds; one per sequence and camera."""
    if sources.annotations is None and sources.name != "mpi-inf-3dhp-processed":
        train, test = (sorted(sources.src.rglob(name)) for name in ("annot.mat", "annot_data.mat"))
        if train or test:
            return _read_official(sources, train, test)
    files = processed.find(sources, "annotations")
    if any(path.stem.endswith("test_valid") for path in files):  # mmpose writes it beside all frames of the test set
        files = [path for path in files if not path.stem.endswith("test_all")]
    if files:
        return processed.read(sources, files, MPI_INF_3DHP_17, _parse_picture)
    raise InputError(MISSING.format(src=sources.src))


def _parse_picture(file: str) -> PictureName:
    """From 'S4_Seq2_Cam0_001033.jpg' (training) or 'TS1_002001.jpg' (test)."""
    match = re.fullmatch(r"((?:(S\d+)_(Seq\d+)_Cam\d+)|(TS\d+))_(\d+)\.\w+", file)
    if match is None:
        raise InputError(f"'{file}' is not a name like S4_Seq2_Cam0_001033.jpg or TS1_002001.jpg")
    sequence, subject, take, test, frame = match.groups()
    split = "test" if test else "train"
    labels = Labels(subject=subject or test, action=take or "", sequence=sequence, split=split)
    return PictureName((sequence,), int(frame) - 1, labels, OUTDOOR_SIZES.get(sequence, SIZE))


def _read_official(sources: Sources, train: list[Path], test: list[Path]) -> Iterator[Part]:
    for path in train:
        for camera in CAMERAS:
            folder = path.parent.relative_to(sources.src).as_posix()
            yield Part(f"{folder}/camera {camera}", partial(_train_samples, sources, path, camera))
    for path in test:
        yield Part(path.parent.relative_to(sources.src).as_posix(), partial(_test_samples, sources, path))


def _train_samples(sources: Sources, path: Path, number: int) -> Iterator[Sample]:
    subject, take = path.parts[-3:-1]
    sequence = f"{subject}_{take}_Cam{number}"
    data, where = _load_mat(path, "annot2", "annot3"), f"{path}, camera {number}"
    if any(data[key].dtype != object or data[key].size <= number for key in ("annot2", "annot3")):
        raise InputError(f"{path}: annot2 and annot3 must be cell arrays with an entry for camera {number}")
    joints_mm, joints_2d = (
        _joints(np.asarray(data[f"annot{n}"].ravel()[number]), MPI_INF_3DHP_28, n, where) for n in (3, 2)
    )
    fit = fit_clip(joints_mm, joints_2d, SIZE, MOST_MEDIAN_PX, where)
    video = path.parent.relative_to(sources.src) / "imageSequence" / f"video_{number}.avi"
    images = video_references(sources.image_root, video, len(joints_mm))  # some videos end before the annotations
    labels = Labels(subject=subject, action=take, sequence=sequence, split="train", extra=fit.to_json())
    for frame in range(0, len(images), sources.every):
        labels |= {"image": images[frame], "frame": frame}
        id = f"{sequence}_{frame + 1:06d}"
        yield Sample.from_camera(id, joints_mm[frame], joints_2d[frame], fit.camera, **labels)


def _test_samples(sources: Sources, path: Path) -> Iterator[Sample]:
    subject = path.parent.name
    data = _load_mat(path, "annot2", "annot3", "valid_frame")
    joints_mm, joints_2d = (
        _joints(_frames_first(data[f"annot{n}"], n), MPI_INF_3DHP_17, n, f"{path}: annot{n}") for n in (3, 2)
    )
    valid = np.flatnonzero(np.asarray(data["valid_frame"]).ravel())
    if len(valid) and valid[-1] >= min(len(joints_mm), len(joints_2d)):
        raise InputError(f"{path}: 'valid_frame' names frame {valid[-1]} of {len(joints_mm)} poses")
    activity = np.asarray(data.get("activity_annotation", ())).ravel().astype(int)
    fit = fit_clip(joints_mm[valid], joints_2d[valid], OUTDOOR_SIZES.get(subject, SIZE), MOST_MEDIAN_PX, path)
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


def _frames_first(array: np.ndarray, width: int) -> np.ndarray:
    """Matlab's (width, 17, 1, frames) as (frames, 17 * width); HDF5 has the axes the other way round already."""
    array = array.T if array.shape[:1] == (width,) and array.shape[-1:] != (width,) else array
    return array.reshape(len(array), -1)


@lru_cache(maxsize=1)  # all cameras of a sequence are read from one file
def _load_mat(path: Path, *required: str) -> dict[str, np.ndarray]:
    """The variables of a .mat file: by scipy up to version 7, by h5py from version 7.3, as the test set is."""
    matlab = require("scipy.io", extra="mpi")
    with reading(path, f"expected a .mat file with {', '.join(required)}; fetch it again from {SITE}"):
        with path.open("rb") as head:
            is_hdf5 = head.read(10).startswith((b"MATLAB 7.3", b"\x89HDF"))
        if is_hdf5:
            with require("h5py", extra="mpi").File(path, "r") as file:
                found = {key: np.array(file[key]) for key in VARIABLES if key in file}
        else:
            try:
                found = matlab.loadmat(str(path), variable_names=VARIABLES)
            except (matlab.matlab.MatReadError, NameError) as error:  # NameError: scipy, of an unknown kind of array
                raise ValueError(error) from error
        return {key: found[key] for key in (*required, *(key for key in VARIABLES if key in found))}
