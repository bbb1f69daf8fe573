"""Errors of all estimates of some crops, joint by joint, and their means by group.  n crops, H hypotheses, K joints.

PA errors of a group are measured after the alignment of ALL joints of the set, not of the group's alone. The mean of a
group is over its joints, whichever crops they are of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED
from di2pose.evaluation.estimates import Estimates, Truth
from di2pose.occlusion.protocols import LIMB_12
from di2pose.pose.metrics import joint_errors, procrustes
from di2pose.pose.skeleton import H36M_17

METRICS = ("mpjpe", "pa_mpjpe")
PEER, PEER_BOTH, REGRESSION, SOFT = "peer", "peer, both ways", "regression", "soft decode"
SINGLE, MEAN, BEST = DRAWN = ("one sample", "mean of samples", "best of samples")
ORACLE = frozenset({BEST})
"""Chooses by the truth: a bound of what a user could have."""

JointErrors = dict[str, Float[np.ndarray, "n K"]]
"""Metric -> mm."""


@dataclass(frozen=True)
class JointSet:
    """Which joints count, and where poses are aligned: numbers into H36M_17."""

    title: str
    joints: tuple[int, ...]
    root: tuple[int, ...]

    def errors(self, poses_mm: Float[Tensor, "n K 3"], truth: Truth) -> JointErrors:
        """Of poses that hold this set's joints; NaN where a joint is not annotated."""
        target = truth.joints_mm[:, self.joints]
        known = target.isfinite().all(-1)
        places = tuple(self.joints.index(joint) for joint in self.root)
        found = {
            "mpjpe": joint_errors(poses_mm, target, known, places),
            "pa_mpjpe": joint_errors(procrustes(poses_mm, target, known), target, known),
        }
        return {name: torch.where(known, errors, torch.nan).numpy() for name, errors in found.items()}


LIMBS = JointSet("12 limb joints, mid-hip aligned", H36M_17.indices(*LIMB_12), H36M_17.indices("left_hip", "right_hip"))
ALL = JointSet("17 joints, pelvis-aligned", tuple(range(H36M_17.count)), (H36M_17.root,))


@dataclass(frozen=True)
class Figure:
    """The mean error of a group of joints."""

    mm: float
    deviation_mm: float | None
    """Standard deviation over the sampling seeds; None where there is nothing random, or one seed."""
    ratio: float | None
    """To the peer's error of the same joints."""
    joints: int


def one_pose_errors(joint_set: JointSet, truth: Truth, estimates: Estimates) -> dict[str, JointErrors]:
    """Of the estimates that draw nothing: the peer (which knows the limbs only), the regression, the soft decode."""
    found = {}
    if truth.peer_mm is not None and joint_set is LIMBS:
        found[PEER] = joint_set.errors(truth.peer_mm, truth)
    if truth.peer_both_mm is not None and joint_set is LIMBS:
        found[PEER_BOTH] = joint_set.errors(truth.peer_both_mm, truth)
    for name, poses in ((REGRESSION, estimates.regression_mm), (SOFT, estimates.soft_mm)):
        if poses is not None:
            found[name] = joint_set.errors(poses[:, joint_set.joints], truth)
    return found


def sample_errors(joint_set: JointSet, truth: Truth, samples_mm: Float[Tensor, "n H 17 3"]) -> dict[str, JointErrors]:
    """Of one sample (the mean error of each of the H), of their mean, and of the best of them by each metric."""
    chosen = samples_mm[:, :, joint_set.joints]
    each = [joint_set.errors(chosen[:, h], truth) for h in range(chosen.shape[1])]
    single, best = {}, {}
    for metric in METRICS:
        errors = np.stack([one[metric] for one in each], axis=1)  # n H K
        choice = np.nanmean(errors, axis=2).argmin(1)
        single[metric], best[metric] = errors.mean(1), errors[np.arange(len(errors)), choice]
    return {SINGLE: single, MEAN: joint_set.errors(chosen.mean(1), truth), BEST: best}


def joint_groups(
    visibility: Int[np.ndarray, "n K"], known: Bool[np.ndarray, "n K"]
) -> dict[str, Bool[np.ndarray, "n K"]]:
    """`all`, `seen`, `hidden` and the three ways to be hidden; those that have a joint.

    Where only hidden joints are labelled (a patch on footage that tells no visibility), all others count as seen.
    """
    hidden = visibility > SEEN
    told = (visibility == SEEN).any()
    seen = visibility == SEEN if told else (~hidden if hidden.any() else np.zeros_like(hidden))
    groups = {"all": np.ones_like(hidden), "seen": seen, "hidden": hidden}
    ways = {"self_occluded": SELF_OCCLUDED, "occluded": OCCLUDED, "out_of_frame": OUT_OF_FRAME}
    groups |= {name: visibility == state for name, state in ways.items()}
    return {name: mask & known for name, mask in groups.items() if (mask & known).any()}


def summarise(
    runs: Mapping[str, Sequence[JointErrors]], groups: Mapping[str, Bool[np.ndarray, "n K"]]
) -> dict[str, dict[str, dict[str, Figure]]]:
    """estimate -> group -> metric -> Figure. `runs`: the errors of each estimate, one for each sampling seed."""
    means = {
        name: {
            group: {metric: np.array([float(run[metric][mask].mean()) for run in seeds]) for metric in METRICS}
            for group, mask in groups.items()
        }
        for name, seeds in runs.items()
    }
    peer = means.get(PEER)
    return {
        name: {
            group: {
                metric: Figure(
                    mm=float(values.mean()),
                    deviation_mm=float(values.std(ddof=1)) if len(values) > 1 else None,
                    ratio=None if peer is None else float(values.mean() / peer[group][metric].mean()),
                    joints=int(groups[group].sum()),
                )
                for metric, values in metrics.items()
            }
            for group, metrics in by_group.items()
        }
        for name, by_group in means.items()
    }


def to_json(summary: Mapping[str, Mapping[str, Mapping[str, Figure]]]) -> dict[str, object]:
    """The same as plain values, each estimate with a flag that says whether it chose by the truth."""
    return {
        name: {
            "oracle": name in ORACLE,
            **{group: {metric: asdict(figure) for metric, figure in row.items()} for group, row in by_group.items()},
        }
        for name, by_group in summary.items()
    }
