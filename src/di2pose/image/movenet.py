"""MoveNet Thunder as a second observer: 17 COCO keypoints, their scores, and how wide its heat maps are.

B batch. The network comes as a tfjs graph; its convolutions run in PyTorch or in Google's runtime. Its decoding (choose
the person nearest to the middle, then each keypoint near where that person's centre expects it) is written out below,
for batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.assets import fetch
from di2pose.image.exporting import is_exporting
from di2pose.image.kept_network import kept
from di2pose.image.litert import LitertGraph, begin
from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph

CROP, GRID, TOKEN_CHANNELS = 256, 64, 6
OBSERVER = "movenet"
"""Its block of features."""
ZOOM = 0.8
"""The part of BlazePose's region that MoveNet looks at: it was trained on tighter crops."""
_SOURCES = ("movenet-thunder-graph", "movenet-thunder")
_PREFIX = "StatefulPartitionedCall/"
_HEADS = ("kpt_heatmap_0/conv2d_5", "center_0/conv2d_4", "kpt_regress_0/conv2d_6", "kpt_offset_0/conv2d_7")


@dataclass(frozen=True)
class MoveNetOutput:
    """Pixels are those of the 256 crop that BlazePose sees too."""

    keypoints: Float[Tensor, "B 17 2"]
    """x, y in crop pixels, COCO order."""
    scores: Float[Tensor, "B 17"]
    spread: Float[Tensor, "B 17 3"]
    """Of each keypoint's heat map: standard deviation in x and y, crop pixels, and their correlation."""

    @property
    def marks(self) -> Float[Tensor, "B 17 3"]:
        """x, y, score."""
        return torch.cat([self.keypoints, self.scores[..., None]], dim=-1)

    @property
    def tokens(self) -> Float[Tensor, "B 17 6"]:
        """A token a keypoint: x, y and both deviations over half the crop, score, correlation."""
        half = CROP / 2
        place, width = (self.keypoints - half) / half, self.spread[..., :2] / half
        return torch.cat([place, width, self.scores[..., None], self.spread[..., 2:]], dim=-1)


def keypoints_of(tokens: Float[np.ndarray, "B 17 6"]) -> Float[np.ndarray, "B 17 3"]:
    """x, y in pixels of the crop and score, out of tokens that a cache kept."""
    half = CROP / 2
    return np.concatenate([tokens[..., :2] * half + half, tokens[..., 4:5]], axis=-1)


class MoveNet(nn.Module):
    """Crops (B, 256, 256, 3), RGB uint8, as for BlazePose -> MoveNetOutput. Frozen.

    `runtime="torch"` takes more than twice as long on a CPU. In litert most weights have 8 bits: half of the keypoints
    move by less than 0.4 px, and they are as far from the truth as before.
    """

    centre_weight: Tensor

    def __init__(self, runtime: Literal["torch", "litert"] = "litert") -> None:
        super().__init__()
        file = TfjsFile(*map(fetch, _SOURCES))
        constants = file.constants
        self.scale = float(constants[_PREFIX + "truediv"].flat[0])
        self.softening = float(constants[_PREFIX + "add_5/y"])
        weight = constants["ConstantFolding/" + _PREFIX + "truediv_2_recip"].astype(np.float32)
        self.register_buffer("centre_weight", torch.from_numpy(weight)[..., 0], persistent=False)
        wanted = _PREFIX + "sub_1", [f"{_PREFIX}{head}/BiasAdd" for head in _HEADS]
        self.network: nn.Module
        if runtime == "litert":

            def make() -> bytes:
                from di2pose.image.tfjs_to_tflite import to_tflite

                return to_tflite(file, *wanted, (1, CROP, CROP, 3), eight_bits=True)

            self.network = LitertGraph(lambda: kept("movenet", "8-bit", _SOURCES, make))
        else:
            self.network = TfjsGraph(file, *wanted)
        self.requires_grad_(False)
        self.eval()

    def forward(self, crops: UInt8[Tensor, "B 256 256 3"]) -> MoveNetOutput:
        return self.begin(crops)()

    @torch.inference_mode()
    def begin(self, crops: UInt8[Tensor, "B 256 256 3"]) -> Callable[[], MoveNetOutput]:
        """Begin to look, where the runtime can do so beside other work; the keypoints are waited for by the call."""
        margin = round(CROP * (1 - ZOOM) / 2)
        seen = CROP - 2 * margin
        part = crops[:, margin:-margin, margin:-margin]
        if isinstance(self.network, LitertGraph):
            # By NumPy: PyTorch's threads would go on spinning for a while, and the networks want their cores.
            x = torch.from_numpy(np.rint(_enlarged_by_numpy(part.numpy())) * self.scale - 1)
        else:
            x = _enlarged(part.permute(0, 3, 1, 2).float()).round_().mul_(self.scale).sub_(1).permute(0, 2, 3, 1)
        maps = begin(self.network, x)

        @torch.inference_mode()
        def keypoints() -> MoveNetOutput:
            points, scores, spread = self.decode(*(each.permute(0, 3, 1, 2) for each in maps()))
            spread = torch.cat([spread[..., :2] * seen / GRID, spread[..., 2:]], dim=-1)
            return MoveNetOutput(points * seen / GRID + margin, scores, spread)

        return keypoints

    def decode(
        self,
        heat: Float[Tensor, "B 17 64 64"],
        centre: Float[Tensor, "B 1 64 64"],
        regress: Float[Tensor, "B 34 64 64"],
        offset: Float[Tensor, "B 34 64 64"],
    ) -> tuple[Float[Tensor, "B 17 2"], Float[Tensor, "B 17"], Float[Tensor, "B 17 3"]]:
        """Head maps -> keypoints (x, y), scores, spreads (std x, std y, correlation); in cells of the 64x64 grid."""
        rows = torch.arange(heat.shape[0], device=heat.device)
        heat = heat.contiguous().sigmoid()
        best = (centre[:, 0].sigmoid() * self.centre_weight.to(heat.device)).flatten(1).argmax(1)  # B
        middle = torch.stack([best // GRID, best % GRID], dim=-1)  # B 2, (y, x)
        # Where the person's centre expects each keypoint; channels are (keypoint, y then x).
        guess = middle[:, None] + regress[rows, :, middle[:, 0], middle[:, 1]].reshape(-1, 17, 2)
        line = torch.arange(GRID, device=heat.device, dtype=heat.dtype)
        down, across = ((line - guess[..., axis, None]) ** 2 for axis in (0, 1))  # B 17 64
        far = (down[..., None] + across[..., None, :]).sqrt_()  # B 17 64 64
        near = heat / far.add_(self.softening)
        found = near.flatten(2).argmax(2)  # B 17
        y, x = found // GRID, found % GRID
        scores = heat.flatten(2).gather(2, found[..., None])[..., 0]
        fine = offset.unflatten(1, (17, 2))[rows[:, None], torch.arange(17, device=heat.device), :, y, x]  # B 17 2
        points = torch.stack([x + fine[..., 1], y + fine[..., 0]], dim=-1)
        return points, scores, _spread(near, line)


def _enlarged(x: Float[Tensor, "B 3 n n"]) -> Float[Tensor, "B 3 256 256"]:
    """To the size of a crop, bilinear. From 204 pixels all weights are multiples of 1/128, and sums of weighted pixels
    exact; but onnxruntime would divide by the ratio of sizes, and what is then rounded would differ: an export writes
    the weights out."""
    if not is_exporting():
        return F.interpolate(x, (CROP, CROP), mode="bilinear", align_corners=False)
    rows = torch.eye(int(x.shape[-1]))[None, None]
    weights = F.interpolate(rows, (CROP, rows.shape[-1]), mode="bilinear", align_corners=False)[0, 0].clone()
    return weights @ x @ weights.T


def _enlarged_by_numpy(x: UInt8[np.ndarray, "B n n 3"]) -> Float32[np.ndarray, "B 256 256 3"]:
    """As `_enlarged`, to the last bit."""
    count = x.shape[1]
    at = np.maximum((np.arange(CROP) + 0.5) * count / CROP - 0.5, 0)
    low = at.astype(int)
    high, share = np.minimum(low + 1, count - 1), (at - low).astype(np.float32)
    enlarged = x.astype(np.float32)
    for axis, weight in ((1, share[:, None, None]), (2, share[:, None])):
        near = enlarged.take(low, axis)
        enlarged = near + (enlarged.take(high, axis) - near) * weight
    return enlarged


def _spread(maps: Float[Tensor, "B 17 64 64"], line: Float[Tensor, " 64"]) -> Float[Tensor, "B 17 3"]:
    """Standard deviation in x and in y, and their correlation, of non-negative maps read as densities."""
    line = line - line.mean()  # less is lost in the differences below
    powers = torch.stack([torch.ones_like(line), line, line**2])  # 3 64
    moments = powers @ (maps @ powers.T)  # B 17 3 3: of y, x
    moments = moments / moments[..., :1, :1]
    mean_x, mean_y = moments[..., 0, 1], moments[..., 1, 0]
    std_x = (moments[..., 0, 2] - mean_x**2).clamp_min(1e-6).sqrt()
    std_y = (moments[..., 2, 0] - mean_y**2).clamp_min(1e-6).sqrt()
    product = moments[..., 1, 1] - mean_x * mean_y
    return torch.stack([std_x, std_y, (product / (std_x * std_y)).clamp(-1, 1)], dim=-1)
