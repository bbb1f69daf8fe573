"""Beds, sofas and mats under a whole body that lies or sits on them: the person faces -y, z up, metres."""

import numpy as np

from di2pose.pose.skeleton import H36M_17
from di2pose_people.furniture_builder import FurnitureBuilder, back_rest
from di2pose_people.pose_builder import Seat

SINK = 0.03
"""How deep flesh presses into it."""
BLANKET = 0.16
"""Share with a blanket over the legs."""


def mat(build: FurnitureBuilder, vertices: np.ndarray, generator: np.random.Generator) -> float:
    """A thin mat; returns the height of the floor."""
    top = float(vertices[:, 2].min())
    low, high = _extent(vertices, 0.1, 0.45, generator)
    build.box((*low, top - 0.012), (*high, top - 0.001))
    return top - 0.012


def couch(
    build: FurnitureBuilder, seat: Seat, vertices: np.ndarray, joints: np.ndarray, generator: np.random.Generator
) -> float:
    """A mattress on a bed, or a sofa, under the whole body; returns the height of the floor."""
    top = float(vertices[:, 2].min()) + SINK
    low, high = _extent(vertices, 0.06, 0.3, generator)
    middle, half = (low + high) / 2, (high - low) / 2
    narrow = seat.kind == "couch" and half[0] < 0.5
    if not narrow:  # a bed
        half[0] = max(half[0], generator.uniform(0.45, 0.85))
        middle[0] += generator.uniform(-1, 1) * (half[0] - (high - low)[0] / 2)
    half[1] = max(half[1], 0.97)
    low, high = middle - half, middle + half
    floor = top - generator.uniform(0.36, 0.62)
    thick = generator.uniform(0.14, 0.24)
    build.round((low[0], low[1], top - thick), (high[0], high[1], top), 0.12, 0.1, 0)
    if narrow or generator.random() < 0.6:
        build.box((low[0] + 0.02, low[1] + 0.02, floor + 0.04), (high[0] - 0.02, high[1] - 0.02, top - thick + 0.03), 1)
    else:
        build.box((low[0], low[1], top - thick - 0.08), (high[0], high[1], top - thick + 0.02), 1)
        build.legs((low[0], low[1]), (high[0], high[1]), floor, top - thick, 0.06)
    if narrow:  # the back stands along one side, arms at the ends
        side = generator.choice([-1.0, 1.0])
        x = sorted((middle[0] + side * half[0], middle[0] + side * (half[0] + 0.2)))
        build.round((x[0], low[1], floor + 0.1), (x[1], high[1], top + generator.uniform(0.25, 0.42)), 0.25, 0.2, 0)
        for y in (low[1] - 0.18, high[1]):
            if generator.random() < 0.85:
                build.round(
                    (low[0], y, floor + 0.05), (high[0], y + 0.18, top + generator.uniform(0.1, 0.24)), 0.25, 0.2, 0
                )
    elif generator.random() < 0.7:
        build.box((low[0], high[1], floor), (high[0], high[1] + 0.05, top + generator.uniform(0.2, 0.6)), 1)
    head = joints[H36M_17.index("head")] * 0.6 + joints[H36M_17.index("nose")] * 0.4
    if seat.lean > 0.3:  # cushions behind one who reclines
        back_rest(build, seat.lean, vertices, joints, top, 0.62, 0.16, (joints[0, 0] - 0.32, joints[0, 0] + 0.32), True)
    elif head[2] - top < 0.22 and generator.random() < 0.8:
        size = generator.uniform((0.2, 0.16), (0.38, 0.26))
        build.round(
            (head[0] - size[0], head[1] - size[1], top - 0.02), (head[0] + size[0], head[1] + size[1], head[2] - 0.045),
            0.45, 0.4, 2,
        )  # fmt: skip
    if generator.random() < BLANKET:  # a blanket over the legs
        legs = joints[list(H36M_17.indices("left_knee", "right_knee", "left_ankle", "right_ankle"))]
        up = float(legs[:, 2].max()) + 0.11
        front, back = legs[:, 1].min() - 0.25, legs[:, 1].max() + generator.uniform(-0.15, 0.2)
        if up - top < 0.4:
            build.round((low[0] - 0.02, front, top - 0.05), (high[0] + 0.02, back, up), 0.35, 0.25, 2)
    return floor


def _extent(
    vertices: np.ndarray, least: float, most: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A rectangle under the whole body with margins."""
    margin = generator.uniform(least, most, 4)
    return vertices[:, :2].min(axis=0) - margin[:2], vertices[:, :2].max(axis=0) + margin[2:]
