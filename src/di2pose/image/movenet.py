"""MoveNet Thunder as a second observer: 17 COCO keypoints, their scores, and how wide its heat maps are.

B batch. The network comes as a tfjs graph; its convolutions are walked here, its decoding (choose the person nearest to
the middle, then each keypoint near where that person's centre expects it) is written out below for batches.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.image.tflite_graph import same_padding

CROP, GRID, TOKEN_CHANNELS = 256, 64, 6
ZOOM = 0.8
"""The part of BlazePose's region that MoveNet looks at: it was trained on tighter crops."""
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
    def tokens(self) -> Float[Tensor, "B 17 6"]:
        """A token a keypoint: x, y and both deviations over half the crop, score, correlation."""
        half = CROP / 2
        place, width = (self.keypoints - half) / half, self.spread[..., :2] / half
        return torch.cat([place, width, self.scores[..., None], self.spread[..., 2:]], dim=-1)


class MoveNet(nn.Module):
    """Crops (B, 256, 256, 3), RGB uint8, as for BlazePose -> MoveNetOutput. Frozen."""

    centre_weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        constants, nodes = _read(fetch("movenet-thunder-graph"), fetch("movenet-thunder"))
        prefix = "StatefulPartitionedCall/"
        self.scale = float(constants[prefix + "truediv"].flat[0])
        self.softening = float(constants[prefix + "add_5/y"])
        weight = constants["ConstantFolding/" + prefix + "truediv_2_recip"].astype(np.float32)
        self.register_buffer("centre_weight", torch.from_numpy(weight)[..., 0], persistent=False)
        self.network = _Walk(nodes, constants, prefix + "sub_1", [f"{prefix}{head}/BiasAdd" for head in _HEADS])
        self.requires_grad_(False)
        self.eval()

    @torch.inference_mode()
    def forward(self, crops: UInt8[Tensor, "B 256 256 3"]) -> MoveNetOutput:
        x = crops.permute(0, 3, 1, 2).float()
        margin = round(CROP * (1 - ZOOM) / 2)
        seen = CROP - 2 * margin
        x = F.interpolate(x[..., margin:-margin, margin:-margin], (CROP, CROP), mode="bilinear", align_corners=False)
        points, scores, spread = self.decode(*self.network(x.round() * self.scale - 1))
        spread = torch.cat([spread[..., :2] * seen / GRID, spread[..., 2:]], dim=-1)
        return MoveNetOutput(points * seen / GRID + margin, scores, spread)

    def decode(
        self,
        heat: Float[Tensor, "B 17 64 64"],
        centre: Float[Tensor, "B 1 64 64"],
        regress: Float[Tensor, "B 34 64 64"],
        offset: Float[Tensor, "B 34 64 64"],
    ) -> tuple[Float[Tensor, "B 17 2"], Float[Tensor, "B 17"], Float[Tensor, "B 17 3"]]:
        """Head maps -> keypoints (x, y), scores, spreads (std x, std y, correlation); in cells of the 64x64 grid."""
        count = len(heat)
        rows = torch.arange(count, device=heat.device)
        heat = heat.sigmoid()
        best = (centre[:, 0].sigmoid() * self.centre_weight).flatten(1).argmax(1)  # B
        # Where the person's centre expects each keypoint; channels are (keypoint, y then x).
        guess = regress.flatten(2)[rows, :, best].reshape(count, 17, 2)
        y = best[:, None] // GRID + guess[..., 0]  # B 17
        x = best[:, None] % GRID + guess[..., 1]
        line = torch.arange(GRID, device=heat.device, dtype=heat.dtype)
        far = torch.hypot(line[:, None] - y[..., None, None], line - x[..., None, None])  # B 17 64 64
        near = heat / (far + self.softening)
        found = near.flatten(2).argmax(2)  # B 17
        scores = heat.flatten(2).gather(2, found[..., None])[..., 0]
        fine = offset.reshape(count, 17, 2, -1).gather(3, found[..., None, None].expand(-1, -1, 2, 1))[..., 0]
        points = torch.stack([found % GRID + fine[..., 1], found // GRID + fine[..., 0]], dim=-1)
        return points, scores, _spread(near, line)


def _spread(maps: Float[Tensor, "B 17 64 64"], line: Float[Tensor, " 64"]) -> Float[Tensor, "B 17 3"]:
    """Standard deviation in x and in y, and their correlation, of non-negative maps read as densities."""
    density = maps / maps.sum((2, 3), keepdim=True)
    across, down = density.sum(2), density.sum(3)  # B 17 64
    mean_x, mean_y = (across * line).sum(-1), (down * line).sum(-1)
    std_x = ((across * line**2).sum(-1) - mean_x**2).clamp_min(1e-6).sqrt()
    std_y = ((down * line**2).sum(-1) - mean_y**2).clamp_min(1e-6).sqrt()
    product = (density * line[:, None] * line).sum((2, 3)) - mean_x * mean_y
    return torch.stack([std_x, std_y, (product / (std_x * std_y)).clamp(-1, 1)], dim=-1)


class _Walk(nn.Module):
    """The convolutional part of a tfjs graph, from the node `source` to the nodes `heads`; images are NCHW."""

    def __init__(self, nodes: Json, constants: dict[str, np.ndarray], source: str, heads: list[str]) -> None:
        super().__init__()
        self._source, self._heads = source, heads
        self._order: list[tuple[str, list[str]]] = []
        self.steps = nn.ModuleList()
        pending, done = list(reversed(heads)), {source}
        while pending:
            name = pending[-1]
            inputs = [each for each in nodes[name].get("input", []) if each not in constants]
            missing = [each for each in inputs if each not in done]
            if name in done or missing:
                pending = pending[:-1] if name in done else pending + missing
                continue
            self.steps.append(_step(nodes[name], constants))
            self._order.append((name, inputs))
            done.add(name)

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> tuple[Tensor, ...]:
        values = {self._source: x.contiguous(memory_format=torch.channels_last)}
        for step, (name, inputs) in zip(self.steps, self._order, strict=True):
            values[name] = step(*(values[each] for each in inputs))
        return tuple(values[head] for head in self._heads)


class _TfjsConvolution(nn.Module):
    def __init__(self, node: Json, constants: dict[str, np.ndarray]) -> None:
        super().__init__()
        deep = "Depthwise" in node["op"]
        weight = constants[node["input"][1]]
        # File: (h, w, in, out) or, depth-wise, (h, w, in, 1). PyTorch: (out, in / groups, h, w).
        kernel = torch.from_numpy(weight.transpose((2, 3, 0, 1) if deep else (3, 2, 0, 1)).astype(np.float32))
        self.weight = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last))
        bias = constants[node["input"][2]] if len(node["input"]) > 2 else np.zeros(len(kernel))
        self.bias = nn.Parameter(torch.from_numpy(bias.astype(np.float32)))
        self.groups = len(kernel) if deep else 1
        attributes = node["attr"]
        self.stride = (int(attributes["strides"]["list"]["i"][1]), int(attributes["strides"]["list"]["i"][2]))
        self.same = base64.b64decode(attributes["padding"]["s"]) == b"SAME"
        fused = {base64.b64decode(each) for each in attributes.get("fused_ops", {}).get("list", {}).get("s", [])}
        if unknown := fused - {b"BiasAdd", b"Relu", b"Relu6"}:
            raise InputError(f"the tfjs network fuses {unknown}, which is not supported")
        self.low = 0.0 if fused & {b"Relu", b"Relu6"} else None
        self.high = 6.0 if b"Relu6" in fused else None

    def forward(self, x: Tensor) -> Tensor:
        if self.same:
            x = F.pad(x, same_padding(x.shape[2:], self.weight.shape[2:], self.stride))
        x = F.conv2d(x, self.weight, self.bias, self.stride, groups=self.groups)
        return x if self.low is None else x.clamp_(self.low, self.high)


class _TfjsAdd(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def _step(node: Json, constants: dict[str, np.ndarray]) -> nn.Module:
    if node["op"] in ("_FusedConv2D", "FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"):
        return _TfjsConvolution(node, constants)
    if node["op"] == "AddV2":
        return _TfjsAdd()
    if node["op"] == "ResizeBilinear" and node["attr"]["half_pixel_centers"]["b"]:
        return _Double()
    raise InputError(f"the tfjs operation {node['op']} is not supported in MoveNet's graph")


def _read(graph: Path, weights: Path) -> tuple[dict[str, np.ndarray], Json]:
    """Constants by name (as stored, most in f16) and nodes by name."""
    document = json.loads(graph.read_text())
    data, at, constants = weights.read_bytes(), 0, {}
    for entry in document["weightsManifest"][0]["weights"]:
        stored = np.dtype({"float16": "<f2"}.get(entry.get("quantization", {}).get("dtype"), entry["dtype"]))
        count = int(np.prod(entry["shape"], dtype=int))
        constants[entry["name"]] = np.frombuffer(data, stored, count, at).reshape(entry["shape"])
        at += count * stored.itemsize
    if at != len(data):
        raise InputError(f"{weights} holds {len(data)} bytes, its graph tells of {at}: delete both to fetch them again")
    return constants, {node["name"]: node for node in document["modelTopology"]["node"]}
