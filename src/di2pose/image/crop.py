"""The one crop of this project: a square region of an image <-> the network's input, for pixels, 2D, 3D and camera.

Pixel convention, used everywhere: image coordinates are continuous, the pixel of column i and row j covers
[i, i+1) x [j, j+1), so its centre is (i + 0.5, j + 0.5); an image of W x H pixels is [0, W] x [0, H]. Crop coordinates
are the same on [0, size] x [0, size]. x points right, y down.

Pixels are cropped by an affine (a similarity), not by the homography of a turned camera. For a crop away from the
optical axis the affine approximates that homography at the crop's centre; the rotation used for 3D is exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from di2pose.errors import InputError
from di2pose.pose.camera import Camera

ROI_MARGIN = 1.25
"""A crop's side over the body's size, as BlazePose was trained."""
DEFAULT_FIELD_OF_VIEW = 60.0
"""Degrees across the longer image side, assumed when no camera is known (phones 65 to 75, portraits 30 to 45)."""


@dataclass(frozen=True)
class Roi:
    """A square region: centre in image pixels, side in image pixels, angle in radians.

    The angle turns the crop's up direction: 0 is upright, positive is clockwise as seen in the image, so at +pi/2 what
    points right in the image points up in the crop.
    """

    centre: tuple[float, float]
    side: float
    angle: float = 0.0

    def __post_init__(self) -> None:
        if not (all(map(math.isfinite, (*self.centre, self.side, self.angle))) and self.side > 0):
            raise InputError(f"a region needs finite numbers and a side above 0 px, got {self}")

    def matrix(self, size: int = 256) -> Float[np.ndarray, "2 3"]:
        """Affine, crop pixels -> image pixels."""
        scale = self.side / size
        cos, sin = scale * math.cos(self.angle), scale * math.sin(self.angle)
        x, y = self.centre
        half = size / 2
        return np.array([[cos, -sin, x - half * (cos - sin)], [sin, cos, y - half * (sin + cos)]])

    def to_image(self, points: Float[np.ndarray, "*n 2"], size: int = 256) -> Float[np.ndarray, "*n 2"]:
        """2D points, crop pixels -> image pixels."""
        return apply(self.matrix(size), points)

    def to_crop(self, points: Float[np.ndarray, "*n 2"], size: int = 256) -> Float[np.ndarray, "*n 2"]:
        """2D points, image pixels -> crop pixels."""
        return apply(invert(self.matrix(size)), points)


def roi_from_box(box: Sequence[float], margin: float = ROI_MARGIN) -> Roi:
    """Upright region round a box (x0, y0, x1, y1): its centre, and `margin` times its longer side."""
    x0, y0, x1, y1 = (float(value) for value in box)
    if not (x1 > x0 and y1 > y0):
        raise InputError(f"a box is x0, y0, x1, y1 with x1 > x0 and y1 > y0, got {tuple(box)}")
    return Roi(((x0 + x1) / 2, (y0 + y1) / 2), margin * max(x1 - x0, y1 - y0))


def roi_from_keypoints(hip: Sequence[float], top: Sequence[float], margin: float = ROI_MARGIN) -> Roi:
    """BlazePose's region: centred on the hips, `top` (a point on the circle round the body) straight up."""
    x, y = float(hip[0]), float(hip[1])
    dx, dy = float(top[0]) - x, float(top[1]) - y
    return Roi((x, y), 2 * margin * math.hypot(dx, dy), math.atan2(dx, -dy))


def crop(image: Image.Image | np.ndarray, roi: Roi, size: int = 256) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The region's pixels: RGB, bilinear, low-pass filtered when shrunk, black outside the image."""
    return warp(image, roi.matrix(size), (size, size))


def warp(
    image: Image.Image | np.ndarray, matrix: Float[np.ndarray, "2 3"], size: tuple[int, int]
) -> UInt8[np.ndarray, "H W 3"]:
    """Pixels under an affine that takes output pixels -> image pixels; `size` is the output's (width, height)."""
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if picture.mode != "RGB":
        raise InputError(
            f"an image to crop must be RGB, got {picture.mode}: read it with di2pose.image.read.read_image"
        )
    width, height = size
    scale = math.sqrt(abs(np.linalg.det(matrix[:, :2])))
    corners = apply(matrix, np.array([[0, 0], [width, 0], [0, height], [width, height]], dtype=np.float64))
    margin = 2 * max(scale, 1.0)
    x0, y0 = np.maximum(np.floor(corners.min(0) - margin), 0).astype(int)
    x1, y1 = np.minimum(np.ceil(corners.max(0) + margin), picture.size).astype(int)
    if x1 <= x0 or y1 <= y0:
        return np.zeros((height, width, 3), dtype=np.uint8)
    # First shrink the part that is needed (PIL's resize widens its filter, its affine does not), then turn it.
    shrink = max(scale, 1.0)
    small = (max(1, round((x1 - x0) / shrink)), max(1, round((y1 - y0) / shrink)))
    part = picture.resize(small, Image.Resampling.BILINEAR, box=(x0, y0, x1, y1))
    to_small = np.array([[small[0] / (x1 - x0), 0.0], [0.0, small[1] / (y1 - y0)]])
    linear, offset = to_small @ matrix[:, :2], to_small @ (matrix[:, 2] - (x0, y0))
    # PIL evaluates the affine at pixel centres (i + 0.5, j + 0.5) of the output: the convention above.
    data = (linear[0, 0], linear[0, 1], offset[0], linear[1, 0], linear[1, 1], offset[1])
    return np.array(part.transform(size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR))


def fit_inside(image: Image.Image, side: int) -> tuple[UInt8[np.ndarray, "h w 3"], tuple[float, float]]:
    """The image with a longer side of `side` pixels, and image pixels for each of its pixels, across and down."""
    width, height = (max(1, round(side / max(image.size) * extent)) for extent in image.size)
    small = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    return small, (image.width / width, image.height / height)


def assumed_camera(size: tuple[int, int], field_of_view: float = DEFAULT_FIELD_OF_VIEW) -> Camera:
    """A pinhole camera for an image (width, height) of unknown camera: centred, `field_of_view` degrees across."""
    if not 1.0 <= field_of_view <= 170.0:
        raise InputError(f"field of view must lie between 1 and 170 degrees, got {field_of_view}")
    focal = max(size) / 2 / math.tan(math.radians(field_of_view) / 2)
    return Camera(focal=(focal, focal), centre=(size[0] / 2, size[1] / 2), size=size)


def crop_rotation(camera: Camera, roi: Roi) -> Float[np.ndarray, "3 3"]:
    """R with joints_crop = R @ joints_camera: the smallest turn that looks along the region's centre, then its roll."""
    x, y, z = _ray(camera, roi)
    # Smallest rotation that takes the unit ray to (0, 0, 1).
    shear = -x * y / (1 + z)
    turn = np.array([[1 - x * x / (1 + z), shear, -x], [shear, 1 - y * y / (1 + z), -y], [x, y, z]])
    cos, sin = math.cos(roi.angle), math.sin(roi.angle)
    return np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]]) @ turn


def crop_camera(camera: Camera, roi: Roi, size: int = 256) -> tuple[Camera, Float[np.ndarray, "3 3"]]:
    """The camera that the crop stands for, and R with joints_crop = R @ joints_camera.

    It looks along the ray through the region's centre and is rolled by the region's angle. Its focal length is the
    affine's scale at that centre; theta off the axis an image has f / cos^2 pixels a radian outwards and f / cos
    across, and the geometric mean is taken. On the axis all of this is exact.
    """
    rotation = crop_rotation(camera, roi)
    cos_theta = float(_ray(camera, roi)[2])
    focal = math.sqrt(camera.focal[0] * camera.focal[1]) / cos_theta**1.5 * size / roi.side
    world_to_crop = rotation @ np.asarray(camera.rotation, dtype=np.float64)
    translation = rotation @ np.asarray(camera.translation_mm, dtype=np.float64)
    intrinsic = np.array([[focal, 0.0, size / 2], [0.0, focal, size / 2]])
    return Camera.from_matrices(intrinsic, np.column_stack([world_to_crop, translation]), (size, size)), rotation


def invert(matrix: Float[np.ndarray, "2 3"]) -> Float[np.ndarray, "2 3"]:
    """The inverse of an affine."""
    linear = np.linalg.inv(matrix[:, :2])
    return np.concatenate([linear, -linear @ matrix[:, 2:]], axis=1)


def apply(matrix: Float[np.ndarray, "2 3"], points: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n 2"]:
    """An affine on 2D points, in the points' own precision."""
    cast = matrix.astype(np.result_type(points.dtype, np.float32))
    return points @ np.ascontiguousarray(cast[:, :2].T) + cast[:, 2]


def _ray(camera: Camera, roi: Roi) -> Float[np.ndarray, " 3"]:
    """Unit vector from the camera through the region's centre."""
    ray = camera.unproject_ray(np.array(roi.centre, dtype=np.float64))
    if not np.isfinite(ray).all():
        raise InputError(f"the camera's lens model cannot reach the region's centre {roi.centre}: check its distortion")
    return ray / np.linalg.norm(ray)
