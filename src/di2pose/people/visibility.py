"""Which joints a picture shows: seen, hidden by the own body, hidden by something else, or out of the frame."""

from functools import lru_cache
from typing import no_type_check

import numpy as np

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED
from di2pose.errors import require
from di2pose.people.body import model
from di2pose.people.dress import Person
from di2pose.pose.skeleton import H36M_17

njit = require("numba", extra="people").njit

# Bones whose surface, seen at a joint's pixel, shows the joint; and how deep below it the joint may lie, metres.
SURFACE: dict[str, tuple[str, float]] = {
    "pelvis": ("root pelvis spine05 spine04 upperleg01", 0.20),
    "hip": ("root pelvis spine05 upperleg01 upperleg02", 0.17),
    "knee": ("upperleg01 upperleg02 lowerleg01 lowerleg02", 0.11),
    "ankle": ("lowerleg01 lowerleg02 foot toe", 0.10),
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
    """Per joint: which bones' surface shows it (17, bones) bool, and its greatest depth below that surface, metres."""
    base = model()
    table, depth = np.zeros((H36M_17.count, len(base.bones)), bool), np.zeros(H36M_17.count)
    for joint, name in enumerate(H36M_17.joints):
        side, _, part = name.rpartition("_")
        stems, depth[joint] = SURFACE[part]
        letter = side[:1].upper()
        for number, bone in enumerate(base.bones):
            stem, _, bone_side = bone.partition(".")
            same_side = not letter or not bone_side or bone_side == letter
            table[joint, number] = same_side and any(
                stem == s or (s in ("toe", "finger", "metacarpal") and stem.startswith(s)) for s in stems.split()
            )
    return table, depth


def visibility(
    person: Person, joints: np.ndarray, points: np.ndarray, triangle: np.ndarray, inverse_depth: np.ndarray,
    pasted: np.ndarray, inside: np.ndarray | None,
) -> np.ndarray:  # fmt: skip
    """Each joint's state, (17,) int8: what the camera sees within 1.5 px of its place.

    The joint lies inside the body: it counts as seen when a near surface that belongs to it is seen there.
    """
    table, deepest = _near()
    out = np.full(H36M_17.count, SEEN, np.int8)
    shown = np.ones_like(pasted) if inside is None else inside
    _look(
        out, points, joints[:, 2], triangle, inverse_depth, person.face_bone, table, deepest * person.body.scale,
        pasted, shown,
    )  # fmt: skip
    return out


@njit(cache=True)
@no_type_check
def _look(out, points, depths, triangle, inverse_depth, face_bone, table, deepest, pasted, shown) -> None:
    size = pasted.shape[0]
    samples = triangle.shape[0] // size
    own = len(face_bone)
    for joint in range(len(out)):
        column, row = int(np.floor(points[joint, 0])), int(np.floor(points[joint, 1]))
        if column < 0 or row < 0 or column >= size or row >= size or not shown[row, column]:
            out[joint] = OUT_OF_FRAME
            continue
        looked = covered = foreign = 0
        mine = near = False
        for y in range(max(row - 1, 0), min(row + 2, size)):
            for x in range(max(column - 1, 0), min(column + 2, size)):
                for sample in range(samples * samples):
                    looked += 1
                    if pasted[y, x]:
                        covered += 1
                        continue
                    v, u = samples * y + sample // samples, samples * x + sample % samples
                    hit = triangle[v, u]
                    if hit < 0:
                        continue
                    front = depths[joint] - 1 / inverse_depth[v, u]
                    if hit >= own:
                        foreign += front > 0.02
                    else:
                        mine = True
                        near = near or (table[joint, face_bone[hit]] and front < deepest[joint])
        if 2 * (covered + foreign) > looked:
            out[joint] = OCCLUDED
        elif mine and not near:
            out[joint] = SELF_OCCLUDED
