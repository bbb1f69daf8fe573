"""Simulated 2D observers of every quality, drawn anew for each crop of a batch.  B crops, COCO's 17 keypoints.

What the encoder saw comes from one observer, MoveNet; users bring others, better and worse. For a part of the crops the
limb keypoints of the observer's tokens are replaced by the true ones with the errors of a drawn observer: noise of 0.5
to 6 % of the body, heavy tails, joints missing or hallucinated where they are hidden, sides taken for each other. The
face keeps MoveNet's keypoints. Tokens are those of `image.movenet.keypoint_tokens`.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from di2pose.image.movenet import CROP
from di2pose.noise import Noise, uniform
from di2pose.pipeline.observations import DOUBT, SURE, SURE_NOISE
from di2pose.pose.skeleton import COCO_17, LIMB_12

SHARE = 0.5
"""Of the crops that a simulated observer sees."""
LEAST, MOST = 0.005, 0.06
"""Scale of an observer's error over the body's extent, drawn evenly in the logarithm."""
MISSING, HALLUCINATED = 0.5, 4.0
"""Share of the hidden joints that are missing, and how much farther off the others are."""
SWAPPED = 0.04
"""Share of the crops in which the arms, and as many in which the legs, are taken for those of the other side."""
FARTHEST = 5.0
"""Errors are cut here, in scales."""
LIMBS = list(COCO_17.indices(*LIMB_12))
ARMS, LEGS = ([j for j in LIMBS if COCO_17.joints[j].endswith(names)] for names in (
    ("shoulder", "elbow", "wrist"), ("hip", "knee", "ankle")))  # fmt: skip
MIRROR = torch.tensor(COCO_17.mirror_order)


def simulated_tokens(
    tokens: Float[Tensor, "B 17 6"],
    points: Float[Tensor, "B 17 2"],
    hidden: Bool[Tensor, "B 17"],
    outside: Bool[Tensor, "B 17"],
    noise: Noise,
) -> Float[Tensor, "B 17 6"]:
    """Tokens of which SHARE are of a simulated observer.

    points: true limb keypoints in crop pixels, NaN for the others
    """
    row = uniform((len(tokens), 6), noise, tokens.device)
    each = uniform((len(tokens), 17, 5), noise, tokens.device).clamp(1e-4, 1 - 1e-4)
    known = points.isfinite().all(-1)                                                    # B 17
    extent = points.nan_to_num(-torch.inf).amax(1) - points.nan_to_num(torch.inf).amin(1)  # B 2
    body = extent.amax(-1).clamp(16, 4 * CROP)                                           # B
    scale = body * LEAST * (MOST / LEAST) ** row[:, 0]                                   # B
    u = each[..., :2]
    error = ((2 * u - 1) / (2 * u * (1 - u)).sqrt()).clamp(-FARTHEST, FARTHEST)          # B 17 2, Student's t, 2 degrees
    error = error * torch.where(hidden, HALLUCINATED, 1.0)[..., None]
    points = points.clone()
    for part, draw in ((ARMS, row[:, 1]), (LEGS, row[:, 2])):
        points[:, part] = torch.where((draw < SWAPPED)[:, None, None], points[:, MIRROR][:, part], points[:, part])
    places = points + scale[:, None, None] * error
    often = 0.4 * row[:, 3] ** 3                                                         # B, of a seen joint missing
    missing = outside | (each[..., 2] < torch.where(hidden, MISSING, often[:, None]))
    # Half of the observers know how wrong they are; the others are always fairly sure.
    relative = scale[:, None] * error.norm(dim=-1) / body[:, None]                       # B 17
    honest = (-relative / 0.08).exp() - 0.3 * hidden + 0.3 * (each[..., 3] - 0.5)
    score = torch.where(row[:, 4:5] < 0.5, honest, 0.75 + 0.25 * each[..., 3]).clamp(0.05, 1)
    spread = 2 * SURE_NOISE * (DOUBT * (SURE - score).clamp_min(0) ** 2).exp()           # over half the crop
    half = CROP / 2
    new = torch.stack([*(places / half - 1).unbind(-1), spread, spread, score, 0 * score], dim=-1)
    new = torch.where(missing[..., None], torch.nan, new)
    chosen = (row[:, 5] < SHARE)[:, None] & known
    return torch.where(chosen[..., None], new, tokens)
