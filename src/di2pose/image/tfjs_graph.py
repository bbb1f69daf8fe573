"""A tfjs graph network as a PyTorch module that walks the file's own graph, from one node to the nodes that are asked.

Images are B H W C, as in the file; convolutions see them as views in channels-last memory. Only the operations that our
networks use are here; any other raises an error that names it. Batched, though the files say one image.
"""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.image.tflite_graph import same_padding


class TfjsFile:
    """Constants by name (as stored, most in f16) and nodes by name."""

    def __init__(self, graph: Path, weights: Path) -> None:
        document = json.loads(graph.read_text())
        data, at = weights.read_bytes(), 0
        self.constants: dict[str, np.ndarray] = {}
        for entry in document["weightsManifest"][0]["weights"]:
            stored = np.dtype({"float16": "<f2"}.get(entry.get("quantization", {}).get("dtype"), entry["dtype"]))
            count = int(np.prod(entry["shape"], dtype=int))
            if at + count * stored.itemsize > len(data):
                break
            self.constants[entry["name"]] = np.frombuffer(data, stored, count, at).reshape(entry["shape"])
            at += count * stored.itemsize
        if at != len(data) or len(self.constants) != len(document["weightsManifest"][0]["weights"]):
            raise InputError(
                f"{weights} has more or fewer bytes than {graph} tells of: delete both to fetch them again"
            )
        self.nodes: dict[str, Json] = {node["name"]: node for node in document["modelTopology"]["node"]}


class TfjsGraph(nn.Module):
    """The value of the node `source` -> the values of the nodes `heads`. Frozen."""

    def __init__(self, file: TfjsFile, source: str, heads: Sequence[str]) -> None:
        super().__init__()
        self._source, self._heads = source, tuple(heads)
        self._order: list[tuple[str, list[str]]] = []
        self.steps = nn.ModuleList()
        pending, done = list(reversed(heads)), {source}
        while pending:
            name = pending[-1]
            inputs = _live_inputs(file, name)
            missing = [each for each in inputs if each not in done]
            if name in done or missing:
                pending = pending[:-1] if name in done else pending + missing
                continue
            self.steps.append(_step(file, name))
            self._order.append((name, inputs))
            done.add(name)
        last_use = {each: place for place, (_, inputs) in enumerate(self._order) for each in inputs}
        self._drop = [
            [each for each in inputs if last_use[each] == place and each not in heads]
            for place, (_, inputs) in enumerate(self._order)
        ]
        self.requires_grad_(False)
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = {self._source: x}
        for step, (name, inputs), drop in zip(self.steps, self._order, self._drop, strict=True):
            values[name] = step(*(values[each] for each in inputs))
            for each in drop:
                values.pop(each, None)
        return tuple(values[head] for head in self._heads)


class _TfjsConvolution(nn.Module):
    def __init__(self, file: TfjsFile, node: Json) -> None:
        super().__init__()
        deep = "Depthwise" in node["op"]
        weight = file.constants[node["input"][1]]
        # File: (h, w, in, out) or, depth-wise, (h, w, in, 1). PyTorch: (out, in / groups, h, w).
        kernel = torch.from_numpy(weight.transpose((2, 3, 0, 1) if deep else (3, 2, 0, 1)).astype(np.float32))
        self.weight = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last))
        bias = file.constants[node["input"][2]] if len(node["input"]) > 2 else np.zeros(len(kernel))
        self.bias = nn.Parameter(torch.from_numpy(bias.astype(np.float32)))
        self.groups = len(kernel) if deep else 1
        attributes = node["attr"]
        if any(int(each) != 1 for each in attributes.get("dilations", {}).get("list", {}).get("i", [])):
            raise InputError("the tfjs network has dilated convolutions, which are not supported")
        self.stride = _spatial(attributes["strides"])
        self.same = _is_same(attributes)
        fused = {base64.b64decode(each) for each in attributes.get("fused_ops", {}).get("list", {}).get("s", [])}
        if unknown := fused - {b"BiasAdd", b"Relu", b"Relu6"}:
            raise InputError(f"the tfjs network fuses {unknown}, which is not supported")
        self.low = 0.0 if fused & {b"Relu", b"Relu6"} else None
        self.high = 6.0 if b"Relu6" in fused else None

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)  # B C H W
        if self.same:
            x = F.pad(x, same_padding(x.shape[2:], self.weight.shape[2:], self.stride))
        x = F.conv2d(x, self.weight, self.bias, self.stride, groups=self.groups)
        x = x if self.low is None else x.clamp_(self.low, self.high)
        return x.permute(0, 2, 3, 1)


class _Apply(nn.Module):
    """An operation without weights."""

    def __init__(self, operation: Callable[..., Tensor]) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.operation(*inputs)


def _live_inputs(file: TfjsFile, name: str) -> list[str]:
    """The inputs of a node that depend on the picture's pixels; a resize's second one is only its size."""
    if name not in file.nodes:
        raise InputError(f"the tfjs network has no node '{name}'")
    node = file.nodes[name]
    inputs = [each for each in node.get("input", []) if each not in file.constants]
    return inputs[:1] if node["op"] == "ResizeBilinear" else inputs


def _step(file: TfjsFile, name: str) -> nn.Module:
    node = file.nodes[name]
    if node["op"] in ("_FusedConv2D", "FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"):
        return _TfjsConvolution(file, node)
    if node["op"] == "AddV2" and not any(each in file.constants for each in node["input"]):
        return _Apply(torch.add)
    if node["op"] == "ResizeBilinear" and node["attr"]["half_pixel_centers"]["b"]:
        return _Apply(_double)
    raise InputError(f"the tfjs operation {node['op']} of the node {name} is not supported")


def _spatial(attribute: Json) -> tuple[int, int]:
    """(height, width) of a list for batch, height, width, channels."""
    _, height, width, _ = attribute["list"]["i"]
    return int(height), int(width)


def _is_same(attributes: Json) -> bool:
    return base64.b64decode(attributes["padding"]["s"]) == b"SAME"


def _double(x: Tensor) -> Tensor:
    """Twice as high and wide: what MoveNet's networks resize to, whatever the size of the picture."""
    x = F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2.0, mode="bilinear", align_corners=False)
    return x.permute(0, 2, 3, 1)
