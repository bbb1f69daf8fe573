"""One picture: a posed person, what stands around and in front, light, camera; and the record that belongs to it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from di2pose.data.sample import OCCLUDED, Sample
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17
from di2pose_people import raster
from di2pose_people.backdrop import draw_backdrop
from di2pose_people.furniture import Seat, furnish
from di2pose_people.light import draw_light, shade
from di2pose_people.motion import CLASSES, classify
from di2pose_people.occluders import ANY, LARGE, furniture_around, furniture_in_front, patch, photo_border
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
CUT, CUT_STANDING = 0.16, 0.4
"""How often the photo's border cuts a person, and one who simply stands."""
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
        return mesh._replace(vertices=raster.skin(mesh.vertices, *bones, turns, moves.astype(np.float32)))

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
    attacked: bool = False, seat: Seat | None = None, standing: bool = False,
) -> Picture:  # fmt: skip
    """`occlusion`: none, patch, furniture or person (`other`) in front; or `behind`, where `other` hides nothing.

    `attacked`: the patch is large, and the crop that of a detector which it misleads. `seat`: what carries the person;
    its table is then the furniture in front. `standing`: the photo's border cuts the person more often.
    """
    meshes, carrying, joints = [figure.mesh()], list[Mesh](), figure.joints
    ground = float(meshes[0].vertices[:, 2].min())
    if seat is not None:
        ground, carrying = furnish(seat, figure.person, meshes[0].vertices, joints, generator)
    view = draw_view(joints, figure.facing, ground, generator, attacked, settled=seat is not None, standing=standing)
    if other is not None:
        meshes.append(_placed(other, joints, view, ground, occlusion == "person", generator).mesh())
    casting = meshes + carrying
    around = carrying + furniture_around(joints, view, ground, generator)
    if occlusion == "furniture" and (seat is None or seat.table is None):
        around += furniture_in_front(joints, view, ground, generator)
    meshes += [raster.join(around)] if around else []  # each layer costs a walk over all samples

    layers, triangle, inverse_depth = rasterise(meshes, view)
    light = draw_light(view, casting, generator)
    colour, cover = np.zeros((SIZE, SIZE, 3), np.float32), np.zeros((SIZE, SIZE), np.float32)
    for layer in layers:
        normals = raster.vertex_normals(layer.vertices, layer.mesh.faces)
        focal = np.float32(SAMPLES * view.focal)
        shade(triangle, inverse_depth, layer.screen, normals, layer.mesh, layer.first, light, focal, colour, cover)
        if layer.first == 0:
            subject = cover.copy()
    colour += (1 - cover)[..., None] * draw_backdrop(view, ground, light, cover, photos, generator)

    joints_camera = view.to_camera(joints)
    points = view.to_pixels(joints_camera)
    pasted = np.zeros((SIZE, SIZE), bool)
    for _ in range(int(generator.choice([1, 1, 2])) if occlusion == "patch" else 0):
        mask, texture = patch(points[: H36M_17.count], generator, LARGE if attacked else ANY)
        colour[mask] = texture[mask] * float(light.colours[0].mean())
        pasted |= mask
    inside, cuts = photo_border(points, view.roll, generator, CUT_STANDING if standing else CUT)
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


def rasterise(meshes: list[Mesh], view: View) -> tuple[list[Layer], np.ndarray, np.ndarray]:
    """The meshes before the camera, their triangles numbered on; and what each of the (512, 512) samples shows: the
    number of its triangle, -1 for none, and its inverse depth."""
    layers, first, side = [], 0, SAMPLES * SIZE
    triangle, inverse_depth = np.full((side, side), -1, np.int32), np.zeros((side, side), np.float32)
    for mesh in meshes:
        vertices = raster.to_camera(mesh.vertices, view.rotation, view.position)
        screen = raster.to_screen(vertices, mesh.bias, SAMPLES * view.focal, side / 2)
        raster.draw(screen, mesh, first, inverse_depth, triangle)
        layers.append(Layer(mesh, vertices, screen, first))
        first += len(mesh.faces)
    return layers, triangle, inverse_depth


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
