"""What carries people who sit, fitted to the body: the person faces -y, x to its left, z up, metres."""

from dataclasses import dataclass

import numpy as np

from di2pose.pose.skeleton import H36M_17
from di2pose_people.couch import couch, mat
from di2pose_people.furniture_builder import FurnitureBuilder, back_rest
from di2pose_people.pose_builder import Seat, bones_of, sitting_bones
from di2pose_people.raster import Mesh, join
from di2pose_people.table_furniture import low_table, table
from di2pose_people.wardrobe import DressedPerson

SINKS = {"sofa": 0.035, "armchair": 0.02, "bed": 0.03, "ball": 0.025, "wheelchair": 0.01}
"""How deep flesh presses into a seat; others are hard."""
WIDTHS = {"bench": (0.45, 1.1), "sofa": (0.5, 1.1), "bed": (0.7, 1.1), "block": (0.25, 0.6)}
"""From the middle of the hips to either end."""
LOW_TABLE = 0.35
"""Share of sofas and armchairs with a low table before the feet."""


@dataclass(frozen=True)
class PosedBody:
    """A posed person: N vertices, the bone that moves each most, 17 joints; and the floor it is on."""

    vertices: np.ndarray
    bone: np.ndarray
    joints: np.ndarray
    floor: float

    def flesh(self, bones: list[int]) -> np.ndarray:
        """The vertices that these bones move."""
        return self.vertices[np.isin(self.bone, bones)]


@dataclass(frozen=True)
class Place:
    """Where the top of a seat is: x of its middle, its front and back edge, half its width, its height, how thick."""

    x: float
    front: float
    back: float
    half: float
    top: float
    thick: float


def furnish(
    seat: Seat, person: DressedPerson, vertices: np.ndarray, joints: np.ndarray, generator: np.random.Generator
) -> tuple[float, list[Mesh]]:
    """The height of the floor, and the furniture that carries the person (posed `vertices` and `joints`) or stands
    before it."""
    build = FurnitureBuilder(generator)
    body = PosedBody(vertices, person.bone_index[:, 0], joints, float(vertices[:, 2].min()))
    floor = body.floor
    if seat.kind == "mat":
        floor = mat(build, vertices, generator)
    elif seat.kind in ("mattress", "couch"):
        floor = couch(build, seat, vertices, joints, generator)
    elif seat.kind not in ("floor", "counter"):
        _seat(build, seat, body, generator)
    if seat.table is not None:
        table(build, seat.table, vertices, body.bone, joints, floor, generator)
    elif seat.kind in ("sofa", "armchair") and generator.random() < LOW_TABLE:
        low_table(build, vertices, floor, generator)
    return floor, [join(build.parts)] if build.parts else []


def _seat(build: FurnitureBuilder, seat: Seat, body: PosedBody, generator: np.random.Generator) -> None:
    """A seat of any kind under hips and thighs, with what is behind and beside them."""
    place = _place(seat.kind, body, generator)
    if seat.kind == "ball":
        radius, y = (place.top - body.floor) / 2, float(body.joints[0, 1])
        low, high = (place.x - radius, y - radius, body.floor), (place.x + radius, y + radius, place.top + 0.01)
        build.round(low, high, 1.0, 1.0)
    elif seat.kind == "stool":
        _stool(build, place, body, generator)
    elif seat.kind in WIDTHS:
        _wide(build, seat, place, body, generator)
    else:
        _chair(build, seat, place, body, generator)


def _place(kind: str, body: PosedBody, generator: np.random.Generator) -> Place:
    """Just under the flesh that sits, behind the shins, and no further forwards than thighs are above it."""
    hip, sitting, shins = body.joints[0], body.flesh(sitting_bones()), body.flesh(bones_of("lowerleg", "foot", "toe"))
    knees = body.joints[list(H36M_17.indices("left_knee", "right_knee"))]
    reach = float((hip[1] - knees[:, 1]).mean())
    near = sitting[np.abs(sitting[:, 1] - hip[1]) < 0.2]
    lowest, thick = float(np.percentile(near[:, 2], 0.5)), generator.uniform(0.03, 0.07)
    top = lowest + SINKS.get(kind, 0.004)
    solid = kind in ("sofa", "bed", "block")
    front = hip[1] - max(reach - generator.uniform(0.06, 0.14), 0.12)
    behind = shins[(shins[:, 2] < top + 0.01) & ((shins[:, 2] > top - thick - 0.05) | solid)]
    if len(behind):
        front = max(front, float(behind[:, 1].max()) + 0.01)
    front = min(front, hip[1] - 0.05)
    below = sitting[(sitting[:, 2] < lowest - 0.012) & (sitting[:, 1] < hip[1])]
    if len(below):
        front = max(front, min(float(below[:, 1].max()) + 0.005, hip[1] - 0.03))
    half = max(float(np.abs(near[:, 0] - hip[0]).max()) + 0.015, generator.uniform(0.2, 0.27))
    return Place(float(hip[0]), float(front), float(near[:, 1].max()) + 0.02, half, top, thick)


def _stool(build: FurnitureBuilder, place: Place, body: PosedBody, generator: np.random.Generator) -> None:
    x, y, top, under = place.x, float(body.joints[0, 1]) - 0.02, place.top, place.top - place.thick
    r = generator.uniform(0.16, 0.21)
    if generator.random() < 0.7:
        build.round((x - r, y - r, under), (x + r, y + r, top), 0.15, 1.0)
    else:
        build.box((x - r, y - r, under), (x + r, y + r, top))
    if generator.random() < 0.4:
        build.round((x - 0.03, y - 0.03, body.floor + 0.02), (x + 0.03, y + 0.03, under), 0.1, 1.0, 1)
        build.round((x - 0.2, y - 0.2, body.floor), (x + 0.2, y + 0.2, body.floor + 0.03), 0.15, 1.0, 1)
    else:
        build.legs((x - r, y - r), (x + r, y + r), body.floor, under, 0.03)


def _wide(build: FurnitureBuilder, seat: Seat, place: Place, body: PosedBody, generator: np.random.Generator) -> None:
    """A bench, block, bed or sofa, somewhere along which the person sits."""
    floor, front, back, top = body.floor, place.front, place.back, place.top
    ends = [max(generator.uniform(*WIDTHS[seat.kind]), place.half + 0.06) for _ in range(2)]
    right, left = place.x - ends[0], place.x + ends[1]
    if seat.kind == "bench":
        build.box((right, front, top - place.thick), (left, back + 0.03, top))
        build.legs((right + 0.05, front + 0.02), (left - 0.05, back), floor, top - place.thick, 0.06)
        if generator.random() < 0.35:
            lean = max(seat.lean, 0.1)
            back_rest(build, lean, body.vertices, body.joints, top + 0.15, 0.3, 0.04, (right, left), False, back + 0.02)
    elif seat.kind == "block":
        build.box((right, front, floor), (left, back + generator.uniform(0.02, 0.3), top))
    elif seat.kind == "bed":
        deep, thick = back + generator.uniform(0.7, 1.4), generator.uniform(0.14, 0.26)
        build.round((right, front, top - thick), (left, deep, top), 0.12, 0.1)
        build.box((right + 0.02, front + 0.02, floor + 0.03), (left - 0.02, deep - 0.02, top - thick + 0.03), 1)
    else:
        deep, thick = back + generator.uniform(0.02, 0.1), generator.uniform(0.12, 0.2)
        build.round((right, front, top - thick), (left, deep + 0.1, top), 0.2, 0.12)
        build.box((right, front + 0.03, floor + 0.04), (left, deep + 0.1, top - thick + 0.04))
        lean, height = max(seat.lean, 0.12), generator.uniform(0.45, 0.7)
        back_rest(build, lean, body.vertices, body.joints, top - 0.05, height, 0.18, (right, left), True, back - 0.02)
        tall = top + generator.uniform(0.12, 0.22)
        for inner, outer in ((left, left + 0.18), (right - 0.18, right)):
            if generator.random() < 0.8:
                build.round((inner, front, floor + 0.03), (outer, deep + 0.25, tall), 0.3, 0.2)
        if generator.random() < 0.5:
            x = place.x + generator.choice([-1.0, 1.0]) * (place.half + 0.2)
            build.round((x - 0.2, back - 0.22, top), (x + 0.2, back - 0.04, top + 0.38), 0.5, 0.4, 2)


def _chair(build: FurnitureBuilder, seat: Seat, place: Place, body: PosedBody, generator: np.random.Generator) -> None:
    """A chair, armchair or wheelchair."""
    x, front, back, half, top = place.x, place.front, place.back, place.half, place.top
    under, floor, y = top - place.thick, body.floor, float(body.joints[0, 1])
    soft = seat.kind == "armchair" and generator.random() < 0.6
    if soft:
        build.round((x - half, front, top - 0.14), (x + half, back + 0.04, top), 0.25, 0.15)
        build.box((x - half, front + 0.04, floor + 0.06), (x + half, back + 0.04, top - 0.1))
    else:
        build.box((x - half, front, under), (x + half, back, top))
    height = generator.uniform(0.5, 0.8) if soft else generator.uniform(0.32, 0.55)
    lean = max(seat.lean, np.radians(generator.uniform(3, 12)))
    start = top + (0.0 if soft or generator.random() < 0.4 else generator.uniform(0.08, 0.18))
    if generator.random() < 0.92:
        back_rest(
            build, lean, body.vertices, body.joints, start, height, 0.12 if soft else generator.uniform(0.02, 0.05),
            (x - half, x + half), soft, back, generator.uniform(0.0, 0.03),
        )  # fmt: skip
        if start > top:  # posts that carry it
            for side in (x - half + 0.02, x + half - 0.05):
                build.box((side, back, under), (side + 0.03, back + 0.03 + lean * 0.2, start + 0.1), 1)
    if seat.kind == "wheelchair":
        radius = generator.uniform(0.27, 0.32)
        for side in (x - half - 0.08, x + half + 0.08):
            build.wheel(side, y + 0.08, floor + radius, radius, 0.03, 1)
            build.wheel(side, front + 0.06, floor + 0.08, 0.08, 0.03, 1)
    elif seat.kind == "chair" and generator.random() < 0.25:  # an office chair: a post and five feet
        build.round((x - 0.03, y - 0.08, floor + 0.06), (x + 0.03, y - 0.02, under), 0.1, 1.0, 1)
        for turn in np.arange(5) * 2 * np.pi / 5 + generator.uniform(0, 1):
            axes = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
            centre = np.array([x, y - 0.05, floor + 0.06]) + axes[:, 0] * 0.14
            build.slab(centre, axes, np.array([0.28, 0.04, 0.04]), 1)
    elif not soft:
        build.legs((x - half, front + 0.01), (x + half, back), floor, under, generator.uniform(0.025, 0.05))
    if seat.kind in ("armchair", "wheelchair"):
        _arm_rests(build, place, body, soft)


def _arm_rests(build: FurnitureBuilder, place: Place, body: PosedBody, soft: bool) -> None:
    """Under the arms that lie there; left out where an arm hangs too low."""
    arms = body.flesh(bones_of("lowerarm", "wrist", "finger", "metacarpal", "upperarm02"))
    front, top, far = place.front, place.top, place.back + (0.06 if soft else 0.0)
    for sign in (-1.0, 1.0):
        low, high = sorted(place.x + sign * (place.half + out) for out in (0.005, 0.12 if soft else 0.06))
        over = arms[(arms[:, 0] > low - 0.02) & (arms[:, 0] < high + 0.02) & (arms[:, 1] > front - 0.05)]
        rise = min(top + 0.22, float(over[:, 2].min()) + 0.01 if len(over) else np.inf)
        if rise < top + 0.08:
            continue
        if soft:
            build.round((low, front, body.floor + 0.05), (high, far, rise), 0.3, 0.2)
            continue
        build.box((low, front + 0.04, rise - 0.03), (high, far, rise), 1)
        for y in (front + 0.08, far - 0.04):
            build.box((low + 0.01, y, top - place.thick), (high - 0.01, y + 0.04, rise - 0.03), 1)
