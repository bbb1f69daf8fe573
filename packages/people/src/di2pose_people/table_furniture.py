"""Tables before people who sit or bend: x to the person's left, y to its back, z up, metres."""

import numpy as np

from di2pose_people.furniture_builder import FurnitureBuilder
from di2pose_people.pose_builder import bones_of


def table(
    build: FurnitureBuilder, height: float, vertices: np.ndarray, bone: np.ndarray, joints: np.ndarray, floor: float,
    generator: np.random.Generator,
) -> None:  # fmt: skip
    """A table, desk or counter before the trunk, under forearms and hands, over the thighs."""
    hip = joints[0]
    top = float(hip[2]) + height
    trunk = vertices[np.isin(bone, bones_of("spine", "root", "pelvis", "upperarm"))]
    band = trunk[np.abs(trunk[:, 2] - top) < 0.09]
    edge = (float(band[:, 1].min()) if len(band) else float(hip[1]) - 0.15) - generator.uniform(0.015, 0.09)
    hands = vertices[np.isin(bone, bones_of("lowerarm", "wrist", "finger", "metacarpal"))]
    over = hands[(hands[:, 1] < edge) & (np.abs(hands[:, 2] - top) < 0.09)]
    if len(over):
        top = float(over[:, 2].min()) + 0.004
    legs = vertices[np.isin(bone, bones_of("upperleg", "lowerleg", "foot", "toe"))]
    legs = legs[legs[:, 1] < edge]
    limit = float(legs[:, 2].max()) + 0.006 if len(legs) else top - 0.04
    thick = float(np.clip(top - limit, 0.015, generator.uniform(0.025, 0.06)))
    width, depth = generator.uniform((0.45, 0.5), (1.0, 0.9))
    middle = float(hip[0] + generator.normal(0, 0.12))
    left, right, far = middle + width, middle - width, edge - depth
    chance = generator.random()
    if chance < 0.2:  # round, on one leg
        radius = max(width, depth) * 0.7
        centre = edge - radius
        build.round((middle - radius, edge - 2 * radius, top - thick), (middle + radius, edge, top), 0.08, 1.0, 2)
        build.round((middle - 0.04, centre - 0.04, floor), (middle + 0.04, centre + 0.04, top - thick), 0.1, 1.0, 2)
    else:
        build.box((right, far, top - thick), (left, edge, top), 2)
        if chance < 0.45:  # a desk: closed in front and at the sides
            build.box((right, far, floor + generator.uniform(0.0, 0.3)), (left, far + 0.02, top - thick), 2)
        for x in (right, left - 0.05):
            for y in (far, edge - 0.05):
                build.box((x, y, floor), (x + 0.05, y + 0.05, top - thick), 2)
    for _ in range(int(generator.integers(0, 4))):  # what lies on it
        x, y = generator.uniform(right + 0.15, left - 0.15), generator.uniform(far + 0.08, edge - 0.2)
        if len(over) and (np.hypot(over[:, 0] - x, over[:, 1] - y) < 0.17).any():
            continue
        chance = generator.random()
        material = int(generator.integers(0, 2))
        if chance < 0.35:  # a cup or bottle
            r, tall = generator.uniform((0.03, 0.07), (0.05, 0.28))
            build.round((x - r, y - r, top), (x + r, y + r, top + tall), 0.15, 1.0, material)
        elif chance < 0.6:  # a screen
            w = generator.uniform(0.14, 0.26)
            build.box((x - w, y - 0.01, top + 0.01), (x + w, y + 0.01, top + generator.uniform(0.2, 0.38)), material)
        else:
            w, d, h = generator.uniform((0.05, 0.05, 0.01), (0.18, 0.14, 0.1))
            build.box((x - w, y - d, top), (x + w, y + d, top + h), material)


def low_table(build: FurnitureBuilder, vertices: np.ndarray, floor: float, generator: np.random.Generator) -> None:
    """A low table before the feet."""
    edge = float(vertices[:, 1].min()) - generator.uniform(0.04, 0.3)
    top, depth, half = floor + generator.uniform(0.32, 0.48), generator.uniform(0.4, 0.7), generator.uniform(0.3, 0.65)
    middle = float(vertices[:, 0].mean()) + generator.normal(0, 0.2)
    build.box((middle - half, edge - depth, top - 0.04), (middle + half, edge, top), 2)
    if generator.random() < 0.3:
        build.box(
            (middle - half + 0.05, edge - depth + 0.05, floor), (middle + half - 0.05, edge - 0.05, top - 0.04), 1
        )
    else:
        build.legs((middle - half, edge - depth), (middle + half, edge), floor, top - 0.04, 0.05)
