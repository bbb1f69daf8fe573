"""A library of real poses: every frame (at about 6 a second) of the BVH clips in a folder, with its pose class.

A pose is 20 world rotations of a body whose zero pose stands upright, legs straight down, arms straight out sideways.
BVH axes: x to the body's left, y up, z to its front. Rotations are unit quaternions (w, x, y, z), float32.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.data.bvh import Bvh, clip_files, h36m_joints, split_of, standing_by_subject, subject_of
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17
from di2pose_people.cache import built

NODES = (
    "Hips", "LowerBack", "Spine", "Spine1", "Neck1", "Head",
    "LeftShoulder", "LeftArm", "LeftForeArm", "LeftHand", "RightShoulder", "RightArm", "RightForeArm", "RightHand",
    "LeftUpLeg", "LeftLeg", "LeftFoot", "RightUpLeg", "RightLeg", "RightFoot",
)  # fmt: skip
PARENTS = (-1, 0, 1, 2, 3, 4, 3, 6, 7, 8, 3, 10, 11, 12, 0, 14, 15, 0, 17, 18)
"""Of each node, within NODES."""
MIRROR = tuple(NODES.index(n.replace("Left", "~").replace("Right", "Left").replace("~", "Right")) for n in NODES)

SHARES = {
    "upright": 0.17, "stride": 0.11, "arms_up": 0.13, "kick": 0.08, "bent": 0.14, "seated": 0.12, "kneeling": 0.09,
    "floor": 0.07, "lying": 0.06, "inverted": 0.03,
}  # fmt: skip
"""How often each class of pose is drawn; in the CMU motion itself about 85 % is upright or stride."""
CLASSES = tuple(SHARES)
RATE = 6.0
"""Frames a second that are kept."""


@dataclass(frozen=True, eq=False)
class Library:
    """F poses of the clips of one split."""

    rotations: Float[np.ndarray, "F 20 4"]
    classes: np.ndarray
    clip: np.ndarray
    frame: np.ndarray
    clips: tuple[str, ...]
    subjects: tuple[str, ...]
    members: dict[str, tuple[np.ndarray, np.ndarray]]
    """Class -> (frames that have it, their cumulative probability)."""

    def draw(self, generator: np.random.Generator, natural: bool = False, shares: Mapping[str, float] = SHARES) -> int:
        """A frame: first a class by `shares`, or by its frames, then one of these, long clips counting less than their
        length."""
        names = [name for name in CLASSES if name in self.members and name in shares]
        share = np.array([float(len(self.members[name][0])) if natural else shares[name] for name in names])
        frames, cumulative = self.members[names[int(generator.choice(len(names), p=share / share.sum()))]]
        return int(frames[np.searchsorted(cumulative, generator.random() * cumulative[-1])])


def classify(joints: Float[np.ndarray, "F J 3"], up: int) -> np.ndarray:
    """Index into CLASSES of each pose, by plain geometry of the first 17 joints; any unit, axis `up` pointing up."""
    joints = joints[:, : H36M_17.count]

    def at(name: str) -> np.ndarray:
        return joints[:, H36M_17.index(name)]

    height = joints[..., up] - joints[..., up].min(axis=1, keepdims=True)
    leg = sum(
        np.linalg.norm(at(f"left_{a}") - at(f"left_{b}"), axis=1) for a, b in (("hip", "knee"), ("knee", "ankle"))
    )
    torso = at("thorax") - at("pelvis")
    upright = torso[:, up] / np.linalg.norm(torso, axis=1)
    pelvis = height[:, 0] / leg
    knees = height[:, H36M_17.indices("left_knee", "right_knee")] / leg[:, None]
    ankles = height[:, H36M_17.indices("left_ankle", "right_ankle")] / leg[:, None]
    thighs = np.stack([(at(f"{s}_hip") - at(f"{s}_knee"))[:, up] for s in ("left", "right")], 1)
    thighs /= np.stack([np.linalg.norm(at(f"{s}_hip") - at(f"{s}_knee"), axis=1) for s in ("left", "right")], 1)
    wrists = height[:, H36M_17.indices("left_wrist", "right_wrist")].max(axis=1)
    stride = np.linalg.norm(at("left_ankle") - at("right_ankle"), axis=1) / leg
    rules = (
        ("inverted", upright < -0.3),
        ("lying", (upright < 0.45) & (pelvis < 0.4)),
        ("floor", pelvis < 0.38),
        ("kneeling", (knees.min(axis=1) < 0.14) & (pelvis < 0.75)),
        ("seated", (thighs < 0.65).all(axis=1)),
        ("bent", upright < 0.75),
        ("arms_up", wrists > height[:, H36M_17.index("head")]),
        ("kick", (ankles.max(axis=1) > 0.45) | (thighs.min(axis=1) < 0.3)),
        ("stride", stride > 0.5),
    )
    return np.select([test for _, test in rules], [CLASSES.index(name) for name, _ in rules], CLASSES.index("upright"))


@lru_cache(maxsize=4)
def library(motion: Path, split: str) -> Library:
    """The poses of the subjects of `split` ("train" or "test", as `data.bvh.split_of` says) below folder `motion`."""
    folder = built(f"motion-3-{fingerprint(motion)}", partial(_build, motion))
    clips = json.loads((folder / "clips.json").read_text())
    classes, clip, frame = (np.load(folder / f"{name}.npy") for name in ("class", "clip", "frame"))
    subjects = tuple(name.partition("_")[0].zfill(3) for name in clips)
    mine = np.array([split_of(subject) == split for subject in subjects])[clip]
    if not mine.any():
        raise InputError(
            f"{motion} has no clip of a subject of the {split} split; its subjects: {sorted(set(subjects))}"
        )
    weight = 1 / np.sqrt(np.bincount(clip, minlength=len(clips)))[clip]
    members = {}
    for number, name in enumerate(CLASSES):
        frames = np.flatnonzero(mine & (classes == number))
        if len(frames):
            members[name] = (frames, np.cumsum(weight[frames]))
    rotations = np.load(folder / "rotations.npy", mmap_mode="r")
    return Library(rotations, classes, clip, frame, tuple(clips), subjects, members)


def fingerprint(motion: Path) -> str:
    """A short digest of the names and sizes of a folder's clips."""
    listing = "\n".join(f"{path.relative_to(motion).as_posix()} {path.stat().st_size}" for path in _files(motion))
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def _files(motion: Path) -> list[Path]:
    if not motion.exists():
        raise InputError(f"--motion must be a folder of BVH clips, and {motion} is not a folder")
    return clip_files(motion)


def _build(motion: Path, folder: Path) -> None:
    """The poses of all clips as arrays, and the clips' names."""
    files = _files(motion)
    empty: list[str] = []
    standing = standing_by_subject(files)
    parts: dict[str, list[np.ndarray]] = {"rotations": [], "class": [], "clip": [], "frame": []}
    for number, path in enumerate(files):
        bvh = replace(Bvh.read(path), standing=standing.get(subject_of(path)))
        step = max(round(1 / (RATE * bvh.frame_time)), 1)
        try:
            if bvh.leading_t_poses == bvh.frames:
                empty.append(path.name)
                continue
            frames = bvh.motion_frames(step)
            poses = (_canonical(bvh, frames), classify(h36m_joints(bvh, frames), up=1))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        for name, part in zip(parts, (*poses, np.full(len(frames), number, np.int32), frames), strict=True):
            parts[name].append(part)
    if empty:
        found = f"{len(empty)} of {len(files)} clips in {motion} have no frame of motion but a T-pose, e.g. {empty[0]}"
        if len(empty) == len(files):
            raise InputError(f"{found}: --motion needs recorded motion")
        warnings.warn(f"{found}: left out", stacklevel=2)
    for name, arrays in parts.items():
        np.save(folder / f"{name}.npy", np.concatenate(arrays))
    (folder / "clips.json").write_text(json.dumps([path.stem for path in files]))


def _canonical(bvh: Bvh, frames: np.ndarray) -> np.ndarray:
    """World rotations of NODES relative to the upright zero pose, (F, 20, 4).

    CMU's own zero pose stands with its legs 20 degrees apart: a limb's rotation is first turned, the shortest way, from
    the straight direction to the direction of its bone in the file.
    """
    down, left, right = np.array([0.0, -1, 0]), np.array([1.0, 0, 0]), np.array([-1.0, 0, 0])
    straight = {"LeftUpLeg": ("LeftLeg", down), "LeftLeg": ("LeftFoot", down), "RightUpLeg": ("RightLeg", down),
                "RightLeg": ("RightFoot", down), "LeftArm": ("LeftForeArm", left), "LeftForeArm": ("LeftHand", left),
                "RightArm": ("RightForeArm", right), "RightForeArm": ("RightHand", right)}  # fmt: skip
    turns = bvh.rotations(frames)[:, bvh.nodes(*NODES)]
    for number, name in enumerate(NODES):
        if name in straight:
            child, direction = straight[name]
            bone = bvh.offsets[bvh.nodes(child)[0]]
            turns[:, number] = turns[:, number] @ Rotation.align_vectors(bone, direction)[0].as_matrix()
    quaternions = Rotation.from_matrix(turns.reshape(-1, 3, 3)).as_quat(canonical=True)[:, [3, 0, 1, 2]]
    return quaternions.reshape(*turns.shape[:2], 4).astype(np.float32)
