"""`data_3d_h36m.npz`, as VideoPose3D writes it: Human3.6M's poses without pictures and cameras.

Its one array `positions_3d` is a dictionary subject -> action -> (frames, 32 or 17, 3), metres, in the world of the
recording hall (z up). Each pose is set before a seeded virtual camera, like the BVH motion.
"""

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.data.annotation import failed, thin
from di2pose.data.bvh import virtual_camera
from di2pose.data.human36m_names import ACTIONS, JOINTS_17_OF_32, action_of, split_of
from di2pose.data.numpy_pickle import load_npz, text
from di2pose.data.record import Part, Sample, Sources
from di2pose.errors import InputError

FILE = "data_3d_h36m.npz"
Y_UP_FROM_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


def find(sources: Sources) -> Path | None:
    """The file, if `sources` points at it or holds it."""
    if sources.annotations is not None:
        return sources.annotations if is_ours(sources.annotations) else None
    if sources.src.is_file():
        return sources.src if is_ours(sources.src) else None
    return sources.src / FILE if (sources.src / FILE).exists() else None


def is_ours(path: Path) -> bool:
    """By its name, or by the array in it."""
    if path.name == FILE:
        return True
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "positions_3d.npy" in archive.namelist()


def read(sources: Sources, path: Path) -> Iterator[Part]:
    """One part per subject and action."""
    positions: Any = load_npz(path, ["positions_3d"])["positions_3d"]
    positions = positions.item() if isinstance(positions, np.ndarray) and positions.shape == () else positions
    if not isinstance(positions, dict) or not all(isinstance(actions, dict) for actions in positions.values()):
        raise InputError(f"{path}: 'positions_3d' must be a dictionary subject -> action -> poses")
    for subject, actions in positions.items():
        for base, poses in actions.items():
            clip = f"{text(subject)}_{text(base).replace(' ', '_')}"
            if action_of(text(base)) in ACTIONS:
                yield Part(clip, partial(_samples, sources, text(subject), text(base), poses))
            else:
                yield failed(clip, InputError(f"'{text(base)}' is none of the actions {', '.join(ACTIONS)}"))


def _samples(sources: Sources, subject: str, base: str, poses: Any) -> Iterator[Sample]:
    world = np.asarray(poses)
    if world.ndim != 3 or world.shape[1] not in (17, 32) or world.shape[2] != 3 or world.dtype.kind != "f":
        raise InputError(f"poses of shape (frames, 32 or 17, 3) expected, got {world.dtype} of shape {world.shape}")
    if world.shape[1] == 32:
        world = world[:, JOINTS_17_OF_32]
    world = (world - world[:, :1]).astype(np.float64) * 1000
    if np.nanmedian(np.linalg.norm(world, axis=-1)) > 10_000:
        raise InputError("the poses are not in metres: the median joint is more than 10 m from the pelvis")
    sequence = f"{subject}_{base.replace(' ', '_')}"
    for frame in thin(len(world), sources.every).tolist():
        id = f"{sequence}_{frame + 1:06d}"
        rotation = virtual_camera(sources.seed, id) @ Y_UP_FROM_Z_UP
        yield Sample(
            id=id,
            joints_mm=(world[frame] @ rotation.T).astype(np.float32),
            subject=subject,
            action=action_of(base),
            sequence=sequence,
            frame=frame,
            split=split_of(subject),
            extra={"seed": sources.seed, "rotation": rotation.round(7).tolist()},
        )
