"""BVH files with the hierarchy of the CMU conversion, written for tests; and the real ones where they are."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from di2pose.data.bvh import Bvh, h36m_joints

# name, parent, offset in CMU's units; the rest pose is a T-pose that faces +z with its left at +x.
NODES = [
    ("Hips", None, (0, 0, 0)),
    ("LHipJoint", "Hips", (0, 0, 0)), ("LeftUpLeg", "LHipJoint", (1.6, -1.8, 0.6)),
    ("LeftLeg", "LeftUpLeg", (0, -7.5, 0)), ("LeftFoot", "LeftLeg", (0, -7.6, 0)),
    ("RHipJoint", "Hips", (0, 0, 0)), ("RightUpLeg", "RHipJoint", (-1.6, -1.8, 0.6)),
    ("RightLeg", "RightUpLeg", (0, -7.5, 0)), ("RightFoot", "RightLeg", (0, -7.6, 0)),
    ("LowerBack", "Hips", (0, 0, 0)), ("Spine", "LowerBack", (0, 2, 0)), ("Spine1", "Spine", (0, 2, 0)),
    ("Neck", "Spine1", (0, 0, 0)), ("Neck1", "Neck", (0, 1.8, 0)), ("Head", "Neck1", (0, 1.7, 0)),
    ("LeftShoulder", "Spine1", (0, 0, 0)), ("LeftArm", "LeftShoulder", (3.1, 1.3, 0)),
    ("LeftForeArm", "LeftArm", (5.5, 0, 0)), ("LeftHand", "LeftForeArm", (3.6, 0, 0)),
    ("RightShoulder", "Spine1", (0, 0, 0)), ("RightArm", "RightShoulder", (-3.1, 1.3, 0)),
    ("RightForeArm", "RightArm", (-5.5, 0, 0)), ("RightHand", "RightForeArm", (-3.6, 0, 0)),
]  # fmt: skip
CHANNELS = 3 + 3 * len(NODES)


def column(node: str, axis: str) -> int:
    """Of a joint's rotation about X, Y or Z in the motion table."""
    return 3 + 3 * [name for name, _, _ in NODES].index(node) + "ZYX".index(axis)


def walk(frames: int, seed: int = 0) -> np.ndarray:
    """(frames, CHANNELS): knees and elbows bent the human way by various angles."""
    angles = np.random.default_rng(seed).uniform(20, 70, (frames, 8))
    motion = np.zeros((frames, CHANNELS))
    motion[:, 1] = 17
    for k, side in enumerate(("Left", "Right")):
        motion[:, column(f"{side}UpLeg", "X")] = -angles[:, k] / 2
        motion[:, column(f"{side}Leg", "X")] = angles[:, k]
        motion[:, column(f"{side}ForeArm", "Y")] = angles[:, 2 + k] * (-1 if side == "Left" else 1)
    return motion


def t_pose(position: Sequence[float] = (0, 17, 0)) -> np.ndarray:
    """(1, CHANNELS): the first frame of every file of the 2010 release (whose rest pose has the legs apart)."""
    frame = np.zeros((1, CHANNELS))
    frame[0, :3] = position
    for node, axis, degrees in (
        ("LeftUpLeg", "Z", -21), ("RightUpLeg", "Z", 21), ("Neck", "X", -16), ("Neck1", "X", 21), ("Head", "X", 11),
    ):  # fmt: skip
        frame[0, column(node, axis)] = degrees
    return frame


def write_cmu(path: Path, motion: np.ndarray, frame_time: float = 0.1666666) -> Path:
    """A whole file of that motion."""
    children: dict[str | None, list[tuple[str, Sequence[float]]]] = {}
    for name, parent, offset in NODES:
        children.setdefault(parent, []).append((name, offset))

    def block(name: str, offset: Sequence[float], word: str) -> str:
        positions = "6 Xposition Yposition Zposition" if word == "ROOT" else "3"
        inner = "".join(block(child, at, "JOINT") for child, at in children.get(name, []))
        inner = inner or "End Site\n{\nOFFSET 0 1.8 0\n}\n"
        return (
            f"{word} {name}\n{{\nOFFSET {' '.join(map(str, offset))}\n"
            f"CHANNELS {positions} Zrotation Yrotation Xrotation\n{inner}}}\n"
        )

    rows = "\n".join(" ".join(f"{value:g}" for value in row) for row in motion)
    head = f"HIERARCHY\n{block('Hips', (0, 0, 0), 'ROOT')}MOTION\nFrames: {len(motion)}\nFrame Time: {frame_time}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{rows}\n")
    return path


def joints_world(path: Path) -> np.ndarray:
    """(frames, 17, 3): Human3.6M's joints of every frame but a leading T-pose, y up, mm."""
    bvh = Bvh.read(path)
    return h36m_joints(bvh, slice(bvh.leading_t_poses, None))


def real_clips() -> Path:
    """The folder of the real CMU motion, or a skip that says how to give it."""
    beside = Path(__file__).parents[2].parent / "shared/data/cmu-bvh-6hz"
    folder = Path(os.environ.get("DI2POSE_CMU", beside))
    if not folder.is_dir():
        pytest.skip("no CMU motion: set DI2POSE_CMU to a folder of .bvh files of the CMU conversion")
    return folder
