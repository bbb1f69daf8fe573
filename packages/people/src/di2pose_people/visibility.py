"""Which joints a picture shows: seen, hidden by the own body, hidden by something else, or out of the frame."""

from functools import lru_cache

import numpy as np

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED
from di2pose.pose.skeleton import H36M_21
from di2pose_people.body import model
from di2pose_people.wardrobe import DressedPerson

# Bones whose surface, seen at a joint's pixel, shows the joint; and how deep below it the joint may lie, metres.
SURFACE: dict[str, tuple[str, float]] = {
    "pelvis": ("root pelvis spine05 spine04 upperleg01", 0.20),
    "hip": ("root pelvis spine05 upperleg01 upperleg02", 0.17),
    "knee": ("upperleg01 upperleg02 lowerleg01 lowerleg02", 0.11),
    "ankle": ("lowerleg01 lowerleg02 foot toe", 0.10),
    "heel": ("lowerleg02 foot", 0.06),
    "toe": ("foot toe", 0.05),
    "spine": ("spine01 spine02 spine03 spine04 spine05", 0.21),
    "thorax": ("spine01 spine02 neck01 neck02 clavicle shoulder01", 0.17),
    "nose": ("head neck02 neck03 eye", 0.17),
    "head": ("head", 0.14),
    "shoulder": ("clavicle shoulder01 upperarm01 upperarm02 spine01 spine02", 0.13),
    "elbow": ("upperarm01 upperarm02 lowerarm01 lowerarm02", 0.09),
    "wrist": ("lowerarm01 lowerarm02 wrist metacarpal finger", 0.08),
}


@lru_cache(maxsize=1)
def _near() -> tuple[np.ndarray, np.ndarray]:
    """Per joint: which bones' surface shows it (21, bones) bool, and its greatest depth below that surface, metres."""
    base = model()
    table, depth = np.zeros((H36M_21.count, len(base.bones)), bool), np.zeros(H36M_21.count)
    for joint, name in enumerate(H36M_21.joints):
        side, _, part = name.rpartition("_")
        stems, depth[joint] = SURFACE[part]
        bones = base.bones_of(*stems.split())
        other = {"left": ".R", "right": ".L"}.get(side, "?")
        table[joint, [number for number in bones if not base.bones[number].endswith(other)]] = True
    return table, depth


def visibility(
    person: DressedPerson, depth: np.ndarray, points: np.ndarray, triangle: np.ndarray, inverse_depth: np.ndarray,
    pasted: np.ndarray, inside: np.ndarray | None,
) -> np.ndarray:  # fmt: skip
    """Each joint's state, (21,) int8: what the camera sees within 1.5 px of its place.

    The joint lies inside the body, at `depth` (21,) metres from the camera and at `points` (21, 2) pixels: it counts as
    seen when a near surface that belongs to it is seen there. The buffers have S x S samples a pixel; the person's
    triangles come first. `pasted` (256, 256): what lies over everything; `inside`: where the photo is, None for all.
    """
    table, deepest = _near()
    size, samples, own = len(pasted), len(triangle) // len(pasted), len(person.mesh.faces)
    column, row = np.floor(points).astype(int).T
    framed = (np.minimum(row, column) >= 0) & (np.maximum(row, column) < size)
    if inside is not None:
        framed &= inside[row.clip(0, size - 1), column.clip(0, size - 1)]

    down, right = np.indices((3, 3)).reshape(2, 9) - 1
    y, x = row[:, None] + down, column[:, None] + right  # 21 9 pixels
    looked = (np.minimum(y, x) >= 0) & (np.maximum(y, x) < size)
    y, x = y.clip(0, size - 1), x.clip(0, size - 1)
    covered = looked & pasted[y, x]
    cells = (size, samples, size, samples)
    hit = triangle.reshape(cells)[y, :, x]  # 21 9 S S samples
    drawn = (hit >= 0) & (looked & ~covered)[..., None, None]
    nearest = np.where(drawn, inverse_depth.reshape(cells)[y, :, x], 1).astype(np.float64)
    front = depth[:, None, None, None] - 1 / nearest
    foreign = drawn & (hit >= own) & (front > 0.02)
    mine = drawn & (hit < own)
    bone = person.face_bone[np.where(mine, hit, 0)]
    near = mine & table[np.arange(len(table))[:, None, None, None], bone]
    near &= front < (deepest * person.body.scale)[:, None, None, None]

    hidden = 2 * (covered.sum(1) * samples**2 + foreign.sum((1, 2, 3))) > looked.sum(1) * samples**2
    behind_self = mine.any((1, 2, 3)) & ~near.any((1, 2, 3))
    states = [(~framed, OUT_OF_FRAME), (hidden, OCCLUDED), (behind_self, SELF_OCCLUDED)]
    return np.select([test for test, _ in states], [state for _, state in states], SEEN).astype(np.int8)
