"""A glance at a picture by the two networks of the detector: what each is shown, and what it says, in image pixels.

Whatever runs them: a network here is a function of pixels (B, h, w, 3), RGB uint8, that begins to look at them, beside
other work where the runtime can do so, and gives what waits for the answer.  B pictures, A anchors, P people.
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
Network = Callable[[np.ndarray], Callable[[], Sequence[Any]]]
Boxes = tuple[Float[np.ndarray, "A 4"], Float[np.ndarray, " A"]]
"""Of every anchor x0, y0, x1, y1 in image pixels, and how surely it is a person's."""


@dataclass(frozen=True)
class Poses:
    """People, those with the clearest centre first; in image pixels."""

    keypoints: Float[np.ndarray, "P 17 3"]
    """x, y, score; COCO order."""
    boxes: Float[np.ndarray, "P 4"]
    """x0, y0, x1, y1; cut at the picture's border."""
    scores: Float[np.ndarray, " P"]


def look_for_boxes(images: Sequence[Image.Image], network: Network) -> Callable[[], list[Boxes]]:
    """Begin to look for people with EfficientDet, whose answer is boxes (B, A, 4) and scores (B, A)."""
    # The network was trained on pictures that keep their aspect, at the top left of the square.
    pixels = np.full((len(images), BOX_INPUT, BOX_INPUT, 3), 127, dtype=np.uint8)
    stretches = []
    for row, image in enumerate(images):
        scale = BOX_INPUT / max(image.size)
        width, height = (max(1, round(scale * extent)) for extent in image.size)
        pixels[row, :height, :width] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        stretches.append(np.array([image.width / width, image.height / height] * 2))
    asked = network(pixels)

    def found() -> list[Boxes]:
        boxes, scores = (to_numpy(each) for each in asked())
        return [(box * stretch, score) for box, score, stretch in zip(boxes, scores, stretches, strict=True)]

    return found


def look_for_poses(image: Image.Image, network: Network) -> Callable[[], Poses]:
    """Begin to look for people with keypoints, sure and unsure ones, with MultiPose, whose answer is keypoints
    (P, 17, 3), boxes (P, 4) and scores (P,)."""
    scale = LONG_SIDE / max(image.size)
    width, height = (max(1, round(scale * extent)) for extent in image.size)
    shape = [math.ceil(extent / MULTIPLE) * MULTIPLE for extent in (height, width)]
    pixels = np.zeros((1, *shape, 3), dtype=np.uint8)
    pixels[0, :height, :width] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    asked = network(pixels)
    stretch = np.array([image.size[0] / width, image.size[1] / height])

    def found() -> Poses:
        keypoints, boxes, scores = (to_numpy(each) for each in asked())
        return Poses(keypoints * [*stretch, 1.0], boxes * np.tile(stretch, 2), scores)

    return found
