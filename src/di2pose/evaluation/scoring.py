"""Errors of one protocol: poses of any skeleton are brought to the protocol's joints and root, then measured.

Values are keyed 'H/estimate/metric', e.g. '8/p-agg/pa_mpjpe'; of some joints only '8/p-agg/pa_mpjpe_hidden'. With one
hypothesis the estimate is 'single'. With more: 'p-agg' the mean pose; 'fitted' the estimate that
a user gets, of all of them, with bones kept and fitted to the landmarks; 'sample' one of them (the mean error of each);
'p-best' the best hypothesis per pose; 'j-best' the best per joint; 'j-agg' per joint the hypothesis that projects
nearest to the ANNOTATED 2D joint. The last three choose by the truth: oracles, bounds of what a user could get. H is 0
for poses that are not drawn: the peer's, a regression's.

Joints are seen or hidden, as the records say. A joint's spread is sqrt(trace(C)), C the unbiased covariance of its
hypotheses; its error is that of their mean: both distances in mm, aligned at the same root.

B or n records, H hypotheses, K joints of the protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import spearmanr
from torch import Tensor

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN, Sample
from di2pose.errors import InputError
from di2pose.evaluation.protocol import PROTOCOLS, Protocol
from di2pose.occlusion.patches import Rectangle
from di2pose.pose.aggregate import reprojected_pose
from di2pose.pose.metrics import auc, joint_errors, pck, procrustes
from di2pose.pose.skeleton import Skeleton, convert
from di2pose.text_table import markdown

DRAWN = ("single", "sample", "p-agg", "fitted", "p-best", "j-best", "j-agg")
"""Estimates made of hypotheses, in the order of the tables."""
ORACLES = frozenset({"p-best", "j-best", "j-agg"})
"""Estimates that use the truth to choose (j-agg does here, because its 2D joints are annotations)."""
SHARES = {"pck": pck, "auc": auc}
"""Metrics that are shares of joints, in per cent: of the estimate that a user could have only."""
STATES = ("seen", "occluded", "out_of_frame")
"""What is said of a joint; `occluded`: by the body itself or by something else."""
GROUPS = ("seen", "hidden", "self_occluded", "occluded", "out_of_frame")

Groups = dict[str, Bool[np.ndarray, " K"]]


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
                    f" joint sets have their own protocols: {', '.join(others)}"
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
        self, joints_mm: Float[np.ndarray, "B H J 3"], skeleton: Skeleton | None = None
    ) -> Float[Tensor, "B H K 3"]:
        """Predicted hypotheses at the protocol's joints and root; `skeleton`: None is the predictor's."""
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
    ) -> dict[str, Float[Tensor, " B"]]:
        """'H/estimate/metric' -> error of every row, for the first `hypotheses` of the prediction, over all joints and
        over each of the groups. PA errors of a group are measured after the alignment of all joints. J-Agg only of a
        single record, the `sample`, with 2D joints and a camera."""
        poses = prediction[:, :hypotheses]
        values = self.score_pose(poses.mean(1), truth, mask, f"{hypotheses}/{headline(hypotheses)}", groups)
        if hypotheses == 1:
            return values
        for metric in (metric for metric in self.protocol.metrics if metric not in SHARES):
            each = _errors(metric, poses, truth, mask)  # B H K
            choice = each.nanmean(-1).nan_to_num(nan=torch.inf).argmin(1)
            found = {"sample": each.mean(1), "p-best": each[torch.arange(len(each)), choice], "j-best": each.amin(1)}
            for estimate, errors in found.items():
                values |= _means(f"{hypotheses}/{estimate}/{metric}", errors, groups)
        if sample is not None and sample.joints_2d is not None and sample.camera is not None:
            points = torch.from_numpy(self.points(sample))
            if int(points.isfinite().all(-1).sum()) >= 3:
                pose = reprojected_pose(poses, points[None], [sample.camera])
                joints = self.score_pose(pose, truth, mask, f"{hypotheses}/j-agg", groups)
                values |= {key: value for key, value in joints.items() if key.split("/")[2] not in SHARES}
        return values

    def score_pose(
        self,
        pose: Float[Tensor, "B K 3"],
        truth: Float[Tensor, "B K 3"],
        mask: Bool[Tensor, "B K"],
        prefix: str,
        groups: Groups | None = None,
    ) -> dict[str, Float[Tensor, " B"]]:
        """The same of single poses, under the keys 'prefix/metric'."""
        values = {}
        for metric in self.protocol.metrics:
            if metric in SHARES:
                values[f"{prefix}/{metric}"] = 100 * SHARES[metric](pose, truth, mask)
            else:
                values |= _means(f"{prefix}/{metric}", _errors(metric, pose[:, None], truth, mask)[:, 0], groups)
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


def _means(key: str, errors: Float[Tensor, "B K"], groups: Groups | None) -> dict[str, Tensor]:
    values = {key: errors.nanmean(-1)}
    for name, chosen in (groups or {}).items():
        values[f"{key}_{name}"] = torch.where(torch.from_numpy(chosen), errors, torch.nan).nanmean(-1)
    return values


def joint_groups(visibility: Int[np.ndarray, "*n K"], rest_seen: bool = False) -> dict[str, Bool[np.ndarray, "*n K"]]:
    """The joints of each of GROUPS that has one. `rest_seen`: joints of which nothing is known count as seen."""
    ways = {"self_occluded": SELF_OCCLUDED, "occluded": OCCLUDED, "out_of_frame": OUT_OF_FRAME}
    seen = (visibility == SEEN) | (rest_seen & (visibility == UNKNOWN))
    groups = {"seen": seen, "hidden": visibility > SEEN}
    groups |= {name: visibility == state for name, state in ways.items()}
    return {name: mask for name, mask in groups.items() if mask.any()}


@dataclass(frozen=True)
class Confusion:
    """counts[true][said] of the joints whose visibility is known."""

    counts: tuple[tuple[int, ...], ...]

    @property
    def accuracy(self) -> float:
        table = np.array(self.counts)
        return float(np.trace(table) / table.sum())

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the shares found of each state that occurs."""
        table = np.array(self.counts, dtype=np.float64)
        occurring = table.sum(1) > 0
        return float((np.diag(table)[occurring] / table.sum(1)[occurring]).mean())

    def text(self) -> str:
        """Rows are the truth, columns what was said; a row's shares in brackets."""
        rows = [
            [state, *(f"{count} ({count / max(sum(counts), 1):.0%})" for count in counts)]
            for state, counts in zip(STATES, self.counts, strict=True)
        ]
        table = markdown(["true state", *(f"said {state}" for state in STATES)], rows)
        return f"{table}\n\nAccuracy {self.accuracy:.3f}, mean over the states {self.balanced_accuracy:.3f}."


def true_states(visibility: Int[np.ndarray, "n J"]) -> np.ndarray:
    """(n, J) strings; '' where nobody knows."""
    named = np.where(visibility == SEEN, "seen", np.where(visibility == OUT_OF_FRAME, "out_of_frame", "occluded"))
    return np.where(visibility < SEEN, "", named)


def confusion(true: np.ndarray, said: np.ndarray) -> Confusion:
    """Both (n, J) strings; joints whose true state is '' do not count."""
    if true.shape != said.shape or not (true != "").any():
        raise InputError(f"expected equal tables of states with a known one, got {true.shape} and {said.shape}")
    return Confusion(tuple(tuple(int(((true == t) & (said == s)).sum()) for s in STATES) for t in STATES))


def spread_figures(
    spread_mm: Float[np.ndarray, "*n K"],
    error_mm: Float[np.ndarray, "*n K"],
    groups: Mapping[str, Bool[np.ndarray, "*n K"]],
) -> dict[str, dict[str, Any]]:
    """Means and Spearman's rank correlation (None where spread or error does not vary) of every group of two joints or
    more. `hidden_over_seen`, where both are known: ratios of spread and error, and of the one to the other, which is 1
    where the spread is right.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, mask in groups.items():
        spread, error = spread_mm[mask], error_mm[mask]
        if len(spread) >= 2:
            constant = np.ptp(spread) == 0 or np.ptp(error) == 0
            found[name] = {
                "joints": len(spread),
                "spread_mm": float(spread.mean()),
                "error_mm": float(error.mean()),
                "rank_correlation": None if constant else float(spearmanr(spread, error).statistic),
            }
    seen, hidden = found.get("seen"), found.get("hidden")
    if seen and hidden and seen["spread_mm"] and seen["error_mm"]:
        ratio, expected = (hidden[part] / seen[part] for part in ("spread_mm", "error_mm"))
        found["hidden_over_seen"] = {"spread": ratio, "error": expected, "spread_over_error": ratio / expected}
    return found
