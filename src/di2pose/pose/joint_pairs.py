"""How near and how far apart two joints of a body can be.  J = 17 joints of H36M_17, K = 16 bones, P = 120 other pairs.

The limits are shares of the way between both joints along the bones, so they hold for bodies of any size.
"""

import numpy as np
from jaxtyping import Bool, Float

from di2pose.pose.bones import outward, rebuild
from di2pose.pose.skeleton import H36M_17

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

By benchmarks/joint_pairs.py, which says how it is widened, from the CMU motion capture (140,854 frames) and 4,000 drawn
people who sit, kneel, lie or bend (`people.settled`)."""

PAIRS = np.array([(a, b) for b in range(H36M_17.count) for a in range(b) if (b, a) not in H36M_17.bones])
"""Both joints of each pair that no bone joins, the lower number first."""
_TO_ROOT = np.zeros((H36M_17.count, len(H36M_17.bones)))
for _bone in outward():
    _child, _parent = H36M_17.bones[_bone]
    _TO_ROOT[_child] = _TO_ROOT[_parent]
    _TO_ROOT[_child, _bone] = 1
PATHS = np.abs(_TO_ROOT[PAIRS[:, 0]] - _TO_ROOT[PAIRS[:, 1]])
"""(P, K) which bones lie between the joints of each pair."""
_SHARES = np.array([row.split() for row in TABLE.split("\n")[1:-1]], float) / 1000
SHARES = np.stack([_SHARES[PAIRS[:, 0], PAIRS[:, 1]], _SHARES[PAIRS[:, 1], PAIRS[:, 0]]], axis=-1)
"""(P, 2) least and greatest."""

ENDS = np.concatenate([np.array(H36M_17.bones), PAIRS])
"""Both joints of the bones, then of the pairs."""

ROUNDS, DAMPING, STEP_MM = 40, 0.01, 60.0
"""Most steps of a search, what is added to their normal equations, and how far one moves a joint along an axis."""
LOOSE = 0.1
"""Share of what a pose may move by that does not depend on what is known of the joints."""
SEARCHES, SHAKE_MM = 10, 50.0
"""A search that ends elsewhere goes on from a pose with noise of this deviation; of 6,000 absurd poses 59 needed it."""
INSIDE_MM, STILL_MM = 1.0, 0.05
"""How far inside of the limits pairs are brought, and what bones are off by at most when that is done: they are put
right afterwards."""


def pair_limits_mm(lengths_mm: Float[np.ndarray, " K"]) -> Float[np.ndarray, "P 2"]:
    """Least and greatest distance of every pair in a body of such bones."""
    return SHARES * (PATHS @ lengths_mm)[:, None]


def impossible(joints_mm: Float[np.ndarray, "B J 3"], lengths_mm: Float[np.ndarray, " K"]) -> Bool[np.ndarray, " B"]:
    """Poses in which a pair of joints is nearer or farther than in any body of such bones."""
    apart, (least, greatest) = distances_mm(joints_mm), pair_limits_mm(lengths_mm).T
    wrong: np.ndarray = ((apart < least) | (apart > greatest + 1e-6)).any(-1)
    return wrong


def distances_mm(joints_mm: Float[np.ndarray, "B J 3"]) -> Float[np.ndarray, "B P"]:
    """Of every pair."""
    return np.linalg.norm(joints_mm[..., PAIRS[:, 0], :] - joints_mm[..., PAIRS[:, 1], :], axis=-1)


def make_possible(
    joints_mm: Float[np.ndarray, "J 3"],
    lengths_mm: Float[np.ndarray, " K"],
    fixed: Bool[np.ndarray, " J"] | None = None,
    spread_mm2: Float[np.ndarray, "48 48"] | None = None,
) -> Float[np.ndarray, "J 3"]:
    """The nearest pose, or nearly so, with bones of the given lengths and every pair within its limits, by damped
    Gauss-Newton steps. The pelvis and fixed joints stay; where those contradict bones or limits, all stays.

    spread_mm2: covariance of the other joints' places, by which near is measured; left out: all alike"""
    free = np.ones(H36M_17.count) if fixed is None else np.where(fixed, 0.0, 1.0)
    free[H36M_17.root] = 0.0
    metric = np.eye(3 * H36M_17.count)
    if spread_mm2 is not None:
        metric[3:, 3:] = LOOSE * np.eye(len(spread_mm2)) + (1 - LOOSE) * spread_mm2 / np.diag(spread_mm2).mean()
    metric *= np.outer(free.repeat(3), free.repeat(3))
    pose = joints_mm + 1e-6 * free[:, None] * np.arange(3 * H36M_17.count).reshape(-1, 3)  # no two in one place
    least, greatest = pair_limits_mm(lengths_mm).T
    least = np.concatenate([lengths_mm, least + INSIDE_MM])
    greatest = np.concatenate([lengths_mm, np.where(SHARES[:, 1] < 1, greatest - INSIDE_MM, np.inf)])
    noise = np.random.default_rng(0)
    for step_number in range(ROUNDS * (SEARCHES if fixed is None else 1)):
        if step_number and step_number % ROUNDS == 0:
            pose = pose + noise.normal(scale=SHAKE_MM, size=pose.shape) * free[:, None]
        way = pose[ENDS[:, 0]] - pose[ENDS[:, 1]]
        apart = np.linalg.norm(way, axis=-1)
        off = apart - np.clip(apart, least, greatest)
        rows = np.flatnonzero(off)
        if np.abs(off).max() < STILL_MM:
            break
        unit = way[rows] / np.maximum(apart[rows, None], 1e-9)
        ways, place = np.zeros((len(rows), H36M_17.count, 3)), np.arange(len(rows))
        ways[place, ENDS[rows, 0]], ways[place, ENDS[rows, 1]] = unit, -unit
        slope = ways.reshape(len(rows), -1)
        step = metric @ slope.T @ np.linalg.solve(slope @ metric @ slope.T + DAMPING * np.eye(len(rows)), off[rows])
        pose -= step.reshape(-1, 3) * min(1.0, STEP_MM / max(float(np.abs(step).max()), 1e-9))
    else:
        pose = pose if fixed is None else joints_mm
    return pose if fixed is not None else rebuild(pose, lengths_mm)
