"""glTF 2.0 (.glb): a stick figure skinned to the nodes of the BVH file, with Mixamo's names, and its motion.

Metres, Y up, one person a file; at rest a T-pose on the ground that faces +Z. A video is one animation with the video's
own time stamps: the nodes rest. A photo has no animation: the nodes are posed.
"""

import json
import struct
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.transform import Rotation

from di2pose.output.bvh import Node, across, local_rotations, mixamo, solve_frames
from di2pose.output.motion import for_each, times_of
from di2pose.output.overlay import LEFT, MIDDLE, RIGHT
from di2pose.result import Files, Person, Result

COLOURS = {"Left": LEFT, "Right": RIGHT, "": MIDDLE}
"""Start of a node's name -> colour of its bones."""
CORNERS = 6
"""Of a bone's cross-section."""
THICKNESS, THINNEST_M, THICKEST_M, JOINT_M = 0.1, 0.012, 0.035, 0.02
"""Radius of a bone over its length, its limits, and the radius of a joint."""
COMPONENTS = {"<f4": 5126, "<u4": 5125, "<u2": 5123}
TYPES = {1: "SCALAR", 3: "VEC3", 4: "VEC4", 16: "MAT4"}
VERTICES, INDICES = 34962, 34963
"""Targets of buffer views."""
MM = 0.001


class Buffer:
    """The binary part of a file, with the views and accessors that say what is in it."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.views: list[dict[str, int]] = []
        self.accessors: list[dict[str, Any]] = []

    def add(self, values: np.ndarray, kind: str = "<f4", target: int | None = None) -> int:
        """The number of the new accessor; one element a row."""
        rows = np.asarray(values, kind).reshape(len(values), -1)
        view = {"buffer": 0, "byteOffset": len(self.content), "byteLength": rows.nbytes}
        self.views.append(view if target is None else view | {"target": target})
        self.content += rows.tobytes() + bytes(-rows.nbytes % 4)
        bounds = {"min": rows.min(0).tolist(), "max": rows.max(0).tolist()}
        about = {"componentType": COMPONENTS[kind], "count": len(rows), "type": TYPES[rows.shape[1]]}
        self.accessors.append({"bufferView": len(self.views) - 1} | about | bounds)
        return len(self.accessors) - 1


def as_glb(name: str, results: list[Result], fps: float | None) -> Files:
    """A file for each person. Missing frames are interpolated."""
    times = times_of(results, fps)

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        nodes = mixamo(solve_frames(frames))
        own = None if fps is None else times[first : first + len(frames)]
        return glb_bytes(nodes, own, f"di2pose {results[0].version}")

    return for_each(name, results, one)


def glb_bytes(nodes: list[Node], times_s: Float[np.ndarray, " F"] | None, generator: str) -> bytes:
    """A whole file; without times the pose of the first frame."""
    buffer, rest = Buffer(), np.zeros((len(nodes), 3))
    for k, node in enumerate(nodes[1:], start=1):
        rest[k] = rest[node.parent] + node.offset * MM
    rest[:, 1] -= rest[:, 1].min()
    turns = [Rotation.from_matrix(rotation).as_quat() for rotation in local_rotations(nodes)]
    scene = [_node(nodes, k, rest, None if times_s is not None else turns[k][0]) for k in range(len(nodes))]
    bind = np.tile(np.eye(4), (len(nodes), 1, 1))
    bind[:, 3, :3] = -rest  # matrices are stored column by column
    root: dict[str, Any] = {
        "asset": {"version": "2.0", "generator": generator},
        "scene": 0,
        "scenes": [{"nodes": [0, len(nodes)]}],
        "nodes": [*scene, {"name": "Figure", "mesh": 0, "skin": 0}],
        "skins": [{"joints": list(range(len(nodes))), "skeleton": 0, "inverseBindMatrices": buffer.add(bind)}],
        "meshes": [{"name": "Figure", "primitives": _primitives(nodes, rest, buffer)}],
        "materials": [_material(side or "Middle", colour) for side, colour in COLOURS.items()],
    }
    if times_s is not None:
        root["animations"] = [{"name": "Motion"} | _animation(nodes, turns, times_s, buffer)]
    root |= {"bufferViews": buffer.views, "accessors": buffer.accessors}
    root["buffers"] = [{"byteLength": len(buffer.content)}]
    text = json.dumps(root, separators=(",", ":")).encode()
    chunks = ((b"JSON", text + b" " * (-len(text) % 4)), (b"BIN\0", bytes(buffer.content)))
    body = b"".join(struct.pack("<I4s", len(content), kind) + content for kind, content in chunks)
    return struct.pack("<4sII", b"glTF", 2, 12 + len(body)) + body


def _node(nodes: list[Node], k: int, rest: Float[np.ndarray, "N 3"], turn: np.ndarray | None) -> dict[str, Any]:
    """At rest, or turned by a quaternion."""
    node, children = nodes[k], [child for child, other in enumerate(nodes) if other.parent == k]
    place = rest[k] - (rest[node.parent] if node.parent >= 0 else 0.0)
    if turn is not None and node.positions is not None:
        place = node.positions[0] * MM
    about = {"name": node.name, "translation": place.tolist()}
    about |= {} if turn is None else {"rotation": turn.tolist()}
    return about | ({"children": children} if children else {})


def _animation(
    nodes: list[Node], turns: list[Float[np.ndarray, "F 4"]], times_s: Float[np.ndarray, " F"], buffer: Buffer
) -> dict[str, Any]:
    """Rotations of all nodes; translations of the root and of bones that stretch."""
    channels: list[dict[str, Any]] = []
    samplers: list[dict[str, int]] = []
    clock = buffer.add(times_s)
    for k, node in enumerate(nodes):
        flips = np.where((turns[k][1:] * turns[k][:-1]).sum(-1) < 0, -1.0, 1.0)  # q and -q are one rotation
        moves = {"rotation": turns[k] * np.cumprod([1.0, *flips])[:, None]}
        moves |= {} if node.positions is None else {"translation": node.positions * MM}
        for path, values in moves.items():
            channels.append({"sampler": len(samplers), "target": {"node": k, "path": path}})
            samplers.append({"input": clock, "output": buffer.add(values)})
    return {"channels": channels, "samplers": samplers}


def _primitives(nodes: list[Node], rest: Float[np.ndarray, "N 3"], buffer: Buffer) -> list[dict[str, Any]]:
    """Of each colour one: bones and joints, in the rest pose; each corner goes with one node."""
    places: list[np.ndarray] = []
    owners: list[int] = []
    faces: dict[str, list[np.ndarray]] = {side: [] for side in COLOURS}
    up = np.array([0.0, JOINT_M, 0.0])
    for k, node in enumerate(nodes):
        length = float(np.linalg.norm(node.offset)) * MM
        if k and length < 1e-6:
            continue
        side = next(side for side in COLOURS if node.name.startswith(side))
        solids = [(k, _solid(rest[k] - up, rest[k] + up, JOINT_M, 0.5))]
        if k:
            radius = min(max(THICKNESS * length, THINNEST_M), THICKEST_M)
            solids.append((node.parent, _solid(rest[node.parent], rest[k], radius, 0.2)))
        for owner, (points, triangles) in solids:
            faces[side].append(triangles + len(owners))
            places.append(points)
            owners += [owner] * len(points)
    joints, weights = np.zeros((len(owners), 4)), np.tile([1.0, 0, 0, 0], (len(owners), 1))
    joints[:, 0] = owners
    attributes = {
        "POSITION": buffer.add(np.concatenate(places), target=VERTICES),
        "JOINTS_0": buffer.add(joints, "<u2", VERTICES),
        "WEIGHTS_0": buffer.add(weights, target=VERTICES),
    }
    indices = [buffer.add(np.concatenate(each).reshape(-1), "<u4", INDICES) for each in faces.values()]
    return [{"attributes": attributes, "indices": each, "material": k} for k, each in enumerate(indices)]


def _solid(
    start: np.ndarray, end: np.ndarray, radius: float, waist: float
) -> tuple[Float[np.ndarray, "P 3"], Int[np.ndarray, "T 3"]]:
    """Two pyramids, base to base: points at both ends, widest at the share `waist` of the way. Faces look outwards."""
    axis = (end - start) / np.linalg.norm(end - start)
    side = across(axis[None])[0]
    turn = 2 * np.pi * np.arange(CORNERS)[:, None] / CORNERS
    ring = start + waist * (end - start) + radius * (np.cos(turn) * side + np.sin(turn) * np.cross(axis, side))
    here = np.arange(CORNERS)
    after = (here + 1) % CORNERS
    caps = [np.stack([here, after, np.full(CORNERS, CORNERS + 1)], 1), np.stack([after, here, 0 * here + CORNERS], 1)]
    return np.concatenate([ring, [start, end]]), np.concatenate(caps)


def _material(name: str, colour: tuple[int, ...]) -> dict[str, Any]:
    linear = [round((value / 255) ** 2.2, 4) for value in colour]
    return {
        "name": name,
        "pbrMetallicRoughness": {"baseColorFactor": [*linear, 1.0], "metallicFactor": 0.0, "roughnessFactor": 0.8},
    }
