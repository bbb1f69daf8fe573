"""The camera that turns a dataset's own 3D into its own 2D, when no camera file is given."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.pose.camera import Camera

MOST_POINTS = 20_000
FEWEST_POINTS = 60
"""Nine numbers are fitted; with fewer points, or a person who does not move, the focal length is a guess."""


@dataclass(frozen=True)
class Fit:
    """A fitted camera and how far its projections are from the given pixels."""

    camera: Camera
    mean_px: float
    largest_px: float


def fit_camera(
    points_mm: Float[np.ndarray, "n 3"], pixels: Float[np.ndarray, "n 2"], size: tuple[int, int] | None = None
) -> Fit:
    """Focal lengths, centre and the distortion k1 k2 p1 p2 k3 by least squares (Gauss-Newton from the pinhole fit).

    Human3.6M's pixels were made by projecting its 3D, so the residual is numerical; where the residual is not small,
    the caller decides what to do with it.
    """
    use = np.isfinite(points_mm).all(1) & np.isfinite(pixels).all(1) & (points_mm[:, 2] > 1)
    points, seen = points_mm[use].astype(np.float64), pixels[use].astype(np.float64)
    if len(points) < FEWEST_POINTS:
        raise InputError(f"{len(points)} points before the camera are too few to find it: {FEWEST_POINTS} are needed")
    thin = np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(int)
    x, y = (points[thin, :2] / points[thin, 2:]).T
    u, v = seen[thin].T
    (fx, cx), (fy, cy) = (np.linalg.lstsq(np.stack([a, np.ones_like(a)], 1), b)[0] for a, b in ((x, u), (y, v)))
    values = np.array([fx, fy, cx, cy, 0, 0, 0, 0, 0])  # then k1 k2 p1 p2 k3
    for _ in range(20):
        predicted, jacobian = _project(x, y, values)
        scale = np.linalg.norm(jacobian, axis=0)
        step = np.linalg.lstsq(jacobian / scale, np.concatenate([u, v]) - predicted)[0] / scale
        values = values + step
        if np.abs(step * scale).max() < 1e-9 * np.abs(values * scale).max():
            break
    camera = Camera(
        focal=(float(values[0]), float(values[1])),
        centre=(float(values[2]), float(values[3])),
        size=size,
        distortion=tuple(float(k) for k in values[4:]),
    )
    error = np.linalg.norm(camera.project(points) - seen, axis=1)
    return Fit(camera, float(error.mean()), float(error.max()))


def _project(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (all u, then all v) of the rays (x, y, 1), and their derivative by the nine values."""
    fx, fy, cx, cy, *distortion = values
    r2 = x * x + y * y
    terms = np.stack(
        [
            np.stack([a * r2, a * r2**2, b, c, a * r2**3], 1)
            for a, b, c in (
                (x, 2 * x * y, r2 + 2 * x * x),
                (y, r2 + 2 * y * y, 2 * x * y),
            )
        ]
    )  # 2 n 5
    rays = np.stack([x, y]) + terms @ np.array(distortion)  # 2 n
    one, zero = np.ones_like(x), np.zeros_like(x)
    jacobian = np.concatenate(
        [
            np.stack([rays[0], zero, one, zero, *(fx * terms[0]).T], 1),
            np.stack([zero, rays[1], zero, one, *(fy * terms[1]).T], 1),
        ]
    )
    return np.concatenate([fx * rays[0] + cx, fy * rays[1] + cy]), jacobian
