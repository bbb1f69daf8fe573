"""The crop's focal length as one more token of the feature sequence.  B crops, L tokens, F channels.

An extension of the paper. The same picture of a body means another lean from two metres than from ten: near a camera
what is lower or farther shrinks. A backbone sees pixels only; this token tells it the angle that the crop spans.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from di2pose.errors import InputError

CHANNELS = 2


def with_camera(features: Float[Tensor, "B L F"], focal: Float[Tensor, " B"]) -> Float[Tensor, "B _ _"]:
    """(B, L + 1, F + 2): a last token, in channels of its own, of log focal length and whether it is known.

    `focal` is in pixels over the crop's side in pixels, so 1 spans 53 degrees; NaN is unknown.
    """
    known = focal.isfinite()
    if bool((focal[known] <= 0).any()):
        raise InputError(f"focal lengths must be above 0, got {float(focal[known].min())}")
    features = torch.nn.functional.pad(features, (0, CHANNELS, 0, 1))
    features[:, -1, -2] = torch.where(known, focal, 1.0).log().to(features)
    features[:, -1, -1] = known.to(features)
    return features
