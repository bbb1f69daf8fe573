"""Several hypotheses for one pose, (B, H, J, 3), mixed into one."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from di2pose.errors import InputError
from di2pose.pose.camera import Camera, fit_root


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
