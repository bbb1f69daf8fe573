"""BVH motion: the file format, the CMU skeleton as H36M_21's joints, and poses before a seeded virtual camera.

World axes of CMU's BVH: y up, z where the rest pose faces, x to its left. N nodes (joints and end sites), F frames.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Unpack

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.transform import Rotation

from di2pose.data.sample import Labels, Part, Sample, Sources
from di2pose.data.standing import standing_legs, straighten
from di2pose.errors import InputError
from di2pose.files import reading
from di2pose.pose.skeleton import H36M_17, H36M_21

Rows = Sequence[int] | np.ndarray | slice
ALL = slice(None)
CMU_UNIT_MM = Sources.unit_mm
"""CMU's lengths are inches / 0.45: one unit is 56.44 mm."""
PITCH_DEGREES = (-30.0, 45.0)
T_POSE_DEGREES, T_POSE_LEGS_DEGREES = 3.0, 25.0
"""How exact a written T-pose is: arms along the file's x axis, legs in its frontal plane; and how far from straight
down these may point (the 2010 release 1, the 2008 release 20). Of 140,854 recorded frames the nearest is 11 degrees
off."""

# Human3.6M's joint -> the CMU nodes whose mean it is. An end site is called by its parent: "Head end".
FROM_CMU: dict[str, tuple[str, ...]] = {
    "pelvis": ("LeftUpLeg", "RightUpLeg"),  # H36M's root is the middle of the hips; CMU's "Hips" lies 10 cm higher
    "spine": ("Spine",),  # half way between pelvis and neck in both
    "thorax": ("Neck1",),  # base of the neck, at the height of the shoulders; CMU's "Neck" lies in the chest
    "nose": ("Head",),  # H36M's "Neck/Nose" is a mocap joint at the base of the skull, not the tip of the nose
    "head": ("Head end",),  # top of the head
}
for _joints, _nodes in (("hip knee ankle", "UpLeg Leg Foot"), ("shoulder elbow wrist", "Arm ForeArm Hand")):
    for _joint, _node in zip(_joints.split(), _nodes.split(), strict=True):
        FROM_CMU |= {f"{side}_{_joint}": (f"{side.capitalize()}{_node}",) for side in ("left", "right")}

LEGS = tuple(f"{side}{node}" for side in ("Left", "Right") for node in ("UpLeg", "Leg", "Foot"))

FOREARM = 1.33
"""CMU's node LeftHand lies 185 mm from the elbow with a thigh of 395; wrists of people (Human3.6M, Pose2Sim) 248 mm."""
FEET = {"heel": (0.003, -0.125, -0.13), "toe": (-0.066, -0.145, 0.477)}
"""From the ankle to the back of the heel and to the tip of the big toe, in shin lengths and in the axes of the left
foot's node, which rests flat: the mean of 40 bodies of Anny. CMU itself has no heel."""

# Subjects that the database holds two or three times, frame for frame: a split by subject must keep them together.
TWINS = {
    "064": "063", "073": "070", "123": "070", "084": "074", "102": "078", "122": "083",
    "117": "085", "121": "090", "105": "091", "103": "093", "141": "106",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Bvh:
    """A parsed file. Lengths in mm."""

    joints: tuple[str, ...]
    """Node names, parents before children; the end site of joint X is "X end"."""
    parents: tuple[int, ...]
    offsets: Float[np.ndarray, "N 3"]
    channels: tuple[tuple[str, ...], ...]
    """Each node's channels in the order of the file, e.g. ("Zrotation", "Yrotation", "Xrotation")."""
    motion: Float[np.ndarray, "F C"]
    """Degrees and mm, one column per channel, nodes in order."""
    frame_time: float
    """Seconds from frame to frame."""
    standing: Float[np.ndarray, "2 2"] | None = None
    """Angles of the subject's legs where it stands (`standing_legs`), to straighten them by; None: legs as recorded."""

    @classmethod
    def read(cls, path: Path, unit_mm: float = CMU_UNIT_MM) -> "Bvh":
        """Parse a file whose unit of length is `unit_mm`; InputError says what is damaged."""
        with reading(path, "leave it out, or fetch it again"):
            return _parse(path.read_text(encoding="utf-8-sig", errors="replace"), unit_mm)

    @property
    def frames(self) -> int:
        return len(self.motion)

    @cached_property
    def leading_t_poses(self) -> int:
        """How many frames at the start are a T-pose that was not recorded.

        The CMU conversion puts one first, where the recording's first frame stands: facing +z, arms straight out, legs
        straight down (rotations of up to 21 degrees) or as in the rest pose. Ten recordings begin with all channels 0.
        """
        if not self.frames or not self._is_t_pose([0])[0]:
            return 0
        others = np.flatnonzero(~self._is_t_pose(ALL))
        return int(others[0]) if len(others) else self.frames

    def motion_frames(self, every: int) -> Int[np.ndarray, " n"]:
        """Every so many frames after the leading T-poses; InputError where no other is there."""
        if self.leading_t_poses == self.frames:
            what = "but the T-pose that the CMU conversion puts first" if self.frames else "in it"
            raise InputError(f"no frame of motion {what}: leave the file out, or fetch it again")
        return np.arange(self.leading_t_poses, self.frames, every, dtype=np.int32)

    def _is_t_pose(self, frames: Rows) -> Bool[np.ndarray, " F"]:
        """By geometry: a T-pose of a converter faces +z, and its arms, legs and trunk are exact."""
        place = self._solve(frames)[1]

        def direction(start: str, end: str) -> np.ndarray:
            """(F, 3) unit vectors."""
            bone = place[:, self.nodes(end)[0]] - place[:, self.nodes(start)[0]]
            return bone / np.linalg.norm(bone, axis=1, keepdims=True).clip(1e-9)

        exact, near = np.cos(np.radians([T_POSE_DEGREES, T_POSE_LEGS_DEGREES]))
        found = direction("Hips", "Neck1")[:, 1] > near
        for side, out in (("Left", 1), ("Right", -1)):
            for start, end in (("Arm", "ForeArm"), ("ForeArm", "Hand")):
                found &= direction(side + start, side + end)[:, 0] * out > exact
            for start, end in (("UpLeg", "Leg"), ("Leg", "Foot")):
                bone = direction(side + start, side + end)
                found &= (-bone[:, 1] > near) & (np.abs(bone[:, 2]) < np.sin(np.radians(T_POSE_DEGREES)))
        return np.asarray(found)

    def rotations(self, frames: Rows = ALL) -> Float[np.ndarray, "F N 3 3"]:
        """Each node's axes in the world: x_world = R x_node + position."""
        return self.solve(frames)[0]

    def positions(self, frames: Rows = ALL) -> Float[np.ndarray, "F N 3"]:
        """Each node's place in the world, mm."""
        return self.solve(frames)[1]

    def legs(self, frames: Rows = ALL) -> Float[np.ndarray, "F 2 3 3"]:
        """Hip, knee and ankle of the left and the right leg as they were recorded, mm."""
        return self._solve(frames)[1][:, self.nodes(*LEGS)].reshape(-1, 2, 3, 3)

    def solve(self, frames: Rows) -> tuple[np.ndarray, np.ndarray]:
        """World rotations and positions, with thighs and shins turned as `standing` asks; feet keep their rotations."""
        rotations, recorded = self._solve(frames)
        if self.standing is None:
            return rotations, recorded
        legs = np.reshape(self.nodes(*LEGS), (2, 3))
        turns = np.tile(np.eye(3), (*rotations.shape[:2], 1, 1))
        for segment, turn in enumerate(straighten(recorded[:, legs], self.standing)):
            turns[:, legs[:, segment]] = turn
        positions = recorded.copy()
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                bone = (turns[:, parent] @ (recorded[:, node] - recorded[:, parent])[..., None])[..., 0]
                positions[:, node] = positions[:, parent] + bone
        return turns @ rotations, positions

    def _solve(self, frames: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Forward kinematics, all frames at once: R_child = R_parent R_local, x_child = x_parent + R_parent offset."""
        motion = self.motion[frames]
        rotations = np.empty((len(motion), len(self.joints), 3, 3))
        positions = np.empty((len(motion), len(self.joints), 3))
        column = 0
        for node, (parent, kinds) in enumerate(zip(self.parents, self.channels, strict=True)):
            local, offset = np.eye(3), np.tile(self.offsets[node], (len(motion), 1))
            for kind in kinds:
                axis, values = "XYZ".index(kind[0]), motion[:, column]
                if kind.endswith("rotation"):
                    local = local @ Rotation.from_euler("xyz"[axis], values[:, None], degrees=True).as_matrix()
                else:  # a position channel stands in place of the offset
                    offset[:, axis] = values
                column += 1
            if parent >= 0:
                turn = rotations[:, parent]
                local, offset = turn @ local, positions[:, parent] + (turn @ offset[..., None])[..., 0]
            rotations[:, node], positions[:, node] = local, offset
        return rotations, positions

    def nodes(self, *names: str) -> list[int]:
        """Their numbers; InputError names those that this file lacks."""
        missing = sorted(set(names) - set(self.joints))
        if missing:
            raise InputError(
                f"no node called {', '.join(missing)}: not the CMU hierarchy; its nodes are {', '.join(self.joints)}"
            )
        return [self.joints.index(name) for name in names]


def _parse(text: str, unit_mm: float) -> Bvh:
    head, _, tail = text.partition("MOTION")
    words = iter(head.split())
    if next(words, "") != "HIERARCHY" or not tail:
        raise ValueError("not a whole BVH file: it must begin with HIERARCHY and hold MOTION")
    joints: list[str] = []
    parents: list[int] = []
    offsets: list[list[float]] = []
    channels: list[tuple[str, ...]] = []
    open_nodes: list[int] = []
    try:
        for word in words:
            if word in ("ROOT", "JOINT", "End"):
                name = next(words)  # for an end site this is the word "Site"
                parents.append(open_nodes[-1] if open_nodes else -1)
                joints.append(f"{joints[open_nodes[-1]]} end" if word == "End" else name)
                offsets.append([0.0, 0.0, 0.0])
                channels.append(())
                if next(words) != "{":
                    raise ValueError("a '{' must follow the name of a node")
                open_nodes.append(len(joints) - 1)
            elif word == "OFFSET":
                offsets[open_nodes[-1]] = [float(next(words)) * unit_mm for _ in range(3)]
            elif word == "CHANNELS":
                channels[open_nodes[-1]] = tuple(next(words).capitalize() for _ in range(int(next(words))))
            elif word == "}":
                open_nodes.pop()
            else:
                raise ValueError(f"unexpected word '{word[:40]}'")
    except (StopIteration, ValueError, IndexError) as error:
        after = joints[-1] if joints else "(none)"
        raise ValueError(f"the hierarchy is damaged after node {after}: {error}") from error
    known = {f"{axis}{kind}" for axis in "XYZ" for kind in ("rotation", "position")}
    kinds = [kind for node in channels for kind in node]
    if open_nodes or not joints or parents.count(-1) != 1 or set(kinds) - known:
        raise ValueError(
            "the hierarchy is damaged: one ROOT, closed brackets and rotation or position channels expected"
        )
    numbers = tail.split()
    if numbers[0:1] + numbers[2:4] != ["Frames:", "Frame", "Time:"]:
        raise ValueError(f"MOTION must give 'Frames:' and 'Frame Time:', got {' '.join(numbers[:5])}")
    frames, frame_time, values = int(numbers[1]), float(numbers[4]), np.array(numbers[5:], np.float64)
    if values.size != frames * len(kinds):
        raise ValueError(
            f"{frames} frames of {len(kinds)} channels need {frames * len(kinds)} numbers, the file has {values.size}"
        )
    motion = values.reshape(frames, len(kinds)) * [unit_mm if kind.endswith("position") else 1.0 for kind in kinds]
    return Bvh(tuple(joints), tuple(parents), np.array(offsets), tuple(channels), motion, frame_time)


def subject_of(path: Path) -> str:
    """Of a clip of the database, 01_02.bvh: "001"."""
    return path.stem.partition("_")[0].zfill(3)


def standing_by_subject(files: Sequence[Path], unit_mm: float = CMU_UNIT_MM) -> dict[str, Float[np.ndarray, "2 2"]]:
    """Subject -> the angles of its legs where it stands, measured on all its clips at 6 frames a second. Clips that
    cannot be read are left out."""
    legs: dict[str, list[np.ndarray]] = defaultdict(list)
    for path in files:
        with suppress(InputError):
            bvh = Bvh.read(path, unit_mm)
            frames = bvh.motion_frames(max(round(1 / (6 * max(bvh.frame_time, 1e-3))), 1))
            legs[subject_of(path)].append(bvh.legs(frames))
    return {subject: standing_legs(clips) for subject, clips in legs.items()}


def h36m_joints(bvh: Bvh, frames: Rows = ALL) -> Float[np.ndarray, "F 21 3"]:
    """The joints of H36M_21 in the world of the file, y up, mm."""
    nodes = [bvh.nodes(*FROM_CMU[name]) for name in H36M_17.joints]
    rotations, positions = bvh.solve(frames)
    joints = np.stack([positions[:, node].mean(1) for node in nodes], 1)
    feet = []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        elbow, wrist = H36M_17.indices(f"{side}_elbow", f"{side}_wrist")
        joints[:, wrist] = joints[:, elbow] + FOREARM * (joints[:, wrist] - joints[:, elbow])
        knee, ankle = H36M_17.indices(f"{side}_knee", f"{side}_ankle")
        shin = np.linalg.norm(joints[:, ankle] - joints[:, knee], axis=1)[:, None, None]
        turn = rotations[:, bvh.nodes(f"{side.capitalize()}Foot")[0]]
        steps = np.array(list(FEET.values())) * (sign, 1, 1)
        feet.append(joints[:, ankle, None] + shin * (steps @ turn.transpose(0, 2, 1)))
    return np.concatenate([joints, *feet], axis=1)


def virtual_camera(seed: int, record: str) -> Float[np.ndarray, "3 3"]:
    """Rotation from the y-up world to camera axes, drawn by (seed, record) alone: yaw uniform on the circle, pitch
    uniform on PITCH_DEGREES, positive = from above. Yaw 0, pitch 0 looks the rest pose in the face."""
    digest = hashlib.blake2b(f"{seed}/{record}".encode(), digest_size=16).digest()
    first, second = (int.from_bytes(part, "little") / 2**64 for part in (digest[:8], digest[8:]))
    pitch = PITCH_DEGREES[0] + (PITCH_DEGREES[1] - PITCH_DEGREES[0]) * second
    return Rotation.from_euler("XY", [180 + pitch, 360 * first], degrees=True).as_matrix()  # 180: y and z turn round


def before_camera(
    id: str, pose_mm: Float[np.ndarray, "J 3"], seed: int, y_up: Float[np.ndarray, "3 3"], **labels: Unpack[Labels]
) -> Sample:
    """A root-relative pose without a camera, set before a virtual one. `y_up` turns its world to one with y up."""
    rotation = virtual_camera(seed, id) @ y_up
    labels["extra"] = {"seed": seed, "rotation": rotation.round(7).tolist()}
    return Sample(id, (pose_mm @ rotation.T).astype(np.float32), **labels)


def clip_files(place: Path) -> list[Path]:
    """The .bvh files below a folder, or the one file that the user gave; .BVH too."""
    if place.is_file():
        return [place]
    files = sorted(path for path in place.rglob("*") if path.suffix.lower() == ".bvh" and path.is_file())
    if not files:
        raise InputError(
            f"no .bvh file below {place}: expected a BVH file, or a folder of the BVH conversion of the CMU motion "
            "capture database (B. Hahne, 2010; folders 001, 002, ... with 01_01.bvh, ...)"
        )
    return files


def read(sources: Sources) -> Iterator[Part]:
    """One part per .bvh file below `sources.src`, or of that file; keeps every `sources.every`-th frame after a leading
    T-pose."""
    files = clip_files(sources.src)
    standing = cache(lambda: standing_by_subject(files, sources.unit_mm))
    names = Counter(path.stem for path in files)
    for path in files:
        below = path.relative_to(sources.src if sources.src.is_dir() else sources.src.parent)
        clip = path.stem if names[path.stem] == 1 else below.as_posix()  # of two clips of one name both are kept
        yield Part(below.as_posix(), partial(_samples, standing, path, clip, sources), H36M_21)


def _samples(
    standing: Callable[[], dict[str, np.ndarray]], path: Path, clip: str, sources: Sources
) -> Iterator[Sample]:
    bvh, subject = Bvh.read(path, sources.unit_mm), subject_of(path)
    frames = bvh.motion_frames(sources.every)
    bvh = replace(bvh, standing=standing().get(subject))
    labels: Labels = {"subject": subject, "sequence": clip, "split": split_of(subject)}
    world = h36m_joints(bvh, frames)
    for frame, joints in zip(frames.tolist(), world, strict=True):
        labels["frame"] = frame
        sample = before_camera(f"{clip}_{frame:06d}", joints - joints[0], sources.seed, np.eye(3), **labels)
        sample.extra.update(root_mm=joints[0].round(1).tolist(), time_s=round(frame * bvh.frame_time, 6))
        yield sample


def split_of(subject: str) -> str:
    """Held-out people: subjects whose number ends in 0, and their TWINS, are `test`, all others `train`."""
    return "test" if TWINS.get(subject, subject).endswith("0") else "train"
