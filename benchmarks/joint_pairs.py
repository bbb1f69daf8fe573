"""How near and how far apart can two joints be? Prints TABLE and FOOT of src/di2pose/pose/bones.py.

    python benchmarks/joint_pairs.py --motion cmu-bvh-6hz --people 4000

Two sources: motion capture, which shows what people do upright and in sports, and drawn people who sit, kneel, lie or
bend, which it hardly has. Left and right are pooled. Of both sources' shares the wider one counts, and is widened:

    least      0.97 of it between both shoulders and from heel to toe, 0.9 elsewhere in trunk and head, 0.7 where a limb
               is involved
    greatest   the rest to 1 halved in trunk, head and from heel to toe, a third of it where a limb is involved
"""

from pathlib import Path

import numpy as np
import tyro
from di2pose_people.body import draw_shape, model
from di2pose_people.motion import library
from di2pose_people.supported_poses import draw_settled
from di2pose_people.wardrobe import draw_outfit, dress
from jaxtyping import Float
from tqdm import tqdm

from di2pose.data.bvh import Bvh, clip_files, h36m_joints
from di2pose.pose.bones import FOOT, joint_pairs
from di2pose.pose.skeleton import H36M_17, H36M_21, bone_lengths

LEFT_OUT = 1e-3
"""Share of the poses of each source beyond either limit: some clips have broken heads."""
GROUP = 20
"""Poses of one drawn body."""
TRUNK = H36M_17.indices(
    "pelvis", "right_hip", "left_hip", "spine", "thorax", "nose", "head", "left_shoulder", "right_shoulder"
)
SHOULDERS = H36M_17.indices("left_shoulder", "right_shoulder")


def main(motion: Path, people: int = 4000, seed: int = 0) -> None:
    """Measure both sources and print the table.

    Args:
        motion: folder of BVH clips
        people: drawn people who sit, kneel, lie or bend
        seed: of their drawing
    """
    print(table([shares(clips(motion)), shares(settled(motion, people, seed))]))


def clips(folder: Path) -> Float[np.ndarray, "n 21 3"]:
    """Every frame of the motion."""
    return np.concatenate([h36m_joints(Bvh.read(path)) for path in tqdm(clip_files(folder), disable=None)])


def settled(motion: Path, count: int, seed: int) -> Float[np.ndarray, "n 21 3"]:
    """Drawn people who sit, kneel, lie or bend."""
    poses, generator = library(motion, "train"), np.random.default_rng(seed)
    found = []
    for number in tqdm(range(count), disable=None):
        if number % GROUP == 0:
            shape = draw_shape(generator)
            person = dress(model().body(shape), draw_outfit(shape, "train", generator), generator)
        found.append(draw_settled(person, poses, generator).pose.joints)
    return np.array(found, np.float64)


def shares(poses: Float[np.ndarray, "n 21 3"]) -> Float[np.ndarray, "n P"]:
    """Distance of each pair over the way along the bones."""
    pairs, paths, _ = joint_pairs(H36M_21)
    apart = np.linalg.norm(poses[:, pairs[:, 0]] - poses[:, pairs[:, 1]], axis=-1)
    return apart / (bone_lengths(poses, H36M_21) @ paths.T)


def table(sources: list[Float[np.ndarray, "n P"]]) -> str:
    """Rows and columns in the order of the joints, thousandths: least above the diagonal, greatest below it."""
    column = {tuple(pair): k for k, pair in enumerate(joint_pairs(H36M_21).joints.tolist())}
    numbers = np.zeros((H36M_21.count, H36M_21.count), int)
    for (a, b), own in column.items():
        twin = column[tuple(sorted(H36M_21.mirror_order[joint] for joint in (a, b)))]
        both = [source[:, [own, twin]] for source in sources]
        least = min(np.quantile(each, LEFT_OUT) for each in both)
        greatest = max(np.quantile(each, 1 - LEFT_OUT) for each in both)
        foot = a >= H36M_17.count
        trunk = foot or (a in TRUNK and b in TRUNK)
        least *= 0.97 if foot or (a, b) == SHOULDERS else 0.9 if trunk else 0.7
        greatest = 1 - (1 - greatest) / (2 if trunk else 3)
        numbers[a, b], numbers[b, a] = int(1000 * least), int(np.ceil(1000 * greatest - 1e-6))
    lines = [" ".join(f"{number:4d}" for number in row).strip() for row in numbers[:17, :17].tolist()]
    for ends in FOOT:
        a, b = H36M_21.indices(*(f"left_{end}" for end in ends))
        lines.append(f"{' to '.join(ends)}: {numbers[a, b]} {numbers[b, a]}")
    return "\n".join(lines)


if __name__ == "__main__":
    tyro.cli(main)
