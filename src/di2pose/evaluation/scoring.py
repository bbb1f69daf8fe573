"""Errors of one protocol: poses of any skeleton are brought to the protocol's joints and root, then measured.

Values are keyed 'H/estimate/metric', e.g. '8/p-agg/pa_mpjpe'. With one hypothesis the estimate is 'single'. With more:
'p-agg' the mean pose; 'p-best' the best hypothesis per pose; 'j-best' the best per joint; 'j-agg' per joint the
hypothesis that projects nearest to the ANNOTATED 2D joint. The last three choose by the truth: oracles, bounds of what
a user could get.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.protocol import PROTOCOLS, Protocol
from di2pose.pose import aggregate
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import Skeleton, convert

ORACLE = {"single": False, "p-agg": False, "p-best": True, "j-best": True, "j-agg": True}
"""Does the estimate use the truth to choose? (j-agg does here, because its 2D joints are annotations.)"""


def headline(hypotheses: int) -> str:
    """The estimate that a user could have: the sample itself, or the mean of the samples."""
    return "single" if hypotheses == 1 else "p-agg"


class Scorer:
    """Measures predictions on one skeleton against records on another, under one protocol."""

    def __init__(self, protocol: Protocol, truth: Skeleton, prediction: Skeleton) -> None:
        self.protocol, self.truth_skeleton, self.prediction_skeleton = protocol, truth, prediction
        self.columns = list(protocol.skeleton.indices(*protocol.joints))
        for whose, skeleton in (("the dataset", truth), ("the prediction", prediction)):
            _, known = convert(np.zeros((skeleton.count, 3)), skeleton, protocol.skeleton)
            missing = [name for name, j in zip(protocol.joints, self.columns, strict=True) if not known[j]]
            if missing:
                base = protocol.id.removesuffix("-smpl14")
                others = [name for name in PROTOCOLS if name.startswith(f"{base}-")] or ["limb-12"]
                raise InputError(
                    f"protocol {protocol.id} needs {', '.join(missing)}, which {whose} ({skeleton.name}) lacks; other "
                    f" joint sets have their own protocols: {', '.join(others)}"
                )

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

    def prediction(self, joints_mm: Float[np.ndarray, "B H J 3"]) -> Float[Tensor, "B H K 3"]:
        """Predicted hypotheses at the protocol's joints and root."""
        return torch.from_numpy(self._aligned(joints_mm.astype(np.float64), self.prediction_skeleton))

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
    ) -> dict[str, Float[Tensor, " B"]]:
        """'H/estimate/metric' -> error in mm of every row, for the first `hypotheses` of the prediction."""
        poses = prediction[:, :hypotheses]
        values = {}
        for metric in self.protocol.metrics:
            pa = metric == "pa_mpjpe"
            values[f"{hypotheses}/{headline(hypotheses)}/{metric}"] = aggregate.p_agg(poses, truth, mask, pa=pa)
            if hypotheses > 1:
                values[f"{hypotheses}/p-best/{metric}"] = aggregate.p_best(poses, truth, mask, pa=pa)
                values[f"{hypotheses}/j-best/{metric}"] = aggregate.j_best(poses, truth, mask, pa=pa)
        return values

    def score_reprojected(
        self,
        prediction: Float[Tensor, "B H K 3"],
        truth: Float[Tensor, "B K 3"],
        mask: Bool[Tensor, "B K"],
        hypotheses: int,
        samples: Sequence[Sample],
    ) -> list[dict[str, float]]:
        """J-Agg per row; empty for records without 2D joints or camera."""
        rows: list[dict[str, float]] = []
        for row, sample in enumerate(samples):
            rows.append({})
            if hypotheses == 1 or sample.joints_2d is None or sample.camera is None:
                continue
            points = torch.from_numpy(self.points(sample))
            if int(points.isfinite().all(-1).sum()) < 3:
                continue
            pose = aggregate.reprojected_pose(prediction[row : row + 1, :hypotheses], points[None], [sample.camera])
            for metric in self.protocol.metrics:
                measure = pa_mpjpe if metric == "pa_mpjpe" else mpjpe
                error = measure(pose, truth[row : row + 1], mask[row : row + 1])
                rows[-1][f"{hypotheses}/j-agg/{metric}"] = float(error)
        return rows
