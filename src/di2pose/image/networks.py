"""tflite files made of third-party ones: a network cut to some of its tensors, and a tfjs network converted.

The sources are assets whose sha256 was checked, so that their layout is known. `litert.made_network` keeps the results.
"""

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from di2pose.errors import InputError
from di2pose.files import Json, read_json

_ALIGNMENT = 16  # bytes, of constants
_MANY = 40
"""Input channels of a 1x1 convolution that is worth 8 bits: with all of them MoveNet is no quicker, and its keypoints
move nearly twice as far."""
_ACTIVATIONS = {b"Relu": schema.ActivationFunctionType.RELU, b"Relu6": schema.ActivationFunctionType.RELU6}
_TYPES = {"<f4": schema.TensorType.FLOAT32, "<i4": schema.TensorType.INT32, "|i1": schema.TensorType.INT8}
_OPERATORS = {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 1, "ADD": 1, "RESIZE_BILINEAR": 3}
"""Kind -> version: those that brought 8-bit weights with a scale for each output, and half-pixel centres."""


def cut(network: Path, outputs: Sequence[int]) -> bytes:
    """A tflite file with these tensors as its outputs, and only the operations that they need."""
    model = schema.ModelT.InitFromPackedBuf(network.read_bytes())
    graph = model.subgraphs[0]
    needed, kept = set(outputs), []
    for operation in reversed(graph.operators):
        if not needed.isdisjoint(operation.outputs):
            needed.update(operation.inputs)
            kept.append(operation)
    graph.operators, graph.outputs = kept[::-1], np.array(outputs, np.int32)
    return _packed(model)


def convert(
    graph: Path, weights: Path, source: str, heads: Sequence[str], size: tuple[int, int], eight_bits: bool = False
) -> bytes:
    """A tfjs network from the node `source`, an RGB picture of that size (height, width), to the nodes `heads`, in f32:
    a tflite file whose outputs are the heads in this order.

    `eight_bits`: 1x1 convolutions of many channels, but for the heads, have 8-bit weights; the runtime then rounds
    their inputs to 8 bits, too, over the range that it meets.
    """
    document = read_json(graph, "delete it to fetch it again")
    constants, nodes = _constants(document, weights), document["modelTopology"]["node"]
    needed, known = set(heads), {source, *constants}
    for node in reversed(nodes):  # each stands behind its inputs
        if node["name"] in needed - known:
            # The second input of a resize is only the size, which is always twice that of the first.
            needed.update(node["input"][:1] if node["op"] == "ResizeBilinear" else node["input"])
    writer = _Writer()
    places = {source: writer.tensor((1, *size, 3))}
    for node in nodes:
        name, kind = node["name"], node["op"]
        if name not in needed - known:
            continue
        first = places[node["input"][0]]
        if kind in ("_FusedConv2D", "FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"):
            values = [constants[each] for each in node["input"][1:]]
            places[name] = writer.convolution(node, first, *values, eight_bits=eight_bits and name not in heads)
        elif kind == "AddV2":
            both = [first, places[node["input"][1]]]
            places[name] = writer.operator("ADD", schema.AddOptionsT(), both, writer.shapes[first])
        elif kind == "ResizeBilinear":
            places[name] = writer.double(first)
        else:
            raise InputError(f"the tfjs operation {kind} of the node {name} is not supported")
    return writer.file(places[source], [places[head] for head in heads])


def _constants(document: Json, weights: Path) -> dict[str, np.ndarray]:
    """By name, as stored: most in f16."""
    found, data, at = {}, weights.read_bytes(), 0
    for entry in document["weightsManifest"][0]["weights"]:
        stored = np.dtype("<f2" if "quantization" in entry else entry["dtype"])
        count = math.prod(entry["shape"])
        found[entry["name"]] = np.frombuffer(data, stored, count, at).reshape(entry["shape"])
        at += count * stored.itemsize
    return found


class _Writer:
    """Tensors and operators of a tflite file."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._buffers = [schema.BufferT()]  # the first is that of tensors without a value
        self.shapes: list[tuple[int, ...]] = []

    def tensor(self, shape: Sequence[int], value: np.ndarray | None = None, scales: np.ndarray | None = None) -> int:
        """Its index. Without a value it depends on the picture; `scales`: value of 1 in each row of integers."""
        tensor = schema.TensorT(np.array(shape, np.int32), schema.TensorType.FLOAT32)
        if value is not None:
            tensor.type, tensor.buffer = _TYPES[value.dtype.str], len(self._buffers)
            self._buffers.append(schema.BufferT(np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)))
        if scales is not None:
            zeros = np.zeros(len(scales), np.int64)
            tensor.quantization = schema.QuantizationParametersT(scale=scales, zeroPoint=zeros)
        self._tensors.append(tensor)
        self.shapes.append(tuple(shape))
        return len(self._tensors) - 1

    def operator(self, kind: str, options: Any, inputs: Sequence[int], shape: Sequence[int]) -> int:
        """The index of its output, of that shape."""
        output = self.tensor(shape)
        made = schema.OperatorT(list(_OPERATORS).index(kind), np.array(inputs, np.int32), np.array([output], np.int32))
        made.builtinOptions = options
        made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self._operators.append(made)
        return output

    def double(self, source: int) -> int:
        """Twice as high and wide, bilinear; pixels are squares, as PyTorch has them without align_corners."""
        _, height, width, channels = self.shapes[source]
        size = self.tensor((2,), np.array([2 * height, 2 * width], np.int32))
        options = schema.ResizeBilinearOptionsT(halfPixelCenters=True)
        return self.operator("RESIZE_BILINEAR", options, [source, size], (1, 2 * height, 2 * width, channels))

    def convolution(
        self, node: Json, source: int, weight: np.ndarray, bias: np.ndarray | None = None, *, eight_bits: bool
    ) -> int:
        """Weights in tfjs: (h, w, in, out), or (h, w, in, 1) with a filter for each channel. In tflite: (out, h, w, in)
        or (1, h, w, in)."""
        about, depthwise = node["attr"], "Depthwise" in node["op"]
        fused = {base64.b64decode(each) for each in about.get("fused_ops", {}).get("list", {}).get("s", [])}
        weight = weight.astype(np.float32).transpose(3, 0, 1, 2)
        bias = np.zeros(weight.shape[3 if depthwise else 0]) if bias is None else bias
        _, *strides, _ = map(int, about["strides"]["list"]["i"])
        same = base64.b64decode(about["padding"]["s"]) == b"SAME"
        _, *size, wide = self.shapes[source]
        lost = (0, 0) if same else (weight.shape[1] - 1, weight.shape[2] - 1)
        size = [-(-(n - less) // stride) for n, less, stride in zip(size, lost, strides, strict=True)]
        options = schema.DepthwiseConv2DOptionsT(depthMultiplier=1) if depthwise else schema.Conv2DOptionsT()
        options.padding = schema.Padding.SAME if same else schema.Padding.VALID
        options.strideH, options.strideW = strides
        options.fusedActivationFunction = max((_ACTIVATIONS.get(each, 0) for each in fused), default=0)
        if eight_bits and weight.shape[1:3] == (1, 1) and wide >= _MANY:
            scales = np.maximum(np.abs(weight).max((1, 2, 3), keepdims=True), 1e-12) / 127
            held = self.tensor(weight.shape, np.round(weight / scales).astype(np.int8), scales.ravel())
        else:
            held = self.tensor(weight.shape, weight)
        inputs = [source, held, self.tensor(bias.shape, bias.astype(np.float32))]
        return self.operator("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", options, inputs, (1, *size, bias.size))

    def file(self, source: int, outputs: Sequence[int]) -> bytes:
        places = (np.array([source], np.int32), np.array(outputs, np.int32))
        codes = []
        for kind, version in _OPERATORS.items():
            number = getattr(schema.BuiltinOperator, kind)
            codes.append(schema.OperatorCodeT(number, version=version, builtinCode=number))
        graph = schema.SubGraphT(self._tensors, *places, self._operators)
        return _packed(schema.ModelT(3, codes, [graph], buffers=self._buffers))


class _Aligned(schema.BufferT):  # type: ignore[misc]
    """A constant that begins at a multiple of _ALIGNMENT, as the runtime wants it."""

    def Pack(self, builder: Any) -> Any:
        if self.data is not None:
            builder.Prep(_ALIGNMENT, len(self.data))
        return super().Pack(builder)


def _packed(model: Any) -> bytes:
    model.buffers = [_Aligned(buffer.data) for buffer in model.buffers]
    builder = flatbuffers.Builder(sum(0 if each.data is None else len(each.data) for each in model.buffers) + (1 << 20))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
