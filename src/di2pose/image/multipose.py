"""MoveNet MultiPose: several people at a glance, each with a box and 17 COCO keypoints.

The network comes as a tfjs graph; its convolutions run in Google's runtime or in PyTorch: the same people. Its
decoding is written out below; the file's own stops at six people, this one goes as far as it is told.
B = 1 picture, P people, H W cells of 4 pixels.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.assets import fetch
from di2pose.image.glance import Poses, look_for_poses
from di2pose.image.kept_network import kept
from di2pose.image.litert import LitertSizes, begin
from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph

CELL = 4
_SOURCES = ("movenet-multipose-graph", "movenet-multipose")
_HEADS = (
    "center_0/conv2d_4",
    "box_scale_0/conv2d_5",
    "box_offset_0/conv2d_6",
    "kpt_heatmap_0/conv2d_7",
    "kpt_regress_0/conv2d_8",
    "kpt_offset_0/conv2d_9",
)
_PREFIX = "StatefulPartitionedCall/"


class _Writer:
    """Writes the network for a size of pictures. Only the first size of a process is kept in the cache: it is waited
    for at every start, and a service does not fill the disk because somebody sends pictures of all sizes."""

    def __init__(self, file: TfjsFile, source: str, heads: Sequence[str]) -> None:
        self._wanted = file, source, heads
        self._is_first = True

    def __call__(self, height: int, width: int) -> bytes | Callable[[], Path | bytes]:
        def make() -> bytes:
            from di2pose.image.tfjs_to_tflite import to_tflite

            return to_tflite(*self._wanted, (1, height, width, 3))

        is_first, self._is_first = self._is_first, False
        return (lambda: kept("multipose", f"{height}x{width}", _SOURCES, make)) if is_first else make()


class MultiPose(nn.Module):
    """`look(image)` gives Poses, sure and unsure ones."""

    def __init__(self, people: int = 12, runtime: Literal["torch", "litert"] = "litert") -> None:
        super().__init__()
        self.people = people
        file = TfjsFile(*map(fetch, _SOURCES))
        self.scale = float(file.constants[file.nodes[_PREFIX + "truediv_1"]["input"][1]].flat[0])
        wanted = _PREFIX + "sub_1", [f"{_PREFIX}{head}/BiasAdd" for head in _HEADS]
        self.network: nn.Module
        if runtime == "litert":
            self.network = LitertSizes(_Writer(file, *wanted))
        else:
            self.network = TfjsGraph(file, *wanted)

    def look(self, image: Image.Image) -> Poses:
        return self.begin(image)()

    @torch.inference_mode()
    def begin(self, image: Image.Image, least: float = 0.0) -> Callable[[], Poses]:
        """Begin to look, where the runtime can do so beside other work; the poses are waited for by the call. `least`:
        of the score; whoever can only score less is left out."""

        def ask(pixels: np.ndarray) -> Callable[[], tuple[Tensor, Tensor, Tensor]]:
            # By NumPy: PyTorch's threads would go on spinning for a while, and the network wants their cores.
            asked = begin(self.network, torch.from_numpy(pixels.astype(np.float32) * self.scale - 1).to(self._device))
            return torch.inference_mode()(lambda: self.decode(asked(), least))

        return look_for_poses(image, ask)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One picture (1, h, w, 3) RGB uint8 -> keypoints (P, 17, 3), boxes (P, 4), scores (P,) in its pixels."""
        return self.decode(self.network(pixels.to(self._device).float() * self.scale - 1))

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters(), torch.empty(0)).device

    def decode(self, heads: Sequence[Tensor], least: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
        """The network's maps of one picture -> keypoints, boxes and scores of those whose centre scores `least`."""
        centre, extent, shift, heat, regress, offset = (each[0] for each in heads)  # H W channels
        rows, columns, _ = centre.shape
        centre, heat = centre[..., 0].sigmoid(), heat.sigmoid()
        peak = (centre - F.max_pool2d(centre[None, None], 5, stride=1, padding=2)[0, 0]).abs() < 1e-6
        clear, where = (centre * peak).flatten().topk(min(self.people, centre.numel()))  # P
        y, x = where // columns, where % columns
        size, place = extent[y, x].clamp_min(0), torch.stack([y, x], dim=-1) + shift[y, x]  # P 2, (y, x)
        lines = [torch.arange(n, device=size.device, dtype=heat.dtype) for n in (rows, columns)]
        limit = torch.stack([line[-1] for line in lines]) + 1  # of lines, for an export knows no numbers of cells
        low, high = (place - size / 2).clamp_min(0).minimum(limit), (place + size / 2).clamp_min(0).minimum(limit)
        # Each keypoint: the hottest cell in the box, the nearer to where the centre expects it the better. Nearness is
        # a product of one down and one across, both 0 outside of the box.
        guess = torch.stack([y, x], dim=-1)[:, None] + regress[y, x].reshape(-1, 17, 2)  # P 17 2
        width = 0.3 * limit.min()
        down, across = (
            torch.exp(-((line - guess[..., axis, None]) ** 2) / width)
            * ((line >= low[:, None, axis, None]) & (line < high[:, None, axis, None]))
            for axis, line in enumerate(lines)
        )  # P 17 H and P 17 W
        kept = slice(int((clear >= least).sum()))  # a person's score is no more than that of the centre; clearest first
        near = heat.permute(2, 0, 1) * (down[kept, :, :, None] * across[kept, :, None])  # P 17 H W; P: who is kept
        found = near.flatten(2).argmax(2)  # P 17
        ky, kx = found // columns, found % columns
        joint = torch.arange(17, device=ky.device)
        fine = offset.reshape(rows, columns, 17, 2)[ky, kx, joint]  # P 17 2
        # The score of a cell is that of whoever is nearest to it, kept or not.
        nearest = (down[:, joint, ky] * across[:, joint, kx]).amax(0)  # P 17
        scores = heat[ky, kx, joint] * nearest
        sure = scores > 0.127
        person = clear[kept] * (scores * sure).sum(1) / sure.sum(1).clamp_min(1)
        keypoints = torch.stack([CELL * (kx + fine[..., 1]), CELL * (ky + fine[..., 0]), scores], dim=-1)
        return keypoints, CELL * torch.cat([low[kept].flip(-1), high[kept].flip(-1)], dim=-1), person
