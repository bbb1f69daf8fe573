"""Where the camera stands and what the crop shows, drawn so that crops look like those of a real detector.

The camera points at the crop's centre, so crop axes are camera axes. A BlazePose region is centred on the hips, turned
so that the line from hips to shoulders points up, and 1.25 times as wide as the circle round hips, limbs and head. The
errors drawn here are those that the detector makes on renders: hips 3 % of the side, size 9 %, angle 6 degrees, and
any angle at all where the trunk points at the camera. Against the limb joints alone the side is then 1.1 to 1.7 times
their circle, median 1.4; on real footage it was 1.27 to 1.62, median 1.44. A patch over a limb (occ-80) misleads the
detector on real footage by 3.6 % of the side (median; 12 % at the 90th percentile), -20 to +14 % of the size, 8 degrees
(50 at the 75th percentile, 158 at the 90th); misled crops are drawn like that.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.pose.skeleton import H36M_17

SIZE = 256
"""Pixels along a side of a crop."""
LIMBS = H36M_17.indices(*(name for name in H36M_17.joints if name.startswith(("left_", "right_"))))
HEAD = H36M_17.index("head")
HIPS = H36M_17.indices("left_hip", "right_hip")
SHOULDERS = H36M_17.indices("left_shoulder", "right_shoulder")
CROPS = ("detector", "upright", "close")
"""A person detector's region; round a box, not turned; part of the body."""
ASTRAY = 0.35
"""Share of misled crops that are turned anyhow: under occ-80 on real footage a quarter is off by 50 degrees or more."""

SNAPSHOT = 0.8
"""Share of settled people whose camera is that of a snapshot; the others' is anywhere, as for all other people."""


@dataclass(frozen=True)
class View:
    """A camera in the body's world (x_camera = rotation @ (x - position), metres) and its square crop of 256 px."""

    position: Float[np.ndarray, "3"]
    rotation: Float[np.ndarray, "3 3"]
    focal: float
    """Pixels of the crop; the principal point is the crop's centre."""
    roll: float
    """Radians by which the crop is turned against the photo it was cut from, clockwise positive."""
    yaw: float
    """Radians; 0: the body faces the camera, positive: it turns to its left."""
    pitch: float
    """Radians; positive: the camera looks down."""
    distance_m: float
    photo_fov: float
    """Degrees across the photo that the crop is thought to come from."""
    side_ratio: float
    """Crop side / (2 x distance of the farthest limb joint from the hips), in the picture."""
    kind: str
    """One of CROPS."""

    def to_camera(self, points: np.ndarray) -> np.ndarray:
        return (points - self.position) @ self.rotation.T

    def to_pixels(self, points_camera: np.ndarray) -> np.ndarray:
        return self.focal * points_camera[..., :2] / points_camera[..., 2:] + SIZE / 2


def draw_view(
    joints: Float[np.ndarray, "21 3"],
    facing: float,
    ground: float,
    generator: np.random.Generator,
    misled: bool = False,
    settled: bool = False,
    standing: bool = False,
) -> View:
    """A camera for a body with these joints (metres, z up) that faces direction `facing` (radians, 0 is -y).

    `misled`: the crop is as wrong as a detector's that something large before the person misleads. `settled`: the
    camera is most often where a person who takes a photo of somebody on a chair or on the floor holds it.
    `standing`: the crop shows more often only part of the body.
    """
    fov = generator.uniform(25, 100)
    fill = generator.uniform(0.3, 1.0)
    extent = float(np.linalg.norm(joints - joints[0], axis=1).max()) + 0.2
    distance = float(np.clip(2 * extent / (fill * 2 * np.tan(np.radians(fov / 2))), max(1.3, extent + 0.45), 14.0))
    yaw = generator.uniform(-np.pi, np.pi)
    pitch = np.radians(generator.normal(6, 11) if generator.random() < 0.6 else generator.uniform(-30, 60))
    # Near the ground a camera cannot look up at the body from below the floor.
    lowest = np.arcsin(np.clip((ground + 0.12 - joints[0, 2]) / distance, -1, 1))
    pitch = float(np.clip(max(pitch, lowest), np.radians(-30), np.radians(62)))
    if settled and generator.random() < SNAPSHOT:
        distance, yaw, pitch = _snapshot(extent, float(joints[0, 2] - ground), generator)
    turn = facing - yaw
    away = np.array([np.sin(turn) * np.cos(pitch), -np.cos(turn) * np.cos(pitch), np.sin(pitch)])
    position = joints[0] + distance * away
    chance = generator.random()
    whole = 0.82 if standing else 0.93
    kind = "detector" if chance < whole - 0.13 else "upright" if chance < whole else "close"

    upright = look(position, joints[0] if kind != "close" else joints[8] * 0.7 + joints[0] * 0.3)
    tilt = np.radians(generator.normal(0, 3))  # a hand-held photo is not quite level
    level = _about_axis(tilt) @ upright
    flat = _flat(level, position, joints)
    side = 2 * _radius(flat, (*LIMBS, HEAD)) * float(np.clip(generator.normal(1.3, 0.11), 1.02, 1.65))
    if kind == "close":
        side *= generator.uniform(0.42, 0.7)
    shift = side * np.clip(generator.normal(0, 0.03, 2), -0.09, 0.09)
    if misled:
        side *= float(np.exp(np.clip(generator.normal(-0.03, 0.12), -0.5, 0.25)))
        shift += side * np.clip(generator.normal(0, 0.05, 2), -0.15, 0.15)
    # Turn the camera to the crop's centre, which is a little off the hips.
    aimed = Rotation.align_vectors([0.0, 0, 1], [*shift, 1.0])[0].as_matrix() @ level
    roll = _roll(_flat(aimed, position, joints), side, kind, generator)
    if misled and generator.random() < ASTRAY:
        roll = generator.uniform(-np.pi, np.pi)
    rotation = _about_axis(-roll) @ aimed
    flat = _flat(rotation, position, joints)
    return View(
        position=position,
        rotation=rotation,
        focal=float(SIZE / side),
        roll=float(roll),
        yaw=float(yaw),
        pitch=pitch,
        distance_m=distance,
        photo_fov=float(fov),
        side_ratio=float(side / 2 / _radius(flat, LIMBS)),
        kind=kind,
    )


def _snapshot(extent: float, height: float, generator: np.random.Generator) -> tuple[float, float, float]:
    """Distance, yaw and pitch of a photo from the eye height of one who stands or sits, or of a phone held anyhow.

    The body reaches `extent` metres from its hips, which are at `height` above the floor.
    """
    distance = float(np.clip(np.exp(generator.normal(np.log(2.5), 0.35)), max(1.5, extent + 0.5), 5.0))
    chance = generator.random()
    eyes = (1.35, 1.75) if chance < 0.5 else (0.95, 1.3) if chance < 0.82 else (0.3, 2.3)
    pitch = np.arcsin(np.clip((generator.uniform(*eyes) - height) / distance, -0.4, 0.87))
    yaw = generator.normal(0, np.radians(48)) if generator.random() < 0.65 else generator.uniform(-np.pi, np.pi)
    return distance, float((yaw + np.pi) % (2 * np.pi) - np.pi), float(pitch)


def _roll(flat: np.ndarray, side: float, kind: str, generator: np.random.Generator) -> float:
    """Angle that brings the body's axis upright, with the detector's error, which grows as the axis foreshortens."""
    if kind == "upright":
        return 0.0
    axis = flat[list(SHOULDERS)].mean(axis=0) - flat[list(HIPS)].mean(axis=0)
    length = np.hypot(*axis) / side
    if length < 0.15 and generator.random() < 0.4:
        return float(generator.normal(0, 0.3))
    error = np.hypot(np.radians(4), np.arctan2(0.018, length))
    noise = error * generator.standard_normal() if generator.random() < 0.95 else generator.uniform(-0.96, 0.96)
    return float(np.arctan2(axis[0], -axis[1]) + noise)


def _radius(flat: np.ndarray, joints: tuple[int, ...]) -> float:
    """Distance of the farthest of these joints from the middle of the hips."""
    return float(np.linalg.norm(flat[list(joints)] - flat[list(HIPS)].mean(axis=0), axis=1).max())


def look(position: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Rotation of a level camera (z up in the world) that looks from `position` to `target`."""
    ahead = (target - position) / np.linalg.norm(target - position)
    right = np.cross(ahead, [0.0, 0, 1])
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(ahead, right), ahead])


def _about_axis(angle: float) -> np.ndarray:
    """Turn of the camera axes about the optical axis."""
    return Rotation.from_euler("z", angle).as_matrix()


def _flat(rotation: np.ndarray, position: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Points on the plane at distance 1."""
    points = (joints - position) @ rotation.T
    return points[:, :2] / points[:, 2:]
