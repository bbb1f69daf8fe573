"""Lights with colour, and the shadow of the first one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from di2pose.people.raster import bounds, move
from di2pose.people.shading import draw_depth
from di2pose.people.view import View

SHADOW = 160
"""Pixels of the shadow map along a side."""


@dataclass(frozen=True)
class Light:
    """Lights in camera axes, as `shading.shade` wants them; the first one casts shadows through (to_map, depth)."""

    directions: np.ndarray
    colours: np.ndarray
    sky: np.ndarray
    ground: np.ndarray
    up: np.ndarray
    to_map: np.ndarray
    depth: np.ndarray


def draw_light(view: View, casting: Sequence[tuple[np.ndarray, np.ndarray]], generator: np.random.Generator) -> Light:
    """A key light from above, often a fill light, light from sky and floor; and the key light's shadow map.

    casting: world vertices and faces of what casts a shadow.
    """
    count = 1 + int(generator.random() < 0.5)
    azimuth = generator.uniform(0, 2 * np.pi, count)
    height = np.radians(generator.uniform(15, 75, count))
    world = np.stack([np.cos(azimuth) * np.cos(height), np.sin(azimuth) * np.cos(height), np.sin(height)], axis=1)
    warm = np.clip(generator.normal(0, 0.12, (count, 1)), -0.3, 0.3) * np.array([1.0, 0.1, -1.0])
    strength = np.array([generator.uniform(0.25, 1.1), generator.uniform(0.1, 0.5)])[:count]
    ambient = generator.uniform(0.25, 0.7)
    tint = np.exp(generator.normal(0, 0.07, 3))
    key = world[0]
    across = np.cross(key, [0.0, 0.0, 1.0])
    across /= np.linalg.norm(across)
    axes = np.stack([across, np.cross(key, across), -key])
    clouds = [move(world, axes, np.zeros(3)) for world, _ in casting]
    edges = np.stack([bounds(cloud) for cloud in clouds])
    low, high = edges[:, :2].min(axis=0), edges[:, 2:].max(axis=0)
    scale = (SHADOW - 4) / float((high - low).max())
    scaling = np.array([scale, scale, 1.0])
    offset = np.array([*(2 - low * scale), 0.0])
    depth = np.full((SHADOW, SHADOW), np.inf, np.float32)
    for (_, faces), cloud in zip(casting, clouds, strict=True):
        draw_depth(cloud * scaling.astype(np.float32) + offset.astype(np.float32), faces, depth)
    from_camera = scaling[:, None] * (axes @ view.rotation.T)
    return Light(
        directions=(world @ view.rotation.T).astype(np.float32),
        colours=(strength[:, None] * (1 + warm)).astype(np.float32),
        sky=(ambient * tint).astype(np.float32),
        ground=(ambient * generator.uniform(0.3, 0.9) * tint[::-1]).astype(np.float32),
        up=view.rotation[:, 2].astype(np.float32),
        to_map=np.concatenate([from_camera, (scaling * (axes @ view.position) + offset)[:, None]], axis=1).astype(
            np.float32
        ),
        depth=depth,
    )
