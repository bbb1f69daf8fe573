"""Poses without pictures: the joints of a prepared dataset, and the turns that a crop gives to them.

B poses, J joints of the target skeleton (default: Human3.6M's 17), J - 1 bones.
"""

import math
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from di2pose.data.sample import Dataset
from di2pose.errors import InputError
from di2pose.noise import Noise, uniform
from di2pose.pose.skeleton import H36M_17, Skeleton, convert, mirror

ROLL = math.radians(55)
"""How far crops are turned in the image, as the detector's are on real footage."""
TILT = math.radians(25)
"""How far the ray through a crop's centre leaves the optical axis, about x and about y."""
BODY_SCALE, BONE_SCALE = 0.10, 0.08
"""Other bodies: all bones by up to this share, and each bone (with its twin on the other side) on top of it."""
UPRIGHT_SHARE = 0.3


def whole_poses(
    joints_mm: np.ndarray, given: Skeleton, skeleton: Skeleton = H36M_17
) -> tuple[Float[np.ndarray, "n J 3"], np.ndarray]:
    """Root-relative poses on `skeleton` of the records (on the skeleton `given`) that have all its joints, and their
    row numbers."""
    joints, _ = convert(np.asarray(joints_mm, np.float32), given, skeleton)
    rows = np.flatnonzero(np.isfinite(joints).all((1, 2)))
    return joints[rows] - joints[rows, skeleton.root, None], rows


def dataset_poses(
    dataset: Dataset, skeleton: Skeleton = H36M_17
) -> tuple[Float[np.ndarray, "n J 3"], np.ndarray, np.ndarray]:
    """`whole_poses` of a dataset, in camera axes; each one's split and id."""
    joints, rows = whole_poses(dataset.joints_mm, dataset.skeleton, skeleton)
    if not len(rows):
        raise InputError(
            f"no record of {dataset.folder} has all {skeleton.count} joints of {skeleton.name}: they are "
            f"{dataset.skeleton.name}"
        )
    return joints, dataset.column("split")[rows], np.array([dataset.index[row]["id"] for row in rows.tolist()], object)


def crop_turns(count: int, noise: Noise) -> Float[Tensor, "count 3 3"]:
    """Rotations from camera axes to those of crops: roll uniform to ROLL, then the ray's tilt uniform to TILT."""
    u = 2 * uniform((count, 3), noise) - 1
    return rotations(ROLL * u[:, 0], TILT * u[:, 1], TILT * u[:, 2])


def rotations(roll: Float[Tensor, " B"], about_x: Float[Tensor, " B"], about_y: Float[Tensor, " B"]) -> Tensor:
    """(B, 3, 3) R_z(roll) R_x R_y, radians; a positive roll turns clockwise in the image (y points down)."""
    return _axis(2, roll) @ _axis(0, about_x) @ _axis(1, about_y)


def augment(joints_mm: Float[Tensor, "B J 3"], noise: Noise, skeleton: Skeleton = H36M_17) -> Float[Tensor, "B J 3"]:
    """The same poses by other bodies, half of them mirrored, turned as crops are.

    A share of the poses is first brought upright in the image, as the detector does with people who lie or lean: by the
    line from the root to the middle of the shoulders (or the thorax, where the skeleton has one).
    """
    return augment_motion(joints_mm, torch.zeros_like(joints_mm[:, 0]), noise, skeleton)[0]


def augment_motion(
    joints_mm: Float[Tensor, "B J 3"], root_mm: Float[Tensor, "B 3"], noise: Noise, skeleton: Skeleton, frames: int = 1
) -> tuple[Float[Tensor, "B J 3"], Float[Tensor, "B 3"]]:
    """`augment` of poses and the places of their roots, of which every `frames` rows are one body's, seen by one
    camera; the row in their middle says what is upright."""
    groups, paths = _bone_tables(skeleton)
    count = len(joints_mm) // frames
    u = uniform((count, 6 + int(groups.max()) + 1), noise, joints_mm.device).repeat_interleave(frames, 0)
    joints_mm = torch.where((u[:, 0] < 0.5).view(-1, 1, 1), mirror(joints_mm, skeleton), joints_mm)
    root_mm = torch.where(u[:, :1] < 0.5, root_mm * root_mm.new_tensor([-1, 1, 1]), root_mm)
    signed = 2 * u - 1
    scale = (1 + BODY_SCALE * signed[:, 1:2]) * (1 + BONE_SCALE * signed[:, 6:])[:, groups]
    children, parents = (list(ends) for ends in zip(*skeleton.bones, strict=True))
    bones = joints_mm[:, children] - joints_mm[:, parents]  # B J-1 3
    joints_mm = paths.to(joints_mm) @ (scale.unsqueeze(-1) * bones)  # B J 3
    top = ("thorax",) if "thorax" in skeleton.joints else ("left_shoulder", "right_shoulder")
    torso = joints_mm[frames // 2 :: frames, list(skeleton.indices(*top))].mean(1)
    lean = torch.atan2(torso[:, 0], -torso[:, 1]).repeat_interleave(frames)  # clockwise from up
    roll = ROLL * signed[:, 2] - torch.where(u[:, 5] < UPRIGHT_SHARE, lean, 0.0)
    turn = rotations(roll, TILT * signed[:, 3], TILT * signed[:, 4]).mT
    root_mm = (1 + BODY_SCALE * signed[:, 1:2]) * root_mm
    return joints_mm @ turn, (root_mm.unsqueeze(1) @ turn).squeeze(1)


def _axis(axis: int, angle: Tensor) -> Tensor:
    cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
    rows = [[one, zero, zero], [zero, cos, -sin], [zero, sin, cos]]  # about x; shifted along for y and z
    turned = [torch.stack([rows[(i - axis) % 3][(j - axis) % 3] for j in range(3)], -1) for i in range(3)]
    return torch.stack(turned, -2)


@cache
def _bone_tables(skeleton: Skeleton) -> tuple[Int[Tensor, " bones"], Float[Tensor, "joints bones"]]:
    """A number for each bone, left and right alike; and 1 where a bone lies between the root and the joint, so that
    paths @ bones = joints."""
    kinds = [skeleton.joints[child].removeprefix("left_").removeprefix("right_") for child, _ in skeleton.bones]
    groups = torch.tensor([list(dict.fromkeys(kinds)).index(kind) for kind in kinds])
    paths = torch.zeros(skeleton.count, len(skeleton.bones))
    for bone in skeleton.outward:
        child, parent = skeleton.bones[bone]
        paths[child] = paths[parent]
        paths[child, bone] = 1
    return groups, paths
