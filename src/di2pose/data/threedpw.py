"""3DPW: the official sequence pickles. Every person of every frame whose camera was aligned (`campose_valid`).

Without --smpl a record has the 24 joints of SMPL that the files hold; with it, Human3.6M's 17 joints as the 14-joint
protocol of the literature regresses them. The two are different joints and are evaluated under different names.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from di2pose.data.frames import picture_size
from di2pose.data.pickles import load_pickle, text
from di2pose.data.sample import Labels, Part, Sample, Sources, box_round
from di2pose.data.smpl import Models
from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, SMPL_24

SPLITS = ("train", "validation", "test")
ORIGIN = "unpack sequenceFiles.zip and imageFiles.zip of virtualhumans.mpi-inf.mpg.de/3DPW (registration)"
KEYS = ("jointPositions", "poses2d", "cam_poses", "cam_intrinsics", "campose_valid")
SMPL_KEYS = ("poses", "trans", "betas", "genders")
FEWEST_DETECTED = 6
"""3DPW keeps a 2D detection only where at least so many of its joints were found."""


def read(sources: Sources) -> Iterator[Part]:
    """One part per sequence."""
    folder = sources.src / "sequenceFiles" if sources.annotations is None else sources.annotations
    files = [path for split in SPLITS for path in sorted((folder / split).glob("*.pkl"))]
    if not files:
        raise InputError(f"no 3DPW sequences in {folder}: expected test/downtown_walking_00.pkl, ... there; {ORIGIN}")
    models = None if sources.smpl is None else Models(sources.smpl)
    for path in files:
        key = f"{path.parent.name}/{path.stem}"
        yield Part(key, partial(_samples, sources, path, models), SMPL_24 if models is None else H36M_17)


def _samples(sources: Sources, path: Path, models: Models | None) -> Iterator[Sample]:
    data = load_pickle(path)
    wanted = KEYS if models is None else (*KEYS, *SMPL_KEYS)
    if not isinstance(data, dict) or (missing := [key for key in wanted if key not in data]):
        what = type(data).__name__ if not isinstance(data, dict) else f"without {', '.join(missing)}"
        raise InputError(f"{path}: a dictionary with {', '.join(wanted)} expected, got one {what}")
    sequence = text(data.get("sequence", path.stem))
    poses, intrinsics = (np.asarray(data[key], np.float64) for key in ("cam_poses", "cam_intrinsics"))
    if poses.shape[1:] != (4, 4) or intrinsics.shape != (3, 3):
        raise InputError(
            f"{path}: 'cam_poses' has shape {poses.shape} and 'cam_intrinsics' {intrinsics.shape}, expected "
            "(frames, 4, 4) and (3, 3)"
        )
    folder = sources.image_folder("imageFiles")
    size = None if folder is None else picture_size(sources.image_root / folder / sequence / "image_00000.jpg")
    for person in range(len(data["jointPositions"])):
        world_m = _joints(data, person, models, path)
        valid, detected = (np.asarray(data[key][person]) for key in ("campose_valid", "poses2d"))
        if len({len(world_m), len(poses), len(valid), len(detected)}) > 1:
            raise InputError(
                f"{path}, person {person}: {len(world_m)} poses, {len(poses)} cameras, {len(valid)} campose_valid and "
                f"{len(detected)} poses2d: one per frame expected"
            )
        labels = Labels(subject=f"{sequence}/p{person}", sequence=sequence, split=path.parent.name)
        for frame in range(0, len(poses), sources.every):
            if not valid[frame]:
                continue
            camera = Camera.from_matrices(intrinsics, poses[frame], size, unit_mm=1000)  # pose: world to camera
            camera_mm = camera.to_camera(world_m[frame] * 1000)
            joints_2d = camera.project(camera_mm)
            x, y, confidence = detected[frame].astype(np.float64)  # of OpenPose's 18 joints
            found = np.stack([x, y], 1)[confidence > 0]
            enough = len(found) >= FEWEST_DETECTED
            labels["image"] = None if folder is None else f"{folder}{sequence}/image_{frame:05d}.jpg"
            labels["frame"] = frame
            labels["extra"] = {"person": person, "box": "detected 2D joints" if enough else "projected joints"}
            box = box_round(found) if enough else None
            yield Sample.from_camera(f"{sequence}/p{person}/{frame:05d}", camera_mm, joints_2d, camera, box, **labels)


def _joints(data: dict[str, Sequence], person: int, models: Models | None, path: Path) -> Float[np.ndarray, "F J 3"]:
    """World positions in metres: SMPL's 24 from the file, or Human3.6M's 17 from the SMPL model."""
    if models is None:
        positions = np.asarray(data["jointPositions"][person], np.float64)
        if positions.ndim != 2 or positions.shape[1] != 72:
            raise InputError(f"{path}: 'jointPositions' has shape {positions.shape}, expected (frames, 72): 24 joints")
        return positions.reshape(-1, 24, 3)
    poses, trans, betas = (np.asarray(data[key][person], np.float64) for key in ("poses", "trans", "betas"))
    if poses.shape != (len(trans), 72) or trans.shape[1:] != (3,):
        raise InputError(f"{path}: 'poses' {poses.shape} and 'trans' {trans.shape}, expected (frames, 72), (frames, 3)")
    model, regressor = models.load(text(data["genders"][person]))
    return model.regress(regressor, betas.ravel(), poses, trans)
