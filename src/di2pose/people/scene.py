"""One picture: a posed person, what stands around and in front, light, camera; and the labels that belong to it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.data.sample import OCCLUDED
from di2pose.people import raster
from di2pose.people.backdrop import draw_backdrop
from di2pose.people.dress import Person
from di2pose.people.light import Light, draw_light
from di2pose.people.motion import classify
from di2pose.people.occluders import ANY, LARGE, Boxes, boxes, furniture_around, furniture_in_front, patch, photo_border
from di2pose.people.photo import develop
from di2pose.people.retarget import Pose
from di2pose.people.shading import shade
from di2pose.people.store import SIZE
from di2pose.people.view import View, draw_view
from di2pose.people.visibility import visibility

SAMPLES = 2
"""Samples along a pixel's side."""
MM = 1000.0
CROPS = ("detector", "upright", "close")
OCCLUSIONS = ("none", "patch", "furniture", "person", "behind")


@dataclass(frozen=True)
class Figure:
    """A person in a pose somewhere in the world."""

    person: Person
    pose: Pose
    shift: np.ndarray
    """Metres, added to every point."""

    def vertices(self) -> np.ndarray:
        turns = self.pose.turns.astype(np.float32)
        rest = self.person.body.heads.astype(np.float64)
        moves = self.pose.heads - np.einsum("bij,bj->bi", self.pose.turns, rest) + self.shift
        return raster.skin(
            self.person.vertices, self.person.bone_index, self.person.bone_weight, turns, moves.astype(np.float32)
        )

    @property
    def joints(self) -> np.ndarray:
        return self.pose.joints + self.shift

    @property
    def facing(self) -> float:
        """Radians about the vertical, 0 is -y: where the pelvis points, or the chest of one who lies down."""
        front = -self.pose.turns[0][:, 1]
        return float(np.arctan2(front[0], -front[1]))


@dataclass(frozen=True)
class Picture:
    """JPEG bytes of the 256 x 256 crop, and labels: arrays and plain values by name."""

    jpeg: bytes
    labels: dict[str, Any]


def draw_picture(
    figure: Figure,
    other: Figure | None,
    occlusion: str,
    photos: tuple[Path, ...],
    generator: np.random.Generator,
    attacked: bool = False,
) -> Picture:
    """`occlusion`: none, patch, furniture or person (`other`) in front; or `behind`, where `other` hides nothing.

    `attacked`: the patch is large, and the crop that of a detector which it misleads.
    """
    vertices = figure.vertices()
    ground = float(vertices[:, 2].min())
    joints = figure.joints
    view = draw_view(joints, figure.facing, ground, generator, attacked)
    joints_camera = view.to_camera(joints)
    points = view.to_pixels(joints_camera)

    meshes = [Mesh.of_person(figure.person, vertices, view, 0)]
    if other is not None:
        other = _placed(other, joints, view, ground, occlusion == "person", generator)
        meshes.append(Mesh.of_person(other.person, other.vertices(), view, meshes[-1].last))
    casting = [(mesh.world, mesh.faces) for mesh in meshes]
    places = furniture_around(joints, view, ground, generator)
    blocks = furniture_in_front(joints, view, ground, generator) if occlusion == "furniture" else []
    for group in (places, blocks):
        if group:
            meshes.append(Mesh.of_boxes(boxes(group, generator), view, meshes[-1].last))

    size = SAMPLES * SIZE
    inverse_depth, triangle = np.zeros((size, size), np.float32), np.full((size, size), -1, np.int32)
    for mesh in meshes:
        mesh.draw(inverse_depth, triangle)
    light = draw_light(view, casting, generator)
    colour, cover = np.zeros((SIZE, SIZE, 3), np.float32), np.zeros((SIZE, SIZE), np.float32)
    subject = cover
    for mesh in meshes:
        mesh.shade(triangle, inverse_depth, light, view, colour, cover)
        if mesh is meshes[0]:
            subject = cover.copy()
    colour += (1 - cover)[..., None] * draw_backdrop(view, ground, light, cover, photos, generator)

    pasted = np.zeros((SIZE, SIZE), bool)
    for _ in range(int(generator.choice([1, 1, 2])) if occlusion == "patch" else 0):
        mask, texture = patch(points, generator, LARGE if attacked else ANY)
        colour[mask] = texture[mask] * float(light.colours[0].mean())
        pasted |= mask
    inside, cuts = photo_border(points, view.roll, generator)
    jpeg = develop(colour, subject, generator, inside)
    seen = visibility(figure.person, joints_camera, points, triangle, inverse_depth, pasted, inside)
    return Picture(
        jpeg,
        {
            "joints_mm": (MM * (joints_camera - joints_camera[0])).astype(np.float32),
            "root_mm": MM * joints_camera[0],
            "joints_2d": points.astype(np.float32),
            "visibility": seen,
            "focal": view.focal,
            "roll": view.roll,
            "yaw": view.yaw,
            "pitch": view.pitch,
            "distance_m": view.distance_m,
            "photo_fov": view.photo_fov,
            "side_ratio": view.side_ratio,
            "up": (view.rotation @ (0.0, 0.0, 1.0)).astype(np.float32),
            "box": raster.bounds(meshes[0].screen) / SAMPLES,
            "crop": CROPS.index(view.kind),
            "pose_class": int(classify(joints[None], up=2)[0]),
            "occlusion": OCCLUSIONS.index(occlusion),
            "truncated": cuts,
            "hidden": float(np.mean(seen >= OCCLUDED)),
        },
    )


@dataclass(frozen=True)
class Mesh:
    """Something to draw: camera-frame vertices and what `raster` needs; its triangles are first .. last - 1."""

    world: np.ndarray
    vertices: np.ndarray
    screen: np.ndarray
    faces: np.ndarray
    face_uv: np.ndarray
    face_kind: np.ndarray
    uv: np.ndarray
    atlas: np.ndarray
    gloss: np.ndarray
    first: int

    @property
    def last(self) -> int:
        return self.first + len(self.faces)

    @classmethod
    def of_person(cls, person: Person, world: np.ndarray, view: View, first: int) -> "Mesh":
        return cls._of(person, world, person.bias, person.gloss, view, first)

    @classmethod
    def of_boxes(cls, things: Boxes, view: View, first: int) -> "Mesh":
        flat = np.zeros(len(things.vertices), np.float32)
        return cls._of(things, things.vertices, flat, np.zeros(len(things.atlas), np.float32), view, first)

    @classmethod
    def _of(
        cls, mesh: Person | Boxes, world: np.ndarray, bias: np.ndarray, gloss: np.ndarray, view: View, first: int
    ) -> "Mesh":
        vertices = raster.move(world, view.rotation, view.position)
        screen = raster.to_screen(vertices, bias, np.float32(SAMPLES * view.focal), np.float32(SAMPLES * SIZE / 2))
        return cls(world, vertices, screen, mesh.faces, mesh.face_uv, mesh.face_kind, mesh.uv, mesh.atlas, gloss, first)

    def draw(self, inverse_depth: np.ndarray, triangle: np.ndarray) -> None:
        raster.draw(
            self.screen, self.faces, self.face_uv, self.face_kind, self.uv, self.atlas, self.first, inverse_depth,
            triangle,
        )  # fmt: skip

    def shade(
        self,
        triangle: np.ndarray,
        inverse_depth: np.ndarray,
        light: Light,
        view: View,
        out: np.ndarray,
        cover: np.ndarray,
    ) -> None:
        shade(
            triangle, inverse_depth, self.screen, raster.vertex_normals(self.vertices, self.faces), self.faces,
            self.face_uv, self.face_kind, self.uv, self.atlas, self.gloss, self.first, light.directions, light.colours,
            light.sky, light.ground, light.up, light.to_map, light.depth, np.float32(SAMPLES * view.focal), out, cover,
        )  # fmt: skip


def _placed(
    other: Figure, joints: np.ndarray, view: View, ground: float, in_front: bool, generator: np.random.Generator
) -> Figure:
    """Stand the other person on the floor, before the target (and the camera) or behind it."""
    towards = view.position[:2] - joints[0, :2]
    towards /= np.linalg.norm(towards)
    aside = np.array([-towards[1], towards[0]]) * generator.choice([-1.0, 1.0])
    if in_front:
        ahead = generator.uniform(0.45, max(0.5, min(1.3, view.distance_m - 1.4)))
        place = joints[0, :2] + towards * ahead + aside * generator.uniform(0.12, 0.5)
    else:
        place = joints[0, :2] - towards * generator.uniform(0.5, 2.5) + aside * generator.uniform(0.3, 1.2)
    lowest = Figure(other.person, other.pose, np.zeros(3)).vertices()[:, 2].min()
    return Figure(other.person, other.pose, np.array([*(place - other.pose.joints[0, :2]), ground - lowest]))
