"""Rotations that scipy's `Rotation` lacks: the shortest one between two directions, and the part about an axis."""

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation


def from_to(source: Float[np.ndarray, "3"], target: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """The shortest rotation that takes direction `source` to direction `target`."""
    a, b = source / np.linalg.norm(source), target / np.linalg.norm(target)
    axis, cos = np.cross(a, b), float(a @ b)
    if cos < -1 + 1e-9:  # opposite: half a turn about any axis across
        across = np.cross(a, np.eye(3)[int(np.argmin(np.abs(a)))])
        across /= np.linalg.norm(across)
        return 2 * np.outer(across, across) - np.eye(3)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cos)


def twist(rotation: Rotation, axis: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """The part of each of n rotations about its axis, as a rotation vector: rotation = swing * twist."""
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    quaternion = rotation.as_quat(canonical=True)  # x y z w
    along = (quaternion[:, :3] * axis).sum(axis=1)
    return 2 * np.arctan2(along, quaternion[:, 3])[:, None] * axis


def part(rotation: Rotation, share: float | Float[np.ndarray, " n"]) -> Rotation:
    """`share` of the angle about the same axis: of n rotations, or n shares of one."""
    return Rotation.from_rotvec(np.multiply(np.reshape(share, (-1, 1)), rotation.as_rotvec()))
