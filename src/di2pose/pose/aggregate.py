"""Several hypotheses for one pose, (B, H, J, 3): one pose from them, their spread, and the four usual errors.

The names are D3DP's, but two things differ on purpose. P-Best takes the best hypothesis of every pose; D3DP takes the
best hypothesis index of a whole batch, which is coarser and depends on the batch. The Procrustes version (`pa=True`) of
an aggregate aligns the aggregated pose, as for any single pose; D3DP aligns every hypothesis to the truth first.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from di2pose.errors import InputError
from di2pose.pose.camera import Camera, fit_root
from di2pose.pose.metrics import Root, joint_errors, mpjpe, pa_mpjpe, procrustes

ORACLE: dict[str, bool] = {"p_best": True, "j_best": True, "p_agg": False, "j_agg": False}
"""Which errors choose by the truth: those are upper bounds of what a user can get, and must be labelled so."""


def mean_pose(hypotheses_mm: Float[Tensor, "B H J 3"]) -> Float[Tensor, "B J 3"]:
    """The mean over the hypotheses."""
    _check(hypotheses_mm)
    return hypotheses_mm.mean(1)


def covariance(hypotheses_mm: Float[Tensor, "B H J 3"]) -> Float[Tensor, "B J 3 3"]:
    """The unbiased 3x3 covariance of every joint over the hypotheses, mm^2."""
    _check(hypotheses_mm)
    count = hypotheses_mm.shape[1]
    if count < 2:
        raise InputError("a spread needs at least 2 hypotheses per pose, got 1; sample more")
    centred = (hypotheses_mm - hypotheses_mm.mean(1, keepdim=True)).transpose(1, 2)
    return centred.mT @ centred / (count - 1)


def reprojected_pose(
    hypotheses_mm: Float[Tensor, "B H J 3"],
    joints_2d: Float[Tensor, "B J 2"],
    cameras: Sequence[Camera],
    root_mm: Float[Tensor, "B 3"] | None = None,
) -> Float[Tensor, "B J 3"]:
    """For every joint the hypothesis that projects nearest to the given 2D joint (the pose behind J-Agg).

    `root_mm` is where the root lies before the camera. None fits it to the 2D joints for each hypothesis, without the
    truth; D3DP passes the true root, which is then an oracle. The same goes for true 2D joints. A joint without a
    finite 2D position takes the mean of the hypotheses.
    """
    _check(hypotheses_mm)
    batch, count, joints, _ = hypotheses_mm.shape
    if tuple(joints_2d.shape) != (batch, joints, 2) or len(cameras) != batch:
        raise InputError(
            f"{batch} poses of {joints} joints need 2D joints ({batch}, {joints}, 2) and {batch} cameras, "
            f"got {tuple(joints_2d.shape)} and {len(cameras)}"
        )
    rows = []
    for pose in range(batch):
        given, candidates = joints_2d[pose].double(), hypotheses_mm[pose].double()
        if root_mm is not None:
            root = root_mm[pose].double().expand(count, 3)
        else:
            fitted = fit_root(candidates.detach().cpu().numpy(), given.cpu().numpy(), cameras[pose])
            root = torch.from_numpy(fitted).to(candidates.device)
        px = cameras[pose].project(candidates + root[:, None])
        miss = torch.linalg.vector_norm(px - given, dim=-1).nan_to_num(nan=torch.inf)  # H J; inf behind the camera
        best = hypotheses_mm[pose].gather(0, miss.argmin(0)[None, :, None].expand(1, joints, 3))[0]
        rows.append(torch.where(miss.isfinite().any(0)[:, None], best, hypotheses_mm[pose].mean(0)))
    return torch.stack(rows)


def p_best(
    hypotheses_mm: Float[Tensor, "B H J 3"],
    target_mm: Float[Tensor, "B J 3"],
    mask: Bool[Tensor, "B J"] | None = None,
    root: Root = None,
    pa: bool = False,
) -> Float[Tensor, " B"]:
    """Error of the best hypothesis of every pose. An oracle."""
    flat, targets, masks = _spread_out(hypotheses_mm, target_mm, mask)
    errors = pa_mpjpe(flat, targets, masks) if pa else mpjpe(flat, targets, masks, root)
    return errors.unflatten(0, hypotheses_mm.shape[:2]).amin(1)


def p_agg(
    hypotheses_mm: Float[Tensor, "B H J 3"],
    target_mm: Float[Tensor, "B J 3"],
    mask: Bool[Tensor, "B J"] | None = None,
    root: Root = None,
    pa: bool = False,
) -> Float[Tensor, " B"]:
    """Error of the mean pose."""
    pose = mean_pose(hypotheses_mm)
    return pa_mpjpe(pose, target_mm, mask) if pa else mpjpe(pose, target_mm, mask, root)


def j_best(
    hypotheses_mm: Float[Tensor, "B H J 3"],
    target_mm: Float[Tensor, "B J 3"],
    mask: Bool[Tensor, "B J"] | None = None,
    root: Root = None,
    pa: bool = False,
) -> Float[Tensor, " B"]:
    """Mean over the joints of the best hypothesis of every joint. An oracle, and no single pose attains it."""
    flat, targets, masks = _spread_out(hypotheses_mm, target_mm, mask)
    if pa:
        # Where the Procrustes error is undefined (fewer than 3 joints) so is this one.
        undefined = pa_mpjpe(flat, targets, masks).isnan()[:, None]
        flat = procrustes(flat, targets, masks)
        errors = torch.where(undefined, torch.nan, joint_errors(flat, targets, masks))
    else:
        errors = joint_errors(flat, targets, masks, root)
    best = errors.unflatten(0, hypotheses_mm.shape[:2]).amin(1)  # B J
    if mask is None:
        return best.mean(-1)
    return best.sum(-1) / mask.sum(-1)  # masked joints are 0; 0 / 0 is NaN, as in the metrics


def j_agg(
    hypotheses_mm: Float[Tensor, "B H J 3"],
    target_mm: Float[Tensor, "B J 3"],
    joints_2d: Float[Tensor, "B J 2"],
    cameras: Sequence[Camera],
    root_mm: Float[Tensor, "B 3"] | None = None,
    mask: Bool[Tensor, "B J"] | None = None,
    root: Root = None,
    pa: bool = False,
) -> Float[Tensor, " B"]:
    """Error of `reprojected_pose`. Not an oracle as long as the 2D joints and the root are not the truth."""
    pose = reprojected_pose(hypotheses_mm, joints_2d, cameras, root_mm)
    return pa_mpjpe(pose, target_mm, mask) if pa else mpjpe(pose, target_mm, mask, root)


def _spread_out(hypotheses: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Hypotheses as B*H single poses, with the target and mask of each."""
    _check(hypotheses)
    batch, count, joints, _ = hypotheses.shape
    if tuple(target.shape) != (batch, joints, 3):
        raise InputError(
            f"hypotheses {tuple(hypotheses.shape)} need a target {(batch, joints, 3)}, got {tuple(target.shape)}"
        )
    masks = None if mask is None else mask.repeat_interleave(count, dim=0)
    return hypotheses.flatten(0, 1), target.repeat_interleave(count, dim=0), masks


def _check(hypotheses: Tensor) -> None:
    if hypotheses.ndim != 4 or hypotheses.shape[-1] != 3 or hypotheses.shape[1] < 1:
        raise InputError(
            f"hypotheses must be (B, H, J, 3) with H >= 1, got {tuple(hypotheses.shape)}; "
            "a single pose per image is (B, 1, J, 3)"
        )
