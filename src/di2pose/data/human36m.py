"""Human3.6M: its names, its official download (CDF files and videos), and which of three layouts a folder holds."""

import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.data import human36m_poses, processed
from di2pose.data.annotation import failed, record, thin, video_frames
from di2pose.data.camera_pickle import CameraKey, load_cameras
from di2pose.data.human36m_names import CAMERA_SIZES, JOINTS_17_OF_32, Clip
from di2pose.data.intrinsics import fit_camera
from di2pose.data.numpy_pickle import DAMAGED
from di2pose.data.record import Part, Sample, Skip, Sources
from di2pose.errors import InputError, require
from di2pose.pose.camera import Camera

SITE = "vision.imar.ro/human3.6m (registration)"
KNOWN_GAP = ("S11", "Directions", "54138969")
"""The one video that the official release lacks."""
MOST_RESIDUAL_PX = 0.5

MISSING = f"""no Human3.6M annotations found in {{src}}. One of these three layouts is needed:
  official:   S1/MyPoseFeatures/D3_Positions_mono/*.cdf and D2_Positions/*.cdf, with S1/Videos/*.mp4 for pictures
              (unpack Poses_D3_Positions_mono_S1.tgz, Poses_D2_Positions_S1.tgz, Videos_S1.tgz, ... from {SITE})
  processed:  annotation_body3d/fps50/h36m_train.npz, h36m_test.npz, annotation_body3d/cameras.pkl, images/S1/...
              (written by mmpose's preprocess_h36m.py), or their places by --annotations, --cameras, --images
  poses only: data_3d_h36m.npz (written by VideoPose3D's prepare_data_h36m.py), or its place by --annotations"""


def read(sources: Sources) -> Iterator[Part]:
    """The parts of whichever layout `sources` holds; one part per video (subject, action and camera).

    `sources.name` may narrow the choice: h36m takes the first of the three that is there, h36m-processed and h36m-npz
    only that one.
    """
    if sources.annotations is None and sources.name == "h36m":
        official = sorted(sources.src.glob("S*/MyPoseFeatures/D3_Positions_mono/*.cdf"))
        if official:
            return _read_official(sources, official)
    if sources.name != "h36m-npz":
        found = [path for path in processed.find(sources, processed.HUMAN36M) if not human36m_poses.is_ours(path)]
        if found:
            return processed.read(sources, processed.HUMAN36M, found)
    poses = None if sources.name == "h36m-processed" else human36m_poses.find(sources)
    if poses is not None:
        return human36m_poses.read(sources, poses)
    raise InputError(MISSING.format(src=sources.src))


def _read_official(sources: Sources, files: list[Path]) -> Iterator[Part]:
    if not any(sources.src.glob("S*/MyPoseFeatures/D2_Positions/*.cdf")):
        raise InputError(
            f"{sources.src} has D3_Positions_mono but no D2_Positions: unpack Poses_D2_Positions_S1.tgz, ... ({SITE})"
        )
    cameras = None if sources.cameras is None else load_cameras(sources.cameras)
    found: dict[tuple[Path, str], set[str]] = {}
    for path in files:
        try:
            clip = Clip.parse(path.parents[2].name, path.stem)
        except InputError as error:
            yield failed(path.relative_to(sources.src).as_posix(), error)
            continue
        if clip is None:
            continue
        found.setdefault((path.parent, clip.base), set()).add(clip.camera)
        yield Part(path.relative_to(sources.src).as_posix(), partial(_samples, sources, path, clip, cameras))
    for (folder, base), present in found.items():
        for camera in sorted(set(CAMERA_SIZES) - present):
            path = (folder / f"{base}.{camera}.cdf").relative_to(sources.src)
            gap = InputError("this camera's file is missing; the other cameras of the action are there")
            yield failed(path.as_posix(), gap)


def _samples(
    sources: Sources, path: Path, clip: Clip, cameras: dict[CameraKey, Camera] | None
) -> Iterator[Sample | Skip]:
    joints_mm = read_cdf(path, 3)
    joints_2d = read_cdf(path.parents[1] / "D2_Positions" / path.name, 2)
    if len(joints_mm) != len(joints_2d):
        raise InputError(f"{path}: {len(joints_mm)} frames in 3D, {len(joints_2d)} in D2_Positions")
    video = Path(clip.subject) / "Videos" / f"{path.stem}.mp4"
    count, pictures = len(joints_mm), (sources.image_root / video.parent).is_dir()
    if pictures and not (sources.image_root / video).exists():
        known = (clip.subject, clip.base, clip.camera) == KNOWN_GAP
        reason = "the official release does not have this video" if known else "the video is missing"
        yield Skip(video.as_posix(), f"{reason}: its {count} poses are left out")
        return
    if pictures:
        count = min(count, video_frames(sources.image_root / video) or count)
    extra: dict[str, float] = {}
    if cameras is None:
        fit = fit_camera(joints_mm.reshape(-1, 3), joints_2d.reshape(-1, 2), CAMERA_SIZES[clip.camera])
        if fit.mean_px > MOST_RESIDUAL_PX:
            raise InputError(
                f"{path}: no camera takes its 3D to its D2_Positions: the best is {fit.mean_px:.2f} px off on average"
            )
        camera, extra = fit.camera, {"camera_fit_mean_px": fit.mean_px, "camera_fit_largest_px": fit.largest_px}
    elif (clip.subject, clip.camera) in cameras:
        camera = cameras[clip.subject, clip.camera]
    else:
        raise InputError(f"{sources.cameras} has no camera ('{clip.subject}', '{clip.camera}')")
    for frame in thin(count, sources.every).tolist():
        yield record(
            clip.id(frame),
            joints_mm[frame].astype(np.float64),
            joints_2d[frame],
            camera,
            image=f"{video.as_posix()}#{frame}" if pictures else None,
            subject=clip.subject,
            action=clip.action,
            sequence=clip.sequence,
            frame=frame,
            split=clip.split,
            extra=dict(extra),
        )


def read_cdf(path: Path, width: int) -> Float[np.ndarray, "F 17 D"]:
    """The 17 moving joints of a pose file: its variable 'Pose' holds 32 joints times `width` numbers per frame."""
    cdflib = require("cdflib", extra="h36m")
    if not path.exists():
        archive = f"Poses_{path.parent.name}_{path.parents[2].name}.tgz"
        raise InputError(f"{path} is missing: it is in {archive} from {SITE}")
    try:
        values = np.asarray(cdflib.CDF(str(path)).varget("Pose"))
    except (*DAMAGED, struct.error) as error:
        raise InputError(
            f"{path} is damaged, or not a CDF file with a variable 'Pose' ({error}): unpack it again"
        ) from error
    if values.size == 0 or values.shape[-1] != 32 * width:
        raise InputError(
            f"{path}: 'Pose' has shape {values.shape}, expected (1, frames, {32 * width}): 32 joints of {width} numbers"
        )
    return values.reshape(-1, 32, width)[:, JOINTS_17_OF_32]
