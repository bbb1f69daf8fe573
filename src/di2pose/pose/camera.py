"""A pinhole camera with OpenCV's distortion. Axes: x right, y down, z away from the camera; millimetres and pixels."""

from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.pose.skeleton import Array

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]
IDENTITY: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Camera:
    """Intrinsics in pixels, distortion, and the pose of the camera: x_camera = rotation @ x_world + translation_mm."""

    focal: tuple[float, float]
    centre: tuple[float, float]
    """The principal point, in the pixel convention of the 2D joints of its data set."""
    size: tuple[int, int] | None = None
    """(width, height) of the picture; None where it is not known."""
    distortion: tuple[float, ...] = ()
    """OpenCV's order: k1, k2, p1, p2[, k3[, k4, k5, k6]]."""
    rotation: Matrix = IDENTITY
    translation_mm: Vector = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        if len(self.focal) != 2 or not all(0 < f < np.inf for f in self.focal):
            raise InputError(f"a camera needs two positive focal lengths in pixels, got {self.focal}")
        if len(self.centre) != 2 or not np.isfinite(self.centre).all():
            raise InputError(f"a camera needs a finite principal point (x, y) in pixels, got {self.centre}")
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise InputError(f"a camera's size must be (width, height) in pixels, got {self.size}")
        if len(self.distortion) not in (0, 4, 5, 8) or not np.isfinite(self.distortion).all():
            raise InputError(
                f"distortion must be 0, 4, 5 or 8 finite numbers in OpenCV's order (k1, k2, p1, p2, k3, k4, k5, k6), "
                f"got {self.distortion}"
            )
        rotation = np.asarray(self.rotation, dtype=np.float64)
        # Files hold rotations in float32 or with a few decimals; mirrors and scales are refused.
        square = rotation.shape == (3, 3)
        if not square or not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) or np.linalg.det(rotation) < 0:
            raise InputError(f"a camera's rotation must be an orthonormal 3x3 matrix of determinant +1, got {rotation}")
        if np.shape(self.translation_mm) != (3,) or not np.isfinite(self.translation_mm).all():
            raise InputError(f"a camera's translation must be three finite numbers in mm, got {self.translation_mm}")

    def project(self, points_mm: Array) -> Array:
        """Pixels (..., 2) of points (..., 3) in this camera's axes; NaN for points that are not in front (z <= 0).

        Of numpy arrays (in float64) or torch tensors (differentiable, in their own precision).
        """
        _check(points_mm, 3)
        library: Any = np if isinstance(points_mm, np.ndarray) else import_module("torch")
        points: Any = points_mm.astype(np.float64) if isinstance(points_mm, np.ndarray) else points_mm
        ahead = points[..., 2:] > 0
        # The depth is replaced before the division so that points behind the camera get gradient 0, not NaN.
        flat = points[..., :2] / library.where(ahead, points[..., 2:], 1.0)
        px: Array = library.where(ahead, library.stack(self._pixels(flat[..., 0], flat[..., 1]), -1), library.nan)
        return px

    def unproject_ray(self, px: np.ndarray) -> Float[np.ndarray, "*B 3"]:
        """The ray (x/z, y/z, 1) through each pixel (..., 2), in camera axes: times the depth z it is the point.

        Distortion is inverted by Newton's method to 1e-12; a pixel that the lens model cannot reach gives NaN.
        """
        _check(px, 2)
        goal = (px.astype(np.float64) - self.centre) / self.focal
        if not self.distortion:
            return np.concatenate([goal, np.ones_like(goal[..., :1])], axis=-1)
        flat = goal.copy()
        with np.errstate(all="ignore"):  # a pixel that cannot be reached may run off to infinity; it becomes NaN below
            for _ in range(50):
                miss = self._distort(flat) - goal
                if np.nanmax(np.abs(miss), initial=0.0) < 1e-12:
                    break
                flat = flat - _solve(self._jacobian(flat), miss)
            found = np.abs(self._distort(flat) - goal).max(-1) < 1e-9
            # A polynomial lens folds over far outside the picture; beyond the fold Newton may find a second, false ray.
            (a, b), (c, d) = np.moveaxis(self._jacobian(flat), (-2, -1), (0, 1))
            found &= (a + d > 0) & (a * d - b * c > 0)
            flat = np.where(found[..., None], flat, np.nan)
        return np.concatenate([flat, np.ones_like(flat[..., :1])], axis=-1)

    def to_camera(self, world_mm: np.ndarray) -> Float[np.ndarray, "*B 3"]:
        """World points (..., 3) in this camera's axes."""
        _check(world_mm, 3)
        return world_mm.astype(np.float64) @ np.asarray(self.rotation).T + self.translation_mm

    def to_world(self, camera_mm: np.ndarray) -> Float[np.ndarray, "*B 3"]:
        """The inverse of `to_camera`, also when the rotation was stored with few decimals."""
        _check(camera_mm, 3)
        return (camera_mm.astype(np.float64) - self.translation_mm) @ np.linalg.inv(np.asarray(self.rotation)).T

    def to_json(self) -> Json:
        values = asdict(self) | {"size": None}
        lists = {key: None if value is None else np.asarray(value, float).tolist() for key, value in values.items()}
        return lists | {"size": None if self.size is None else [int(side) for side in self.size]}

    @classmethod
    def from_json(cls, record: Json) -> "Camera":
        wanted = set(cls.__dataclass_fields__)
        if set(record) != wanted:
            raise InputError(f"a camera record needs exactly the keys {sorted(wanted)}, got {sorted(record)}")
        size = record["size"]
        numbers = {key: _tuples(record[key]) for key in wanted - {"size"}}
        return cls(size=None if size is None else (int(size[0]), int(size[1])), **numbers)

    @classmethod
    def from_matrices(
        cls,
        intrinsic: np.ndarray,
        world_to_camera: np.ndarray,
        size: tuple[int, int] | None,
        unit_mm: float = 1.0,
        distortion: tuple[float, ...] = (),
    ) -> "Camera":
        """From the matrix (3 3 or 4 4) of a calibration, and a pose (3 4 or 4 4) whose lengths are in `unit_mm`."""
        (fx, _, cx), (_, fy, cy) = intrinsic[:2, :3].tolist()
        rotation, translation = _tuples(world_to_camera[:3, :3]), _tuples(world_to_camera[:3, 3] * unit_mm)
        return cls((fx, fy), (cx, cy), size, distortion, rotation, translation)

    def _bend(self, x: Any, y: Any) -> tuple[Any, Any]:
        """OpenCV's lens: rational radial term and tangential term on (x/z, y/z)."""
        k1, k2, p1, p2, k3, k4, k5, k6 = (*self.distortion, *(0.0,) * (8 - len(self.distortion)))
        r2 = x * x + y * y
        radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
        return (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
        )

    def _pixels(self, x: Any, y: Any) -> tuple[Any, Any]:
        bent_x, bent_y = self._bend(x, y) if self.distortion else (x, y)
        return bent_x * self.focal[0] + self.centre[0], bent_y * self.focal[1] + self.centre[1]

    def _distort(self, flat: np.ndarray) -> np.ndarray:
        return np.stack(self._bend(flat[..., 0], flat[..., 1]), axis=-1)

    def _jacobian(self, flat: np.ndarray) -> np.ndarray:
        """(..., 2, 2) derivative of the lens; central differences are exact enough for a Newton step."""
        step = 1e-6
        columns = [(self._distort(flat + d) - self._distort(flat - d)) / (2 * step) for d in step * np.eye(2)]
        return np.stack(columns, axis=-1)


def fit_root(joints_mm: np.ndarray, joints_2d: np.ndarray, camera: Camera) -> Float[np.ndarray, "*B 3"]:
    """The root position (..., 3) at which root-relative poses (..., J, 3) project onto the 2D joints (..., J, 2).

    Linear least squares of (x + tx) - u (z + tz) = 0 and (y + ty) - v (z + tz) = 0 on the rays (u, v, 1); exact where
    pose and 2D joints agree. Joints that are not finite are left out; NaN where fewer than two remain.
    """
    _check(joints_mm, 3)
    x, y, z = np.moveaxis(joints_mm.astype(np.float64), -1, 0)
    u, v, one = np.broadcast_arrays(*np.moveaxis(camera.unproject_ray(joints_2d), -1, 0), x)[:3]
    usable = np.isfinite(x + y + z + u + v)
    zero = np.zeros_like(u)
    rows = np.stack([one, zero, -u, u * z - x, zero, one, -v, v * z - y], axis=-1)
    rows = np.where(usable[..., None], rows, 0.0).reshape(*rows.shape[:-2], -1, 4)  # two rows per joint
    root = (np.linalg.pinv(rows[..., :3]) @ rows[..., 3:])[..., 0]
    return np.where(usable.sum(-1, keepdims=True) >= 2, root, np.nan)


MOST_FIT_POINTS = 20_000
FEWEST_FIT_POINTS = 60
"""For the nine numbers of `fit_camera`."""


@dataclass(frozen=True)
class CameraFit:
    """A fitted camera and the distance of its projections from the given pixels."""

    camera: Camera
    mean_px: float
    largest_px: float

    def to_json(self) -> dict[str, float]:
        return {"camera_fit_mean_px": self.mean_px, "camera_fit_largest_px": self.largest_px}


def fit_camera(
    points_mm: Float[np.ndarray, "n 3"], pixels: Float[np.ndarray, "n 2"], size: tuple[int, int] | None = None
) -> CameraFit:
    """The camera that projects points in its own axes onto their pixels: focal lengths, centre and the distortion
    k1 k2 p1 p2 k3 by least squares, starting from the pinhole fit. The caller judges the residual."""
    from scipy.optimize import least_squares  # takes a third of a second to import

    use = np.isfinite(points_mm).all(1) & np.isfinite(pixels).all(1) & (points_mm[:, 2] > 1)
    points, seen = points_mm[use].astype(np.float64), pixels[use].astype(np.float64)
    if len(points) < FEWEST_FIT_POINTS:
        raise InputError(f"{len(points)} points before the camera are too few: {FEWEST_FIT_POINTS} are needed")
    some = np.linspace(0, len(points) - 1, min(len(points), MOST_FIT_POINTS)).astype(int)
    rays = points[some, :2] / points[some, 2:]
    (fx, cx), (fy, cy) = (np.polyfit(rays[:, axis], seen[some, axis], 1) for axis in (0, 1))

    def camera(values: np.ndarray) -> Camera:
        fx, fy, cx, cy, *distortion = values.tolist()
        return Camera((max(fx, 1.0), max(fy, 1.0)), (cx, cy), size, tuple(distortion))  # pixels may be nonsense

    def misses(values: np.ndarray) -> np.ndarray:
        return (camera(values).project(points[some]) - seen[some]).ravel()

    start = np.array([fx, fy, cx, cy, 0, 0, 0, 0, 0])
    found = camera(least_squares(misses, start, "3-point", method="lm", x_scale="jac", xtol=1e-15, ftol=1e-15).x)
    error = np.linalg.norm(found.project(points) - seen, axis=1)
    return CameraFit(found, float(error.mean()), float(error.max()))


def _solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """matrix^-1 vector for 2x2 matrices; a singular one gives inf or NaN for that pixel alone, not an error for all."""
    (a, b), (c, d) = np.moveaxis(matrix, (-2, -1), (0, 1))
    u, v = np.moveaxis(vector, -1, 0)
    return np.stack([d * u - b * v, a * v - c * u], axis=-1) / (a * d - b * c)[..., None]


def _tuples(values: Any) -> Any:
    """Nested sequences of numbers as nested tuples of floats."""
    numbers = np.asarray(values, float).tolist()
    return tuple(tuple(each) if isinstance(each, list) else each for each in numbers)


def _check(points: Any, width: int) -> None:
    if points.ndim < 1 or points.shape[-1] != width:
        raise InputError(f"expected points of shape (..., {width}), got {tuple(points.shape)}")
