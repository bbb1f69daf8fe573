"""Errors between poses in millimetres: a batch (B, J, 3) -> one number per pose, (B,).

A mask (B, J) is True where a joint counts; other joints may hold anything, also NaN. The error of a pose without a
counting joint is NaN. Also the pose that several hypotheses are mixed into for the metric J-Agg.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from di2pose.errors import InputError
from di2pose.pose.camera import Camera, fit_root

Poses = Float[Tensor, "B J 3"]
Mask = Bool[Tensor, "B J"] | None
Root = int | tuple[int, ...] | None
Errors = Float[Tensor, " B"]


def mpjpe(pred_mm: Poses, target_mm: Poses, mask: Mask = None, root: Root = None) -> Errors:
    """Mean distance of the joints. Human3.6M's protocol 1 is this with `root` = the pelvis.

    `root`: None leaves both poses where they are; a joint index, or a tuple of joints whose mean it is, moves that
    point of both poses to the origin first (also where those joints are masked).
    """
    return _mean(joint_errors(pred_mm, target_mm, mask, root), _counting(pred_mm, mask))


def pa_mpjpe(pred_mm: Poses, target_mm: Poses, mask: Mask = None) -> Errors:
    """MPJPE after `procrustes` (Human3.6M's protocol 2), fitted and measured on the unmasked joints only; NaN for fewer
    than three of them, which always fit. Procrustes minimises squares, so PA-MPJPE can exceed MPJPE.
    """
    pred_mm, target_mm = _check(pred_mm, target_mm, mask)
    counting = _counting(pred_mm, mask)
    counting = counting & (counting.sum(-1, keepdim=True) >= 3)
    # Masked joints are zeroed before the fit, since 0 * NaN in its backward pass would spoil the whole gradient.
    pred_mm = torch.where(counting[..., None], pred_mm, 0.0)
    return _mean(joint_errors(procrustes(pred_mm, target_mm, counting), target_mm, counting), counting)


def procrustes(pred_mm: Poses, target_mm: Poses, mask: Mask = None) -> Poses:
    """`pred` under the similarity (scale, rotation, translation) that brings it nearest to `target` in least squares.

    Fitted on the unmasked joints, applied to all. Never a mirror image: where the best orthogonal matrix is a
    reflection, the axis of the smallest singular value is inverted (Umeyama 1991).
    """
    pred_mm, target_mm = _check(pred_mm, target_mm, mask)
    weight = _counting(pred_mm, mask)[..., None]  # B J 1
    count = weight.sum(1, keepdim=True).clamp(min=1)  # B 1 1
    pred_mean = torch.where(weight, pred_mm, 0.0).sum(1, keepdim=True) / count  # B 1 3
    target_mean = torch.where(weight, target_mm, 0.0).sum(1, keepdim=True) / count  # B 1 3
    pred = torch.where(weight, pred_mm - pred_mean, 0.0)  # B J 3
    target = torch.where(weight, target_mm - target_mean, 0.0)  # B J 3
    rotation, scale = similarity(pred, target)
    return scale[:, None, None] * (pred_mm - pred_mean) @ rotation + target_mean


def similarity(pred: Poses, target: Poses) -> tuple[Float[Tensor, "B 3 3"], Errors]:
    """Rotation (for row vectors) and scale of `procrustes`, between poses whose mean is 0."""
    cross = pred.mT @ target  # B 3 3
    # The SVD refuses a whole batch for one pose with NaN; that pose still ends as NaN through its mean.
    finite = cross.isfinite().all(-1).all(-1)[:, None, None]
    u, s, vh = torch.linalg.svd(torch.where(finite, cross, 0.0))  # B 3 3, B 3, B 3 3
    sign = torch.ones_like(s)
    sign[..., 2] = torch.sign(torch.linalg.det(u.detach()) * torch.linalg.det(vh.detach()))
    rotation = (u * sign[:, None, :]) @ vh  # B 3 3, for row vectors
    tiny = torch.finfo(pred.dtype).tiny
    scale = (s * sign).sum(-1) / pred.square().sum((1, 2)).clamp(min=tiny)  # B, 0 where pred is one point
    return rotation, scale


def pck(pred_mm: Poses, target_mm: Poses, mask: Mask = None, root: Root = None, threshold_mm: float = 150.0) -> Errors:
    """Share (0 to 1) of the unmasked joints whose error is strictly below the threshold, as MPI-INF-3DHP counts."""
    errors = joint_errors(pred_mm, target_mm, mask, root)
    return _mean((errors < threshold_mm).to(errors.dtype), _counting(pred_mm, mask))


def auc(pred_mm: Poses, target_mm: Poses, mask: Mask = None, root: Root = None) -> Errors:
    """Mean PCK over the thresholds 0, 5, ..., 150 mm. 0 is one, as in MPI-INF-3DHP's own script: the best is 30/31."""
    errors = joint_errors(pred_mm, target_mm, mask, root)
    thresholds = torch.arange(0, 151, 5, dtype=errors.dtype, device=errors.device)
    return _mean((errors[..., None] < thresholds).to(errors.dtype).mean(-1), _counting(pred_mm, mask))


def joint_errors(pred_mm: Poses, target_mm: Poses, mask: Mask = None, root: Root = None) -> Float[Tensor, "B J"]:
    """Distance of every joint, (B, J), after the root alignment of `mpjpe`; 0 where masked."""
    pred_mm, target_mm = _check(pred_mm, target_mm, mask)
    difference = pred_mm - target_mm
    if root is not None:
        difference = difference - difference[:, _root(root, pred_mm.shape[1])].mean(1, keepdim=True)
    if mask is not None:
        difference = torch.where(mask[..., None], difference, 0.0)
    return torch.linalg.vector_norm(difference, dim=-1)


def reprojected_pose(
    hypotheses_mm: Float[Tensor, "B H J 3"],
    joints_2d: Float[Tensor, "B J 2"],
    cameras: Sequence[Camera],
    root_mm: Float[Tensor, "B 3"] | None = None,
) -> Float[Tensor, "B J 3"]:
    """For every joint the hypothesis that projects nearest to the given 2D joint (the pose behind J-Agg).

    `root_mm`: the root in the camera frame (D3DP passes the true one, an oracle); None: fitted to the 2D joints for
    each hypothesis. A joint without a finite 2D position takes the mean of the hypotheses.
    """
    count, joints = hypotheses_mm.shape[1:3]
    rows = []
    for pose, camera in enumerate(cameras):
        given, candidates = joints_2d[pose].double(), hypotheses_mm[pose].double()
        if root_mm is not None:
            root = root_mm[pose].double().expand(count, 3)
        else:
            fitted = fit_root(candidates.detach().cpu().numpy(), given.cpu().numpy(), camera)
            root = torch.from_numpy(fitted).to(candidates.device)
        px = camera.project(candidates + root[:, None])
        miss = torch.linalg.vector_norm(px - given, dim=-1).nan_to_num(nan=torch.inf)  # H J; inf behind the camera
        best = hypotheses_mm[pose].gather(0, miss.argmin(0)[None, :, None].expand(1, joints, 3))[0]
        rows.append(torch.where(miss.isfinite().any(0)[:, None], best, hypotheses_mm[pose].mean(0)))
    return torch.stack(rows)


def _root(root: int | tuple[int, ...], joints: int) -> list[int]:
    indices = [root] if isinstance(root, int) else list(root)
    if not indices or not all(0 <= index < joints for index in indices):
        raise InputError(f"root must be a joint index, or a tuple of them, from 0 to {joints - 1}; got {root}")
    return indices


def _counting(pose: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(pose.shape[:2], dtype=torch.bool, device=pose.device) if mask is None else mask


def _mean(values: Tensor, counting: Tensor) -> Tensor:
    """Mean over the last axis of the counting values (the others are 0 or ignored); NaN where nothing counts."""
    count = counting.sum(-1)
    total = torch.where(counting, values, 0.0).sum(-1)
    return torch.where(count > 0, total / count.clamp(min=1), torch.nan)


def _check(pred: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both poses in one precision, at least float32; an InputError where the shapes do not belong together."""
    if pred.ndim != 3 or pred.shape[-1] != 3 or pred.shape != target.shape:
        raise InputError(
            f"prediction and target must both be (B, J, 3), got {tuple(pred.shape)} and {tuple(target.shape)}"
        )
    if not pred.is_floating_point() or not target.is_floating_point():
        raise InputError(f"poses must be floating point, in mm; got {pred.dtype} and {target.dtype}")
    if mask is not None and (mask.shape != pred.shape[:2] or mask.dtype != torch.bool):
        raise InputError(
            f"the mask must be bool of shape {tuple(pred.shape[:2])}, True where a joint counts; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(pred.dtype, target.dtype), torch.float32)
    return pred.to(dtype), target.to(dtype)
