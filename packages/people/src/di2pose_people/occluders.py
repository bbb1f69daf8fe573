"""What hides parts of a person: boxes that stand in front, pasted patches, and the border of the photo."""

import numpy as np

from di2pose_people.raster import BOTH_SIDES, Mesh, piece
from di2pose_people.textures import painted_tile
from di2pose_people.view import SIZE, View

Point = tuple[float, float, float]
Shape = tuple[float, float]
"""Exponents of a superellipsoid's profile and plan: towards 0 they are square. (1, 1) is a ball, (0.1, 1) a disc or
post, (0.3, 0.3) a cushion."""

ANY, LARGE = (24.0, 115.0), (55.0, 115.0)
"""Least and greatest side of a patch in pixels."""
CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
SIDES = np.array([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])
BOX = np.array([[first, first + i, first + i + 1] for first in range(0, 24, 4) for i in (1, 2)], np.int32)
"""The 12 triangles of a box whose 6 sides have 4 vertices each."""
RINGS, SECTORS = 9, 18
"""Of a rounded box's mesh."""


def draw_texture(generator: np.random.Generator) -> np.ndarray:
    """A painted tile without holes, (128, 128, 4)."""
    return np.pad(painted_tile(generator), ((0, 0), (0, 0), (0, 1)), constant_values=255)


def solid(
    low: Point, high: Point, texture: np.ndarray, shape: Shape | None = None, axes: np.ndarray | None = None
) -> Mesh:
    """A box, or a superellipsoid that fills it; `axes` (3, 4) takes it into the world: three axes and the origin."""
    size = np.subtract(high, low)
    if shape is None:
        vertices, faces, gloss = ((CORNERS * size)[SIDES]).reshape(-1, 3), BOX, 0.0
        sides = vertices.reshape(6, 4, 3)
        width, height = (np.linalg.norm(sides[:, i] - sides[:, 0], axis=1) for i in (1, 3))
        zero = np.zeros(6)
        uv = np.stack([zero, zero, width, zero, width, height, zero, height], axis=1).reshape(-1, 2)
    else:
        rise, turn = np.linspace(-np.pi / 2, np.pi / 2, RINGS)[:, None], np.linspace(0, 2 * np.pi, SECTORS + 1)
        circle = [rise, rise, turn, turn]
        waves = zip((np.cos, np.sin, np.cos, np.sin), circle, np.repeat(shape, 2), strict=True)
        ring, up, x, y = (np.sign(wave(angle)) * np.abs(wave(angle)) ** power for wave, angle, power in waves)
        vertices = np.stack([ring * x, ring * y, up + 0 * turn], axis=-1).reshape(-1, 3) * size / 2
        uv = vertices[:, :2] + vertices[:, 2:]
        first = (np.arange(RINGS - 1)[:, None] * (SECTORS + 1) + np.arange(SECTORS)).ravel()
        a, b, c, d = first, first + 1, first + SECTORS + 2, first + SECTORS + 1
        faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)]).astype(np.int32)
        gloss = 0.03
    vertices = vertices + np.add(low, high) / 2
    if axes is not None:
        vertices = vertices @ axes[:, :3].T + axes[:, 3]
    return piece(vertices, faces, uv.astype(np.float32), faces, BOTH_SIDES, texture, gloss, 0.0)


def furniture_in_front(joints: np.ndarray, view: View, ground: float, generator: np.random.Generator) -> list[Mesh]:
    """A table or counter before the legs, or a post before one side; between the person and the camera."""
    height = float(joints[:, 2].max() - ground)
    ahead = generator.uniform(0.45, min(1.2, max(0.5, view.distance_m - 1.1)))
    if generator.random() < 0.6:
        size, aside = generator.uniform((0.5, 0.1, 0.2 * height), (1.8, 0.6, 0.62 * height)), generator.normal(0, 0.3)
    else:
        size, aside = generator.uniform((0.12, 0.05, 1.5), (0.45, 0.3, 3.0)), generator.uniform(-0.45, 0.45)
    return [_standing(joints, view, ground, size, -ahead, aside, generator.normal(0, 0.35), generator)]


def furniture_around(joints: np.ndarray, view: View, ground: float, generator: np.random.Generator) -> list[Mesh]:
    """Boxes behind and beside the person, so that rooms are not empty."""
    out = []
    for _ in range(int(generator.integers(0, 4))):
        size, turn = generator.uniform((0.3, 0.3, 0.3), (1.4, 0.9, 2.0)), generator.uniform(0, np.pi)
        beyond, aside = generator.uniform(0.9, 3.0), generator.normal(0, 1.4)
        out.append(_standing(joints, view, ground, size, beyond, aside, turn, generator))
    return out


def _standing(
    joints: np.ndarray, view: View, ground: float, size: np.ndarray, beyond: float, aside: float, turn: float,
    generator: np.random.Generator,
) -> Mesh:  # fmt: skip
    """A box on the floor, `beyond` the person as the camera sees it and `aside`, turned against the camera."""
    away = joints[0, :2] - view.position[:2]
    angle = float(np.arctan2(away[1], away[0]))
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = joints[0, :2] + (beyond * cos - aside * sin, beyond * sin + aside * cos)
    turn += angle + np.pi / 2
    axes = np.array([[np.cos(turn), -np.sin(turn), 0, x], [np.sin(turn), np.cos(turn), 0, y], [0, 0, 1, ground]])
    half = size[:2] / 2
    return solid((-half[0], -half[1], 0.0), (*half, size[2]), draw_texture(generator), None, axes)


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
    points: np.ndarray, roll: float, generator: np.random.Generator, cut: float
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
