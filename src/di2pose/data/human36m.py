"""Human3.6M: its names, its official download (CDF files and videos), the poses of VideoPose3D, mmpose's layout."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.data import processed
from di2pose.data.bvh import before_camera
from di2pose.data.frames import video_references
from di2pose.data.pickles import load_npz, text
from di2pose.data.processed import PictureName
from di2pose.data.sample import Labels, Part, Sample, Sources
from di2pose.errors import InputError, require
from di2pose.files import reading
from di2pose.pose.skeleton import H36M_17

ACTIONS = (
    "Directions", "Discussion", "Eating", "Greeting", "Phoning", "Photo", "Posing", "Purchases", "Sitting",
    "SittingDown", "Smoking", "Waiting", "WalkDog", "Walking", "WalkTogether",
)  # fmt: skip
"""In the column order of the paper's table: Dir Disc Eat Greet Phone Photo Pose Purch Sit SitD Smoke Wait WalkD Walk
WalkT."""
SPELLINGS = {"TakingPhoto": "Photo", "WalkingDog": "WalkDog"}
"""S1's files spell two actions differently."""
TRAIN, TEST = ("S1", "S5", "S6", "S7", "S8"), ("S9", "S11")
CAMERA_SIZES = {"54138969": (1000, 1002), "55011271": (1000, 1000), "58860488": (1000, 1000), "60457274": (1000, 1002)}
"""(width, height) of the four cameras' pictures."""
VARIABLE_BYTES = 128
"""A CDF file needs more than this to describe a variable."""
JOINTS_17_OF_32 = (0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 15, 17, 18, 19, 25, 26, 27)
"""The joints that move, in the order of H36M_17; the other 15 repeat them or are toes and fingers."""
MOST_RESIDUAL_PX = 0.5
POSES = "data_3d_h36m.npz"
Y_UP_FROM_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])

SITE = "vision.imar.ro/human3.6m (registration)"
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
    official = sorted(sources.src.glob("S*/MyPoseFeatures/D3_Positions_mono/*.cdf"))
    if official and sources.annotations is None and sources.name == "h36m":
        clips = [path for path in official if not path.stem.startswith("_ALL")]  # the recording of no action
        return (Part(path.relative_to(sources.src).as_posix(), partial(_samples, sources, path)) for path in clips)
    folders = ("annotation_body3d/fps50", "annotation_body3d/fps*", "fps50", "fps*", "annotations")
    found = [path for path in processed.find(sources, *folders) if path.name != POSES]
    if found and sources.name != "h36m-npz":
        return processed.read(sources, found, H36M_17, _parse_picture)
    path = sources.annotations or (sources.src / POSES if sources.src.is_dir() else sources.src)
    if path.is_file() and sources.name != "h36m-processed":
        return _read_poses(sources, path)
    raise InputError(MISSING.format(src=sources.src))


def parse_clip(subject: str, base: str) -> Labels:
    """The labels of 'S1' and 'Directions 1', without the sequence."""
    action = action_of(base)
    if action not in ACTIONS:
        raise InputError(f"'{base}' is none of the actions {', '.join(ACTIONS)}")
    return Labels(subject=subject, action=action, split=split_of(subject))


def action_of(base: str) -> str:
    """One of ACTIONS from 'Directions 1', 'Directions_1', 'TakingPhoto': without the take, in the common spelling."""
    name = re.sub(r"[ _]\d+$", "", base)
    return SPELLINGS.get(name, name)


def split_of(subject: str) -> str:
    """train, test, or '' for a subject of neither."""
    return "train" if subject in TRAIN else "test" if subject in TEST else ""


def _parse_picture(file: str) -> PictureName:
    """From 'S1_Directions_1.54138969_000001.jpg'."""
    match = re.fullmatch(r"((S\d+)_(.+)\.(\d+))_(\d+)\.\w+", file)
    if match is None or match[4] not in CAMERA_SIZES:
        raise InputError(f"'{file}' is not a name like S1_Directions_1.54138969_000001.jpg")
    sequence, subject, base, camera, frame = match.groups()
    labels = parse_clip(subject, base) | Labels(sequence=sequence)
    return PictureName((subject, camera), int(frame) - 1, labels, CAMERA_SIZES[camera])


def _samples(sources: Sources, path: Path) -> Iterator[Sample]:
    subject, (base, _, number) = path.parents[2].name, path.stem.rpartition(".")
    if number not in CAMERA_SIZES:
        raise InputError(f"'{path.name}' does not end in one of the cameras {', '.join(CAMERA_SIZES)}")
    sequence = f"{subject}_{path.stem.replace(' ', '_')}"
    clip = parse_clip(subject, base) | Labels(sequence=sequence)
    joints_mm = read_cdf(path, 3)
    joints_2d = read_cdf(path.parents[1] / "D2_Positions" / path.name, 2)
    video = Path(subject) / "Videos" / f"{path.stem}.mp4"
    images = video_references(sources.image_root, video, len(joints_mm))
    fit = processed.fit_clip(joints_mm, joints_2d, CAMERA_SIZES[number], MOST_RESIDUAL_PX, path)
    for frame in range(0, len(images), sources.every):
        labels = clip | Labels(image=images[frame], frame=frame, extra=fit.to_json())
        # As the processed layout names its images, so that records of both layouts have the same ids.
        id = f"{sequence}_{frame + 1:06d}"
        yield Sample.from_camera(id, joints_mm[frame].astype(np.float64), joints_2d[frame], fit.camera, **labels)


def read_cdf(path: Path, width: int) -> Float[np.ndarray, "F 17 D"]:
    """The 17 moving joints of a pose file: its variable 'Pose' holds 32 joints times `width` numbers per frame."""
    cdflib = require("cdflib", extra="h36m")
    archive = f"Poses_{path.parent.name}_{path.absolute().parents[2].name}.tgz"
    with reading(path, f"expected a CDF file with a variable 'Pose'; unpack {archive} from {SITE} again"):
        file = cdflib.CDF(str(path))
        claimed = max(getattr(file, "_num_zvariable", 0), getattr(file, "_num_rvariable", 0))
        if claimed > path.stat().st_size // VARIABLE_BYTES:  # cdflib would look for all of them
            raise ValueError(f"it claims to have {claimed} variables")
        values = np.asarray(file.varget("Pose"))
    if values.size == 0 or values.shape[-1] != 32 * width:
        raise InputError(
            f"{path}: 'Pose' has shape {values.shape}, expected (1, frames, {32 * width}): 32 joints of {width} numbers"
        )
    return values.reshape(-1, 32, width)[:, JOINTS_17_OF_32]


def _read_poses(sources: Sources, path: Path) -> Iterator[Part]:
    """One part per subject and action of `positions_3d`: subject -> action -> (frames, 32 or 17, 3), metres, in the
    world of the recording hall (z up)."""
    positions = load_npz(path, ["positions_3d"])["positions_3d"]
    positions = positions.item() if isinstance(positions, np.ndarray) and positions.shape == () else positions
    if not isinstance(positions, dict) or not all(isinstance(actions, dict) for actions in positions.values()):
        raise InputError(f"{path}: 'positions_3d' must be a dictionary subject -> action -> poses")
    for subject, actions in positions.items():
        for base, poses in actions.items():
            key = f"{text(subject)}_{text(base).replace(' ', '_')}"
            yield Part(key, partial(_pose_samples, sources, text(subject), text(base), key, poses))


def _pose_samples(sources: Sources, subject: str, base: str, sequence: str, poses: object) -> Iterator[Sample]:
    """Each pose before a seeded virtual camera, like the BVH motion."""
    labels = parse_clip(subject, base) | Labels(sequence=sequence)
    world = np.asarray(poses)
    if world.ndim != 3 or world.shape[1] not in (17, 32) or world.shape[2] != 3 or world.dtype.kind != "f":
        raise InputError(f"poses of shape (frames, 32 or 17, 3) expected, got {world.dtype} of shape {world.shape}")
    if world.shape[1] == 32:
        world = world[:, JOINTS_17_OF_32]
    world = (world - world[:, :1]).astype(np.float64) * 1000
    if np.nanmedian(np.linalg.norm(world, axis=-1)) > 10_000:
        raise InputError("the poses are not in metres: the median joint is more than 10 m from the pelvis")
    for frame in range(0, len(world), sources.every):
        id = f"{sequence}_{frame + 1:06d}"
        yield before_camera(id, world[frame], sources.seed, Y_UP_FROM_Z_UP, **labels | Labels(frame=frame))
