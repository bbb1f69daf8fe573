"""A glance at a picture by the two networks of the detector: what each is shown, and what it says, in image pixels.

Whatever runs them: a network here is a function of pixels (1, h, w, 3), RGB uint8.  A anchors, P people.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.arrays import to_numpy

BOX_INPUT = 320
"""Pixels a side of what EfficientDet-Lite0 is shown."""
LONG_SIDE, MULTIPLE = 256, 32
"""Of what MultiPose is shown: pixels of the longer side, and what both sides are multiples of."""
Network = Callable[[np.ndarray], Sequence[Any]]


@dataclass(frozen=True)
class Poses:
    """People, those with the clearest centre first; in image pixels."""

    keypoints: Float[np.ndarray, "P 17 3"]
    """x, y, score; COCO order."""
    boxes: Float[np.ndarray, "P 4"]
    """x0, y0, x1, y1; cut at the picture's border."""
    scores: Float[np.ndarray, " P"]


def look_for_boxes(image: Image.Image, network: Network) -> tuple[Float[np.ndarray, "A 4"], Float[np.ndarray, " A"]]:
    """Every anchor's box (x0, y0, x1, y1) and how surely it is a person's, by EfficientDet: (1, A, 4), (1, A)."""
    # The network was trained on pictures that keep their aspect, at the top left of the square.
    scale = BOX_INPUT / max(image.size)
    size = [max(1, round(scale * extent)) for extent in image.size]
    pixels = np.full((1, BOX_INPUT, BOX_INPUT, 3), 127, dtype=np.uint8)
    pixels[0, : size[1], : size[0]] = np.asarray(image.resize((size[0], size[1]), Image.Resampling.BILINEAR))
    boxes, scores = network(pixels)
    stretch = np.array([image.size[0] / size[0], image.size[1] / size[1]] * 2)
    return to_numpy(boxes[0]) * stretch, to_numpy(scores[0])


def look_for_poses(image: Image.Image, network: Network) -> Poses:
    """People with keypoints, sure and unsure ones, by MultiPose: keypoints (P, 17, 3), boxes (P, 4), scores (P,)."""
    scale = LONG_SIDE / max(image.size)
    width, height = (max(1, round(scale * extent)) for extent in image.size)
    shape = [math.ceil(extent / MULTIPLE) * MULTIPLE for extent in (height, width)]
    pixels = np.zeros((1, *shape, 3), dtype=np.uint8)
    pixels[0, :height, :width] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    keypoints, boxes, scores = (to_numpy(each) for each in network(pixels))
    stretch = np.array([image.size[0] / width, image.size[1] / height])
    return Poses(keypoints * [*stretch, 1.0], boxes * np.tile(stretch, 2), scores)
