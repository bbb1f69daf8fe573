"""What carries settled people, and the tables before them: boxes, cushions, discs and wheels, fitted to the body.

World axes: x to the person's left, y to its back, z up, metres; the person faces -y.
"""

import numpy as np

from di2pose.people.draft import Seat, bones_of, sitting_bones
from di2pose.people.raster import Mesh, join
from di2pose.people.tables import low_table, table
from di2pose.people.wardrobe import DressedPerson
from di2pose.people.workshop import Workshop
from di2pose.pose.skeleton import H36M_17

SINKS = {"sofa": 0.035, "armchair": 0.02, "bed": 0.03, "ball": 0.025, "wheelchair": 0.01}
"""How deep flesh presses into a seat; others are hard."""
LOW_TABLE = 0.35
"""Share of sofas and armchairs with a low table before the feet."""


def furnish(
    seat: Seat, person: DressedPerson, vertices: np.ndarray, joints: np.ndarray, generator: np.random.Generator
) -> tuple[float, list[Mesh]]:
    """The height of the floor, and the furniture that carries the person (posed `vertices` and `joints`) or stands
    before it."""
    shop = Workshop(generator)
    bone = person.bone_index[:, 0]
    floor = float(vertices[:, 2].min())
    if seat.kind in ("floor", "mat"):
        if seat.kind == "mat":
            low, high = _extent(vertices, 0.1, 0.45, generator)
            shop.box((*low, floor - 0.012), (*high, floor - 0.001))
            floor -= 0.012
    elif seat.kind == "counter":
        assert seat.table is not None
        table(shop, seat.table, vertices, bone, joints, floor, generator)
    elif _is_low(joints):
        floor = _couch(shop, seat, vertices, joints, generator)
    else:
        _chair(shop, seat, vertices, bone, joints, floor, generator)
        if seat.table is not None:
            table(shop, seat.table, vertices, bone, joints, floor, generator)
        elif seat.kind in ("sofa", "armchair") and generator.random() < LOW_TABLE:
            low_table(shop, vertices, floor, generator)
    return floor, [join(shop.parts)] if shop.parts else []


def _is_low(joints: np.ndarray) -> bool:
    """Does the whole body lie or sit on one level, feet too?"""
    height = joints[:, 2] - joints[:, 2].min()
    return bool(height[0] < 0.27)


def _extent(
    vertices: np.ndarray, least: float, most: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A rectangle under the whole body with margins."""
    margin = generator.uniform(least, most, 4)
    return vertices[:, :2].min(axis=0) - margin[:2], vertices[:, :2].max(axis=0) + margin[2:]


def _couch(
    shop: Workshop, seat: Seat, vertices: np.ndarray, joints: np.ndarray, generator: np.random.Generator
) -> float:
    """A bed or sofa under the whole body; returns the height of the floor."""
    top = float(vertices[:, 2].min()) + SINKS["bed"]
    low, high = _extent(vertices, 0.06, 0.3, generator)
    middle, half = (low + high) / 2, (high - low) / 2
    narrow = seat.kind == "sofa" and half[0] < 0.5
    if not narrow:  # a bed
        half[0] = max(half[0], generator.uniform(0.45, 0.85))
        middle[0] += generator.uniform(-1, 1) * (half[0] - (high - low)[0] / 2)
    half[1] = max(half[1], 0.97)
    low, high = middle - half, middle + half
    floor = top - generator.uniform(0.36, 0.62)
    thick = generator.uniform(0.14, 0.24)
    shop.round((low[0], low[1], top - thick), (high[0], high[1], top), 0.12, 0.1, 0)
    if narrow or generator.random() < 0.6:
        shop.box((low[0] + 0.02, low[1] + 0.02, floor + 0.04), (high[0] - 0.02, high[1] - 0.02, top - thick + 0.03), 1)
    else:
        shop.box((low[0], low[1], top - thick - 0.08), (high[0], high[1], top - thick + 0.02), 1)
        shop.legs((low[0], low[1]), (high[0], high[1]), floor, top - thick, 0.06)
    if narrow:  # the back stands along one side, arms at the ends
        side = generator.choice([-1.0, 1.0])
        x = sorted((middle[0] + side * half[0], middle[0] + side * (half[0] + 0.2)))
        shop.round((x[0], low[1], floor + 0.1), (x[1], high[1], top + generator.uniform(0.25, 0.42)), 0.25, 0.2, 0)
        for y in (low[1] - 0.18, high[1]):
            if generator.random() < 0.85:
                shop.round(
                    (low[0], y, floor + 0.05), (high[0], y + 0.18, top + generator.uniform(0.1, 0.24)), 0.25, 0.2, 0
                )
    elif generator.random() < 0.7:
        shop.box((low[0], high[1], floor), (high[0], high[1] + 0.05, top + generator.uniform(0.2, 0.6)), 1)
    head = joints[H36M_17.index("head")] * 0.6 + joints[H36M_17.index("nose")] * 0.4
    if seat.lean > 0.3:  # cushions behind one who reclines
        _back_rest(shop, seat.lean, vertices, joints, top, 0.62, 0.16, (joints[0, 0] - 0.32, joints[0, 0] + 0.32), True)
    elif head[2] - top < 0.22 and generator.random() < 0.8:
        size = generator.uniform((0.2, 0.16), (0.38, 0.26))
        shop.round(
            (head[0] - size[0], head[1] - size[1], top - 0.02), (head[0] + size[0], head[1] + size[1], head[2] - 0.045),
            0.45, 0.4, 2,
        )  # fmt: skip
    if generator.random() < 0.16:  # a blanket over the legs
        legs = joints[list(H36M_17.indices("left_knee", "right_knee", "left_ankle", "right_ankle"))]
        up = float(legs[:, 2].max()) + 0.11
        front, back = legs[:, 1].min() - 0.25, legs[:, 1].max() + generator.uniform(-0.15, 0.2)
        if up - top < 0.4:
            shop.round((low[0] - 0.02, front, top - 0.05), (high[0] + 0.02, back, up), 0.35, 0.25, 2)
    return floor


def _back_rest(
    shop: Workshop, lean: float, vertices: np.ndarray, joints: np.ndarray, top: float, height: float, thick: float,
    across: tuple[float, float], soft: bool, behind: float = -np.inf, gap: float = 0.0, material: int = 0,
) -> None:  # fmt: skip
    """A slab that leans back by `lean` just behind the trunk (and behind y = `behind` at the seat)."""
    up, back = np.array([0.0, np.sin(lean), np.cos(lean)]), np.array([0.0, np.cos(lean), -np.sin(lean)])
    foot = np.array([(across[0] + across[1]) / 2, joints[0, 1], top])
    place = (vertices - foot) @ np.stack([up, back], axis=1)
    near = (place[:, 0] > 0.02) & (place[:, 0] < height) & (np.abs(vertices[:, 0] - foot[0]) < 0.2)
    offset = float(place[near, 1].max()) if near.any() else 0.1
    offset = max(offset - (0.03 if soft else 0.0) + gap, behind - joints[0, 1])
    centre = foot + up * height / 2 + back * (offset + thick / 2)
    axes = np.stack([np.array([1.0, 0, 0]), back, up], axis=1)
    size = np.array([across[1] - across[0], thick, height])
    if soft:
        shop.round(tuple(-size / 2), tuple(size / 2), 0.25, 0.25, material, np.column_stack([axes, centre]))
    else:
        shop.slab(centre, axes, size, material)


def _chair(
    shop: Workshop, seat: Seat, vertices: np.ndarray, bone: np.ndarray, joints: np.ndarray, floor: float,
    generator: np.random.Generator,
) -> None:  # fmt: skip
    """A seat of any kind under hips and thighs, with what is behind and beside them."""
    kind, hip = seat.kind, joints[0]
    sitting = vertices[np.isin(bone, sitting_bones())]
    shins = vertices[np.isin(bone, bones_of("lowerleg", "foot", "toe"))]
    knees = joints[list(H36M_17.indices("left_knee", "right_knee"))]
    reach = float((hip[1] - knees[:, 1]).mean())
    near = sitting[np.abs(sitting[:, 1] - hip[1]) < 0.2]
    top = float(np.percentile(near[:, 2], 0.5)) + SINKS.get(kind, 0.004)
    thick = generator.uniform(0.03, 0.07)
    solid = kind in ("sofa", "bed", "block")
    low_shins = shins[(shins[:, 2] < top + 0.01) & ((shins[:, 2] > top - thick - 0.05) | solid)]
    front = hip[1] - max(reach - generator.uniform(0.06, 0.14), 0.12)
    if len(low_shins):
        front = max(front, float(low_shins[:, 1].max()) + 0.01)
    front = min(front, hip[1] - 0.05)
    # thighs that slope down must not be cut by the seat: its front ends where they pass below its top
    under = sitting[(sitting[:, 2] < top - SINKS.get(kind, 0.004) - 0.012) & (sitting[:, 1] < hip[1])]
    if len(under):
        front = max(front, min(float(under[:, 1].max()) + 0.005, hip[1] - 0.03))
    back = float(near[:, 1].max()) + 0.02
    half = max(float(np.abs(near[:, 0] - hip[0]).max()) + 0.015, generator.uniform(0.2, 0.27))
    x = float(hip[0])
    if kind == "ball":
        radius = (top - floor) / 2
        shop.round((x - radius, hip[1] - radius, floor), (x + radius, hip[1] + radius, top + 0.01), 1.0, 1.0, 0)
        return
    if kind == "stool":
        radius = generator.uniform(0.16, 0.21)
        middle = hip[1] - 0.02
        if generator.random() < 0.7:
            shop.round((x - radius, middle - radius, top - thick), (x + radius, middle + radius, top), 0.15, 1.0, 0)
        else:
            shop.box((x - radius, middle - radius, top - thick), (x + radius, middle + radius, top), 0)
        if generator.random() < 0.4:
            shop.round((x - 0.03, middle - 0.03, floor + 0.02), (x + 0.03, middle + 0.03, top - thick), 0.1, 1.0, 1)
            shop.round((x - 0.2, middle - 0.2, floor), (x + 0.2, middle + 0.2, floor + 0.03), 0.15, 1.0, 1)
        else:
            shop.legs((x - radius, middle - radius), (x + radius, middle + radius), floor, top - thick, 0.03)
        return
    if kind in ("bench", "sofa", "bed", "block"):
        width = {"bench": (0.45, 1.1), "sofa": (0.5, 1.1), "bed": (0.7, 1.1), "block": (0.25, 0.6)}[kind]
        left, right = (x + sign * max(generator.uniform(*width), half + 0.06) for sign in (1, -1))
        if kind == "bench":
            shop.box((right, front, top - thick), (left, back + 0.03, top), 0)
            shop.legs((right + 0.05, front + 0.02), (left - 0.05, back), floor, top - thick, 0.06)
            if generator.random() < 0.35:
                _back_rest(
                    shop,
                    max(seat.lean, 0.1),
                    vertices,
                    joints,
                    top + 0.15,
                    0.3,
                    0.04,
                    (right, left),
                    False,
                    back + 0.02,
                )
        elif kind == "block":
            shop.box((right, front, floor), (left, back + generator.uniform(0.02, 0.3), top), 0)
        elif kind == "bed":
            deep = back + generator.uniform(0.7, 1.4)
            thick = generator.uniform(0.14, 0.26)
            shop.round((right, front, top - thick), (left, deep, top), 0.12, 0.1, 0)
            shop.box((right + 0.02, front + 0.02, floor + 0.03), (left - 0.02, deep - 0.02, top - thick + 0.03), 1)
        else:
            thick = generator.uniform(0.12, 0.2)
            deep = back + generator.uniform(0.02, 0.1)
            shop.round((right, front, top - thick), (left, deep + 0.1, top), 0.2, 0.12, 0)
            shop.box((right, front + 0.03, floor + 0.04), (left, deep + 0.1, top - thick + 0.04), 0)
            _back_rest(
                shop, max(seat.lean, 0.12), vertices, joints, top - 0.05, generator.uniform(0.45, 0.7), 0.18,
                (right, left), True, back - 0.02,
            )  # fmt: skip
            tall = top + generator.uniform(0.12, 0.22)
            for inner, outer in ((left, left + 0.18), (right - 0.18, right)):
                if generator.random() < 0.8:
                    shop.round((inner, front, floor + 0.03), (outer, deep + 0.25, tall), 0.3, 0.2, 0)
            if generator.random() < 0.5:
                side = x + generator.choice([-1.0, 1.0]) * (half + 0.2)
                shop.round((side - 0.2, back - 0.22, top), (side + 0.2, back - 0.04, top + 0.38), 0.5, 0.4, 2)
        return
    # chairs
    soft = kind == "armchair" and generator.random() < 0.6
    if soft:
        shop.round((x - half, front, top - 0.14), (x + half, back + 0.04, top), 0.25, 0.15, 0)
        shop.box((x - half, front + 0.04, floor + 0.06), (x + half, back + 0.04, top - 0.1), 0)
    else:
        shop.box((x - half, front, top - thick), (x + half, back, top), 0)
    height = generator.uniform(0.32, 0.55) if not soft else generator.uniform(0.5, 0.8)
    lean = max(seat.lean, np.radians(generator.uniform(3, 12)))
    start = top + (0.0 if soft or generator.random() < 0.4 else generator.uniform(0.08, 0.18))
    if generator.random() < 0.92:
        _back_rest(
            shop, lean, vertices, joints, start, height, 0.12 if soft else generator.uniform(0.02, 0.05),
            (x - half, x + half), soft, back, generator.uniform(0.0, 0.03), 0,
        )  # fmt: skip
        if start > top:  # posts that carry it
            for side in (x - half + 0.02, x + half - 0.05):
                shop.box((side, back, top - thick), (side + 0.03, back + 0.03 + lean * 0.2, start + 0.1), 1)
    if kind == "wheelchair":
        radius = generator.uniform(0.27, 0.32)
        for side in (x - half - 0.08, x + half + 0.08):
            shop.wheel(side, hip[1] + 0.08, floor + radius, radius, 0.03, 1)
            shop.wheel(side, front + 0.06, floor + 0.08, 0.08, 0.03, 1)
    elif kind == "chair" and generator.random() < 0.25:  # an office chair: a post and five feet
        shop.round((x - 0.03, hip[1] - 0.08, floor + 0.06), (x + 0.03, hip[1] - 0.02, top - thick), 0.1, 1.0, 1)
        for turn in np.arange(5) * 2 * np.pi / 5 + generator.uniform(0, 1):
            axes = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
            centre = np.array([x, hip[1] - 0.05, floor + 0.06]) + axes[:, 0] * 0.14
            shop.slab(centre, axes, np.array([0.28, 0.04, 0.04]), 1)
    elif not soft:
        shop.legs((x - half, front + 0.01), (x + half, back), floor, top - thick, generator.uniform(0.025, 0.05))
    if kind in ("armchair", "wheelchair"):
        arms = vertices[np.isin(bone, bones_of("lowerarm", "wrist", "finger", "metacarpal", "upperarm02"))]
        for sign in (-1.0, 1.0):
            inner = x + sign * (half + 0.005)
            outer = x + sign * (half + (0.12 if soft else 0.06))
            low, high = sorted((inner, outer))
            over = arms[(arms[:, 0] > low - 0.02) & (arms[:, 0] < high + 0.02) & (arms[:, 1] > front - 0.05)]
            rise = top + 0.22
            if len(over):
                rise = min(rise, float(over[:, 2].min()) + 0.01)
            if rise < top + 0.08:
                continue
            far = back + (0.06 if soft else 0.0)
            if soft:
                shop.round((low, front, floor + 0.05), (high, far, rise), 0.3, 0.2, 0)
            else:
                shop.box((low, front + 0.04, rise - 0.03), (high, far, rise), 1)
                shop.box((low + 0.01, front + 0.08, top - thick), (high - 0.01, front + 0.12, rise - 0.03), 1)
                shop.box((low + 0.01, far - 0.04, top - thick), (high - 0.01, far, rise - 0.03), 1)
