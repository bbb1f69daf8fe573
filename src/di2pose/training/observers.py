"""Simulated 2D observers of every quality, drawn anew for each crop of a training batch.  B crops, J joints.

The features hold the keypoints of one observer, MoveNet; users bring others, better and worse. In a share of the crops
the limb keypoints are replaced by the true ones with the errors of a drawn observer: noise of 0.5 to 6 % of the body
with heavy tails, joints missing or hallucinated where they are hidden, sides taken for each other. The face keeps
MoveNet's. Tokens are those of `image.movenet.keypoint_tokens`.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from di2pose.errors import InputError
from di2pose.image.movenet import CROP, DOUBT, SURE, SURE_NOISE, TOKEN_CHANNELS
from di2pose.noise import Noise, uniform
from di2pose.pose.skeleton import COCO_17, LIMB_12, Skeleton

LEAST, MOST = 0.005, 0.06
"""Scale of an observer's error over the body's extent, drawn evenly in the logarithm."""
FARTHEST = 5.0
"""Errors are cut here, in scales."""
FACTOR = (1.0, 1.5, 4.0, 1.0)
"""Of the error of a joint that is seen, hidden by the body itself, hidden by something else, out of the frame."""
MISSING = (0.0, 0.0, 0.5, 1.0)
"""Least share of such joints that are missing; an observer misses up to 40 % of the others at random."""
SWAPPED = 0.04
"""Share of the crops in which the arms, and as many in which the legs, are taken for those of the other side."""
HONEST = 0.08
"""Error, over the body's extent, at which an observer that knows its errors scores a keypoint by 1 / e."""
LIMBS = list(COCO_17.indices(*LIMB_12))
ARM = torch.tensor([name.endswith(("shoulder", "elbow", "wrist")) for name in LIMB_12])
OTHER_SIDE = [LIMBS.index(COCO_17.mirror_order[joint]) for joint in LIMBS]


def observed(batch: dict[str, Tensor], config: Any, noise: Noise) -> dict[str, Tensor]:
    """A training batch as the observers that its configuration asks for see it; the same where it asks for none."""
    trunk = getattr(config, "denoiser", None)  # of a model with a tokenizer
    share = 0.0 if trunk is None else trunk.simulated_observers
    if not share or "joints_2d" not in batch:
        return batch
    labels = batch["joints_2d"], batch["visibility"], config.skeleton
    return batch | {"features": with_simulated_observers(batch["features"], *labels, share, noise)}


def with_simulated_observers(
    features: Float[Tensor, "B L F"],
    joints_2d: Float[Tensor, "B J 2"],
    visibility: Int[Tensor, "B J"],
    skeleton: Skeleton,
    share: float,
    noise: Noise,
) -> Float[Tensor, "B L F"]:
    """Features whose last tokens are, in a share of the crops, those of a simulated observer.

    joints_2d: true joints in crop pixels, NaN where they are not known: their tokens stay as they are
    """
    if features.shape[1] < COCO_17.count or features.shape[2] < TOKEN_CHANNELS:
        raise InputError("observers are simulated in features that end with MoveNet's 17 tokens (+movenet)")
    joints = list(skeleton.indices(*LIMB_12))
    points, state = joints_2d[:, joints], visibility[:, joints].clamp(0, 3)              # B 12 2, B 12
    row = uniform((len(features), 6), noise, features.device)                            # B 6
    each = uniform((len(features), 12, 4), noise, features.device).clamp(1e-4, 1 - 1e-4)  # B 12 4

    extent = points.nan_to_num(-torch.inf).amax(1) - points.nan_to_num(torch.inf).amin(1)  # B 2
    body = extent.amax(-1, keepdim=True).clamp(16, 4 * CROP)                             # B 1
    scale = body * LEAST * (MOST / LEAST) ** row[:, :1]                                  # B 1
    u = each[..., :2]
    student = ((2 * u - 1) / (2 * u * (1 - u)).sqrt()).clamp(-FARTHEST, FARTHEST)        # B 12 2, of 2 degrees
    error = student * (scale * torch.tensor(FACTOR).to(scale)[state]).unsqueeze(-1)      # B 12 2
    arms, legs = ((row[:, k : k + 1] < SWAPPED) for k in (1, 2))                         # B 1
    swapped = torch.where(ARM.to(arms.device), arms, legs).unsqueeze(-1)                 # B 12 1
    places = torch.where(swapped, points[:, OTHER_SIDE], points) + error                 # B 12 2
    often = torch.maximum(0.4 * row[:, 3:4] ** 3, torch.tensor(MISSING).to(scale)[state])  # B 12
    # Half of the observers know how wrong they are; the others are always fairly sure.
    known = (-error.norm(dim=-1) / body / HONEST).exp() - 0.3 * (state == 2) + 0.3 * (each[..., 3] - 0.5)  # B 12
    score = torch.where(row[:, 4:5] < 0.5, known, 0.75 + 0.25 * each[..., 3]).clamp(0.05, 1)  # B 12
    spread = 2 * SURE_NOISE * (DOUBT * (SURE - score).clamp_min(0) ** 2).exp()           # B 12, over half the crop
    new = torch.stack([*(places * 2 / CROP - 1).unbind(-1), spread, spread, score, 0 * score], dim=-1)  # B 12 6
    new = torch.where((each[..., 2] < often).unsqueeze(-1), torch.nan, new)
    chosen = (row[:, 5:] < share) & points.isfinite().all(-1)                            # B 12
    features, first = features.clone(), features.shape[1] - COCO_17.count
    tokens = features[:, first:, -TOKEN_CHANNELS:]
    tokens[:, LIMBS] = torch.where(chosen.unsqueeze(-1), new, tokens[:, LIMBS])
    return features
