"""BVH: a T-posed skeleton of fixed bones, and the rotations that bring its joints onto the estimated ones.

Millimetres, Y up (see markers.py), rest pose facing +Z with the left to +X; a node's channels are ZXY degrees. Every
bone has a node of its own to turn it: where a joint has several children each hangs on a node of length 0 (as CMU's
LHipJoint does), so that hips and shoulders may move against the trunk. A bone that changes its length too much for
that gets position channels, which stand in place of its OFFSET; one body with constant bones has them at the root
alone. F frames.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.errors import InputError
from di2pose.files import encoded
from di2pose.output.markers import STILL_RATE, for_each, y_up
from di2pose.pose.bones import rebuild
from di2pose.pose.skeleton import H36M_17, bone_lengths
from di2pose.result import Files, Person, Result

SIDEWAYS = {"hip", "shoulder", "elbow", "wrist"}
"""Joints that lie to the side of their parent in the T-pose; knees and ankles lie below, the trunk and head above."""
STRETCH_MM = 8.0
"""A joint that the fixed bones miss by more than this in some frame is put in its place by position channels."""
TRUNK = {"pelvis": ("hip", "pelvis", "spine"), "thorax": ("shoulder", "spine", "thorax")}
"""The joints of several children -> the pair and the line of the trunk that show how they are turned."""


@dataclass(frozen=True, eq=False)
class Node:
    """One node of the file: it sits at `offset` from its parent, in the parent's axes, and turns what hangs on it."""

    name: str
    parent: int
    offset: Float[np.ndarray, " 3"]
    rotation: Float[np.ndarray, "F 3 3"]
    """In the world: x_world = R x_node + place."""
    positions: Float[np.ndarray, "F 3"] | None = None
    """What stands in place of the offset, frame by frame: for the root, and for a bone that stretches."""


def as_bvh(name: str, results: list[Result], fps: float | None) -> Files:
    """A file for each person. Frames in which they were lost are filled in between their neighbours."""

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        if {person.skeleton for person in frames if person is not None} != {H36M_17}:
            raise InputError("BVH is written from Human3.6M's 17 joints: save the people before they are converted")
        joints = _fill([None if person is None else y_up(person) for person in frames])
        return encoded(_text(solve(joints), 1 / (fps or STILL_RATE)))

    return for_each(name, results, one)


def solve(joints_mm: Float[np.ndarray, "F 17 3"]) -> list[Node]:
    """The nodes, depth first, whose forward kinematics give the joints (y up) back.

    Bones have their median length over the frames, but for those that stretch. Going outwards, a bone is aimed from
    where its parent ended up to where the joint should be, so that errors of length hardly add up along a limb. It
    turns as little as it can from the node above, for a twist cannot be seen in joints.
    """
    nodes: list[Node] = []

    def place(joint: int, above: int, offset: np.ndarray, positions: np.ndarray | None, at: np.ndarray) -> None:
        """Add the nodes of a joint that ended up `at` (F, 3), and all that hangs on it."""
        name = H36M_17.joints[joint]
        children = [child for child, parent in H36M_17.bones if parent == joint]
        if name in TRUNK:
            nodes.append(Node(name, above, offset, _trunk(joints_mm, *TRUNK[name]), positions))
        elif not children:
            nodes.append(Node(name, above, offset, nodes[above].rotation, positions))
        own = len(nodes) - 1
        for child in children:
            before = nodes[own if name in TRUNK else above].rotation
            rest = _rest(H36M_17.joints[child])
            goal = joints_mm[:, child]
            rotation = _turn(before @ rest, _unit(goal - at, before @ rest)) @ before
            if name in TRUNK:
                nodes.append(Node(f"{name}_to_{H36M_17.joints[child]}", own, np.zeros(3), rotation))
            else:
                nodes.append(Node(name, above, offset, rotation, positions))
            length = float(np.median(np.linalg.norm(goal - joints_mm[:, joint], axis=-1)))
            reached = at + rotation @ (length * rest)
            stretch = None
            if np.linalg.norm(reached - goal, axis=-1).max() > STRETCH_MM:
                stretch, reached = np.linalg.norm(goal - at, axis=-1, keepdims=True) * rest, goal
            place(child, len(nodes) - 1, length * rest, stretch, reached)

    root = joints_mm[:, H36M_17.root]
    place(H36M_17.root, -1, np.zeros(3), root, root)
    return nodes


def _rest(name: str) -> Float[np.ndarray, " 3"]:
    """Direction from the parent in the T-pose."""
    side, _, part = name.partition("_")
    sign = {"left": 1.0, "right": -1.0}.get(side, 0.0)
    if part in SIDEWAYS:
        return np.array([sign, 0.0, 0.0])
    return np.array([0.0, -1.0 if sign else 1.0, 0.0])


def _trunk(joints_mm: np.ndarray, pair: str, below: str, above: str) -> Float[np.ndarray, "F 3 3"]:
    """Axes of a part of the trunk: x from the right to the left of a pair, y as near to below -> above as it can be."""
    right, left, low, high = H36M_17.indices(f"right_{pair}", f"left_{pair}", below, above)
    x = _unit(joints_mm[:, left] - joints_mm[:, right], np.array([1.0, 0.0, 0.0]))
    y = joints_mm[:, high] - joints_mm[:, low]
    y = _unit(y - (y * x).sum(-1, keepdims=True) * x, _across(x))
    return np.stack([x, y, np.cross(x, y)], axis=-1)


def _unit(vectors: np.ndarray, spare: np.ndarray) -> np.ndarray:
    """Vectors of length 1; `spare` in place of one that has no direction."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.where(length > 1e-6, vectors / np.maximum(length, 1e-6), spare)


def _across(a: np.ndarray) -> np.ndarray:
    """A unit vector at right angles to each unit vector a (F, 3)."""
    other = np.cross(a, np.eye(3)[np.abs(a).argmin(-1)])
    return other / np.linalg.norm(other, axis=-1, keepdims=True)


def _turn(a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, "F 3 3"]:
    """The smallest rotation that takes unit vectors a (F, 3) to b: a half turn about a, then one about a + b. Where b
    is -a, the half turn about something across."""
    half = a + b
    opposite = np.linalg.norm(half, axis=-1) < 1e-6
    turned = _half_turn(_unit(half, a)) @ _half_turn(a)
    return np.where(opposite[:, None, None], _half_turn(_across(a)), turned)


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
    for node in nodes:
        above = nodes[node.parent].rotation if node.parent >= 0 else np.eye(3)[None]
        columns += [] if node.positions is None else [node.positions]
        columns.append(_zxy(np.swapaxes(above, -1, -2) @ node.rotation))
    motion = [" ".join(f"{value:.5f}" for value in row) for row in np.concatenate(columns, axis=1)]
    head = ["HIERARCHY", *_branch(nodes, 0, 0), "MOTION", f"Frames: {len(motion)}", f"Frame Time: {frame_time:.8f}"]
    return "\n".join([*head, *motion]) + "\n"


def _branch(nodes: list[Node], number: int, depth: int) -> list[str]:
    """The lines of a node and all that hangs on it."""
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


def _fill(frames: list[np.ndarray | None]) -> Float[np.ndarray, "F 17 3"]:
    """Lost frames between their neighbours: the root on a straight line, bones turning with their length kept. The
    first and the last frame are there."""
    there = [k for k, joints in enumerate(frames) if joints is not None]
    known = np.stack([joints for joints in frames if joints is not None])

    def between(values: np.ndarray) -> np.ndarray:
        """Of the known frames -> of all."""
        columns = [np.interp(np.arange(len(frames)), there, column) for column in values.reshape(len(known), -1).T]
        return np.stack(columns, axis=-1).reshape(len(frames), *values.shape[1:])

    return rebuild(between(known), between(bone_lengths(known, H36M_17)))
