"""Rotations: matrices (..., 3, 3) and unit quaternions (..., 4) as (w, x, y, z)."""

from typing import no_type_check

import numpy as np

from di2pose.errors import require

njit = require("numba", extra="people").njit


def from_to(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The shortest rotation (3, 3) that takes direction `source` to direction `target`."""
    a, b = source / np.linalg.norm(source), target / np.linalg.norm(target)
    axis, cos = np.cross(a, b), float(a @ b)
    if cos < -1 + 1e-9:  # opposite: half a turn about any axis across
        across = np.cross(a, np.eye(3)[int(np.argmin(np.abs(a)))])
        across /= np.linalg.norm(across)
        return 2 * np.outer(across, across) - np.eye(3)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cos)


@njit(cache=True)
@no_type_check
def about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Right-handed rotation (3, 3) by `angle` radians about a direction."""
    length = np.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    x, y, z = axis[0] / length, axis[1] / length, axis[2] / length
    c, s = np.cos(angle), np.sin(angle)
    d = 1 - c
    out = np.empty((3, 3))
    out[0, 0], out[0, 1], out[0, 2] = c + x * x * d, x * y * d - z * s, x * z * d + y * s
    out[1, 0], out[1, 1], out[1, 2] = x * y * d + z * s, c + y * y * d, y * z * d - x * s
    out[2, 0], out[2, 1], out[2, 2] = x * z * d - y * s, y * z * d + x * s, c + z * z * d
    return out


@njit(cache=True)
@no_type_check
def product(a: np.ndarray, b: np.ndarray, transposed: bool) -> np.ndarray:
    """a @ b, or a.T @ b, of two 3 x 3 matrices."""
    out = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            total = 0.0
            for k in range(3):
                total += (a[k, i] if transposed else a[i, k]) * b[k, j]
            out[i, j] = total
    return out


@njit(cache=True)
@no_type_check
def _quaternion(m: np.ndarray) -> tuple[float, float, float, float]:
    """One matrix -> (w, x, y, z), w >= 0, dividing by its largest part."""
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    if trace > m[0, 0] and trace > m[1, 1] and trace > m[2, 2]:
        w, x, y, z = 1 + trace, m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    elif m[0, 0] > m[1, 1] and m[0, 0] > m[2, 2]:
        w, x, y, z = m[2, 1] - m[1, 2], 1 + 2 * m[0, 0] - trace, m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]
    elif m[1, 1] > m[2, 2]:
        w, x, y, z = m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], 1 + 2 * m[1, 1] - trace, m[1, 2] + m[2, 1]
    else:
        w, x, y, z = m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], 1 + 2 * m[2, 2] - trace
    length = np.sqrt(w * w + x * x + y * y + z * z)
    if w < 0:
        length = -length
    return w / length, x / length, y / length, z / length


def matrix_to_quaternion(matrix: np.ndarray) -> np.ndarray:
    """(..., 3, 3) -> (..., 4) with w >= 0: the dominant row of q q^T, which never divides by little."""
    m = np.moveaxis(matrix, (-2, -1), (0, 1))
    products = np.stack([
        np.stack([1 + m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]], -1),
        np.stack([m[2, 1] - m[1, 2], 1 + m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]], -1),
        np.stack([m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], 1 - m[0, 0] + m[1, 1] - m[2, 2], m[1, 2] + m[2, 1]], -1),
        np.stack([m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], 1 - m[0, 0] - m[1, 1] + m[2, 2]], -1),
    ], -2)  # fmt: skip
    best = np.argmax(np.diagonal(products, axis1=-2, axis2=-1), axis=-1)
    q = np.take_along_axis(products, best[..., None, None], axis=-2).squeeze(-2)
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[..., :1] < 0, -q, q)


def quaternion_to_matrix(q: np.ndarray) -> np.ndarray:
    """(..., 4) of any length -> (..., 3, 3)."""
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    rows = [
        np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], -1),
        np.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], -1),
        np.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], -1),
    ]
    return np.stack(rows, -2)


@njit(cache=True)
@no_type_check
def power(matrix: np.ndarray, share: float) -> np.ndarray:
    """The rotation (3, 3) by `share` of the angle about the same axis."""
    w, x, y, z = _quaternion(matrix)
    sin = np.sqrt(x * x + y * y + z * z)
    if sin < 1e-9:
        return np.eye(3)
    return about(np.array([x, y, z]), 2 * np.arctan2(sin, w) * share)


@njit(cache=True)
@no_type_check
def between(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
    """On the way from rotation a (share 0) to b (share 1)."""
    return product(a, power(product(a, b, True), share), False)


@njit(cache=True)
@no_type_check
def twist(matrix: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """The part of a rotation (3, 3) about `axis`: matrix = swing @ twist."""
    w, x, y, z = _quaternion(matrix)
    along = (x * axis[0] + y * axis[1] + z * axis[2]) / np.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    return about(axis, 2 * np.arctan2(along, w))
