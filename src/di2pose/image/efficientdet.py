"""EfficientDet-Lite0: boxes of people. A quantised tflite network out of a PyPI package, so pip alone brings it.

B pictures, A = 19,206 anchors. In Google's runtime or in PyTorch: the same boxes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from di2pose.assets import fetch
from di2pose.image.glance import BOX_INPUT, Boxes, look_for_boxes
from di2pose.image.kept_network import kept
from di2pose.image.litert import LitertGraph, begin

if TYPE_CHECKING:
    from di2pose.image.tflite_file import TfliteFile

_ASSET = "efficientdet-lite0"
_SCORES, _BOXES = "StatefulPartitionedCall:1", "StatefulPartitionedCall:0"


class EfficientDet(nn.Module):
    """`look(image)` gives every anchor's box in image pixels (x0, y0, x1, y1) and how surely it is a person's."""

    anchors: Tensor

    def __init__(self, runtime: Literal["torch", "litert"] = "litert") -> None:
        super().__init__()
        self.runtime = runtime
        self.graph: nn.Module
        if self.runtime == "litert":
            self.graph = LitertGraph(lambda: kept(_ASSET, "cut", [_ASSET], _cut))
        else:
            from di2pose.image.tflite_graph import TfliteGraph

            self.graph = TfliteGraph(*_read())
        self.register_buffer("anchors", anchors(), persistent=False)

    def look(self, image: Image.Image) -> Boxes:
        return self.begin([image])()[0]

    @torch.inference_mode()
    def begin(self, images: Sequence[Image.Image]) -> Callable[[], list[Boxes]]:
        """Begin to look at pictures, where the runtime can do so beside other work; the boxes are waited for."""
        return look_for_boxes(images, self._ask)

    def _ask(self, pixels: UInt8[np.ndarray, "B 320 320 3"]) -> Callable[[], tuple[Tensor, Tensor]]:
        asked = begin(self.graph, self._input(torch.from_numpy(pixels)))
        return torch.inference_mode()(lambda: self._decode(*asked()))

    def forward(
        self, pixels: UInt8[Tensor, "B 320 320 3"]
    ) -> tuple[Float[Tensor, "B 19206 4"], Float[Tensor, "B 19206"]]:
        """Boxes x0, y0, x1, y1 in input pixels, scores of the class person."""
        return self._decode(*self.graph(self._input(pixels)))

    def _input(self, pixels: Tensor) -> Tensor:
        if self.runtime == "litert":
            return pixels
        return (pixels.to(self.anchors.device).float() - 127) / 128  # what the file's 8 bits stand for

    def _decode(self, scores: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        scores, raw = scores.to(self.anchors.device), raw.to(self.anchors.device)
        centre = raw[..., 0:2] * self.anchors[:, 2:] + self.anchors[:, :2]
        extent = raw[..., 2:4].exp() * self.anchors[:, 2:]
        boxes = torch.cat([centre - extent / 2, centre + extent / 2], dim=-1)  # y0 x0 y1 x1
        return boxes[..., [1, 0, 3, 2]], scores[..., 0]


def _read() -> "tuple[TfliteFile, tuple[int, int]]":
    """The network, and where its scores and boxes are."""
    from di2pose.image.tflite_file import TfliteFile

    file = TfliteFile(fetch(_ASSET))
    return file, (file.output_named(_SCORES), file.output_named(_BOXES))


def _cut() -> bytes:
    from di2pose.image.tflite_cut import cut

    return cut(*_read())


def anchors(ratios: Sequence[float] = (1.0, 2.0, 0.5)) -> Float[Tensor, "19206 4"]:
    """Centre y, x and height, width in input pixels: levels of 40 to 3 cells a side, rows first, then sizes of 3, 3.8
    and 4.8 strides, each in three ratios of width to height."""
    rows = []
    for cells in (40, 20, 10, 5, 3):
        stride = BOX_INPUT / cells
        line = (torch.arange(cells) + 0.5) * stride
        shapes = [
            (3 * stride * 2 ** (octave / 3) / ratio**0.5, 3 * stride * 2 ** (octave / 3) * ratio**0.5)
            for octave in range(3)
            for ratio in ratios
        ]
        y, x = torch.meshgrid(line, line, indexing="ij")
        centres = torch.stack([y, x], dim=-1).reshape(-1, 1, 2).expand(-1, len(shapes), -1)
        rows.append(torch.cat([centres, torch.tensor(shapes).expand(len(centres), -1, -1)], dim=-1).reshape(-1, 4))
    return torch.cat(rows)
