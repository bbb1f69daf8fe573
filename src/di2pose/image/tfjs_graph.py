"""A tfjs graph network as a PyTorch module that walks the file's own graph, from one node to the nodes that are asked.

Images are B H W C, as in the file; convolutions see them as views in channels-last memory. Only the operations that our
networks use are here; any other raises an error that names it. Batched, though the files say one image.
"""

import base64
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.errors import InputError
from di2pose.files import Json, read_json, reading
from di2pose.image.exporting import is_exporting
from di2pose.image.padding import same_padding

AGAIN = "delete it, and its weights, to fetch them again"


class TfjsFile:
    """Constants by name (as stored, most in f16) and nodes by name."""

    def __init__(self, graph: Path, weights: Path) -> None:
        self.constants: dict[str, np.ndarray] = {}
        with reading(f"the network {graph}", AGAIN):
            self._read(read_json(graph, AGAIN), graph, weights)

    def _read(self, document: Json, graph: Path, weights: Path) -> None:
        data, at = np.memmap(weights, mode="r"), 0  # most starts need three numbers of it (`kept_network.py`)
        for entry in document["weightsManifest"][0]["weights"]:
            stored = np.dtype({"float16": "<f2"}.get(entry.get("quantization", {}).get("dtype"), entry["dtype"]))
            count = math.prod(operator.index(size) for size in entry["shape"])
            if count < 0 or stored.hasobject:
                raise ValueError(f"{entry['name']} has no size")
            if at + count * stored.itemsize > len(data):
                break
            self.constants[entry["name"]] = np.frombuffer(data, stored, count, at).reshape(entry["shape"])
            at += count * stored.itemsize
        if at != len(data) or len(self.constants) != len(document["weightsManifest"][0]["weights"]):
            raise InputError(
                f"{weights} has more or fewer bytes than {graph} tells of: delete both to fetch them again"
            )
        self.nodes: dict[str, Json] = {node["name"]: node for node in document["modelTopology"]["node"]}


@dataclass(frozen=True)
class Convolution:
    """What a file says of one."""

    weight: Float[np.ndarray, "h w n m"]
    """In channels, out channels; or, depth-wise, channels and 1."""
    bias: Float[np.ndarray, " out"]
    stride: tuple[int, int]
    """Down, across."""
    same: bool
    """Padded with zeros to the size over the stride, as TensorFlow does; else not padded."""
    activation: Literal["", "Relu", "Relu6"]
    depthwise: bool

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        lost = (0, 0) if self.same else (self.weight.shape[0] - 1, self.weight.shape[1] - 1)
        return -(-(height - lost[0]) // self.stride[0]), -(-(width - lost[1]) // self.stride[1])


Operation = Convolution | Literal["add", "double"]
"""What our networks do; `double`: twice as high and wide, bilinear, whatever the size of the picture."""


class TfjsGraph(nn.Module):
    """The value of the node `source` -> the values of the nodes `heads`. Frozen. One image after the other: the maps of
    one stay in the processor's cache, those of a batch do not."""

    def __init__(self, file: TfjsFile, source: str, heads: Sequence[str]) -> None:
        super().__init__()
        self._source, self._heads = source, tuple(heads)
        with reading("the tfjs network", AGAIN):
            self._order = running_order(file, source, heads)
            self.steps = nn.ModuleList(_step(read_operation(file, name)) for name, _ in self._order)
        last_use = {each: place for place, (_, inputs) in enumerate(self._order) for each in inputs}
        self._drop = [
            [each for each in inputs if last_use[each] == place and each not in heads]
            for place, (_, inputs) in enumerate(self._order)
        ]
        self.requires_grad_(False)
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        chunks = (x,) if x.device.type != "cpu" or is_exporting() else x.split(1)
        return tuple(torch.cat(head) for head in zip(*map(self._walk, chunks), strict=True))

    def _walk(self, x: Tensor) -> tuple[Tensor, ...]:
        values = {self._source: x}
        for step, (name, inputs), drop in zip(self.steps, self._order, self._drop, strict=True):
            values[name] = step(*(values[each] for each in inputs))
            for each in drop:
                values.pop(each, None)
        return tuple(values[head] for head in self._heads)


def running_order(file: TfjsFile, source: str, heads: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The nodes between `source` and `heads`, each behind its inputs, which are named with it."""
    order: list[tuple[str, list[str]]] = []
    pending, done, asked = list(reversed(heads)), {source}, set[str]()
    while pending:
        name = pending[-1]
        inputs = [] if name in done else _live_inputs(file, name)
        if missing := [each for each in inputs if each not in done]:
            if name in asked:
                raise InputError(f"the node '{name}' of the tfjs network needs its own value: {AGAIN}")
            asked.add(name)
            pending += missing
            continue
        pending.pop()
        if name not in done:
            order.append((name, inputs))
            done.add(name)
    return order


def read_operation(file: TfjsFile, name: str) -> Operation:
    """What the node does; an error names those that our networks do not use."""
    node = file.nodes[name]
    if node["op"] in ("_FusedConv2D", "FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"):
        return _convolution(file, node)
    if node["op"] == "AddV2" and not any(each in file.constants for each in node["input"]):
        return "add"
    if node["op"] == "ResizeBilinear" and node["attr"]["half_pixel_centers"]["b"]:
        return "double"
    raise InputError(f"the tfjs operation {node['op']} of the node {name} is not supported")


def _convolution(file: TfjsFile, node: Json) -> Convolution:
    attributes = node["attr"]
    if any(int(each) != 1 for each in attributes.get("dilations", {}).get("list", {}).get("i", [])):
        raise InputError("the tfjs network has dilated convolutions, which are not supported")
    fused = {base64.b64decode(each) for each in attributes.get("fused_ops", {}).get("list", {}).get("s", [])}
    if unknown := fused - {b"BiasAdd", b"Relu", b"Relu6"}:
        raise InputError(f"the tfjs network fuses {unknown}, which is not supported")
    depthwise = "Depthwise" in node["op"]
    weight = file.constants[node["input"][1]].astype(np.float32)
    channels = weight.shape[2 if depthwise else 3]
    bias = file.constants[node["input"][2]] if len(node["input"]) > 2 else np.zeros(channels)
    return Convolution(
        weight,
        bias.astype(np.float32),
        stride=_spatial(attributes["strides"]),
        same=base64.b64decode(attributes["padding"]["s"]) == b"SAME",
        activation="Relu6" if b"Relu6" in fused else "Relu" if b"Relu" in fused else "",
        depthwise=depthwise,
    )


class _TfjsConvolution(nn.Module):
    def __init__(self, read: Convolution) -> None:
        super().__init__()
        # PyTorch: (out, in / groups, h, w).
        kernel = torch.from_numpy(read.weight.transpose((2, 3, 0, 1) if read.depthwise else (3, 2, 0, 1)).copy())
        self.weight = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(torch.from_numpy(read.bias))
        self.groups = len(kernel) if read.depthwise else 1
        self.reach, self.stride, self.same = kernel.shape[2:], read.stride, read.same
        self.low = 0.0 if read.activation else None
        self.high = 6.0 if read.activation == "Relu6" else None

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)  # B C H W
        if self.same:
            x = F.pad(x, same_padding([int(n) for n in x.shape[2:]], self.reach, self.stride))
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


def _step(operation: Operation) -> nn.Module:
    if isinstance(operation, Convolution):
        return _TfjsConvolution(operation)
    return _Apply(torch.add if operation == "add" else _double)


def _spatial(attribute: Json) -> tuple[int, int]:
    """(height, width) of a list for batch, height, width, channels."""
    _, height, width, _ = attribute["list"]["i"]
    return int(height), int(width)


def _double(x: Tensor) -> Tensor:
    x = F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2.0, mode="bilinear", align_corners=False)
    return x.permute(0, 2, 3, 1)
