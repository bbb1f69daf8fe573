"""What carries people who sit or lie, fitted to the posed body: the person faces -y, x to its left, z up, metres."""

from dataclasses import dataclass

import numpy as np

from di2pose.pose.skeleton import H36M_17
from di2pose_people.body import model
from di2pose_people.occluders import Point, Shape, draw_texture, solid
from di2pose_people.raster import Mesh, join
from di2pose_people.wardrobe import DressedPerson

Range = tuple[float, float]

POST, CUSHION = (0.1, 1.0), (0.25, 0.2)
ON_TABLE: tuple[tuple[Point, Point, Shape | None], ...] = (
    ((0.03, 0.03, 0.07), (0.05, 0.05, 0.28), POST),
    ((0.14, 0.01, 0.2), (0.26, 0.02, 0.38), None),
    ((0.05, 0.05, 0.01), (0.18, 0.14, 0.1), None),
)
"""Cups, screens, books: half their width and depth, their height; from, to."""
BLANKET, LOW_TABLE = 0.16, 0.35
"""Share of beds with a blanket over the legs, and of soft seats with a low table before the feet."""


@dataclass(frozen=True)
class SeatKind:
    """How one kind of seat looks."""

    share: float
    height: Range
    """Of its top above the floor."""
    back: Range | None = None
    """Height of the back rest."""
    arms: bool = False
    at_table: bool = False
    """Does it go with a table?"""
    shape: Shape | None = None
    """None: a board."""
    thick: Range = (0.03, 0.07)
    sink: float = 0.004
    """How deep flesh presses into it."""
    ends: Range | None = None
    """From the person's middle to either end; None: as wide as the person."""
    behind: Range = (0.0, 0.02)
    """How far it goes on behind the person."""
    under: str = "legs"
    """What carries it: legs, a post, or a solid block."""

    @property
    def soft(self) -> bool:
        return self.sink > 0.01


SEATS = {
    "chair": SeatKind(0.2, (0.42, 0.5), (0.32, 0.55), at_table=True),
    "office": SeatKind(0.08, (0.42, 0.52), (0.4, 0.6), at_table=True, under="post"),
    "armrests": SeatKind(0.08, (0.42, 0.5), (0.32, 0.55), arms=True, at_table=True),
    "stool": SeatKind(0.12, (0.42, 0.58), at_table=True, shape=(0.15, 1.0)),
    "bench": SeatKind(0.1, (0.36, 0.48), at_table=True, ends=(0.45, 1.1)),
    "armchair": SeatKind(0.11, (0.38, 0.48), (0.5, 0.8), arms=True, shape=(0.25, 0.15), thick=(0.12, 0.16), sink=0.02,
                         under="block"),
    "sofa": SeatKind(0.16, (0.34, 0.46), (0.45, 0.7), arms=True, shape=(0.2, 0.12), thick=(0.12, 0.2), sink=0.035,
                     ends=(0.5, 1.1), under="block"),
    "bed": SeatKind(0.08, (0.4, 0.58), shape=(0.12, 0.1), thick=(0.14, 0.26), sink=0.03, ends=(0.7, 1.1),
                    behind=(0.7, 1.4), under="block"),
    "ball": SeatKind(0.03, (0.45, 0.6), shape=(1.0, 1.0), sink=0.025),
    "block": SeatKind(0.04, (0.22, 0.45), ends=(0.25, 0.6), behind=(0.02, 0.3), under="block"),
}  # fmt: skip


@dataclass(frozen=True)
class Seat:
    """What carries a person: one of SEATS; floor, mat, mattress or couch under the whole body; or a counter."""

    kind: str
    table: float | None = None
    """Metres above the middle of the hips, None for no table."""
    lean: float = 0.0
    """Of a back rest, radians backwards."""


@dataclass(frozen=True)
class PosedBody:
    """A posed person: N vertices, the bone that moves each most, 21 joints."""

    vertices: np.ndarray
    bone: np.ndarray
    joints: np.ndarray

    def flesh(self, *stems: str) -> np.ndarray:
        """The vertices that the bones move whose names begin so."""
        return self.vertices[np.isin(self.bone, model().bones_of(*stems))]


SITTING = ("root", "pelvis", "spine05", "upperleg")
"""Bones whose flesh rests on a seat."""


class Builder:
    """Collects the parts of furniture; parts of one material share a texture."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator, self.parts = generator, list[Mesh]()
        self.materials = [draw_texture(generator) for _ in range(3)]

    def add(
        self, low: Point, high: Point, material: int = 0, shape: Shape | None = None, axes: np.ndarray | None = None
    ) -> None:
        self.parts.append(solid(low, high, self.materials[material], shape, axes))

    def legs(self, low: tuple[float, float], high: tuple[float, float], floor: float, top: float, thick: float) -> None:
        """Four legs in the corners of a rectangle."""
        for x in (low[0], high[0] - thick):
            for y in (low[1], high[1] - thick):
                self.add((x, y, floor), (x + thick, y + thick, top), 1)

    def draw(self, low: float, high: float) -> float:
        return float(self.generator.uniform(low, high))


def furnish(
    seat: Seat, person: DressedPerson, vertices: np.ndarray, joints: np.ndarray, generator: np.random.Generator
) -> tuple[float, list[Mesh]]:
    """The height of the floor, and the furniture that carries the person (posed `vertices` and `joints`) or stands
    before it."""
    build, body = Builder(generator), PosedBody(vertices.astype(float), person.bone_index[:, 0], joints)
    floor = float(vertices[:, 2].min())
    if seat.kind == "mat":
        low, high = _extent(build, body, 0.45)
        floor -= 0.012
        build.add((*low, floor), (*high, floor + 0.011))
    elif seat.kind in ("mattress", "couch"):
        floor = _bed(build, seat, body)
    elif seat.kind in SEATS:
        _seat(build, seat, body, floor)
    if seat.table is not None:
        _table_before(build, float(joints[0, 2]) + seat.table, body, floor)
    elif seat.kind in ("sofa", "armchair") and generator.random() < LOW_TABLE:
        edge = float(vertices[:, 1].min()) - build.draw(0.04, 0.3)
        middle = float(joints[0, 0]) + generator.normal(0, 0.2)
        _table(build, middle, edge, floor + build.draw(0.32, 0.48), 0.04, floor)
    return floor, [join(build.parts)] if build.parts else []


def _seat(build: Builder, seat: Seat, body: PosedBody, floor: float) -> None:
    """A seat just under the flesh that sits, behind the shins, no further forwards than thighs are above it."""
    kind, hip = SEATS[seat.kind], body.joints[0]
    sitting, shins = body.flesh(*SITTING), body.flesh("lowerleg", "foot", "toe")
    near = sitting[np.abs(sitting[:, 1] - hip[1]) < 0.2]
    lowest, thick = float(np.percentile(near[:, 2], 0.5)), build.draw(*kind.thick)
    top = lowest + kind.sink
    reach = float((hip[1] - body.joints[list(H36M_17.indices("left_knee", "right_knee")), 1]).mean())
    front = hip[1] - max(reach - build.draw(0.06, 0.14), 0.12)
    behind = shins[(shins[:, 2] < top + 0.01) & ((shins[:, 2] > top - thick - 0.05) | (kind.under == "block"))]
    front = min(behind[:, 1].max(initial=front - 0.01) + 0.01, hip[1] - 0.05)
    below = sitting[(sitting[:, 2] < lowest - 0.012) & (sitting[:, 1] < hip[1])]
    front = max(front, min(max(below[:, 1], default=front) + 0.005, hip[1] - 0.03))
    back = float(near[:, 1].max()) + 0.02
    half = max(float(np.abs(near[:, 0] - hip[0]).max()) + 0.015, build.draw(0.2, 0.27))
    right, left = (max(half, build.draw(*kind.ends)) if kind.ends else half for _ in range(2))
    right, left, far, under = hip[0] - right, hip[0] + left, back + build.draw(*kind.behind), top - thick
    if seat.kind == "ball":
        r = (top - floor) / 2
        build.add((hip[0] - r, hip[1] - r, floor), (hip[0] + r, hip[1] + r, top + 0.01), 0, kind.shape)
        return
    if seat.kind == "stool":
        r = build.draw(0.16, 0.21)
        right, left, front, far = hip[0] - r, hip[0] + r, hip[1] - r - 0.02, hip[1] + r - 0.02
    build.add((right, front, under), (left, far, top), 0, kind.shape)
    if kind.under == "block":
        build.add((right, front + 0.03, floor + 0.04), (left, far, under + 0.04), int(build.generator.integers(2)))
    elif kind.under == "post":
        x, y = hip[0], (front + far) / 2
        build.add((x - 0.03, y - 0.03, floor + 0.02), (x + 0.03, y + 0.03, under), 1, POST)
        build.add((x - 0.24, y - 0.24, floor), (x + 0.24, y + 0.24, floor + 0.05), 1, POST)
    else:
        build.legs((right, front + 0.01), (left, far), floor, under, build.draw(0.025, 0.05))
    if kind.back is not None:
        lean = max(seat.lean, np.radians(build.draw(3, 12)))
        start = top if kind.soft else top + build.draw(0.0, 0.15)
        _back_rest(build, lean, body, start, build.draw(*kind.back), (right, left), kind.soft, back)
        for x in () if kind.soft else (right + 0.02, left - 0.05):  # posts that carry it
            build.add((x, back, under), (x + 0.03, back + 0.03 + lean * 0.2, start + 0.1), 1)
    if kind.arms:
        _arm_rests(build, body, (right, left), (front, far), (floor, top), kind.soft)


def _arm_rests(build: Builder, body: PosedBody, x: Range, y: Range, z: Range, soft: bool) -> None:
    """Beside a seat, under the arms that lie there; left out where an arm hangs too low."""
    arms = body.flesh("lowerarm", "wrist", "finger", "metacarpal", "upperarm02")
    thick = 0.15 if soft else 0.06
    for low, high in ((x[0] - thick, x[0] - 0.005), (x[1] + 0.005, x[1] + thick)):
        over = arms[(arms[:, 0] > low - 0.02) & (arms[:, 0] < high + 0.02) & (arms[:, 1] > y[0] - 0.05)]
        rise = over[:, 2].min(initial=z[1] + 0.21) + 0.01
        if rise < z[1] + 0.08:
            continue
        if soft:
            build.add((low, y[0], z[0] + 0.05), (high, y[1] + 0.06, rise), 0, CUSHION)
            continue
        build.add((low, y[0] + 0.04, rise - 0.03), (high, y[1], rise), 1)
        for post in (y[0] + 0.08, y[1] - 0.04):
            build.add((low + 0.01, post, z[1] - 0.03), (high - 0.01, post + 0.04, rise - 0.03), 1)


def _back_rest(
    build: Builder, lean: float, body: PosedBody, bottom: float, height: float, across: Range, soft: bool,
    behind: float = -np.inf,
) -> None:  # fmt: skip
    """A slab that leans back by `lean` just behind the trunk (and behind y = `behind` at the seat)."""
    up, back = np.array([0.0, np.sin(lean), np.cos(lean)]), np.array([0.0, np.cos(lean), -np.sin(lean)])
    foot = np.array([*body.joints[0, :2], bottom])
    place = (body.vertices - foot) @ np.stack([up, back], axis=1)
    near = (place[:, 0] > 0.02) & (place[:, 0] < height) & (np.abs(body.vertices[:, 0] - foot[0]) < 0.26)
    offset = max(place[near, 1], default=0.1) - (0.03 if soft else -0.015)
    offset = max(offset, behind - foot[1])
    thick = 0.15 if soft else build.draw(0.02, 0.05)
    axes = np.column_stack([np.array([1.0, 0, 0]), back, up, foot * (0, 1, 1)])
    build.add((across[0], offset, 0.0), (across[1], offset + thick, height), 0, CUSHION if soft else None, axes)


def _bed(build: Builder, seat: Seat, body: PosedBody) -> float:
    """A bed, or a sofa, under the whole body; returns the height of the floor."""
    joints, draw = body.joints, build.draw
    top = float(body.vertices[:, 2].min()) + 0.03
    low, high = _extent(build, body, 0.3)
    sofa = seat.kind == "couch" and high[0] - low[0] < 1.0
    spare = np.maximum((0.0 if sofa else draw(0.9, 1.7), 1.94) - (high - low), 0) * build.generator.random(2)
    low, high = low - spare / 2, high + spare / 2
    floor, under = top - draw(0.36, 0.62), top - draw(0.14, 0.24)
    build.add((*low, under), (*high, top), 0, (0.12, 0.1))
    build.add((low[0] + 0.02, low[1] + 0.02, floor + 0.04), (high[0] - 0.02, high[1] - 0.02, under + 0.03), 1)
    if sofa:  # the back stands along one side, arms at the ends
        x = high[0] if build.generator.random() < 0.5 else low[0] - 0.2
        build.add((x, low[1], floor + 0.1), (x + 0.2, high[1], top + draw(0.25, 0.42)), 0, CUSHION)
        for y in (low[1] - 0.18, high[1]):
            build.add((low[0], y, floor + 0.05), (high[0], y + 0.18, top + draw(0.1, 0.24)), 0, CUSHION)
    elif build.generator.random() < 0.7:
        build.add((low[0], high[1], floor), (high[0], high[1] + 0.05, top + draw(0.2, 0.6)), 1)
    head = joints[H36M_17.index("head")] * 0.6 + joints[H36M_17.index("nose")] * 0.4
    if seat.lean > 0.3:  # cushions behind one who reclines
        _back_rest(build, seat.lean, body, top, 0.62, (joints[0, 0] - 0.32, joints[0, 0] + 0.32), True)
    elif head[2] - top < 0.22:  # a pillow
        x, y = build.generator.uniform((0.2, 0.16), (0.38, 0.26))
        build.add((head[0] - x, head[1] - y, top - 0.02), (head[0] + x, head[1] + y, head[2] - 0.045), 2, (0.45, 0.4))
    legs = joints[list(H36M_17.indices("left_knee", "right_knee", "left_ankle", "right_ankle"))]
    up = float(legs[:, 2].max()) + 0.11
    if up - top < 0.4 and build.generator.random() < BLANKET:
        front, back = legs[:, 1].min() - 0.25, legs[:, 1].max() + draw(-0.15, 0.2)
        build.add((low[0] - 0.02, front, top - 0.05), (high[0] + 0.02, back, up), 2, (0.35, 0.25))
    return floor


def _extent(build: Builder, body: PosedBody, most: float) -> tuple[np.ndarray, np.ndarray]:
    """A rectangle under the whole body with margins."""
    margin = build.generator.uniform(0.06, most, (2, 2))
    return body.vertices[:, :2].min(axis=0) - margin[0], body.vertices[:, :2].max(axis=0) + margin[1]


def _table_before(build: Builder, top: float, body: PosedBody, floor: float) -> None:
    """A table, desk or counter before the trunk, under forearms and hands, over the thighs."""
    trunk = body.flesh("spine", "root", "pelvis", "upperarm")
    edge = min(trunk[np.abs(trunk[:, 2] - top) < 0.09, 1], default=body.joints[0, 1] - 0.15) - build.draw(0.015, 0.09)
    hands = body.flesh("lowerarm", "wrist", "finger", "metacarpal")
    over = hands[(hands[:, 1] < edge) & (np.abs(hands[:, 2] - top) < 0.09)]
    top = min(over[:, 2], default=top) + 0.004
    legs = body.flesh("upperleg", "lowerleg", "foot", "toe")
    limit = max(legs[legs[:, 1] < edge, 2], default=top - 0.05) + 0.006
    thick = float(np.clip(top - limit, 0.015, build.draw(0.025, 0.06)))
    middle = float(body.joints[0, 0]) + build.generator.normal(0, 0.12)
    right, left, far = _table(build, middle, edge, top, thick, floor)
    for _ in range(int(build.generator.integers(0, 4))):
        x, y = build.draw(right + 0.15, left - 0.15), build.draw(far + 0.08, edge - 0.2)
        if len(over) and (np.hypot(over[:, 0] - x, over[:, 1] - y) < 0.17).any():
            continue
        least, most, shape = ON_TABLE[int(build.generator.integers(len(ON_TABLE)))]
        w, d, h = (build.draw(*ends) for ends in zip(least, most, strict=True))
        build.add((x - w, y - d, top), (x + w, y + d, top + h), int(build.generator.integers(2)), shape)


def _table(
    build: Builder, middle: float, edge: float, top: float, thick: float, floor: float
) -> tuple[float, float, float]:
    """A table whose near edge is at y = `edge`; returns its ends and its far edge."""
    half, depth = build.draw(0.45, 1.0), build.draw(0.5, 0.9)
    right, left, far = middle - half, middle + half, edge - depth
    build.add((right, far, top - thick), (left, edge, top), 2)
    if build.generator.random() < 0.3:  # a desk: closed in front
        build.add((right, far, floor + build.draw(0.0, 0.3)), (left, far + 0.02, top - thick), 2)
    build.legs((right, far), (left, edge), floor, top - thick, 0.05)
    return right, left, far
