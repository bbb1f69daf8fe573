"""Errors of one protocol: poses of any skeleton are brought to the protocol's joints and root, then measured.

A value has the key (H, estimate, metric), e.g. (8, 'p-agg', 'pa_mpjpe'); over a group of joints 'pa_mpjpe_hidden'. With
one hypothesis the estimate is 'single'. With more: 'p-agg' the mean pose; 'fitted' the estimate that a user gets, of
all of them, with bones kept and fitted to the landmarks; 'sample' one of them (the mean error of each); 'p-best' the
best hypothesis per pose; 'j-best' the best per joint; 'j-agg' per joint the hypothesis that projects nearest to the
ANNOTATED 2D joint. The last three choose by the truth: oracles, bounds of what a user could get. H is 0 for poses that
are not drawn: the peer's, a regression's.

B or n records, H hypotheses, K joints of the protocol.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import chi2
from scipy.stats import f as fisher
from torch import Tensor

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN, Sample
from di2pose.errors import InputError
from di2pose.evaluation.protocol import PROTOCOLS, Protocol
from di2pose.occlusion.patches import Rectangle
from di2pose.pose.aggregate import reprojected_pose
from di2pose.pose.metrics import auc, joint_errors, pck, procrustes
from di2pose.pose.skeleton import Skeleton, convert

DRAWN = ("single", "sample", "p-agg", "fitted", "p-best", "j-best", "j-agg")
"""Estimates made of hypotheses, in the order of the tables."""
ORACLES = frozenset({"p-best", "j-best", "j-agg"})
"""Estimates that use the truth to choose (j-agg does here, because its 2D joints are annotations)."""
SHARES = {"pck": pck, "auc": auc}
"""Metrics that are shares of joints, in per cent; not measured for oracles and single samples."""
STATES = ("seen", "occluded", "out_of_frame")
"""Predicted states of a joint; `occluded`: by the body itself or by something else."""
GROUPS = ("seen", "hidden", "self_occluded", "occluded", "out_of_frame")
GROUP_OF = {f"{metric}_{group}": group for metric in ("mpjpe", "pa_mpjpe") for group in GROUPS}
"""Metric over a group of joints -> the group."""
LEAST_MM = 1e-3
"""Smallest spread and error that count: below both, a joint is the root."""

Key = tuple[int, str, str]
Groups = Mapping[str, Bool[np.ndarray, " K"]]
Values = dict[Key, Float[Tensor, " B"]]


def headline(hypotheses: int) -> str:
    """The estimate that a user could have: the sample itself, or the mean of the samples."""
    return "single" if hypotheses == 1 else "p-agg"


class Scorer:
    """Measures predictions on one skeleton against records on another, under one protocol."""

    def __init__(self, protocol: Protocol, truth: Skeleton, prediction: Skeleton) -> None:
        self.protocol, self.truth_skeleton, self.prediction_skeleton = protocol, truth, prediction
        self.columns = list(protocol.skeleton.indices(*protocol.joints))
        for whose, skeleton in (("the dataset", truth), ("the prediction", prediction)):
            if missing := self.missing(skeleton):
                base = protocol.id.removesuffix("-smpl14")
                others = [name for name in PROTOCOLS if name.startswith(f"{base}-")] or ["limb-12"]
                raise InputError(
                    f"protocol {protocol.id} needs {', '.join(missing)}, which {whose} ({skeleton.name}) lacks; other "
                    f"joint sets have their own protocols: {', '.join(others)}"
                )

    def missing(self, skeleton: Skeleton) -> list[str]:
        """Joints of the protocol that a skeleton lacks."""
        _, known = convert(np.zeros((skeleton.count, 3)), skeleton, self.protocol.skeleton)
        return [name for name, j in zip(self.protocol.joints, self.columns, strict=True) if not known[j]]

    def truth(self, sample: Sample) -> tuple[Float[Tensor, "K 3"], Bool[Tensor, " K"]]:
        """The record's joints at the protocol's root, and which of them are annotated."""
        joints = np.where(sample.valid[:, None], sample.joints_mm, np.nan).astype(np.float64)
        aligned = self._aligned(joints, self.truth_skeleton)
        known = np.isfinite(aligned).all(-1)
        if not known.any():
            raise InputError(f"none of the joints of {self.protocol.id}, or not its root, is annotated")
        return torch.from_numpy(np.where(known[:, None], aligned, 0.0)), torch.from_numpy(known)

    def points(self, sample: Sample) -> Float[np.ndarray, "K 2"]:
        """The record's 2D joints in picture pixels; NaN where not annotated."""
        if sample.joints_2d is None:
            raise InputError("the record has no 2D joints")
        joints, _ = convert(sample.joints_2d.astype(np.float64), self.truth_skeleton, self.protocol.skeleton)
        return joints[self.columns]

    def visibility(self, sample: Sample, patch: Rectangle | None = None) -> Int[np.ndarray, " K"]:
        """The record's visibility of the joints; those under the patch are occluded."""
        state = np.full(len(sample.valid), UNKNOWN) if sample.visibility is None else sample.visibility.astype(int)
        if patch is not None and sample.joints_2d is not None:
            state = np.where(patch.strictly_contains(sample.joints_2d), OCCLUDED, state)
        if self.truth_skeleton == self.protocol.skeleton:
            return state[self.columns]
        # A joint that is built from others is hidden, or unknown, when one of them is: its flag is then above 0.
        flags = np.stack([state > SEEN, state == UNKNOWN], axis=-1).astype(np.float64)
        hidden, unknown = convert(flags, self.truth_skeleton, self.protocol.skeleton)[0][self.columns].T > 0
        return np.where(hidden, OCCLUDED, np.where(unknown, UNKNOWN, SEEN))

    def prediction(
        self, joints_mm: Float[np.ndarray, "*B J 3"], skeleton: Skeleton | None = None
    ) -> Float[Tensor, "*B K 3"]:
        """Predicted poses at the protocol's joints and root; `skeleton`: None is the predictor's."""
        return torch.from_numpy(self._aligned(joints_mm.astype(np.float64), skeleton or self.prediction_skeleton))

    def _aligned(self, joints: np.ndarray, skeleton: Skeleton) -> np.ndarray:
        chosen, _ = convert(joints, skeleton, self.protocol.skeleton)
        if self.protocol.root == ("pelvis",) and "pelvis" not in skeleton.joints:
            return chosen[..., self.columns, :]  # such records are relative to a pelvis that is not one of their joints
        root = joints[..., list(skeleton.indices(*self.protocol.root)), :].mean(-2, keepdims=True)
        return chosen[..., self.columns, :] - root

    def score(
        self,
        prediction: Float[Tensor, "B H K 3"],
        truth: Float[Tensor, "B K 3"],
        mask: Bool[Tensor, "B K"],
        hypotheses: int,
        groups: Groups | None = None,
        sample: Sample | None = None,
    ) -> Values:
        """The error of every row, for the first `hypotheses` of the prediction, over all joints and over each of the
        groups. PA errors of a group are measured after the alignment of all joints. J-Agg only of a single record, the
        `sample`, with 2D joints and a camera."""
        poses = prediction[:, :hypotheses]
        values = self.score_pose(poses.mean(1), truth, mask, hypotheses, headline(hypotheses), groups)
        if hypotheses == 1:
            return values
        for metric in (metric for metric in self.protocol.metrics if metric not in SHARES):
            each = _errors(metric, poses, truth, mask)  # B H K
            best = each.nanmean(-1).nan_to_num(nan=torch.inf).argmin(1)
            found = {"sample": each.mean(1), "p-best": each[torch.arange(len(each)), best], "j-best": each.amin(1)}
            for estimate, errors in found.items():
                values |= _means(hypotheses, estimate, metric, errors, groups)
        if sample is not None and sample.joints_2d is not None and sample.camera is not None:
            points = torch.from_numpy(self.points(sample))
            if int(points.isfinite().all(-1).sum()) >= 3:
                pose = reprojected_pose(poses, points[None], [sample.camera])
                joints = self.score_pose(pose, truth, mask, hypotheses, "j-agg", groups)
                values |= {key: value for key, value in joints.items() if key[2] not in SHARES}
        return values

    def score_pose(
        self,
        pose: Float[Tensor, "B K 3"],
        truth: Float[Tensor, "B K 3"],
        mask: Bool[Tensor, "B K"],
        hypotheses: int,
        estimate: str,
        groups: Groups | None = None,
    ) -> Values:
        """The same of single poses."""
        values: Values = {}
        for metric in self.protocol.metrics:
            if metric in SHARES:
                values[hypotheses, estimate, metric] = 100 * SHARES[metric](pose, truth, mask)
            else:
                errors = _errors(metric, pose[:, None], truth, mask)[:, 0]
                values |= _means(hypotheses, estimate, metric, errors, groups)
        return values


def _errors(metric: str, poses: Tensor, truth: Tensor, mask: Tensor) -> Float[Tensor, "B H K"]:
    """Distance of every joint of poses (B, H, K, 3); NaN where a joint does not count, or where fewer than three do
    for a Procrustes alignment: one or two points always fit."""
    count = poses.shape[1]
    flat, target, counting = poses.flatten(0, 1), truth.repeat_interleave(count, 0), mask.repeat_interleave(count, 0)
    if metric == "pa_mpjpe":
        counting = counting & (counting.sum(-1, keepdim=True) >= 3)
        flat = procrustes(flat, target, counting)
    errors = torch.where(counting, joint_errors(flat, target, counting), torch.nan)
    return errors.unflatten(0, poses.shape[:2])


def _means(hypotheses: int, estimate: str, metric: str, errors: Float[Tensor, "B K"], groups: Groups | None) -> Values:
    values = {(hypotheses, estimate, metric): errors.nanmean(-1)}
    for name, chosen in (groups or {}).items():
        some = torch.where(torch.from_numpy(chosen), errors, torch.nan)
        values[hypotheses, estimate, f"{metric}_{name}"] = some.nanmean(-1)
    return values


def joint_groups(visibility: Int[np.ndarray, "*n"], rest_seen: bool = False) -> dict[str, Bool[np.ndarray, "*n"]]:
    """The joints of each of GROUPS that has one. `rest_seen`: joints of unknown visibility count as seen."""
    ways = {"self_occluded": SELF_OCCLUDED, "occluded": OCCLUDED, "out_of_frame": OUT_OF_FRAME}
    seen = (visibility == SEEN) | (rest_seen & (visibility == UNKNOWN))
    groups = {"seen": seen, "hidden": visibility > SEEN}
    groups |= {name: visibility == state for name, state in ways.items()}
    return {name: mask for name, mask in groups.items() if mask.any()}


def energy_score(
    poses: Float[Tensor, "B H K 3"], truth: Float[Tensor, "B K 3"], mask: Bool[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """mean_h |x_h - t| - 1/2 mean_{h != h'} |x_h - x_h'| of each joint, in mm; NaN where it does not count.

    A proper scoring rule, over distinct pairs, so that its expectation does not depend on H: least where the hypotheses
    are drawn from what the truth varies by. Of one pose, repeated, it is the error of that pose.
    """
    first, second = torch.triu_indices(poses.shape[1], poses.shape[1], offset=1)
    error = (poses - truth[:, None]).norm(dim=-1).mean(1)
    apart = (poses[:, first] - poses[:, second]).norm(dim=-1).mean(1)
    return torch.where(mask, error - apart / 2, torch.nan)


def ball_level(
    error_mm: Float[np.ndarray, "*n"], variance_mm2: Float[np.ndarray, "*n"], hypotheses: int | None = None
) -> Float[np.ndarray, "*n"]:
    """Confidence level of the smallest ball about the estimate that holds a truth so far off: the one definition of
    coverage. Where the spread is right, levels are uniform on [0, 1] and a share q of the truths has a level below q.

    `variance_mm2` is the mean variance of the three axes. Estimated from H normal hypotheses, about whose mean the
    truth is as any of them, error^2 / (3 variance (1 + 1/H)) has the distribution F(3, 3(H - 1)): both the mean and
    the variance of few are uncertain. `hypotheses` None: the variance is stated, not estimated; F's limit for many
    hypotheses, chi-squared with 3 degrees of freedom.
    """
    scaled = np.square(error_mm) / np.maximum(variance_mm2, LEAST_MM**2)
    if hypotheses is None:
        level: np.ndarray = chi2.cdf(scaled, 3)
    else:
        level = fisher.cdf(scaled / (3 * (1 + 1 / hypotheses)), 3, 3 * (hypotheses - 1))
    return level


def hypothesis_levels(
    poses: Float[Tensor, "B H K 3"], truth: Float[Tensor, "B K 3"], mask: Bool[Tensor, "B K"]
) -> Float[np.ndarray, "B K"]:
    """`ball_level` of the truth about the mean of the hypotheses; NaN where a joint does not count, or where neither
    hypotheses nor truth vary: at the root. 1 where the hypotheses agree and are wrong."""
    error, variance = joint_errors(poses.mean(1), truth, mask).numpy(), poses.var(1).mean(-1).numpy()
    fixed = (np.sqrt(variance) < LEAST_MM) & (error < LEAST_MM)
    return np.where(mask.numpy() & ~fixed, ball_level(error, variance, poses.shape[1]), np.nan)


def calibrated_hits(
    pose: Float[Tensor, "B K 3"],
    r90_mm: Float[np.ndarray, "B K"],
    truth: Float[Tensor, "B K 3"],
    mask: Bool[Tensor, "B K"],
) -> Float[np.ndarray, "B K"]:
    """1 where a ball of that radius about the joint holds the truth, else 0; NaN as in `hypothesis_levels`."""
    error = joint_errors(pose, truth, mask).numpy()
    fixed = (r90_mm < LEAST_MM) & (error < LEAST_MM)
    return np.where(mask.numpy() & ~fixed, error <= r90_mm, np.nan)


def true_states(visibility: Int[np.ndarray, "n J"]) -> np.ndarray:
    """(n, J) strings; '' where the visibility is unknown."""
    named = np.where(visibility == SEEN, "seen", np.where(visibility == OUT_OF_FRAME, "out_of_frame", "occluded"))
    return np.where(visibility < SEEN, "", named)


def confusion(true: np.ndarray, said: np.ndarray) -> dict[str, Any]:
    """`counts`[true][predicted] in the order of STATES, `accuracy`, and `balanced_accuracy`: the mean of the shares
    found of each state that occurs. Both (n, J) strings; joints whose true state is '' do not count."""
    if true.shape != said.shape or not (true != "").any():
        raise InputError(f"expected equal tables of states with a known one, got {true.shape} and {said.shape}")
    table = np.array([[((true == t) & (said == s)).sum() for s in STATES] for t in STATES])
    occurring = table.sum(1) > 0
    shares = np.diag(table)[occurring] / table.sum(1)[occurring]
    accuracy = float(np.trace(table) / table.sum())
    return {"counts": table.tolist(), "accuracy": accuracy, "balanced_accuracy": float(shares.mean())}
