"""EfficientDet-Lite0: boxes of people. A quantised tflite network out of a PyPI package, so pip alone brings it.

A = 19,206 anchors, S some of them.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.assets import fetch
from di2pose.image.crop import fit_inside
from di2pose.image.litert import LitertNetwork, exp

INPUT = 320
"""Pixels a side."""
Boxes = tuple[Float[np.ndarray, "S 4"], Float[np.ndarray, " S"]]
"""x0, y0, x1, y1 in image pixels, and the score of the class person."""


class EfficientDet:
    """Pictures -> `Boxes` of each."""

    def __init__(self) -> None:
        self.network = LitertNetwork(lambda: fetch("efficientdet-lite0"))
        self.anchors = anchors()

    def begin(self, images: Sequence[Image.Image], least: float) -> Callable[[], list[Boxes]]:
        """Start; the returned function waits for the boxes whose score reaches `least`."""
        # The network was trained on pictures that keep their aspect, at the top left of the square.
        pixels = np.full((len(images), INPUT, INPUT, 3), 127, dtype=np.uint8)
        stretches = []
        for row, image in enumerate(images):
            small, stretch = fit_inside(image, INPUT)
            pixels[row, : small.shape[0], : small.shape[1]] = small
            stretches.append(np.array(stretch * 2))
        outputs = self.network.begin(pixels)

        def wait() -> list[Boxes]:
            scores, raw = outputs()
            found = []
            for score, places, stretch in zip(scores[..., 0].astype(np.float64), raw, stretches, strict=True):
                sure = np.flatnonzero(score >= least)
                found.append((decode(places[sure], self.anchors[sure]) * stretch, score[sure]))
            return found

        return wait


def decode(raw: Float[np.ndarray, "S 4"], shapes: Float[np.ndarray, "S 4"]) -> Float[np.ndarray, "S 4"]:
    """The network's output for these anchors -> x0, y0, x1, y1 in input pixels."""
    centre = raw[:, 0:2] * shapes[:, 2:] + shapes[:, :2]
    extent = exp(raw[:, 2:4]) * shapes[:, 2:]
    boxes = np.concatenate([centre - extent / 2, centre + extent / 2], axis=-1)  # y0 x0 y1 x1
    return boxes[:, [1, 0, 3, 2]]


def anchors() -> Float[np.ndarray, "19206 4"]:
    """Centre y, x and height, width in input pixels: levels of 40 to 3 cells a side, rows first, then sizes of 3, 3.8
    and 4.8 strides, each in three ratios of width to height."""
    rows = []
    for cells in (40, 20, 10, 5, 3):
        stride = INPUT / cells
        sizes = [3 * stride * 2 ** (octave / 3) for octave in range(3)]
        shapes = np.array([(size / ratio**0.5, size * ratio**0.5) for size in sizes for ratio in (1.0, 2.0, 0.5)])
        line = (np.arange(cells) + 0.5) * stride
        centres = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 1, 2)
        rows.append(np.concatenate(np.broadcast_arrays(centres, shapes[None]), axis=-1).reshape(-1, 4))
    return np.concatenate(rows).astype(np.float32)
