"""EfficientDet-Lite0: boxes of people. A quantised tflite network out of a PyPI package, so pip alone brings it.

B pictures, A = 19,206 anchors.
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
Boxes = tuple[Float[np.ndarray, "A 4"], Float[np.ndarray, " A"]]
"""x0, y0, x1, y1 of every anchor in image pixels, and its score of the class person."""


class EfficientDet:
    """A picture -> `Boxes`."""

    def __init__(self) -> None:
        self.network = LitertNetwork(lambda: fetch("efficientdet-lite0"))
        self.anchors = anchors()

    def __call__(self, image: Image.Image) -> Boxes:
        return self.begin([image])()[0]

    def begin(self, images: Sequence[Image.Image]) -> Callable[[], list[Boxes]]:
        """Start; the returned function waits for the boxes of each picture."""
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
            boxes = [box * stretch for box, stretch in zip(self.decode(raw), stretches, strict=True)]
            return list(zip(boxes, scores[..., 0].astype(np.float64), strict=True))

        return wait

    def decode(self, raw: Float[np.ndarray, "B A 4"]) -> Float[np.ndarray, "B A 4"]:
        """The network's output -> x0, y0, x1, y1 in input pixels."""
        centre = raw[..., 0:2] * self.anchors[:, 2:] + self.anchors[:, :2]
        extent = exp(raw[..., 2:4]) * self.anchors[:, 2:]
        boxes = np.concatenate([centre - extent / 2, centre + extent / 2], axis=-1)  # y0 x0 y1 x1
        return boxes[..., [1, 0, 3, 2]]


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
