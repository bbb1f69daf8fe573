"""Bones: their lengths, and poses with given ones.  J joints, K = J - 1 bones in the order of `Skeleton.bones`; mm."""

import numpy as np
from jaxtyping import Bool, Float

from di2pose.pose.skeleton import H36M_17, Skeleton

ADULT_MM = {
    "hip": (70.0, 175.0),
    "knee": (310.0, 560.0),
    "ankle": (300.0, 540.0),
    "spine": (160.0, 330.0),
    "thorax": (160.0, 340.0),
    "nose": (70.0, 190.0),
    "head": (70.0, 190.0),
    "shoulder": (120.0, 220.0),
    "elbow": (210.0, 380.0),
    "wrist": (180.0, 330.0),
}
"""Least and greatest length of the bone that ends in a joint of H36M_17, for adults of 1.45 to 2.1 m."""

SWEEPS = 100


def rebuild(
    joints_mm: Float[np.ndarray, "*B J 3"], lengths_mm: Float[np.ndarray, "*#B K"], skeleton: Skeleton = H36M_17
) -> Float[np.ndarray, "*B J 3"]:
    """The pose with the same root and the same direction of every bone, and with bones of the given lengths.

    A bone without length has no direction: it stays without length.
    """
    built = np.array(joints_mm, dtype=np.float64)
    for bone in outward(skeleton):
        child, parent = skeleton.bones[bone]
        way = np.asarray(joints_mm[..., child, :] - joints_mm[..., parent, :], dtype=np.float64)
        unit = way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-9)
        built[..., child, :] = built[..., parent, :] + unit * lengths_mm[..., bone, None]
    return built


def settle(
    joints_mm: Float[np.ndarray, "J 3"],
    lengths_mm: Float[np.ndarray, " K"],
    fixed: Bool[np.ndarray, " J"],
    skeleton: Skeleton = H36M_17,
) -> Float[np.ndarray, "J 3"]:
    """The pose with bones of the given lengths whose root and fixed joints stay: bone by bone, both ends give way
    until all fit. Where fixed joints lie too far apart, bones between them stay too long."""
    settled = np.array(joints_mm, dtype=np.float64)
    gives = np.where(fixed, 0.0, 1.0)
    gives[skeleton.root] = 0.0
    for _ in range(SWEEPS):
        for (child, parent), length in zip(skeleton.bones, lengths_mm.tolist(), strict=True):
            if not gives[child] + gives[parent]:
                continue
            way = settled[child] - settled[parent]
            off = way * (1 - length / max(float(np.linalg.norm(way)), 1e-9)) / (gives[child] + gives[parent])
            settled[child] -= gives[child] * off
            settled[parent] += gives[parent] * off
    return settled


def mirrored(values: Float[np.ndarray, "*B K"], skeleton: Skeleton = H36M_17) -> Float[np.ndarray, "*B K"]:
    """What is known of every bone, with left and right exchanged."""
    column = {child: bone for bone, (child, _) in enumerate(skeleton.bones)}
    return values[..., [column[skeleton.mirror_order[child]] for child, _ in skeleton.bones]]


def even(lengths_mm: Float[np.ndarray, "*B K"], skeleton: Skeleton = H36M_17) -> Float[np.ndarray, "*B K"]:
    """Left and right bones of one length: the mean of both."""
    return (lengths_mm + mirrored(lengths_mm, skeleton)) / 2


def outward(skeleton: Skeleton = H36M_17) -> list[int]:
    """The numbers of the bones, every bone after the one that carries it."""
    order, reached, left = [], {skeleton.root}, list(range(len(skeleton.bones)))
    while left:
        bone = next(k for k in left if skeleton.bones[k][1] in reached)
        left.remove(bone)
        order.append(bone)
        reached.add(skeleton.bones[bone][0])
    return order


def adult_range(skeleton: Skeleton = H36M_17) -> Float[np.ndarray, "K 2"]:
    """Least and greatest length of every bone of H36M_17."""
    return np.array([ADULT_MM[skeleton.joints[child].rpartition("_")[2]] for child, _ in skeleton.bones])
