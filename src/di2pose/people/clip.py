"""A film of one rendered person: some seconds of one clip of motion, with exact 3D in every frame.

Body, clothes, light, room, what stands in front, and the camera are drawn once; only the pose changes. The motion
library keeps about 6 poses a second, and those between them are interpolated. The hips stay over one place of the floor
and the lowest point of the body on it: the library knows no way through the room, so people walk as on a treadmill.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation, Slerp

from di2pose.data.sample import OCCLUDED
from di2pose.errors import InputError
from di2pose.people.body import draw_shape, model
from di2pose.people.motion import NODES, RATE, Library, library
from di2pose.people.occluders import boxes, furniture_around, furniture_in_front
from di2pose.people.raster import Mesh
from di2pose.people.render import Plan
from di2pose.people.retarget import node_turns
from di2pose.people.scene import Figure, Picture, take_picture
from di2pose.people.view import SIZE, View, look
from di2pose.people.wardrobe import draw_outfit, dress

FILL = 0.86
"""Of half the picture's side: how far the farthest joint of all frames is from its middle."""
LEAST_HIDDEN, ATTEMPTS = 2, 12
"""Joints of the first frame that furniture in front has to hide, and how often a place for it is tried."""
ROLES = ("person", "motion", "place", "camera", "things", "light")
"""What is drawn, each from a generator of its own."""


def film(plan: Plan, number: int, seconds: float = 4.0, fps: float = 12.0, hidden: bool = False) -> Iterator[Picture]:
    """The frames of film `number`, 256 x 256; everything follows from (seed, split, number). `hidden`: a piece of
    furniture stands before the person from the first frame to the last, and hides some joints at least in the first."""

    def generator(role: str) -> np.random.Generator:
        split = ("train", "test").index(plan.split)
        return np.random.default_rng((plan.seed, split, 100 + ROLES.index(role), number))

    own = generator("person")
    shape = draw_shape(own)
    person = dress(model().body(shape), draw_outfit(shape, plan.split, own), own)
    poses = library(plan.motion, plan.split)
    first, count = _stretch(poses, seconds, generator("motion"))
    mirrored = bool(generator("place").random() < 0.5)
    turns = _between(np.stack([node_turns(poses.rotations[k], mirrored) for k in range(first, first + count)]), fps)
    turns = turns[: round(seconds * fps)]
    figures = [_standing(Figure(person, person.rig.pose(each), np.zeros(3))) for each in turns]
    view = _camera(np.stack([figure.joints for figure in figures]), figures[0].facing, generator("camera"))
    clip, occlusion = int(poses.clip[first]), "furniture" if hidden else "none"

    def taken(figure: Figure, around: list[Mesh]) -> Picture:
        """With the same light, room and lens in every frame."""
        mesh, light = figure.mesh(), generator("light")
        return take_picture(figure, [mesh, *around], [mesh], view, 0.0, occlusion, plan.photos, light)

    things = generator("things")
    behind = furniture_around(figures[0].joints, view, 0.0, things)
    for _ in range(ATTEMPTS):
        places = behind + (furniture_in_front(figures[0].joints, view, 0.0, things) if hidden else [])
        around = [boxes(places, things)] if places else []
        if not hidden or np.sum(taken(figures[0], around).sample.visibility == OCCLUDED) >= LEAST_HIDDEN:
            break
    for k, figure in enumerate(figures):
        made = taken(figure, around)
        about = {"time_s": k / fps, "mirrored": mirrored, "stature_m": shape.stature_m}
        sample = replace(
            made.sample,
            id=f"film_{plan.split}_{plan.seed}_{number:04d}_{k:04d}",
            split=plan.split,
            subject=poses.subjects[clip],
            sequence=poses.clips[clip],
            frame=k,
            extra=made.sample.extra | about,
        )
        yield replace(made, sample=sample)


def _stretch(poses: Library, seconds: float, generator: np.random.Generator) -> tuple[int, int]:
    """The first of some poses in a row of one clip, and how many: enough for so long."""
    count = int(np.ceil(seconds * RATE)) + 1
    allowed = np.zeros(len(poses.clip), bool)
    allowed[np.concatenate([frames for frames, _ in poses.members.values()])] = True
    starts = np.arange(max(len(allowed) - count + 1, 0))
    starts = starts[allowed[starts] & (poses.clip[starts] == poses.clip[starts + count - 1])]
    clips = np.unique(poses.clip[starts])
    if not len(clips):
        raise InputError(f"no clip of the motion is {seconds:g} seconds long: ask for a shorter film, or give others")
    return int(generator.choice(starts[poses.clip[starts] == generator.choice(clips)])), count


def _between(turns: Float[np.ndarray, "K 20 3 3"], fps: float) -> Float[np.ndarray, "F 20 3 3"]:
    """Poses at `fps` a second, each node turning evenly from one of the library's poses to the next."""
    times = np.arange(len(turns)) / RATE
    wanted = np.arange(0, times[-1] + 1e-9, 1 / fps)
    nodes = [Slerp(times, Rotation.from_matrix(turns[:, node]))(wanted).as_matrix() for node in range(len(NODES))]
    return np.stack(nodes, axis=1)


def _standing(figure: Figure) -> Figure:
    """The hips over the origin, the lowest point at height 0."""
    lowest = float(figure.mesh().vertices[:, 2].min())
    return replace(figure, shift=np.array([*-figure.pose.joints[0, :2], -lowest]))


def _camera(joints: Float[np.ndarray, "F 17 3"], facing: float, generator: np.random.Generator) -> View:
    """A level camera on a tripod, from any side, that holds all frames."""
    middle = (joints.min((0, 1)) + joints.max((0, 1))) / 2
    yaw, pitch = generator.uniform(-np.pi, np.pi), np.radians(generator.uniform(-3, 18))
    distance = generator.uniform(3.0, 6.0)
    turn = facing - yaw
    away = np.array([np.sin(turn) * np.cos(pitch), -np.cos(turn) * np.cos(pitch), np.sin(pitch)])
    position = middle + distance * away
    rotation = look(position, middle)
    points = (joints - position) @ rotation.T
    reach = float(np.abs(points[..., :2] / points[..., 2:]).max())
    focal = FILL * SIZE / 2 / reach
    fov, ratio = float(np.degrees(2 * np.arctan(SIZE / 2 / focal))), 1 / FILL
    return View(position, rotation, focal, 0.0, float(yaw), float(pitch), float(distance), fov, ratio, "upright")
