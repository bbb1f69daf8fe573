"""A textured square pasted on a picture, and the joints that it hides.

Coordinates are continuous: pixel (column i, row j) covers [i, i + 1) x [j, j + 1), its centre is (i + 0.5, j + 0.5).
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.occlusion.textures import TextureSource


@dataclass(frozen=True)
class Rectangle:
    """Upright, in pixels of some picture."""

    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        if not (self.x0 < self.x1 and self.y0 < self.y1):
            raise InputError(f"a rectangle needs x0 < x1 and y0 < y1, got {self}")

    def strictly_contains(self, points: Float[np.ndarray, "J 2"]) -> Bool[np.ndarray, " J"]:
        """Which points lie inside, the border excluded. NaN points (not annotated) do not."""
        x, y = points[:, 0], points[:, 1]
        return (self.x0 < x) & (x < self.x1) & (self.y0 < y) & (y < self.y1)

    def contains(self, points: Float[np.ndarray, "J 2"]) -> Bool[np.ndarray, " J"]:
        """Which points lie inside or on the border."""
        x, y = points[:, 0], points[:, 1]
        return (self.x0 <= x) & (x <= self.x1) & (self.y0 <= y) & (y <= self.y1)


def keyed_generator(*key: str | int) -> np.random.Generator:
    """A generator that depends on the key alone, e.g. (seed, record id, placement): not on batches, ranks or order."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def paste(
    image: Image.Image,
    square: Rectangle,
    extent: float,
    textures: TextureSource,
    generator: np.random.Generator,
    clip: Rectangle | None = None,
) -> Image.Image:
    """A copy of `image` with texture on every pixel whose centre lies in `square` (and in `clip`, where one is given).

    `extent`: side of the square in crop pixels, which sets the grain of the texture. What falls outside of the picture
    is cut off: the texture does not move or shrink because of it.
    """
    left, top = math.ceil(square.x0 - 0.5), math.ceil(square.y0 - 0.5)
    side = max(math.ceil(square.x1 - 0.5) - left, math.ceil(square.y1 - 0.5) - top, 1)
    texture = textures(side, extent, generator)
    shown = square if clip is None else clip
    x0, y0 = (max(math.ceil(low - 0.5), first, 0) for low, first in ((shown.x0, left), (shown.y0, top)))
    x1 = min(math.ceil(min(square.x1, shown.x1) - 0.5), image.width)
    y1 = min(math.ceil(min(square.y1, shown.y1) - 0.5), image.height)
    occluded = image.copy()
    if x0 < x1 and y0 < y1:
        occluded.paste(Image.fromarray(texture[y0 - top : y1 - top, x0 - left : x1 - left]), (x0, y0))
    return occluded
