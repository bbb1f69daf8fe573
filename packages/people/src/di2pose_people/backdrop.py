"""What stands behind a person: a room, open ground under a sky, a plain or patterned sheet, or the user's photos."""

from pathlib import Path
from typing import no_type_check

import numpy as np
from PIL import Image

from di2pose.errors import InputError
from di2pose_people.light import Light, lit
from di2pose_people.raster import compiled
from di2pose_people.textures import draw_colour, painted_tile
from di2pose_people.view import SIZE, View


def draw_backdrop(
    view: View, ground: float, light: Light, cover: np.ndarray, photos: tuple[Path, ...], generator: np.random.Generator
) -> np.ndarray:
    """(256, 256, 3) linear light, with the person's shadow on the floor where there is a floor.

    Pixels that `cover` (256, 256) says are hidden wholly may be left black.
    """
    if photos and generator.random() < 0.7:
        return _photo(photos[int(generator.integers(len(photos)))], view, generator)
    chance = generator.random()
    if chance < 0.62:
        return _room(view, ground, light, cover, chance < 0.42, generator)
    return _sheet(chance < 0.8, generator)


def _room(
    view: View, ground: float, light: Light, cover: np.ndarray, walls: bool, generator: np.random.Generator
) -> np.ndarray:
    """A box-shaped room round the person, or (no walls) a floor to the horizon and a sky."""
    half = generator.uniform(1.5, 6.0, 2) if walls else np.array([200.0, 200.0])
    shift = np.array([*(generator.uniform(-0.6, 0.6, 2) * np.minimum(half, 3.0)), 0.0])
    low = np.array([-half[0], -half[1], 0.0])
    high = np.array([half[0], half[1], generator.uniform(2.4, 3.6) if walls else 60.0])
    turn = generator.uniform(0, np.pi / 2)
    cos, sin = np.cos(turn), np.sin(turn)
    to_room = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
    origin = to_room @ (view.position - (0, 0, ground)) + shift
    tiles = np.stack([painted_tile(generator) for _ in range(3)])
    scales = generator.uniform(0.3, 1.6, 3)
    sky = np.stack([draw_colour(generator, 0.2, 1.0) for _ in range(2)]) if not walls else np.zeros((2, 3))
    out = np.zeros((SIZE, SIZE, 3), np.float32)
    _trace(
        out, cover, origin, to_room @ view.rotation.T, view.focal, low, high, tiles,
        tiles.mean(axis=(1, 2), dtype=np.float32), scales, walls, sky.astype(np.float32),
        generator.uniform(0.4, 1.0, 3), light,
    )  # fmt: skip
    return out


@compiled
@no_type_check
def _trace(
    out, cover, origin, to_room, focal, low, high, tiles, means, scales, walls, sky, dim, light,
) -> None:  # fmt: skip
    """One ray a pixel against the inside of the box `low` .. `high`; to_room turns camera rays into the room's axes."""
    size = out.shape[0]
    tile_size = tiles.shape[1]
    up, towards, colour = light.up, light.directions[0], light.colours[0]
    for row in range(size):
        for column in range(size):
            if cover[row, column] >= 1:
                continue
            cx, cy = (column + 0.5 - size / 2) / focal, (row + 0.5 - size / 2) / focal
            best = 1e9
            face = -1
            dx = to_room[0, 0] * cx + to_room[0, 1] * cy + to_room[0, 2]
            dy = to_room[1, 0] * cx + to_room[1, 1] * cy + to_room[1, 2]
            dz = to_room[2, 0] * cx + to_room[2, 1] * cy + to_room[2, 2]
            for axis in range(3):
                d = dx if axis == 0 else dy if axis == 1 else dz
                if abs(d) < 1e-9:
                    continue
                t = ((high[axis] if d > 0 else low[axis]) - origin[axis]) / d
                if 0 < t < best:
                    best = t
                    face = axis * 2 + (1 if d > 0 else 0)
            x, y, z = origin[0] + best * dx, origin[1] + best * dy, origin[2] + best * dz
            floor = face == 4
            if face < 0 or (not walls and not floor):
                rise = min(max(dz / np.sqrt(dx * dx + dy * dy + dz * dz), 0.0), 1.0)
                for c in range(3):
                    out[row, column, c] = sky[0, c] + (sky[1, c] - sky[0, c]) * rise
                continue
            which = 0 if floor else 1 if face < 4 else 2
            a, b = (x, y) if face >= 4 else (y, z) if face < 2 else (x, z)
            i = int(np.floor(a / scales[which] * tile_size)) % tile_size
            j = int(np.floor(b / scales[which] * tile_size)) % tile_size
            # Far away or at a flat angle a pixel covers many texels: go to the tile's mean, or it would flicker.
            slant = abs(dz) if face >= 4 else abs(dx) if face < 2 else abs(dy)
            texels = best * np.sqrt(1 + cx * cx + cy * cy) / (focal * slant) * tile_size / scales[which]
            blur = min(max((texels - 1.0) / 3.0, 0.0), 1.0)
            shade = 0.55 + 0.45 * (face % 2) if not floor else 1.0
            strength = np.float32(dim[which] * 0.6)
            if floor:
                strength = max(up[0] * towards[0] + up[1] * towards[1] + up[2] * towards[2], 0.0)
                strength *= lit(best * cx, best * cy, best, light)
            haze = 0.0 if walls else 1 - np.exp(-best / 60.0)
            for c in range(3):
                value = (tiles[which, j, i, c] * (1 - blur) + means[which, c] * blur) / 255.0
                value = value * value * shade * (0.5 * (light.sky[c] + light.ground[c]) + strength * colour[c])
                out[row, column, c] = value + (sky[0, c] - value) * haze


def _sheet(patterned: bool, generator: np.random.Generator) -> np.ndarray:
    """A wall in soft or hard pattern, or two colours that run into each other, with blurred shapes before it."""
    y, x = (np.mgrid[0:SIZE, 0:SIZE] + 0.5) / SIZE
    angle = generator.uniform(0, 2 * np.pi)
    ends = [draw_colour(generator).astype(np.float32) for _ in range(2)]
    tile = painted_tile(generator) if patterned else None
    count = int(generator.integers(0, 9))
    centres, half_axes = generator.uniform(-0.1, 1.1, (count, 2)), generator.uniform(0.04, 0.35, (count, 2))
    softness, square = generator.uniform(0.01, 0.12, count), generator.integers(0, 2, count)
    colours = [draw_colour(generator) for _ in range(count)]
    zoom = generator.uniform(0.5, 2.5)
    if tile is None:
        t = np.clip(0.5 + (x - 0.5) * np.cos(angle) + (y - 0.5) * np.sin(angle), 0, 1)[..., None]
        out = (ends[0] * (1 - t) + ends[1] * t).astype(np.float32)
    else:
        rows, columns = ((place * zoom * len(tile)).astype(int) % len(tile) for place in (y, x))
        out = ((tile[rows, columns] / 255.0) ** 2).astype(np.float32)
    for n, ((x0, y0), (a, b)) in enumerate(zip(centres, half_axes, strict=True)):
        part = tuple(
            slice(max(int((at - half) * SIZE), 0), max(int((at + half) * SIZE) + 1, 0))
            for at, half in ((y0, b), (x0, a))
        )
        u, v = np.abs(x[part] - x0) / a, np.abs(y[part] - y0) / b
        reach = 1 - (np.maximum(u, v) if square[n] else np.hypot(u, v))
        out[part] += (colours[n] - out[part]) * np.clip(reach * min(a, b) / softness[n], 0, 1)[..., None]
    return out


def photo_files(folder: Path | None) -> tuple[Path, ...]:
    """The user's background photos, sorted; they should show no people, who would have no labels."""
    if folder is None:
        return ()
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    if not files:
        raise InputError(f"--backgrounds wants a folder of photos (jpg, png, webp), and {folder} has none")
    return tuple(files)


def _photo(path: Path, view: View, generator: np.random.Generator) -> np.ndarray:
    """A random square of a photo, turned as the crop is turned."""
    with Image.open(path) as image:
        image.draft("RGB", (2 * SIZE, 2 * SIZE))
        picture = image.convert("RGB")
    side = min(picture.size) * generator.uniform(0.3, 0.7)
    x, y = (generator.uniform(0.5 * side, edge - 0.5 * side) for edge in picture.size)
    cos, sin = side / SIZE * np.cos(view.roll), side / SIZE * np.sin(view.roll)
    half = SIZE / 2
    matrix = (cos, -sin, x - half * (cos - sin), sin, cos, y - half * (sin + cos))
    square = picture.transform((SIZE, SIZE), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    return (np.asarray(square, np.float32) / 255) ** 2
