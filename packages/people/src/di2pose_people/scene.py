"""One picture: a posed person, what stands around and in front, light, camera; and the record that belongs to it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from di2pose.data.sample import OCCLUDED, Sample
from di2pose.pose.camera import Camera
from di2pose_people import raster
from di2pose_people.backdrop import draw_backdrop
from di2pose_people.furniture import furnish
from di2pose_people.light import Light, draw_light, shade
from di2pose_people.motion import CLASSES, classify
from di2pose_people.occluders import ANY, LARGE, boxes, furniture_around, furniture_in_front, patch, photo_border
from di2pose_people.pose_builder import Seat
from di2pose_people.raster import Mesh
from di2pose_people.retarget import Pose
from di2pose_people.sensor import develop
from di2pose_people.view import SIZE, View, draw_view
from di2pose_people.visibility import visibility
from di2pose_people.wardrobe import DressedPerson

SAMPLES = 2
"""Samples along a pixel's side."""
MM = 1000.0
VIEW = ("roll", "yaw", "pitch", "distance_m", "photo_fov", "side_ratio")
"""What a record says of its view."""
CUT_SETTLED = 0.22
"""How often the photo's border cuts a settled person."""
OCCLUSIONS = ("none", "patch", "furniture", "person", "behind")


@dataclass(frozen=True)
class Figure:
    """A person in a pose somewhere in the world."""

    person: DressedPerson
    pose: Pose
    shift: np.ndarray
    """Metres, added to every point."""

    def mesh(self) -> Mesh:
        moves = self.pose.heads - np.einsum("bij,bj->bi", self.pose.turns, self.person.rig.rest) + self.shift
        mesh, turns = self.person.mesh, self.pose.turns.astype(np.float32)
        bones = (self.person.bone_index, self.person.bone_weight)
        return replace(mesh, vertices=raster.skin(mesh.vertices, *bones, turns, moves.astype(np.float32)))

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
    """JPEG bytes of the 256 x 256 crop, and its record."""

    jpeg: bytes
    sample: Sample


def draw_picture(
    figure: Figure, other: Figure | None, occlusion: str, photos: tuple[Path, ...], generator: np.random.Generator,
    attacked: bool = False, seat: Seat | None = None,
) -> Picture:  # fmt: skip
    """`occlusion`: none, patch, furniture or person (`other`) in front; or `behind`, where `other` hides nothing.

    `attacked`: the patch is large, and the crop that of a detector which it misleads. `seat`: what carries the person;
    its table is then the furniture in front.
    """
    meshes = [figure.mesh()]
    ground = float(meshes[0].vertices[:, 2].min())
    joints = figure.joints
    carrying: list[Mesh] = []
    if seat is not None:
        ground, carrying = furnish(seat, figure.person, meshes[0].vertices, joints, generator)
    view = draw_view(joints, figure.facing, ground, generator, attacked, settled=seat is not None)
    if other is not None:
        meshes.append(_placed(other, joints, view, ground, occlusion == "person", generator).mesh())
    people = len(meshes)
    places = furniture_around(joints, view, ground, generator)
    in_front = occlusion == "furniture" and (seat is None or seat.table is None)
    blocks = furniture_in_front(joints, view, ground, generator) if in_front else []
    around = carrying + [boxes(group, generator) for group in (places, blocks) if group]
    meshes += [raster.join(around)] if around else []  # each layer costs a walk over all samples
    casting = meshes[:people] + carrying
    cut = 0.15 if seat is None else CUT_SETTLED
    return take_picture(figure, meshes, casting, view, ground, occlusion, photos, generator, attacked, cut)


def take_picture(
    figure: Figure, meshes: list[Mesh], casting: list[Mesh], view: View, ground: float, occlusion: str,
    photos: tuple[Path, ...], generator: np.random.Generator, attacked: bool = False, cut: float | None = None,
) -> Picture:  # fmt: skip
    """Light, backdrop, patches, border and sensor: what is left when everything stands before the camera.

    `meshes`: the figure's first; `casting`: those that cast shadows. `cut`: how often the photo's border cuts the
    person; None: there is no border.
    """
    joints = figure.joints
    joints_camera = view.to_camera(joints)
    points = view.to_pixels(joints_camera)
    layers = project(meshes, view)
    triangle, inverse_depth = draw(layers)
    light = draw_light(view, casting, generator)
    colour, cover = np.zeros((SIZE, SIZE, 3), np.float32), np.zeros((SIZE, SIZE), np.float32)
    layers[0].shade(triangle, inverse_depth, light, view, colour, cover)
    subject = cover.copy()
    for layer in layers[1:]:
        layer.shade(triangle, inverse_depth, light, view, colour, cover)
    colour += (1 - cover)[..., None] * draw_backdrop(view, ground, light, cover, photos, generator)

    pasted = np.zeros((SIZE, SIZE), bool)
    for _ in range(int(generator.choice([1, 1, 2])) if occlusion == "patch" else 0):
        mask, texture = patch(points, generator, LARGE if attacked else ANY)
        colour[mask] = texture[mask] * float(light.colours[0].mean())
        pasted |= mask
    inside, cuts = (None, False) if cut is None else photo_border(points, view.roll, generator, cut)
    jpeg = develop(colour, subject, generator, inside)
    seen = visibility(figure.person, joints_camera[:, 2], points, triangle, inverse_depth, pasted, inside)

    pose_class = CLASSES[int(classify(joints[None], up=2)[0])]
    across, down, _ = layers[0].screen.T / SAMPLES
    sample = Sample(
        id="",
        joints_mm=(MM * (joints_camera - joints_camera[0])).astype(np.float32),
        root_mm=MM * joints_camera[0],
        joints_2d=points.astype(np.float32),
        visibility=seen,
        box=(float(across.min()), float(down.min()), float(across.max()), float(down.max())),
        camera=Camera(focal=(view.focal, view.focal), centre=(SIZE / 2, SIZE / 2), size=(SIZE, SIZE)),
        action=pose_class,
        extra={
            "roi": [SIZE / 2, SIZE / 2, SIZE, 0.0],
            "pose_class": pose_class,
            "occlusion": occlusion,
            "crop": view.kind,
            "truncated": cuts,
            "hidden": float(np.mean(seen >= OCCLUDED)),
            **{name: getattr(view, name) for name in VIEW},
            "up": view.rotation[:, 2].astype(np.float32).tolist(),
        },
    )
    return Picture(jpeg, sample)


@dataclass(frozen=True)
class Layer:
    """A mesh before the camera: its vertices in the camera frame and on the screen, and its first triangle's number."""

    mesh: Mesh
    vertices: np.ndarray
    screen: np.ndarray
    first: int

    def shade(
        self, triangle: np.ndarray, inverse_depth: np.ndarray, light: Light, view: View, out: np.ndarray,
        cover: np.ndarray,
    ) -> None:  # fmt: skip
        mesh, normals = self.mesh, raster.vertex_normals(self.vertices, self.mesh.faces)
        shade(
            triangle, inverse_depth, self.screen, normals, mesh.faces, mesh.face_uv, mesh.face_kind, mesh.uv,
            mesh.atlas, mesh.gloss, self.first, light.directions, light.colours, light.sky, light.ground, light.up,
            light.to_map, light.depth, np.float32(SAMPLES * view.focal), out, cover,
        )  # fmt: skip


def project(meshes: list[Mesh], view: View) -> list[Layer]:
    """The meshes before the camera; their triangles are numbered on."""
    out, first = [], 0
    focal, centre = np.float32(SAMPLES * view.focal), np.float32(SAMPLES * SIZE / 2)
    for mesh in meshes:
        vertices = raster.move(mesh.vertices, view.rotation, view.position)
        out.append(Layer(mesh, vertices, raster.to_screen(vertices, mesh.bias, focal, centre), first))
        first += len(mesh.faces)
    return out


def draw(layers: list[Layer]) -> tuple[np.ndarray, np.ndarray]:
    """What each of the (512, 512) samples shows: the number of its triangle, -1 for none, and its inverse depth."""
    shape = (SAMPLES * SIZE, SAMPLES * SIZE)
    triangle, inverse_depth = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
    for layer in layers:
        mesh = layer.mesh
        raster.draw(
            layer.screen, mesh.faces, mesh.face_uv, mesh.face_kind, mesh.uv, mesh.atlas, layer.first, inverse_depth,
            triangle,
        )  # fmt: skip
    return triangle, inverse_depth


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
    lowest = other.mesh().vertices[:, 2].min()
    return replace(other, shift=np.array([*(place - other.pose.joints[0, :2]), ground - lowest]))
