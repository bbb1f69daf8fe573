"""What hides parts of a person: pasted patches, boxes that stand in front, and the border of the photo."""

import numpy as np

from di2pose_people.raster import BOTH_SIDES, Mesh, join, piece
from di2pose_people.textures import painted_tile
from di2pose_people.view import SIZE, View

ANY, LARGE = (24.0, 115.0), (55.0, 115.0)
"""Least and greatest side of a patch in pixels."""
CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
SIDES = np.array([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])
BOX = np.array([[first, first + i, first + i + 1] for first in range(0, 24, 4) for i in (1, 2)], np.int32)
"""The 12 triangles of a box whose 6 sides have 4 vertices each."""


def boxes(places: list[np.ndarray], generator: np.random.Generator) -> Mesh:
    """places: 4 x 4 matrices that take the unit cube (centre 0) into the world. Each box has a painted tile."""
    return join([box(place, draw_texture(generator)) for place in places])


def box(place: np.ndarray, texture: np.ndarray) -> Mesh:
    """The unit cube (centre 0), taken into the world by a 4 x 4 matrix."""
    sides = (CORNERS @ place[:3, :3].T + place[:3, 3])[SIDES]  # 6 4 3
    width, height = (np.linalg.norm(sides[:, i] - sides[:, 0], axis=1) for i in (1, 3))
    zero = np.zeros(len(sides))
    uv = np.stack([zero, zero, width, zero, width, height, zero, height], axis=1).reshape(-1, 2)
    return piece(sides.reshape(-1, 3), BOX, uv, BOX, BOTH_SIDES, texture, 0.0, 0.0)


def draw_texture(generator: np.random.Generator) -> np.ndarray:
    """A painted tile without holes, (128, 128, 4)."""
    return np.pad(painted_tile(generator), ((0, 0), (0, 0), (0, 1)), constant_values=255)


def furniture_in_front(
    joints: np.ndarray, view: View, ground: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """A table or counter before the legs, or a post before one side; between the person and the camera."""
    towards = view.position[:2] - joints[0, :2]
    towards /= np.linalg.norm(towards)
    aside = np.array([-towards[1], towards[0]])
    height = float(joints[:, 2].max() - ground)
    ahead = generator.uniform(0.45, min(1.2, max(0.5, view.distance_m - 1.1)))
    turn = np.arctan2(aside[1], aside[0]) + generator.normal(0, 0.35)
    if generator.random() < 0.6:
        top = height * generator.uniform(0.2, 0.62)
        size = np.array([generator.uniform(0.5, 1.8), generator.uniform(0.1, 0.6), top])
        middle = joints[0, :2] + towards * ahead + aside * generator.normal(0, 0.3)
    else:
        size = np.array([generator.uniform(0.12, 0.45), generator.uniform(0.05, 0.3), generator.uniform(1.5, 3.0)])
        middle = joints[0, :2] + towards * ahead + aside * generator.uniform(-0.45, 0.45)
    return [_placed(np.array([*middle, ground + size[2] / 2]), size, turn)]


def furniture_around(joints: np.ndarray, view: View, ground: float, generator: np.random.Generator) -> list[np.ndarray]:
    """Boxes behind and beside the person, so that rooms are not empty."""
    away = joints[0, :2] - view.position[:2]
    away /= np.linalg.norm(away)
    aside = np.array([-away[1], away[0]])
    out = []
    for _ in range(int(generator.integers(0, 4))):
        size = generator.uniform((0.3, 0.3, 0.3), (1.4, 0.9, 2.0))
        middle = joints[0, :2] + away * generator.uniform(0.9, 3.0) + aside * generator.normal(0, 1.4)
        out.append(_placed(np.array([*middle, ground + size[2] / 2]), size, generator.uniform(0, np.pi)))
    return out


def _placed(centre: np.ndarray, size: np.ndarray, turn: float) -> np.ndarray:
    cos, sin = np.cos(turn), np.sin(turn)
    place = np.eye(4)
    place[:3, :3] = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]) * size
    place[:3, 3] = centre
    return place


def patch(
    points: np.ndarray, generator: np.random.Generator, sizes: tuple[float, float] = ANY
) -> tuple[np.ndarray, np.ndarray]:
    """A textured square, ellipse or polygon over one of the points (J, 2): mask (256, 256) bool, linear colour."""
    inside = points[((points > 0) & (points < SIZE)).all(axis=1)]
    x, y = inside[int(generator.integers(len(inside)))] if len(inside) else np.full(2, SIZE / 2)
    x, y = x + generator.normal(0, 8), y + generator.normal(0, 8)
    size = np.exp(generator.uniform(*np.log(sizes)))
    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) + 0.5
    turn = 0.0 if generator.random() < 0.4 else generator.uniform(0, np.pi)
    a = ((columns - x) * np.cos(turn) + (rows - y) * np.sin(turn)) / (size / 2)
    b = ((rows - y) * np.cos(turn) - (columns - x) * np.sin(turn)) / (size / 2 * generator.uniform(0.5, 1.4))
    kind = generator.random()
    if kind < 0.45:
        mask = (np.abs(a) < 1) & (np.abs(b) < 1)
    elif kind < 0.75:
        mask = a * a + b * b < 1
    else:  # the overlap of a few half planes
        mask = a * a + b * b < 2
        for angle in np.sort(generator.uniform(0, 2 * np.pi, int(generator.integers(3, 7)))):
            mask &= a * np.cos(angle) + b * np.sin(angle) < generator.uniform(0.5, 1.0)
    tile = painted_tile(generator)
    zoom = generator.uniform(0.5, 2.0)
    i, j = (rows * zoom).astype(int) % len(tile), (columns * zoom).astype(int) % len(tile)
    return mask, (tile[i, j].astype(np.float32) / 255) ** 2 * generator.uniform(0.4, 1.0)


def photo_border(
    points: np.ndarray, roll: float, generator: np.random.Generator, cut: float = 0.15
) -> tuple[np.ndarray | None, bool]:
    """The part of the crop that lies inside the photo, (256, 256) bool, None for all; and whether it cuts the person.

    points (J, 2) in crop pixels. The photo's edges are turned by -roll in the crop. `cut`: how often they cut.
    """
    cos, sin = np.cos(-roll), np.sin(-roll)
    right = np.array([cos, sin])
    edges = (right, np.array([-sin, cos]), -right, -np.array([-sin, cos]))  # right, bottom, left, top of the photo
    chance = generator.random()
    limits: list[tuple[np.ndarray, float]] = []
    cuts = False
    if chance < cut:  # cut the person, most often the legs
        edge = edges[int(generator.choice(4, p=(0.2, 0.45, 0.2, 0.15)))]
        reach = (points - SIZE / 2) @ edge
        limits.append((edge, float(generator.uniform(np.percentile(reach, 55), reach.max()))))
        cuts = True
    elif chance < cut + 0.3:  # pass beside the person
        first = int(generator.integers(4))
        for edge in (edges[first], edges[(first + 2) % 4])[: int(generator.integers(1, 3))]:
            limits.append((edge, float(((points - SIZE / 2) @ edge).max() + generator.uniform(8, 60))))
    if not limits:
        return None, False
    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) + 0.5 - SIZE / 2
    inside = np.ones((SIZE, SIZE), bool)
    for edge, limit in limits:
        inside &= columns * edge[0] + rows * edge[1] < limit
    return inside, cuts
