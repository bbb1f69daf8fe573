"""MoveNet MultiPose: several people at a glance, each with a box and 17 COCO keypoints.

The network comes as a tfjs graph; its convolutions run in Google's runtime where ai-edge-litert is installed, else in
PyTorch: the same people. Its decoding is written out below; the file's own stops at six people, this one goes as far as
it is told.  B = 1 picture, P people, H W cells of 4 pixels.
"""

from importlib.util import find_spec
from typing import Literal

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.assets import fetch
from di2pose.image.glance import Poses, look_for_poses
from di2pose.image.litert import LitertSizes
from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph
from di2pose.image.tfjs_to_tflite import to_tflite

CELL = 4
_HEADS = (
    "center_0/conv2d_4",
    "box_scale_0/conv2d_5",
    "box_offset_0/conv2d_6",
    "kpt_heatmap_0/conv2d_7",
    "kpt_regress_0/conv2d_8",
    "kpt_offset_0/conv2d_9",
)
_PREFIX = "StatefulPartitionedCall/"


class MultiPose(nn.Module):
    """`look(image)` gives Poses, sure and unsure ones."""

    def __init__(self, people: int = 12, runtime: Literal["torch", "litert"] | None = None) -> None:
        super().__init__()
        self.people = people
        file = TfjsFile(fetch("movenet-multipose-graph"), fetch("movenet-multipose"))
        self.scale = float(file.constants[file.nodes[_PREFIX + "truediv_1"]["input"][1]].flat[0])
        wanted = _PREFIX + "sub_1", [f"{_PREFIX}{head}/BiasAdd" for head in _HEADS]
        self.network: nn.Module
        if (runtime or ("litert" if find_spec("ai_edge_litert") is not None else "torch")) == "litert":
            self.network = LitertSizes(lambda height, width: to_tflite(file, *wanted, (1, height, width, 3)))
        else:
            self.network = TfjsGraph(file, *wanted)

    @torch.inference_mode()
    def look(self, image: Image.Image) -> Poses:
        return look_for_poses(image, lambda pixels: self(torch.from_numpy(pixels)))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One picture (1, h, w, 3) RGB uint8 -> keypoints (P, 17, 3), boxes (P, 4), scores (P,) in its pixels."""
        x = pixels.to(next(self.network.parameters(), torch.empty(0)).device).float() * self.scale - 1
        centre, extent, shift, heat, regress, offset = (each[0] for each in self.network(x))  # H W channels
        rows, columns, _ = centre.shape
        centre, heat = centre[..., 0].sigmoid(), heat.sigmoid()
        peak = (centre - F.max_pool2d(centre[None, None], 5, stride=1, padding=2)[0, 0]).abs() < 1e-6
        clear, where = (centre * peak).flatten().topk(min(self.people, centre.numel()))  # P
        y, x = where // columns, where % columns
        size, place = extent[y, x].clamp_min(0), torch.stack([y, x], dim=-1) + shift[y, x]  # P 2, (y, x)
        down, across = (torch.arange(n, device=size.device, dtype=heat.dtype) for n in (rows, columns))
        limit = torch.stack([down[-1], across[-1]]) + 1  # of lines, for an export knows no numbers of cells
        low, high = (place - size / 2).clamp_min(0).minimum(limit), (place + size / 2).clamp_min(0).minimum(limit)
        # Each keypoint: the hottest cell in the box, the nearer to where the centre expects it the better.
        guess = torch.stack([y, x], dim=-1)[:, None] + regress[y, x].reshape(-1, 17, 2)  # P 17 2
        far = (down[:, None] - guess[..., 0, None, None]) ** 2 + (across - guess[..., 1, None, None]) ** 2  # P 17 H W
        inside = ((down >= low[:, :1]) & (down < high[:, :1]))[:, :, None]  # P H 1
        inside = inside & ((across >= low[:, 1:]) & (across < high[:, 1:]))[:, None]  # P H W
        near = heat.permute(2, 0, 1) * torch.exp(-far / (0.3 * limit.min())) * inside[:, None]
        found = near.flatten(2).argmax(2)  # P 17
        ky, kx = found // columns, found % columns
        fine = offset.reshape(rows, columns, 17, 2)[ky, kx, torch.arange(17, device=ky.device)]  # P 17 2
        scores = near.amax(0).flatten(1).T[found, torch.arange(17, device=ky.device)]  # P 17
        sure = scores > 0.127
        person = clear * (scores * sure).sum(1) / sure.sum(1).clamp_min(1)
        keypoints = torch.stack([CELL * (kx + fine[..., 1]), CELL * (ky + fine[..., 0]), scores], dim=-1)
        return keypoints, CELL * torch.cat([low.flip(-1), high.flip(-1)], dim=-1), person
