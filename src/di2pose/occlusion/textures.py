"""Textures for occluding patches: procedural ones from a seed, or the user's copy of the Describable Textures Dataset.

A texture source is called as `source(pixels, extent, generator)` and gives a (pixels, pixels, 3) uint8 RGB square that
shows `extent` crop pixels of a texture, so that the grain is the same on a small and on a large photograph.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from di2pose.errors import InputError

DTD_TEST_CLASSES = (
    "banded", "bubbly", "bumpy", "crosshatched", "frilly", "gauzy", "marbled", "matted", "paisley", "perforated",
    "pitted", "polka-dotted", "smeared", "spiralled", "sprinkled", "stained", "stratified", "striped", "swirly",
    "veined",
)  # fmt: skip
"""The 20 class folders that 3DNBF keeps for testing (its docker/dtd_splits/test.txt)."""

REFERENCE_SIDE = 256
"""A whole texture picture spans this many crop pixels along its short side."""

TextureSource = Callable[[int, float, np.random.Generator], np.ndarray]
"""(pixels, extent, generator) -> (pixels, pixels, 3) uint8."""


@dataclass(frozen=True)
class ProceduralTextures:
    """Eight kinds of two-colour pattern; kind, colours, scale, turn and phase come from the generator."""

    name: str = "procedural-1"

    def __call__(self, pixels: int, extent: float, generator: np.random.Generator) -> np.ndarray:
        return paint(list(KINDS)[generator.integers(len(KINDS))], pixels, extent, generator)


@dataclass(frozen=True)
class DtdTextures:
    """Random squares of the pictures in the test classes of a DTD folder (`dtd/images/<class>/*.jpg`)."""

    folder: Path

    @property
    def name(self) -> str:
        return f"dtd-test-{len(self.files)}"

    @cached_property
    def files(self) -> tuple[Path, ...]:
        root = self.folder / "images" if (self.folder / "images").is_dir() else self.folder
        missing = [name for name in DTD_TEST_CLASSES if not (root / name).is_dir()]
        if missing:
            raise InputError(
                f"the texture folder {self.folder} lacks {len(missing)} of the {len(DTD_TEST_CLASSES)} DTD test "
                f"classes ({', '.join(missing[:5])}...): point to the unpacked 'dtd' folder, or leave the option out "
                "for procedural textures"
            )
        files = sorted(file for name in DTD_TEST_CLASSES for file in (root / name).glob("*.jpg"))
        if not files:
            raise InputError(f"the texture folder {root} has the DTD class folders but no .jpg pictures in them")
        return tuple(files)

    def __call__(self, pixels: int, extent: float, generator: np.random.Generator) -> np.ndarray:
        texture = _read_texture(self.files[generator.integers(len(self.files))])
        side = min(extent / REFERENCE_SIDE, 1.0) * min(texture.size)
        left = generator.uniform(0, texture.width - side)
        top = generator.uniform(0, texture.height - side)
        square = texture.resize((pixels, pixels), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        return np.asarray(square)


@lru_cache(maxsize=64)
def _read_texture(file: Path) -> Image.Image:
    try:
        with Image.open(file) as picture:
            return picture.convert("RGB")
    except OSError as error:
        raise InputError(f"cannot read the texture {file}: {error}") from error


def paint(kind: str, pixels: int, extent: float, generator: np.random.Generator) -> np.ndarray:
    """One procedural texture of a named kind as (pixels, pixels, 3) uint8.

    It is computed at two samples per crop pixel at most and enlarged from there: large photographs would show no more.
    """
    samples = min(pixels, math.ceil(2 * extent))
    centres = (np.arange(samples) + 0.5) / samples * extent
    angle = generator.uniform(0, 2 * np.pi)
    x, y = np.meshgrid(centres, centres)
    u = np.cos(angle) * x - np.sin(angle) * y + generator.uniform(0, 100)
    v = np.sin(angle) * x + np.cos(angle) * y + generator.uniform(0, 100)
    weight = KINDS[kind](u, v, generator.uniform(6, 20), generator)[..., None]
    dark = generator.uniform(0, 130, 3)
    light = np.clip(dark + generator.uniform(60, 160, 3), 0, 255)  # clearly lighter, so that every pattern shows
    grain = 1 + 0.12 * (_noise(u, v, 1.5, generator)[..., None] - 0.5)
    square = np.clip((dark + (light - dark) * weight) * grain, 0, 255).astype(np.uint8)
    return square if samples == pixels else np.asarray(Image.fromarray(square).resize((pixels, pixels)))


def _step(x: np.ndarray, softness: float = 0.15) -> np.ndarray:
    """A soft 0 -> 1 edge at x = 0."""
    return np.clip(x / softness * 0.5 + 0.5, 0, 1)


def _noise(u: np.ndarray, v: np.ndarray, cell: float, generator: np.random.Generator) -> np.ndarray:
    """Value noise in [0, 1]: random values on a 64 x 64 torus of lattice points, smoothly interpolated."""
    lattice = generator.random((64, 64))
    i, j = np.floor(u / cell).astype(int), np.floor(v / cell).astype(int)
    a, b = u / cell - i, v / cell - j
    a, b = a * a * (3 - 2 * a), b * b * (3 - 2 * b)
    i, j, i1, j1 = i % 64, j % 64, (i + 1) % 64, (j + 1) % 64
    near = lattice[i, j] * (1 - a) + lattice[i1, j] * a
    far = lattice[i, j1] * (1 - a) + lattice[i1, j1] * a
    return near * (1 - b) + far * b


def _clouds(u: np.ndarray, v: np.ndarray, period: float, generator: np.random.Generator) -> np.ndarray:
    octaves = [_noise(u, v, 2 * period / 2**k, generator) / 2**k for k in range(4)]
    return np.clip((np.sum(octaves, axis=0) / 1.875 - 0.5) * 2 + 0.5, 0, 1)


def _dots(u: np.ndarray, v: np.ndarray, period: float, generator: np.random.Generator) -> np.ndarray:
    shifted = u + period / 2 * (np.floor(v / period) % 2)
    return _step(0.32 - np.hypot(shifted / period % 1 - 0.5, v / period % 1 - 0.5), 0.08)


def _rings(u: np.ndarray, v: np.ndarray, period: float, generator: np.random.Generator) -> np.ndarray:
    x, y = generator.uniform(u.min(), u.max()), generator.uniform(v.min(), v.max())
    return _step(np.sin(2 * np.pi * np.hypot(u - x, v - y) / period))


def _bricks(u: np.ndarray, v: np.ndarray, period: float, generator: np.random.Generator) -> np.ndarray:
    row = np.floor(v / period)
    along = (u / (2 * period) + 0.5 * (row % 2)) % 1
    joint = np.minimum(np.minimum(along, 1 - along) * 2, np.minimum(v / period % 1, 1 - v / period % 1))
    return _step(joint - 0.08, 0.05) * (0.75 + 0.25 * _noise(u, v, period / 2, generator))


KINDS: dict[str, Callable[[np.ndarray, np.ndarray, float, np.random.Generator], np.ndarray]] = {
    "stripes": lambda u, v, period, _: _step(np.sin(2 * np.pi * u / period)),
    "checks": lambda u, v, period, _: _step(np.sin(np.pi * u / period) * np.sin(np.pi * v / period)),
    "dots": _dots,
    "rings": _rings,
    "marble": lambda u, v, period, rng: np.sqrt(
        np.abs(np.sin(np.pi * (u / period + 2.5 * _clouds(u, v, period, rng))))
    ),
    "crosshatch": lambda u, v, period, _: np.min(
        [_step(np.abs(np.sin(np.pi * w / period)) - 0.25) for w in (u, v, 0.7 * (u + v))], axis=0
    ),
    "bricks": _bricks,
    "clouds": _clouds,
}
"""Pattern kind -> weight of the lighter colour in [0, 1] at texture coordinates (u, v) in crop pixels."""
