"""The Pose2Sim demo: one man balancing, 4 synchronised views of 100 frames, with triangulated 3D joints.

Videos, calibration and joints come out of two releases of the PyPI package `pose2sim` (BSD-3-Clause). The 3D is itself
an estimate: OpenPose BODY_25B in each view, triangulated and smoothed, good to 2-4 cm.
"""

import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.assets import extract
from di2pose.data.frames import Video
from di2pose.data.sample import Part, Sample, Sources
from di2pose.errors import InputError
from di2pose.files import reading
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17

VIDEOS = "Pose2Sim/Demo_SinglePerson/videos"
CALIBRATION = "Pose2Sim/Demo/calibration/Calib_qualisys.toml"
MARKERS = "Pose2Sim/Demo/opensim/Balancing_for_IK.trc"
MARKER_MARGIN = 0.1
"""The box is the extent of all projected markers (with toes, heels and head), wider and higher by this on each side."""

# Human3.6M's joint -> the markers whose mean it is. Spine, nose (base of the skull) and head have none of their kind.
FROM_MARKERS: dict[str, tuple[str, ...]] = {
    "pelvis": ("LHip", "RHip"),
    "thorax": ("Neck",),
    **{
        f"{side}_{joint}": (f"{side[0].upper()}{joint.capitalize()}",)
        for side in ("left", "right")
        for joint in ("hip", "knee", "ankle", "shoulder", "elbow", "wrist")
    },
}


def fetch() -> Path:
    """The folder of the videos, in the cache; downloaded by package name when it is not there."""
    return extract("pose2sim-videos", VIDEOS) / VIDEOS


def read(sources: Sources) -> Iterator[Part]:
    """One part per view. `--src` is the folder of cam01.mp4 ... cam04.mp4; `--cameras` (.toml) and `--annotations`
    (.trc) default to those of the package."""
    calibration, markers = sources.cameras, sources.annotations
    if calibration is None or markers is None:
        demo = extract("pose2sim-demo", CALIBRATION, MARKERS)
        calibration, markers = calibration or demo / CALIBRATION, markers or demo / MARKERS
    videos = sorted(sources.image_root.glob("cam*.mp4"))
    if not videos:
        raise InputError(f"no cam01.mp4 ... in {sources.image_root}: leave --src out to fetch them by package name")
    names, world_mm = read_trc(markers)
    for video in videos:
        camera = read_camera(calibration, f"cam_{video.stem.removeprefix('cam')}", Video(video).size)
        yield Part(video.stem, partial(_samples, video.name, camera, names, world_mm, sources))


def read_trc(path: Path) -> tuple[list[str], Float[np.ndarray, "F M 3"]]:
    """Marker names, and their places in mm in the axes of the calibration (z up)."""
    with reading(path, "it must be a TRC file; export or copy it again"):
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    try:
        frames, count, unit = int(rows[2][2]), int(rows[2][3]), {"m": 1000.0, "mm": 1.0}[rows[2][4]]
        names = [name for name in rows[3][2:] if name.strip()]
        values = np.array([row[2 : 2 + 3 * count] for row in rows[5:]], np.float64).reshape(frames, count, 3)
        if len(names) != count:
            raise ValueError(f"{count} markers, {len(names)} names")
    except (IndexError, KeyError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a whole TRC file: {error}") from error
    return names, values[..., [2, 0, 1]] * unit  # TRC is written for OpenSim, y up


def read_camera(path: Path, name: str, size: tuple[int, int]) -> Camera:
    """One view of Pose2Sim's calibration, for a video of `size` (width, height).

    Two of the videos are 1080 wide where 1088 were calibrated: shrunk evenly by the width, with black bars above and
    below. (Checked against the still pictures that the calibration was made on.)
    """
    with reading(path, "it must be a calibration of Pose2Sim; copy it again"):
        entry = tomllib.loads(path.read_text(encoding="utf-8")).get(name, {})
        if missing := {"size", "matrix", "distortions", "rotation", "translation"} - set(entry):
            raise InputError(f"{path}: camera [{name}] lacks {', '.join(sorted(missing))}")
        scale = size[0] / entry["size"][0]
        intrinsic = np.array(entry["matrix"]) * scale
        intrinsic[1, 2] += (size[1] - scale * entry["size"][1]) / 2
        pose = np.column_stack([Rotation.from_rotvec(entry["rotation"]).as_matrix(), entry["translation"]])
        return Camera.from_matrices(intrinsic, pose, size, unit_mm=1000, distortion=tuple(entry["distortions"]))


def _samples(video: str, camera: Camera, names: list[str], world_mm: np.ndarray, sources: Sources) -> Iterator[Sample]:
    missing = {marker for markers in FROM_MARKERS.values() for marker in markers} - set(names)
    if missing:
        raise InputError(f"the TRC file lacks the markers {', '.join(sorted(missing))}")
    valid = np.array([joint in FROM_MARKERS for joint in H36M_17.joints])
    for frame in range(0, len(world_mm), sources.every):
        markers = camera.to_camera(world_mm[frame])
        joints = np.full((H36M_17.count, 3), np.nan)
        for joint, parts in FROM_MARKERS.items():
            joints[H36M_17.index(joint)] = markers[[names.index(part) for part in parts]].mean(0)
        root = joints[H36M_17.root]
        points = camera.project(markers)
        low, high = points.min(0), points.max(0)
        margin = MARKER_MARGIN * (high - low)
        (x0, y0), (x1, y1) = np.clip([low - margin, high + margin], 0, camera.size).tolist()
        yield Sample(
            id=f"{Path(video).stem}_{frame:03d}",
            joints_mm=(joints - root).astype(np.float32),
            root_mm=root,
            joints_2d=camera.project(joints).astype(np.float32),
            valid=valid,
            image=f"{video}#{frame}",
            box=(x0, y0, x1, y1),
            camera=camera,
            subject="demo",
            action="balancing",
            sequence=Path(video).stem,
            frame=frame,
            split="test",
        )
