"""A small software renderer: textured triangles, and compiled loops over triangles and pixels, on one core.

Camera axes are x right, y down, z away. A buffer holds the nearest inverse depth and the index of the triangle that
drew it (-1: nothing).
"""

from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numba
import numpy as np

compiled = numba.njit(cache=True, fastmath=True)
"""Beside `no_type_check`, which keeps run-time checkers of shapes away from what numba compiles. Its cache looks at the
caller's file alone: delete `__pycache__` after a change of a compiled function that another module calls."""

NEAR = 0.15
"""Metres; a triangle that reaches nearer than this to the camera is not drawn."""
BOTH_SIDES, CUT_OUT = 1, 2


class Mesh(NamedTuple):
    """Textured triangles. N vertices, F faces, T texture points, M materials."""

    vertices: np.ndarray
    """(N, 3) float32, metres in the world."""
    bias: np.ndarray
    """(N,) float32, metres by which a vertex counts as nearer in the depth test."""
    faces: np.ndarray
    """(F, 3) int32, vertices."""
    uv: np.ndarray
    """(T, 2) float32, v up; textures repeat."""
    face_uv: np.ndarray
    """(F, 3) int32, texture points."""
    face_kind: np.ndarray
    """(F,) int32: 4 * material + BOTH_SIDES, if its back is drawn + CUT_OUT, if it has holes where alpha is low."""
    atlas: np.ndarray
    """(M, S, S, 4) sRGB bytes and alpha."""
    gloss: np.ndarray
    """(M,) float32, the strength of the highlight."""


def piece(
    vertices: np.ndarray, faces: np.ndarray, uv: np.ndarray, face_uv: np.ndarray, kind: int, texture: np.ndarray,
    gloss: float, bias: float,
) -> Mesh:  # fmt: skip
    """A mesh of one material."""
    return Mesh(
        vertices.astype(np.float32, copy=False), np.full(len(vertices), bias, np.float32), faces, uv, face_uv,
        np.full(len(faces), kind, np.int32), texture[None], np.array([gloss], np.float32),
    )  # fmt: skip


def join(meshes: Sequence[Mesh]) -> Mesh:
    """Meshes as one; triangles and materials are numbered on."""
    vertices, points, materials = (
        np.cumsum([0, *(len(getattr(mesh, name)) for mesh in meshes[:-1])], dtype=np.int32)
        for name in ("vertices", "uv", "atlas")
    )
    return Mesh(
        vertices=np.concatenate([mesh.vertices for mesh in meshes]),
        bias=np.concatenate([mesh.bias for mesh in meshes]),
        faces=np.concatenate([mesh.faces + n for mesh, n in zip(meshes, vertices, strict=True)]).astype(np.int32),
        uv=np.concatenate([mesh.uv for mesh in meshes]).astype(np.float32),
        face_uv=np.concatenate([mesh.face_uv + n for mesh, n in zip(meshes, points, strict=True)]).astype(np.int32),
        face_kind=np.concatenate([mesh.face_kind + 4 * n for mesh, n in zip(meshes, materials, strict=True)]),
        atlas=np.concatenate([mesh.atlas for mesh in meshes]),
        gloss=np.concatenate([mesh.gloss for mesh in meshes]),
    )


@compiled
@no_type_check
def skin(rest, bone_index, bone_weight, rotations, translations) -> np.ndarray:
    """Linear blend skinning: (N, 3)."""
    out = np.empty_like(rest)
    for i in range(len(rest)):
        x, y, z = rest[i, 0], rest[i, 1], rest[i, 2]
        a = b = c = np.float32(0.0)
        for k in range(bone_index.shape[1]):
            w = bone_weight[i, k]
            if w == 0.0:
                break
            r = rotations[bone_index[i, k]]
            t = translations[bone_index[i, k]]
            a += w * (r[0, 0] * x + r[0, 1] * y + r[0, 2] * z + t[0])
            b += w * (r[1, 0] * x + r[1, 1] * y + r[1, 2] * z + t[1])
            c += w * (r[2, 0] * x + r[2, 1] * y + r[2, 2] * z + t[2])
        out[i, 0], out[i, 1], out[i, 2] = a, b, c
    return out


@compiled
@no_type_check
def vertex_normals(vertices, faces) -> np.ndarray:
    """Unit normals (N, 3), each face weighted by its area."""
    out = np.zeros_like(vertices)
    for f in range(len(faces)):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        ax, ay, az = vertices[j, 0] - vertices[i, 0], vertices[j, 1] - vertices[i, 1], vertices[j, 2] - vertices[i, 2]
        bx, by, bz = vertices[k, 0] - vertices[i, 0], vertices[k, 1] - vertices[i, 1], vertices[k, 2] - vertices[i, 2]
        nx, ny, nz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
        for v in (i, j, k):
            out[v, 0] += nx
            out[v, 1] += ny
            out[v, 2] += nz
    for v in range(len(out)):
        length = np.sqrt(out[v, 0] ** 2 + out[v, 1] ** 2 + out[v, 2] ** 2)
        if length > 0:
            out[v] /= length
    return out


def to_camera(points: np.ndarray, rotation: np.ndarray, position: np.ndarray) -> np.ndarray:
    """rotation @ (point - position), (N, 3) float32."""
    return ((points - position.astype(np.float32)) @ rotation.T.astype(np.float32)).astype(np.float32)


def to_screen(vertices: np.ndarray, bias: np.ndarray, focal: float, centre: float) -> np.ndarray:
    """Camera-frame vertices -> (x px, y px, 1 / depth) (N, 3); `bias` metres bring a layer nearer in the depth test.

    A vertex nearer than NEAR gets inverse depth 0, which drops its triangles.
    """
    z = np.maximum(vertices[:, 2], np.float32(NEAR))
    inverse = np.where(vertices[:, 2] < NEAR, 0, 1 / np.maximum(z - bias, np.float32(NEAR)))
    x, y = (focal * vertices[:, i] / z + centre for i in range(2))
    return np.stack([x, y, inverse], axis=1).astype(np.float32)


@compiled
@no_type_check
def draw(screen, mesh, first, inverse_depth, triangle) -> None:
    """Draw a mesh into (inverse_depth, triangle), in place; triangle numbers start at `first`."""
    faces, face_uv, face_kind, uv, atlas = mesh.faces, mesh.face_uv, mesh.face_kind, mesh.uv, mesh.atlas
    height, width = inverse_depth.shape
    size = atlas.shape[1]
    for f in range(len(faces)):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        x0, y0, w0 = screen[i, 0], screen[i, 1], screen[i, 2]
        x1, y1, w1 = screen[j, 0], screen[j, 1], screen[j, 2]
        x2, y2, w2 = screen[k, 0], screen[k, 1], screen[k, 2]
        if w0 <= 0 or w1 <= 0 or w2 <= 0:
            continue
        area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
        if area == 0 or (area > 0 and not face_kind[f] & BOTH_SIDES):  # y is down: front faces turn anticlockwise
            continue
        left = max(int(np.ceil(min(x0, x1, x2) - 0.5)), 0)
        right = min(int(np.floor(max(x0, x1, x2) - 0.5)), width - 1)
        top = max(int(np.ceil(min(y0, y1, y2) - 0.5)), 0)
        bottom = min(int(np.floor(max(y0, y1, y2) - 0.5)), height - 1)
        if left > right or top > bottom:
            continue
        inv = 1.0 / area
        a_dx, b_dx = -(y2 - y1) * inv, -(y0 - y2) * inv
        cut = face_kind[f] & CUT_OUT
        for row in range(top, bottom + 1):
            py = row + 0.5
            px = left + 0.5
            a = ((x2 - x1) * (py - y1) - (px - x1) * (y2 - y1)) * inv
            b = ((x0 - x2) * (py - y2) - (px - x2) * (y0 - y2)) * inv
            for column in range(left, right + 1):
                c = 1.0 - a - b
                if a >= 0 and b >= 0 and c >= 0:
                    w = a * w0 + b * w1 + c * w2
                    if w > inverse_depth[row, column]:
                        solid = True
                        if cut:
                            p, q, r = face_uv[f, 0], face_uv[f, 1], face_uv[f, 2]
                            u = (a * w0 * uv[p, 0] + b * w1 * uv[q, 0] + c * w2 * uv[r, 0]) / w
                            v = (a * w0 * uv[p, 1] + b * w1 * uv[q, 1] + c * w2 * uv[r, 1]) / w
                            tx = int(u * size) % size
                            ty = int((1.0 - v) * size) % size
                            solid = atlas[face_kind[f] >> 2, ty, tx, 3] > 110
                        if solid:
                            inverse_depth[row, column] = w
                            triangle[row, column] = first + f
                a += a_dx
                b += b_dx
