"""Lights with colour, the shadow of the first one, and what they make of a texture. Colours are linear light; `sensor`
encodes them."""

from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numpy as np

from di2pose_people.raster import BOTH_SIDES, Mesh, compiled, draw, to_camera
from di2pose_people.view import View

SHADOW = 160
"""Pixels of the shadow map along a side."""
FAR = 50.0
"""Metres; the shadow map holds this less the distance along the light, so that more is nearer."""


class Light(NamedTuple):
    """L lights in camera axes: unit directions towards them and colours (L, 3); light of `sky` and `ground` along `up`.

    The first light casts a shadow: `to_map` (3, 4) takes a camera-frame point to its (x px, y px) in the shadow map
    `near` and to how near it is to the light.
    """

    directions: np.ndarray
    colours: np.ndarray
    sky: np.ndarray
    ground: np.ndarray
    up: np.ndarray
    to_map: np.ndarray
    near: np.ndarray


def draw_light(view: View, casting: Sequence[Mesh], generator: np.random.Generator) -> Light:
    """A key light from above, often a fill light, light from sky and floor; and the shadow of `casting`."""
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
    axes = np.stack([across, np.cross(across, key), -key])
    clouds = [to_camera(mesh.vertices, axes, np.zeros(3)) for mesh in casting]
    low = np.min([cloud[:, :2].min(axis=0) for cloud in clouds], axis=0)
    high = np.max([cloud[:, :2].max(axis=0) for cloud in clouds], axis=0)
    scale = (SHADOW - 4) / float((high - low).max())
    scaling, offset = np.array([scale, scale, -1.0]), np.array([*(2 - low * scale), FAR])
    near, nearest = np.zeros((SHADOW, SHADOW), np.float32), np.empty((SHADOW, SHADOW), np.int32)
    for mesh, cloud in zip(casting, clouds, strict=True):
        draw((cloud * scaling + offset).astype(np.float32), mesh, 0, near, nearest)
    to_map = np.column_stack([scaling[:, None] * (axes @ view.rotation.T), scaling * (axes @ view.position) + offset])
    return Light(
        directions=(world @ view.rotation.T).astype(np.float32),
        colours=(strength[:, None] * (1 + warm)).astype(np.float32),
        sky=(ambient * tint).astype(np.float32),
        ground=(ambient * generator.uniform(0.3, 0.9) * tint[::-1]).astype(np.float32),
        up=view.rotation[:, 2].astype(np.float32),
        to_map=to_map.astype(np.float32),
        near=near,
    )


@compiled
@no_type_check
def lit(x, y, z, light) -> float:
    """How much of the light reaches a camera-frame point: 0 to 1, softened over 4 texels of the shadow map."""
    m, near = light.to_map, light.near
    u = m[0, 0] * x + m[0, 1] * y + m[0, 2] * z + m[0, 3]
    v = m[1, 0] * x + m[1, 1] * y + m[1, 2] * z + m[1, 3]
    own = m[2, 0] * x + m[2, 1] * y + m[2, 2] * z + m[2, 3] + 0.03
    i, j = int(np.floor(u - 0.5)), int(np.floor(v - 0.5))
    if i < 0 or j < 0 or i + 1 >= near.shape[1] or j + 1 >= near.shape[0]:
        return 1.0
    a, b = u - 0.5 - i, v - 0.5 - j
    top = (1 - a) * (near[j, i] < own) + a * (near[j, i + 1] < own)
    low = (1 - a) * (near[j + 1, i] < own) + a * (near[j + 1, i + 1] < own)
    return (1 - b) * top + b * low


@compiled
@no_type_check
def texel(image, u, v, out) -> None:
    """Bilinear, repeating, sRGB bytes -> linear light (a square serves as gamma): out (3,), in place."""
    size = image.shape[0]
    x, y = u * size - 0.5, (1.0 - v) * size - 0.5
    i, j = int(np.floor(x)), int(np.floor(y))
    a, b = x - i, y - j
    i0, i1, j0, j1 = i % size, (i + 1) % size, j % size, (j + 1) % size
    for c in range(3):
        top = (1 - a) * image[j0, i0, c] + a * image[j0, i1, c]
        low = (1 - a) * image[j1, i0, c] + a * image[j1, i1, c]
        value = ((1 - b) * top + b * low) / 255.0
        out[c] = value * value


@compiled
@no_type_check
def shade(triangle, inverse_depth, screen, normals, mesh, first, light, focal, out, cover) -> None:
    """Colour the samples that triangles of the mesh won, which are numbered from `first`; 2 x 2 of them are averaged
    into `out`. cover (H, W) gets the part of each pixel that was drawn."""
    faces, face_uv, face_kind, uv, atlas = mesh.faces, mesh.face_uv, mesh.face_kind, mesh.uv, mesh.atlas
    sky, ground, up, lights = light.sky, light.ground, light.up, light.directions
    colour = np.empty(3, np.float32)
    normal = np.empty(3, np.float32)
    centre = triangle.shape[0] / 2
    for row in range(triangle.shape[0]):
        for column in range(triangle.shape[1]):
            f = triangle[row, column] - first
            if f < 0 or f >= len(faces):
                continue
            i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
            x0, y0, x1, y1 = screen[i, 0], screen[i, 1], screen[j, 0], screen[j, 1]
            x2, y2 = screen[k, 0], screen[k, 1]
            inv = 1.0 / ((x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0))
            px, py = column + 0.5, row + 0.5
            a = ((x2 - x1) * (py - y1) - (px - x1) * (y2 - y1)) * inv * screen[i, 2]
            b = ((x0 - x2) * (py - y2) - (px - x2) * (y0 - y2)) * inv * screen[j, 2]
            w = inverse_depth[row, column]
            a, b = a / w, b / w
            c = 1.0 - a - b
            p, q, r = face_uv[f, 0], face_uv[f, 1], face_uv[f, 2]
            material = face_kind[f] >> 2
            texel(
                atlas[material],
                a * uv[p, 0] + b * uv[q, 0] + c * uv[r, 0],
                a * uv[p, 1] + b * uv[q, 1] + c * uv[r, 1],
                colour,
            )
            for d in range(3):
                normal[d] = a * normals[i, d] + b * normals[j, d] + c * normals[k, d]
            z = 1.0 / w
            x, y = (px - centre) * z / focal, (py - centre) * z / focal
            far = np.sqrt(x * x + y * y + z * z)
            length = np.sqrt(normal[0] ** 2 + normal[1] ** 2 + normal[2] ** 2) + 1e-6
            if face_kind[f] & BOTH_SIDES and normal[0] * x + normal[1] * y + normal[2] * z > 0:
                length = -length
            for d in range(3):
                normal[d] /= length
            rise = 0.5 + 0.5 * (normal[0] * up[0] + normal[1] * up[1] + normal[2] * up[2])
            seen = lit(x, y, z, light)
            y2x = row // 2
            x2x = column // 2
            cover[y2x, x2x] += 0.25
            for d in range(3):
                out[y2x, x2x, d] += 0.25 * colour[d] * (ground[d] + (sky[d] - ground[d]) * rise)
            for n in range(len(lights)):
                facing = normal[0] * lights[n, 0] + normal[1] * lights[n, 1] + normal[2] * lights[n, 2]
                if facing <= 0:
                    continue
                half_x = lights[n, 0] - x / far
                half_y = lights[n, 1] - y / far
                half_z = lights[n, 2] - z / far
                half = np.sqrt(half_x**2 + half_y**2 + half_z**2) + 1e-6
                shine = max((normal[0] * half_x + normal[1] * half_y + normal[2] * half_z) / half, 0.0)
                shine *= shine
                shine *= shine
                shine *= shine  # to the 8th power; its cube is the 24th
                shine = mesh.gloss[material] * shine * shine * shine
                strength = facing * (seen if n == 0 else 1.0)
                for d in range(3):
                    out[y2x, x2x, d] += 0.25 * strength * light.colours[n, d] * (colour[d] + shine)
