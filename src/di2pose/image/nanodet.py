"""NanoDet: boxes of people, small ones too. A tfjs graph, walked in PyTorch.  B pictures, A = 3,549 cells."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from di2pose.assets import fetch
from di2pose.image.boxes import Box
from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph

INPUT, CLASSES, BINS = 416, 80, 11
STRIDES = (8, 16, 32)
_HEADS = tuple(f"PartitionedCall/transpose_{number}" for number in (99, 105, 111))
_MEAN, _DEVIATION = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)  # blue, green, red


class NanoDet(nn.Module):
    """`look(image, areas)` gives, for each area, every cell's box (x0, y0, x1, y1) in image pixels and how surely it
    is a person's."""

    centres: Tensor
    strides: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.graph = TfjsGraph(TfjsFile(fetch("nanodet-graph"), fetch("nanodet")), "input_1", _HEADS)
        centres, strides = cells()
        self.register_buffer("centres", centres, persistent=False)
        self.register_buffer("strides", strides, persistent=False)
        self.register_buffer("mean", torch.tensor(_MEAN), persistent=False)
        self.register_buffer("deviation", torch.tensor(_DEVIATION), persistent=False)

    @torch.inference_mode()
    def look(
        self, image: Image.Image, areas: Sequence[Box]
    ) -> list[tuple[Float[np.ndarray, "A 4"], Float[np.ndarray, " A"]]]:
        pixels = np.zeros((len(areas), INPUT, INPUT, 3), dtype=np.uint8)
        places = []
        for square, (x0, y0, x1, y1) in zip(pixels, areas, strict=True):
            scale = INPUT / max(x1 - x0, y1 - y0)
            width, height = max(1, round(scale * (x1 - x0))), max(1, round(scale * (y1 - y0)))
            square[:height, :width] = image.resize((width, height), Image.Resampling.BILINEAR, box=(x0, y0, x1, y1))
            places.append((np.array([(x1 - x0) / width, (y1 - y0) / height] * 2), np.array([x0, y0] * 2)))
        boxes, scores = (each.double().cpu().numpy() for each in self(torch.from_numpy(pixels)))
        return [(box * stretch + corner, s) for box, s, (stretch, corner) in zip(boxes, scores, places, strict=True)]

    def forward(self, pixels: Tensor) -> tuple[Float[Tensor, "B A 4"], Float[Tensor, "B A"]]:
        """Squares (B, 416, 416, 3) RGB uint8 -> boxes in their pixels, scores of the class person."""
        x = (pixels.to(self.mean.device).flip(-1).float() - self.mean) / self.deviation
        maps = self.graph(x.permute(0, 3, 1, 2))  # B 124 H W, three sizes
        rows = torch.cat([each.flatten(2) for each in maps], dim=2).transpose(1, 2)  # B A 124
        bins = rows[..., CLASSES:].unflatten(-1, (4, BINS)).softmax(-1)  # left, top, right, bottom
        reach = (bins * torch.arange(BINS, device=bins.device)).sum(-1) * self.strides[:, None]  # B A 4
        boxes = torch.cat([self.centres - reach[..., :2], self.centres + reach[..., 2:]], dim=-1)
        return boxes, rows[..., 0].sigmoid()


def cells() -> tuple[Float[Tensor, "A 2"], Float[Tensor, " A"]]:
    """Centres (x, y) in input pixels and strides, rows first, finest first."""
    centres, strides = [], []
    for stride in STRIDES:
        line = (torch.arange(INPUT // stride) + 0.5) * stride
        y, x = torch.meshgrid(line, line, indexing="ij")
        centres.append(torch.stack([x, y], dim=-1).reshape(-1, 2))
        strides.append(torch.full((len(centres[-1]),), float(stride)))
    return torch.cat(centres), torch.cat(strides)
