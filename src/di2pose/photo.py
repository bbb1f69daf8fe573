"""Photo in, people out: what happens round the model.  B crops, H hypotheses, N tokens, L image tokens of width F."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor

from di2pose.calibration import Calibration
from di2pose.image.detect import Detection
from di2pose.pose.camera import Camera
from di2pose.result import Person

Box = tuple[float, float, float, float]


class View(NamedTuple):
    """One person to look at."""

    picture: Image.Image
    """The whole picture: upright RGB."""
    detection: Detection
    camera: Camera
    hidden: tuple[Box, ...] = ()
    """Boxes in picture pixels whose content is not to be looked at; painted grey before the crop."""


class Seen(NamedTuple):
    """What the encoder saw in B views, one pass each."""

    views: list[View]
    features: Float[Tensor, "B L F"]
    landmarks_2d: Float[Tensor, "B 33 2"]
    """Pixels of the 256x256 crop: `view.detection.roi.to_image` takes them into the picture."""
    landmark_visibility: Float[Tensor, "B 33"]
    person: Float[Tensor, " B"]
    """Probability that somebody is in the crop."""


class Estimate(NamedTuple):
    """What the model makes of B views."""

    tokens: Int[Tensor, "B H N"]
    samples_mm: Float[np.ndarray, "B H 17 3"]
    """Camera axes, root-relative."""
    visibility: Float[np.ndarray, "B 17 4"]
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""


def people_of(
    seen: Seen, estimate: Estimate, calibration: Calibration | None, height_m: float | None = None
) -> list[Person]:
    """A person for each view, in the views' order."""
    raise NotImplementedError
