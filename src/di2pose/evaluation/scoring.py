"""The numbers of one record under one protocol: poses brought to the protocol's joints and root, then measured.

Numbers have keys (H, estimate, metric), e.g. (8, 'p-agg', 'pa_mpjpe'); over a group of joints 'pa_mpjpe_hidden'. With
one hypothesis the estimate is 'single'. With more: 'p-agg' the mean pose; 'fitted' the estimate that a user gets, of
all of them, with bones kept and fitted to the landmarks; 'sample' one of them (the mean error of each); 'p-best' the
best hypothesis per pose; 'j-best' the best per joint; 'j-agg' per joint the hypothesis that projects nearest to the
ANNOTATED 2D joint. The last three choose by the truth: oracles, bounds of what a user could get. 'hypotheses' is all of
them together: energy score, spread, coverage. H is 0 for poses that are not drawn: the peer's, a regression's.

B records, H hypotheses, K joints of the protocol.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import chi2
from scipy.stats import f as fisher
from torch import Tensor

from di2pose.data.sample import OCCLUDED, SEEN, UNKNOWN, Sample
from di2pose.errors import InputError
from di2pose.evaluation.predictors import Predictions
from di2pose.evaluation.protocol import PROTOCOLS, Protocol
from di2pose.files import Json
from di2pose.occlusion.patches import Rectangle
from di2pose.pose.metrics import auc, joint_errors, pck, procrustes, reprojected_pose
from di2pose.pose.skeleton import H36M_17, Skeleton, convert

DRAWN = ("single", "sample", "p-agg", "fitted", "p-best", "j-best", "j-agg")
"""Estimates made of hypotheses, in the order of the tables."""
HYPOTHESES = "hypotheses"
ORACLES = frozenset({"p-best", "j-best", "j-agg"})
SHARES = {"pck": pck, "auc": auc}
"""Metrics that are shares of joints, in per cent; not measured for oracles and single samples."""
STATES = ("visible", "occluded", "out_of_frame")
"""Predicted states of a joint; `occluded`: by the body itself or by something else."""
GROUPS = ("seen", "hidden")
LEVEL = 0.9
"""Of the balls whose coverage is reported."""
LEAST_MM = 1e-3
"""Smallest spread and error that count: below both, a joint is the root."""

Key = tuple[int, str, str]
JointValues = dict[Key, Float[Tensor, "B K"]]
"""NaN where a joint does not count."""


def headline(hypotheses: int) -> str:
    """The estimate that a user could have: the sample itself, or the mean of the samples."""
    return "single" if hypotheses == 1 else "p-agg"


class Scorer:
    """Measures predictions on one skeleton against records on another, under one protocol."""

    def __init__(self, protocol: Protocol, truth: Skeleton, prediction: Skeleton) -> None:
        self.protocol, self.truth_skeleton, self.prediction_skeleton = protocol, truth, prediction
        self.columns = list(protocol.skeleton.indices(*protocol.joints))
        self.errors = [metric for metric in protocol.metrics if metric not in SHARES]
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

    def aligned(
        self, joints_mm: Float[np.ndarray, "*B J 3"], skeleton: Skeleton | None = None
    ) -> Float[Tensor, "*B K 3"]:
        """Poses at the protocol's joints and root; `skeleton`: None is the predictor's."""
        skeleton, joints_mm = skeleton or self.prediction_skeleton, joints_mm.astype(np.float64)
        chosen = convert(joints_mm, skeleton, self.protocol.skeleton)[0][..., self.columns, :]
        # Records without a pelvis are relative to one that is not among their joints.
        if self.protocol.root != ("pelvis",) or "pelvis" in skeleton.joints:
            chosen = chosen - joints_mm[..., list(skeleton.indices(*self.protocol.root)), :].mean(-2, keepdims=True)
        return torch.from_numpy(chosen)

    def truth(self, sample: Sample) -> tuple[Float[Tensor, "K 3"], Bool[Tensor, " K"]]:
        """The record's joints at the protocol's root, and which of them are annotated."""
        joints = self.aligned(np.where(sample.valid[:, None], sample.joints_mm, np.nan), self.truth_skeleton)
        known = joints.isfinite().all(-1)
        if not known.any():
            raise InputError(f"none of the joints of {self.protocol.id}, or not its root, is annotated")
        return torch.where(known[:, None], joints, 0.0), known

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
        if self.truth_skeleton.joints[: self.protocol.skeleton.count] == self.protocol.skeleton.joints:
            return state[self.columns]
        # A joint that is built from others is hidden, or unknown, when one of them is: its flag is then above 0.
        flags = np.stack([state > SEEN, state == UNKNOWN], axis=-1).astype(np.float64)
        hidden, unknown = convert(flags, self.truth_skeleton, self.protocol.skeleton)[0][self.columns].T > 0
        return np.where(hidden, OCCLUDED, np.where(unknown, UNKNOWN, SEEN))

    def score(
        self,
        poses: Float[Tensor, "B H K 3"],
        truth: Float[Tensor, "B K 3"],
        mask: Bool[Tensor, "B K"],
        sample: Sample | None = None,
    ) -> JointValues:
        """Every estimate made of these hypotheses, by each metric. J-Agg only of a single record, the `sample`, with 2D
        joints and a camera."""
        count = poses.shape[1]
        values = self.score_pose(poses.mean(1), truth, mask, count, headline(count))
        if count == 1:
            return values
        for metric in self.errors:
            each = joint_values(metric, poses, truth, mask)  # B H K
            best = each.nanmean(-1).nan_to_num(nan=torch.inf).argmin(1)
            values[count, "sample", metric] = each.mean(1)
            values[count, "p-best", metric] = each[torch.arange(len(each)), best]
            values[count, "j-best", metric] = each.amin(1)
        if sample is not None and sample.joints_2d is not None and sample.camera is not None:
            points = torch.from_numpy(self.points(sample))
            if int(points.isfinite().all(-1).sum()) >= 3:
                pose = reprojected_pose(poses, points[None], [sample.camera])
                found = self.score_pose(pose, truth, mask, count, "j-agg")
                values |= {key: value for key, value in found.items() if key[2] not in SHARES}
        if "mpjpe" in self.errors:
            level = hypothesis_levels(poses, truth, mask)
            values[count, HYPOTHESES, "energy"] = energy_score(poses, truth, mask)
            values[count, HYPOTHESES, "coverage_90"] = torch.where(level.isnan(), level, (level <= LEVEL).double())
        return values

    def score_pose(
        self,
        pose: Float[Tensor, "B K 3"],
        truth: Float[Tensor, "B K 3"],
        mask: Bool[Tensor, "B K"],
        hypotheses: int,
        estimate: str,
    ) -> JointValues:
        """One pose of each record, by each metric."""
        values = {metric: joint_values(metric, pose[:, None], truth, mask) for metric in self.protocol.metrics}
        return {(hypotheses, estimate, metric): each[:, 0] for metric, each in values.items()}

    def measure(
        self,
        sample: Sample,
        by_seed: Sequence[Predictions],
        hypotheses: Sequence[int],
        patch: Rectangle | None = None,
        rest_seen: bool = False,
    ) -> Json:
        """All numbers of one record, as they stand in the log (`records.RecordLog`); `by_seed`: its predictions.
        `rest_seen`: of a record without a joint that is labelled seen, those of unknown visibility count as seen."""
        try:
            truth, known = self.truth(sample)
        except InputError as error:
            return {"skipped": str(error)}
        truth, mask, most = truth[None], known[None], max(hypotheses)
        values = [
            self.score_pose(self.aligned(pose, skeleton), truth, mask, 0, name)
            for name, (pose, skeleton) in by_seed[0].others.items()
            if not self.missing(skeleton)
        ]
        at_pelvis = self.protocol.skeleton == H36M_17 and self.protocol.root == ("pelvis",)
        parts: Json = {"error_mm": [], "spread_mm": []}
        for found in by_seed:
            poses = self.aligned(found.samples_mm)
            values += [self.score(poses[:, :count], truth, mask, sample) for count in hypotheses]
            user_mm = found.samples_mm.mean(1) if found.fitted_mm is None else found.fitted_mm
            if found.fitted_mm is not None:
                values.append(self.score_pose(self.aligned(user_mm), truth, mask, most, "fitted"))
            if most > 1 and "mpjpe" in self.errors:
                if at_pelvis and found.r90_mm is not None:  # the radii are of poses that are aligned there
                    radii = found.r90_mm[:, self.columns]
                    hits = calibrated_hits(self.aligned(user_mm), radii, truth, mask)
                    values.append({(most, HYPOTHESES, "calibrated_90"): hits})
                errors = joint_values("mpjpe", poses[:, :most].mean(1, keepdim=True), truth, mask)[0, 0]
                spread = poses[0, :most].var(0).sum(-1).sqrt()
                parts["error_mm"].append(listed(errors.round(decimals=2)))
                parts["spread_mm"].append(listed(spread.round(decimals=2)))
        visibility = self.visibility(sample, patch)
        labelled = bool((visibility == SEEN).any())
        groups = joint_groups(visibility, not labelled and (patch is not None or rest_seen))
        pose = self.aligned(by_seed[0].samples_mm)[0].mean(0)
        result: Json = {"values": self.rows(values, groups), "pose": pose.numpy().round(2).tolist()}
        if patch is not None:
            result["patch"] = [patch.x0, patch.y0, patch.x1, patch.y1]
        if groups:
            result["visibility"] = np.where(known.numpy(), visibility, UNKNOWN).tolist()
            said = by_seed[0].states
            if labelled and said is not None and self.protocol.skeleton == H36M_17:
                result["said"] = [STATES.index(str(state)) for state in said[0][self.columns]]
        return result | ({"joints": parts} if parts["error_mm"] else {})

    def rows(self, values: Sequence[JointValues], groups: dict[str, Bool[np.ndarray, " K"]]) -> list[list]:
        """[hypotheses, estimate, metric, joints, numbers] of one record, over all joints and over each of the groups; a
        number for each of the values with that key. PA errors of a group are after the alignment of all joints."""
        found: dict[Key, tuple[int, list[float | None]]] = {}
        for (count, estimate, metric), joints in (item for each in values for item in each.items()):
            every = {metric: slice(None)} | {
                f"{metric}_{group}": chosen for group, chosen in groups.items() if metric not in SHARES
            }
            for name, chosen in every.items():
                numbers = joints[0].numpy()[chosen]
                numbers = numbers[np.isfinite(numbers)]
                if len(numbers) or name in self.protocol.metrics:
                    row = found.setdefault((count, estimate, name), (len(numbers), []))
                    row[1].append(float(numbers.mean()) if len(numbers) else None)
        return [[*key, *row] for key, row in found.items()]

    def measure_worst(
        self,
        clean: Float[np.ndarray, "1 H J 3"],
        occluded: Float[np.ndarray, "P H J 3"],
        truth: Float[Tensor, "K 3"],
        visible: Bool[Tensor, "P K"],
        hypotheses: Sequence[int],
        known: dict[str, list[int]] | None = None,
    ) -> Json:
        """AdvOcc: errors on the visible joints where MPJPE, PA-MPJPE, and MPJPE over that of the clean picture are the
        greatest. `known`: placements that were found before, for each number of hypotheses."""
        poses, before = self.aligned(occluded), self.aligned(clean).expand(len(occluded), -1, -1, -1)
        target = truth.expand(len(occluded), -1, -1)
        result: Json = {"values": [], "worst_placements": {}}
        for count in hypotheses:
            (errors, pa_errors), (clean_errors, clean_pa_errors) = (
                [
                    joint_values(metric, each[:, :count].mean(1, keepdim=True), target, visible)[:, 0].nanmean(-1)
                    for metric in ("mpjpe", "pa_mpjpe")
                ]
                for each in (poses, before)
            )
            if errors.isnan().all():
                return {"skipped": "no placement leaves a visible joint"}
            criteria = (errors, pa_errors, errors / clean_errors.clamp_min(1e-9))
            greatest = [int(each.nan_to_num(nan=-1.0).argmax()) for each in criteria]
            worst, aligned, relative = greatest if known is None else known[str(count)]
            result["worst_placements"][str(count)] = [worst, aligned, relative]
            figures = {
                "mpjpe": errors[worst],
                "pa_mpjpe": pa_errors[worst],
                "pa_mpjpe_worst": pa_errors[aligned],
                "clean_mpjpe": clean_errors[worst],
                "clean_pa_mpjpe": clean_pa_errors[worst],
                "degradation_mpjpe": errors[worst] - clean_errors[worst],
                "mpjpe_relative": errors[relative],
                "pa_mpjpe_relative": pa_errors[relative],
                "clean_mpjpe_relative": clean_errors[relative],
            }
            name, here = headline(count), slice(worst, worst + 1)
            result["values"] += [[count, name, metric, 1, listed(value[None])] for metric, value in figures.items()]
            every = self.score(poses[here, :count], target[here], visible[here])
            result["values"] += self.rows([{key: each for key, each in every.items() if key[1] == HYPOTHESES}], {})
        result["pose"] = poses[worst, :count].mean(0).numpy().round(2).tolist()
        result["placement_errors_mm"] = listed(errors)
        return result


def listed(values: Tensor | np.ndarray) -> list[float | None]:
    """For JSON: None where not finite."""
    return [float(value) if np.isfinite(value) else None for value in values.tolist()]


def joint_values(
    metric: str, poses: Float[Tensor, "B H K 3"], truth: Float[Tensor, "B K 3"], mask: Bool[Tensor, "B K"]
) -> Float[Tensor, "B H K"]:
    """The metric of every joint: its distance in mm, or PCK or AUC of it alone, in per cent. NaN where a joint does not
    count, or where fewer than three do for a Procrustes alignment: one or two points always fit."""
    shape = poses.shape[:3]
    truth, mask = truth[:, None].expand(poses.shape), mask[:, None].expand(shape)
    if metric in SHARES:
        poses, truth, mask = (each.flatten(0, 2).unsqueeze(1) for each in (poses, truth, mask))
        return 100 * SHARES[metric](poses, truth, mask).unflatten(0, shape)
    poses, truth, mask = (each.flatten(0, 1) for each in (poses, truth, mask))
    if metric == "pa_mpjpe":
        mask = mask & (mask.sum(-1, keepdim=True) >= 3)
        poses = procrustes(poses, truth, mask)
    return torch.where(mask, joint_errors(poses, truth, mask), torch.nan).unflatten(0, shape[:2])


def joint_groups(visibility: Int[np.ndarray, "*n"], rest_seen: bool = False) -> dict[str, Bool[np.ndarray, "*n"]]:
    """The joints of each of GROUPS that has one. `rest_seen`: joints of unknown visibility count as seen."""
    seen = (visibility == SEEN) | (rest_seen & (visibility == UNKNOWN))
    return {name: mask for name, mask in zip(GROUPS, (seen, visibility > SEEN), strict=True) if mask.any()}


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
        return np.asarray(chi2.cdf(scaled, 3))
    return np.asarray(fisher.cdf(scaled / (3 * (1 + 1 / hypotheses)), 3, 3 * (hypotheses - 1)))


def hypothesis_levels(
    poses: Float[Tensor, "B H K 3"], truth: Float[Tensor, "B K 3"], mask: Bool[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """`ball_level` of the truth about the mean of the hypotheses; NaN where a joint does not count, where neither
    hypotheses nor truth vary (at the root), and where all hypotheses of a record are one pose, as a regression's."""
    error, variance = joint_errors(poses.mean(1), truth, mask), poses.var(1).mean(-1)
    fixed = (variance.sqrt() < LEAST_MM) & (error < LEAST_MM)
    varies = (variance > 0).any(-1, keepdim=True)
    level = torch.from_numpy(ball_level(error.numpy(), variance.numpy(), poses.shape[1]))
    return torch.where(mask & ~fixed & varies, level, torch.nan)


def calibrated_hits(
    pose: Float[Tensor, "B K 3"],
    r90_mm: Float[np.ndarray, "B K"],
    truth: Float[Tensor, "B K 3"],
    mask: Bool[Tensor, "B K"],
) -> Float[Tensor, "B K"]:
    """1 where a ball of that radius about the joint holds the truth, else 0; NaN as in `hypothesis_levels`."""
    error, radius = joint_errors(pose, truth, mask), torch.from_numpy(r90_mm)
    fixed = (radius < LEAST_MM) & (error < LEAST_MM)
    return torch.where(mask & ~fixed, (error <= radius).double(), torch.nan)


def true_states(visibility: Int[np.ndarray, "n J"]) -> np.ndarray:
    """(n, J) strings; '' where the visibility is unknown."""
    return np.array(["visible", "occluded", "occluded", "out_of_frame", ""])[visibility]


def confusion(true: np.ndarray, said: np.ndarray) -> Json:
    """`counts`[true][predicted] in the order of STATES, `accuracy`, and `balanced_accuracy`: the mean of the shares
    found of each state that occurs. Both (n, J) strings; joints whose true state is '' do not count."""
    table = np.array([[((true == t) & (said == s)).sum() for s in STATES] for t in STATES])
    if not table.any():
        raise InputError("expected a joint whose state is known, got none")
    occurring = table.sum(1) > 0
    shares = np.diag(table)[occurring] / table.sum(1)[occurring]
    accuracy = float(np.trace(table) / table.sum())
    return {"counts": table.tolist(), "accuracy": accuracy, "balanced_accuracy": float(shares.mean())}
