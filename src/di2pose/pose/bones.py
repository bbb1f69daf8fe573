"""Bones and the distances of joints: lengths, poses with given bones, stature, and which poses a body can take.

J joints, the root first, K = J - 1 bones in the order of `Skeleton.bones`; mm. Limits go by the names of H36M_21's
joints; bones and pairs of other joints have none. Those of P joint pairs are shares of the path along the bones, so
they hold for bodies of any size.
"""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from di2pose.pose.skeleton import H36M_17, Skeleton, bone_lengths

ADULT_MM = {
    "hip": (70.0, 175.0), "knee": (310.0, 560.0), "ankle": (300.0, 540.0), "spine": (160.0, 330.0),
    "thorax": (160.0, 340.0), "nose": (70.0, 190.0), "head": (70.0, 190.0), "shoulder": (120.0, 220.0),
    "elbow": (210.0, 380.0), "wrist": (180.0, 330.0), "heel": (45.0, 110.0), "toe": (145.0, 275.0),
}  # fmt: skip
"""Least and greatest length of the bone that ends in a joint, for adults of 1.45 to 2.1 m."""
SOLE = 0.039
"""Height of the ankle over stature (Drillis and Contini, as in Winter's Biomechanics)."""
COLUMN = (("right_knee", "left_knee"), ("right_ankle", "left_ankle"), ("spine",), ("thorax",), ("nose",), ("head",))
"""Bones that add up to the stature, by their children; left and right are averaged."""

TABLE = """
   0    0  446  130    0  446  130    0  764  757  642  496  120   60  496  120   60
   0    0    0  150  899  374  122  614  631  643  576  499  152   89  362   52   20
 996    0    0    0  374   64   71  305  183  193  224  197   96   52  116   52   37
 990 1000    0    0  122   71   22  180  204  221  240  158   70   38  193   88   67
   0 1000  994  984    0    0  150  614  631  643  576  362   52   20  499  152   89
 996  994  960  944    0    0    0  305  183  193  224  116   52   37  197   96   52
 990  984  944  919 1000    0    0  180  204  221  240  193   88   67  158   70   38
   0  913  974  982  913  974  982    0    0  802  509  457  145  111  457  145  111
1000  945  978  984  945  978  984    0    0    0  275    0  357  172    0  357  172
1000  953  979  984  953  979  984 1000    0    0    0  512  292  139  512  292  139
1000  960  980  984  960  980  984 1000 1000    0    0  445  231  118  445  231  118
 935  902  950  960  862  939  954  916    0  962  959    0    0  197  846  308  172
 950  936  944  952  916  933  944  949 1000  977  973    0    0    0  308  144   55
 955  942  946  953  923  936  946  957  998  976  973 1000    0    0  172   55   31
 935  862  939  954  902  950  960  916    0  962  959 1000  999  995    0    0  197
 950  916  933  944  936  944  952  949 1000  977  973  999  998  995    0    0    0
 955  923  936  946  942  946  953  957  998  976  973  995  995  993 1000    0    0
"""
"""Joints in the order of H36M_17, in thousandths: above the diagonal the least share, below it the greatest; bones: 0.
By benchmarks/joint_pairs.py from the CMU motion capture (140,854 frames) and 4,000 drawn people."""
FOOT = {("heel", "toe"): (0.84, 0.96), ("knee", "heel"): (0.49, 1.0), ("knee", "toe"): (0.27, 1.0)}
"""The same of pairs that end in a foot, which is nearly rigid: bodies have 0.868 to 0.905 from heel to toe."""
ROUNDS, DAMPING, STEP_MM = 40, 0.01, 60.0
"""Of a search in `make_possible`: most steps, damping of the normal equations, largest step along an axis."""
LOOSE = 0.1
"""Share of the metric that does not depend on the joints' covariance."""
SEARCHES, SHAKE_MM = 10, 50.0
"""A search that fails is repeated with noise of this deviation; needed by 59 of 6,000 absurd poses."""
INSIDE_MM, STILL_MM = 1.0, 0.05
"""Pairs are brought this far inside their limits; the search ends when bones are off by at most STILL_MM."""


class JointPairs(NamedTuple):
    """Pairs of joints: both numbers, the lower first; 1 for the bones that lie between them, else 0; least and greatest
    distance over the length of these bones."""

    joints: Int[np.ndarray, "P 2"]
    paths: Float[np.ndarray, "P K"]
    shares: Float[np.ndarray, "P 2"]


@cache
def joint_pairs(skeleton: Skeleton = H36M_17) -> JointPairs:
    """All pairs of Human3.6M's joints without a bone, in a skeleton that has these joints; then those of FOOT."""
    table = np.array([row.split() for row in TABLE.split("\n")[1:-1]], float) / 1000
    places = {joint: H36M_17.index(name) for joint, name in enumerate(skeleton.joints) if name in H36M_17.joints}
    pairs = [(a, b) for b in places for a in places if a < b and not {(a, b), (b, a)} & set(skeleton.bones)]
    limits = np.sort([(places[a], places[b]) for a, b in pairs]).T
    shares = [*zip(table[*limits], table[*limits[::-1]], strict=True)]
    for side, (ends, share) in product(("left", "right"), FOOT.items()):
        if {f"{side}_{end}" for end in ends} <= set(skeleton.joints):
            a, b = sorted(skeleton.indices(*(f"{side}_{end}" for end in ends)))
            pairs, shares = [*pairs, (a, b)], [*shares, share]
    to_root = np.zeros((skeleton.count, len(skeleton.bones)))
    for bone in skeleton.outward:
        child, parent = skeleton.bones[bone]
        to_root[child] = to_root[parent]
        to_root[child, bone] = 1
    joints = np.array(pairs)
    paths = np.abs(to_root[joints[:, 0]] - to_root[joints[:, 1]])
    return JointPairs(joints, paths, np.array(shares))


def rebuild(
    joints_mm: Float[np.ndarray, "*B J 3"], lengths_mm: Float[np.ndarray, "*#B K"], skeleton: Skeleton = H36M_17
) -> Float[np.ndarray, "*B J 3"]:
    """The pose with the same root and directions of bones, and bones of the given lengths; a bone of length 0 has no
    direction and stays so."""
    built = np.array(joints_mm, dtype=np.float64)
    for bone in skeleton.outward:
        child, parent = skeleton.bones[bone]
        way = np.asarray(joints_mm[..., child, :] - joints_mm[..., parent, :], dtype=np.float64)
        unit = way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-9)
        built[..., child, :] = built[..., parent, :] + unit * lengths_mm[..., bone, None]
    return built


def mirrored(values: Float[np.ndarray, "*B K"], skeleton: Skeleton = H36M_17) -> Float[np.ndarray, "*B K"]:
    """Values of every bone with left and right exchanged."""
    column = {child: bone for bone, (child, _) in enumerate(skeleton.bones)}
    return values[..., [column[skeleton.mirror_order[child]] for child, _ in skeleton.bones]]


def even(lengths_mm: Float[np.ndarray, "*B K"], skeleton: Skeleton = H36M_17) -> Float[np.ndarray, "*B K"]:
    """Left and right bones of one length: the mean of both."""
    return (lengths_mm + mirrored(lengths_mm, skeleton)) / 2


def adult_range(skeleton: Skeleton = H36M_17) -> Float[np.ndarray, "K 2"]:
    """Least and greatest length of every bone."""
    ends = [skeleton.joints[child].rpartition("_")[2] for child, _ in skeleton.bones]
    return np.array([ADULT_MM.get(end, (0.0, np.inf)) for end in ends])


def stature_mm(joints_mm: Float[np.ndarray, "*B J 3"], skeleton: Skeleton = H36M_17) -> np.ndarray:
    """Standing height (...) by the bones of COLUMN and the height of the ankle; of a skeleton with H36M's joints.

    Within 1.5 % of the truth for 98 of 100 rendered people.
    """
    lengths = bone_lengths(joints_mm.astype(np.float64), skeleton)
    column = {skeleton.joints[child]: bone for bone, (child, _) in enumerate(skeleton.bones)}
    bones = [lengths[..., [column[name] for name in names]].mean(-1) for names in COLUMN]
    return np.asarray(np.sum(bones, axis=0) / (1 - SOLE))


def impossible(
    joints_mm: Float[np.ndarray, "B J 3"], lengths_mm: Float[np.ndarray, "*#B K"], skeleton: Skeleton = H36M_17
) -> Bool[np.ndarray, " B"]:
    """Poses in which a pair of joints is nearer or farther apart than in any body of such bones."""
    pairs = joint_pairs(skeleton)
    apart = np.linalg.norm(joints_mm[:, pairs.joints[:, 0]] - joints_mm[:, pairs.joints[:, 1]], axis=-1)
    least, greatest = pairs.shares.T[:, None] * (lengths_mm @ pairs.paths.T)
    return np.asarray(((apart < least) | (apart > greatest + 1e-6)).any(-1))


def make_possible(
    joints_mm: Float[np.ndarray, "J 3"],
    lengths_mm: Float[np.ndarray, " K"],
    fixed: Bool[np.ndarray, " J"] | None = None,
    spread_mm2: Float[np.ndarray, "F F"] | None = None,
    skeleton: Skeleton = H36M_17,
) -> Float[np.ndarray, "J 3"]:
    """The nearest pose, or nearly so, with bones of the given lengths and every pair within its limits, by damped
    Gauss-Newton steps. The root and fixed joints stay; where those contradict bones or limits, the pose is unchanged.

    spread_mm2: covariance of the joints other than the root (F = 3 J - 3), the metric of "nearest"; None: all alike
    """
    free = np.ones(skeleton.count) if fixed is None else np.where(fixed, 0.0, 1.0)
    free[skeleton.root] = 0.0
    metric = np.eye(3 * skeleton.count)
    if spread_mm2 is not None:
        metric[3:, 3:] = LOOSE * np.eye(len(spread_mm2)) + (1 - LOOSE) * spread_mm2 / np.diag(spread_mm2).mean()
    metric *= np.outer(free.repeat(3), free.repeat(3))
    pose = joints_mm + 1e-6 * free[:, None] * np.arange(3 * skeleton.count).reshape(-1, 3)  # no two in one place
    pairs = joint_pairs(skeleton)
    ends = np.concatenate([np.array(skeleton.bones), pairs.joints])
    least, greatest = pairs.shares.T * (pairs.paths @ lengths_mm)
    least = np.concatenate([lengths_mm, least + INSIDE_MM])
    greatest = np.concatenate([lengths_mm, np.where(pairs.shares[:, 1] < 1, greatest - INSIDE_MM, np.inf)])
    noise = np.random.default_rng(0)
    for step_number in range(ROUNDS * (SEARCHES if fixed is None else 1)):
        if step_number and step_number % ROUNDS == 0:
            pose = pose + noise.normal(scale=SHAKE_MM, size=pose.shape) * free[:, None]
        way = pose[ends[:, 0]] - pose[ends[:, 1]]
        apart = np.linalg.norm(way, axis=-1)
        off = apart - np.clip(apart, least, greatest)
        rows = np.flatnonzero(off)
        if np.abs(off).max() < STILL_MM:
            break
        unit = way[rows] / np.maximum(apart[rows, None], 1e-9)
        ways, place = np.zeros((len(rows), skeleton.count, 3)), np.arange(len(rows))
        ways[place, ends[rows, 0]], ways[place, ends[rows, 1]] = unit, -unit
        slope = ways.reshape(len(rows), -1)
        step = metric @ slope.T @ np.linalg.solve(slope @ metric @ slope.T + DAMPING * np.eye(len(rows)), off[rows])
        pose -= step.reshape(-1, 3) * min(1.0, STEP_MM / max(float(np.abs(step).max()), 1e-9))
    else:
        pose = pose if fixed is None else joints_mm
    return pose if fixed is not None else rebuild(pose, lengths_mm, skeleton)
