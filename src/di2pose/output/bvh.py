"""BVH: a T-posed skeleton of fixed bones, and the rotations that bring its joints onto the estimated ones.

Millimetres, Y up (see motion.py), rest pose facing +Z with the left to +X; a node's channels are ZXY degrees. Every
bone has a node that turns it: a joint with several children has a node of length 0 for each (like CMU's LHipJoint), so
that hips and shoulders can move against the trunk. A foot turns as a whole at the ankle; at rest it is flat and points
to +Z. A bone whose length varies too much gets position channels in place of its OFFSET; a body with constant bones has
them at the root only. F frames, J joints.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.errors import InputError
from di2pose.files import encoded
from di2pose.output.motion import STILL_RATE, evenly, for_each, y_up
from di2pose.pose.bones import rebuild
from di2pose.pose.skeleton import H36M_17, Skeleton, bone_lengths
from di2pose.result import Files, Person, Result

SIDEWAYS = {"hip", "shoulder", "elbow", "wrist"}
"""Joints beside their parents in the T-pose; other joints of the legs lie below, the trunk and the head above."""
STRETCH_MM = 8.0
"""A joint that the fixed bones miss by more than this in some frame gets position channels."""
RIGID = {
    "pelvis": ("right_hip", "left_hip", "pelvis", "spine"),
    "thorax": ("right_shoulder", "left_shoulder", "spine", "thorax"),
    "left_ankle": ("left_heel", "left_toe", "left_heel", "left_ankle"),
    "right_ankle": ("right_heel", "right_toe", "right_heel", "right_ankle"),
}
"""Joints with several children -> the two lines that give their rotation: x and y of the trunk, z and y of a foot."""
_TRUNK = {
    "pelvis": "Hips", "pelvis_to_spine": "Spine", "spine": "Spine1", "thorax": "Spine2", "thorax_to_nose": "Neck",
    "nose": "Head", "head": "HeadTop_End",
}  # fmt: skip
_SIDE = {
    "pelvis_to_@_hip": "HipJoint", "@_hip": "UpLeg", "@_knee": "Leg", "@_ankle": "Foot", "@_heel": "Heel",
    "@_ankle_to_@_heel": "FootToHeel", "@_ankle_to_@_toe": "FootToToe", "@_toe": "ToeBase",
    "thorax_to_@_shoulder": "Shoulder", "@_shoulder": "Arm", "@_elbow": "ForeArm", "@_wrist": "Hand",
}  # fmt: skip
MIXAMO = _TRUNK | {
    ours.replace("@", side): side.title() + theirs for side in ("left", "right") for ours, theirs in _SIDE.items()
}
"""Node -> Mixamo's name of the bone that turns there. Its prefix `mixamorig:` is left out: a colon is a namespace in
Maya and MotionBuilder, and three.js drops it. Hip joints, heels and the lines to heel and toe are ours alone."""


@dataclass(frozen=True, eq=False)
class Node:
    """One node of the file, at `offset` from its parent in the parent's axes."""

    name: str
    parent: int
    offset: Float[np.ndarray, " 3"]
    rotation: Float[np.ndarray, "F 3 3"]
    """In the world: x_world = R x_node + position."""
    positions: Float[np.ndarray, "F 3"] | None = None
    """Replaces the offset in each frame: of the root, and of a bone that stretches."""


def as_bvh(name: str, results: list[Result], fps: float | None) -> Files:
    """A file for each person. Missing frames are interpolated."""
    results, fps = evenly(results, fps)
    return for_each(name, results, lambda name, frames, first: _encoded(solve_frames(frames), fps))


def as_mixamo(name: str, results: list[Result], fps: float | None) -> Files:
    """The same with Mixamo's names."""
    results, fps = evenly(results, fps)
    return for_each(name, results, lambda name, frames, first: _encoded(mixamo(solve_frames(frames)), fps))


def _encoded(nodes: list[Node], fps: float | None) -> bytes:
    return encoded(_text(nodes, 1 / (fps or STILL_RATE)))


def mixamo(nodes: list[Node]) -> list[Node]:
    """The nodes with Mixamo's names; a node of a joint that Mixamo lacks keeps its own."""
    return [replace(node, name=MIXAMO.get(node.name, node.name)) for node in nodes]


def solve_frames(frames: list[Person | None]) -> list[Node]:
    """The nodes of one person; missing frames are interpolated."""
    skeleton = next(person.skeleton for person in frames if person is not None)
    if not set(H36M_17.joints) <= set(skeleton.joints):
        raise InputError("rotations need Human3.6M's 17 joints: save the people before they are converted")
    return solve(_fill([None if person is None else y_up(person) for person in frames], skeleton), skeleton)


def local_rotations(nodes: list[Node]) -> list[Float[np.ndarray, "F 3 3"]]:
    """Of every node in its parent's axes; the root's in the world."""
    above = [nodes[node.parent].rotation if node.parent >= 0 else np.eye(3)[None] for node in nodes]
    return [np.swapaxes(turn, -1, -2) @ node.rotation for turn, node in zip(above, nodes, strict=True)]


def solve(joints_mm: Float[np.ndarray, "F J 3"], skeleton: Skeleton = H36M_17) -> list[Node]:
    """The nodes, depth first, whose forward kinematics give the joints (y up) back.

    Bones have their median length over the frames, except those that stretch. From the root outwards, each bone is
    aimed from where its parent ended up to where the joint should be, so errors of length hardly add up along a limb.
    It turns as little as possible from the node above: joints do not show twist.
    """
    nodes: list[Node] = []

    def place(joint: int, above: int, offset: np.ndarray, positions: np.ndarray | None, at: np.ndarray) -> None:
        """Add the nodes of a joint that ended up `at` (F, 3), and of its descendants."""
        name = skeleton.joints[joint]
        children = [child for child, parent in skeleton.bones if parent == joint]
        own_node, foot = len(children) != 1, len(children) > 1 and name.endswith("_ankle")
        if own_node:
            rigid = set(RIGID.get(name, ("",))) <= set(skeleton.joints)
            rotation = _axes(joints_mm, skeleton.indices(*RIGID[name])) if rigid else nodes[above].rotation
            rotation = rotation[..., ::-1] * (-1, 1, 1) if rigid and foot else rotation
            nodes.append(Node(name, above, offset, rotation, positions))
        own = len(nodes) - 1
        for child in children:
            before = nodes[own if own_node else above].rotation
            rest, goal = _rest(skeleton.joints[child]), joints_mm[:, child]
            if foot:
                rest = _unit(np.median(np.einsum("fji,fj->fi", before, goal - joints_mm[:, joint]), axis=0), rest)
            rotation = _turn(before @ rest, _unit(goal - at, before @ rest)) @ before
            if own_node:
                nodes.append(Node(f"{name}_to_{skeleton.joints[child]}", own, np.zeros(3), rotation))
            else:
                nodes.append(Node(name, above, offset, rotation, positions))
            length = float(np.median(np.linalg.norm(goal - joints_mm[:, joint], axis=-1)))
            reached = at + rotation @ (length * rest)
            stretch = None
            if np.linalg.norm(reached - goal, axis=-1).max() > STRETCH_MM:
                stretch, reached = np.linalg.norm(goal - at, axis=-1, keepdims=True) * rest, goal
            place(child, len(nodes) - 1, length * rest, stretch, reached)

    root = joints_mm[:, skeleton.root]
    place(skeleton.root, -1, np.zeros(3), root, root)
    return nodes


def _rest(name: str) -> Float[np.ndarray, " 3"]:
    """Direction from the parent in the T-pose."""
    side, _, part = name.partition("_")
    sign = {"left": 1.0, "right": -1.0}.get(side, 0.0)
    if part in SIDEWAYS:
        return np.array([sign, 0.0, 0.0])
    return np.array([0.0, -1.0 if sign else 1.0, 0.0])


def _axes(joints_mm: Float[np.ndarray, "F J 3"], ends: tuple[int, ...]) -> Float[np.ndarray, "F 3 3"]:
    """Axes of a rigid part of the body: x from the first joint to the second, y as near to third -> fourth as
    possible."""
    a, b, c, d = (joints_mm[:, end] for end in ends)
    x, y = _unit(b - a, np.array([1.0, 0.0, 0.0])), d - c
    y = _unit(y - (y * x).sum(-1, keepdims=True) * x, across(x))
    return np.stack([x, y, np.cross(x, y)], axis=-1)


def _unit(vectors: np.ndarray, spare: np.ndarray) -> np.ndarray:
    """Vectors of length 1; `spare` in place of those without direction."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.where(length > 1e-6, vectors / np.maximum(length, 1e-6), spare)


def across(a: np.ndarray) -> np.ndarray:
    """A unit vector at right angles to each unit vector a (F, 3)."""
    other = np.cross(a, np.eye(3)[np.abs(a).argmin(-1)])
    return other / np.linalg.norm(other, axis=-1, keepdims=True)


def _turn(a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, "F 3 3"]:
    """The smallest rotation of unit vectors a (F, 3) to b: a half turn about a, then one about a + b. Where b is -a,
    the half turn about something across."""
    half = a + b
    opposite = np.linalg.norm(half, axis=-1) < 1e-6
    turned = _half_turn(_unit(half, a)) @ _half_turn(a)
    return np.where(opposite[:, None, None], _half_turn(across(a)), turned)


def _half_turn(axis: np.ndarray) -> Float[np.ndarray, "F 3 3"]:
    return 2 * axis[:, :, None] * axis[:, None, :] - np.eye(3)


def _zxy(rotation: Float[np.ndarray, "F 3 3"]) -> Float[np.ndarray, "F 3"]:
    """Degrees (z, x, y) with R = Rz Rx Ry, without jumps of a whole turn. At x = +-90 only z +- y counts: y is 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy says that it sets y to 0
        angles = Rotation.from_matrix(rotation).as_euler("ZXY")
    return np.degrees(np.unwrap(angles, axis=0))


def _text(nodes: list[Node], frame_time: float) -> str:
    columns = []
    for node, rotation in zip(nodes, local_rotations(nodes), strict=True):
        columns += [] if node.positions is None else [node.positions]
        columns.append(_zxy(rotation))
    motion = [" ".join(f"{value:.5f}" for value in row) for row in np.concatenate(columns, axis=1)]
    head = ["HIERARCHY", *_branch(nodes, 0, 0), "MOTION", f"Frames: {len(motion)}", f"Frame Time: {frame_time:.8f}"]
    return "\n".join([*head, *motion]) + "\n"


def _branch(nodes: list[Node], number: int, depth: int) -> list[str]:
    """The lines of a node and its descendants."""
    node, tab = nodes[number], "\t" * depth
    below = [line for k, other in enumerate(nodes) if other.parent == number for line in _branch(nodes, k, depth + 1)]
    channels = "3" if node.positions is None else "6 Xposition Yposition Zposition"
    return [
        f"{tab}{'JOINT' if depth else 'ROOT'} {node.name}",
        f"{tab}{{",
        f"{tab}\tOFFSET " + " ".join(f"{value:.4f}" for value in node.offset),
        f"{tab}\tCHANNELS {channels} Zrotation Xrotation Yrotation",
        *(below or [f"{tab}\tEnd Site", f"{tab}\t{{", f"{tab}\t\tOFFSET 0 0 0", f"{tab}\t}}"]),
        f"{tab}}}",
    ]


def _fill(frames: list[np.ndarray | None], skeleton: Skeleton) -> Float[np.ndarray, "F J 3"]:
    """All frames; missing ones interpolated: the root on a straight line, bones turned with their lengths kept. The
    first and the last frame are there."""
    there = [k for k, joints in enumerate(frames) if joints is not None]
    known = np.stack([joints for joints in frames if joints is not None])

    def between(values: np.ndarray) -> np.ndarray:
        """Of the known frames -> of all."""
        columns = [np.interp(np.arange(len(frames)), there, column) for column in values.reshape(len(known), -1).T]
        return np.stack(columns, axis=-1).reshape(len(frames), *values.shape[1:])

    return rebuild(between(known), between(bone_lengths(known, skeleton)), skeleton)
