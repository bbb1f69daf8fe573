"""Parts of furniture: boxes, cushions, discs, balls, wheels and back rests. The person faces -y, z up, metres."""

import numpy as np

from di2pose_people.occluders import box, draw_texture
from di2pose_people.raster import BOTH_SIDES, Mesh, piece

RINGS, SECTORS = 9, 18
"""Of a round part's mesh."""


class FurnitureBuilder:
    """Collects the parts of a piece of furniture; parts of one material share a texture."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator, self.parts = generator, list[Mesh]()
        self.materials = [draw_texture(generator) for _ in range(3)]

    def box(self, low: tuple[float, float, float], high: tuple[float, float, float], material: int = 0) -> None:
        place = np.eye(4)
        place[:3, :3] *= np.subtract(high, low)
        place[:3, 3] = np.add(low, high) / 2
        self.parts.append(box(place, self.materials[material]))

    def slab(self, centre: np.ndarray, axes: np.ndarray, size: np.ndarray, material: int = 0) -> None:
        """A box whose axes are the columns of `axes`."""
        place = np.eye(4)
        place[:3, :3] = axes * size
        place[:3, 3] = centre
        self.parts.append(box(place, self.materials[material]))

    def round(
        self, low: tuple[float, float, float], high: tuple[float, float, float], edge: float, circle: float,
        material: int = 0, axes: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """A ball (edge 1, circle 1), a disc or post (0.1, 1) or a cushion (0.3, 0.3) that fills the box."""
        self.parts.append(_round(low, high, edge, circle, self.materials[material], axes))

    def wheel(self, x: float, y: float, z: float, radius: float, width: float, material: int = 0) -> None:
        """A tyre about the x axis, its spokes and its push rim."""
        angle = np.linspace(0, 2 * np.pi, 25)
        rim = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        corners = [(w, r) for r in (0.88 * radius, radius) for w in (-width / 2, width / 2)]
        vertices = np.concatenate([np.column_stack([np.full(25, x + w), (y, z) + r * rim]) for w, r in corners])
        faces = []
        for a, b in ((0, 1), (1, 3), (3, 2), (2, 0)):
            i = np.arange(24)
            quad = np.stack([25 * a + i, 25 * a + i + 1, 25 * b + i + 1, 25 * b + i], axis=1)
            faces += [quad[:, [0, 1, 2]], quad[:, [0, 2, 3]]]
        triangles = np.concatenate(faces).astype(np.int32)
        uv = vertices[:, 1:].astype(np.float32)
        self.parts.append(piece(vertices, triangles, uv, triangles, BOTH_SIDES, self.materials[material], 0.1, 0.0))
        for turn in np.arange(4) * np.pi / 4:
            axes = np.array([[1, 0, 0], [0, np.cos(turn), -np.sin(turn)], [0, np.sin(turn), np.cos(turn)]])
            self.slab(np.array([x, y, z]), axes, np.array([0.006, 0.006, 1.8 * radius]), material)

    def legs(self, low: tuple[float, float], high: tuple[float, float], floor: float, top: float, thick: float) -> None:
        """Four legs in the corners of a rectangle."""
        for x in (low[0], high[0] - thick):
            for y in (low[1], high[1] - thick):
                self.box((x, y, floor), (x + thick, y + thick, top), 1)


def back_rest(
    build: FurnitureBuilder, lean: float, vertices: np.ndarray, joints: np.ndarray, top: float, height: float,
    thick: float, across: tuple[float, float], soft: bool, behind: float = -np.inf, gap: float = 0.0,
) -> None:  # fmt: skip
    """A slab that leans back by `lean` just behind the trunk (and behind y = `behind` at the seat)."""
    up, back = np.array([0.0, np.sin(lean), np.cos(lean)]), np.array([0.0, np.cos(lean), -np.sin(lean)])
    foot = np.array([joints[0, 0], joints[0, 1], top])
    place = (vertices - foot) @ np.stack([up, back], axis=1)
    near = (place[:, 0] > 0.02) & (place[:, 0] < height) & (np.abs(vertices[:, 0] - foot[0]) < 0.26)
    offset = float(place[near, 1].max()) if near.any() else 0.1
    offset = max(offset - (0.03 if soft else 0.0) + gap, behind - joints[0, 1])
    centre = foot + up * height / 2 + back * (offset + thick / 2)
    centre[0] = (across[0] + across[1]) / 2
    axes = np.stack([np.array([1.0, 0, 0]), back, up], axis=1)
    size = np.array([across[1] - across[0], thick, height])
    if soft:
        build.round(tuple(-size / 2), tuple(size / 2), 0.25, 0.25, 0, np.column_stack([axes, centre]))
    else:
        build.slab(centre, axes, size)


def _round(
    low: tuple[float, float, float], high: tuple[float, float, float], edge: float, circle: float,
    texture: np.ndarray, axes: np.ndarray | None,
) -> Mesh:  # fmt: skip
    """A superellipsoid that fills the box: exponents towards 0 square off its profile (`edge`) and plan (`circle`)."""
    up, round_ = np.linspace(-np.pi / 2, np.pi / 2, RINGS), np.linspace(0, 2 * np.pi, SECTORS + 1)

    def power(value: np.ndarray, exponent: float) -> np.ndarray:
        return np.sign(value) * np.abs(value) ** exponent

    ring, height = power(np.cos(up), edge)[:, None], power(np.sin(up), edge)[:, None]
    shape = (ring * power(np.cos(round_), circle), ring * power(np.sin(round_), circle), height + 0 * round_)
    unit = np.stack(shape, axis=-1).reshape(-1, 3)
    size = np.subtract(high, low)
    vertices = np.add(low, high) / 2 + unit * size / 2
    uv = (vertices[:, :2] + vertices[:, 2:]).astype(np.float32)
    if axes is not None:  # three axes and the centre, as columns
        vertices = vertices @ axes[:, :3].T + axes[:, 3]
    first = (np.arange(RINGS - 1)[:, None] * (SECTORS + 1) + np.arange(SECTORS)).ravel()
    quads = np.stack([first, first + 1, first + SECTORS + 2, first + SECTORS + 1], axis=1)
    faces = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]).astype(np.int32)
    return piece(vertices, faces, uv, faces, BOTH_SIDES, texture, 0.03, 0.0)
