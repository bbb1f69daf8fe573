"""tflite files that are made here: a network cut to the tensors that are needed, and a tfjs network converted.

The schema of ai-edge-litert takes long to import, so this module is imported only where a file is made; made files are
kept by `network_cache`.
"""

import base64
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from di2pose.errors import InputError
from di2pose.files import Json, read_json, reading

AGAIN = "delete it to fetch it again"
BOTH_AGAIN = "delete it, and its weights, to fetch them again"
Shape = tuple[int, int, int, int]

_KINDS = {code: kind for kind, code in vars(schema.BuiltinOperator).items() if not kind.startswith("_")}
_ALIGNMENT = 16  # bytes, of constants
_MANY = 40
"""Input channels of a 1x1 convolution that is worth 8 bits: with all of them MoveNet is no quicker, and its keypoints
move nearly twice as far."""
_ACTIVATIONS = {b"Relu": schema.ActivationFunctionType.RELU, b"Relu6": schema.ActivationFunctionType.RELU6}
_TYPES = {"<f4": schema.TensorType.FLOAT32, "<i4": schema.TensorType.INT32, "|i1": schema.TensorType.INT8}
_OPERATORS = {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 1, "ADD": 1, "RESIZE_BILINEAR": 3}
"""Kind -> version: those that brought 8-bit weights with a scale for each output, and half-pixel centres."""


@dataclass(frozen=True)
class Operation:
    """A node of a tflite graph; tensors by their index in the file."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any


class TfliteFile:
    """A parsed tflite network: operations in running order, shapes of all tensors (batch first, 1)."""

    def __init__(self, path: Path) -> None:
        with reading(path, AGAIN):
            data = path.read_bytes()
            if data[4:8] != b"TFL3":
                raise InputError(f"{path} is not a tflite network (no TFL3 mark in its head): {AGAIN}")
            self._model = schema.ModelT.InitFromPackedBuf(data)
            self._graph = self._model.subgraphs[0]
            self.shapes = [_numbers(tensor.shape) for tensor in self._graph.tensors]
            names = [(tensor.name or b"").decode() for tensor in self._graph.tensors]
            self._outputs = {names[i]: i for i in _numbers(self._graph.outputs)}
            self.operations = [self._operation(each) for each in self._graph.operators]

    def _operation(self, table: Any) -> Operation:
        code = self._model.operatorCodes[table.opcodeIndex]
        # Old files hold the kind in the first field, new ones in the second; the unused one is 0.
        kind = _KINDS[max(code.deprecatedBuiltinCode, code.builtinCode)]
        return Operation(kind, _numbers(table.inputs), _numbers(table.outputs), table)

    def output_named(self, name: str) -> int:
        """The index of one of the network's outputs."""
        if name not in self._outputs:
            raise InputError(f"the network has no output '{name}', only {sorted(self._outputs)}")
        return self._outputs[name]

    def upstream(self, outputs: Sequence[int]) -> list[Operation]:
        """The operations that the given tensors need, in running order."""
        needed, found = set(outputs), []
        for operation in reversed(self.operations):
            if not needed.isdisjoint(operation.outputs):
                needed.update(operation.inputs)
                found.append(operation)
        return found[::-1]

    def cut(self, outputs: Sequence[int]) -> bytes:
        """The file with other outputs, and only the operations that they need."""
        self._graph.operators = [operation.table for operation in self.upstream(outputs)]
        self._graph.outputs = np.array(outputs, np.int32)
        return _packed(self._model)


class TfjsFile:
    """A tfjs network: constants by name (as stored, most in f16) and nodes by name."""

    def __init__(self, graph: Path, weights: Path) -> None:
        self.constants: dict[str, np.ndarray] = {}
        with reading(f"the network {graph}", BOTH_AGAIN):
            self._read(read_json(graph, BOTH_AGAIN), graph, weights)

    def _read(self, document: Json, graph: Path, weights: Path) -> None:
        data, at = np.memmap(weights, mode="r"), 0
        entries = document["weightsManifest"][0]["weights"]
        for entry in entries:
            stored = np.dtype({"float16": "<f2"}.get(entry.get("quantization", {}).get("dtype"), entry["dtype"]))
            count = math.prod(operator.index(size) for size in entry["shape"])
            if count < 0 or stored.hasobject:
                raise ValueError(f"{entry['name']} has no size")
            if at + count * stored.itemsize > len(data):
                break
            self.constants[entry["name"]] = np.frombuffer(data, stored, count, at).reshape(entry["shape"])
            at += count * stored.itemsize
        if at != len(data) or len(self.constants) != len(entries):
            raise InputError(f"{weights} does not have the bytes that {graph} lists: delete both to fetch them again")
        self.nodes: dict[str, Json] = {node["name"]: node for node in document["modelTopology"]["node"]}

    def running_order(self, source: str, heads: Sequence[str]) -> list[tuple[str, list[str]]]:
        """The nodes between `source` and `heads`, each after its inputs, which are named with it."""
        order: list[tuple[str, list[str]]] = []
        pending, done, asked = list(reversed(heads)), {source}, set[str]()
        while pending:
            name = pending[-1]
            inputs = [] if name in done else self._live_inputs(name)
            if missing := [each for each in inputs if each not in done]:
                if name in asked:
                    raise InputError(f"the node '{name}' of the tfjs network needs its own value: {BOTH_AGAIN}")
                asked.add(name)
                pending += missing
                continue
            pending.pop()
            if name not in done:
                order.append((name, inputs))
                done.add(name)
        return order

    def _live_inputs(self, name: str) -> list[str]:
        """The inputs of a node that depend on the picture's pixels; a resize's second one is only its size."""
        if name not in self.nodes:
            raise InputError(f"the tfjs network has no node '{name}'")
        inputs = [each for each in self.nodes[name].get("input", []) if each not in self.constants]
        return inputs[:1] if self.nodes[name]["op"] == "ResizeBilinear" else inputs


def to_tflite(file: TfjsFile, source: str, heads: Sequence[str], shape: Shape, eight_bits: bool = False) -> bytes:
    """The network from the node `source`, of that shape (1, H, W, C), to the nodes `heads`, in f32: a tflite file whose
    outputs are the heads in this order.

    `eight_bits`: 1x1 convolutions of many channels, but for the heads, have 8-bit weights; the runtime then rounds
    their inputs to 8 bits, too, over the range that it meets.
    """
    with reading("the tfjs network", BOTH_AGAIN):
        writer = _Writer()
        places = {source: writer.tensor(shape)}
        for name, inputs in file.running_order(source, heads):
            node, live = file.nodes[name], [places[each] for each in inputs]
            if node["op"] in ("_FusedConv2D", "FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"):
                places[name] = writer.convolution(file, node, live[0], eight_bits and name not in heads)
            elif node["op"] == "AddV2" and not any(each in file.constants for each in node["input"]):
                places[name] = writer.operator("ADD", schema.AddOptionsT(), live, writer.shapes[live[0]])
            elif node["op"] == "ResizeBilinear" and node["attr"]["half_pixel_centers"]["b"]:
                places[name] = writer.double(live[0])
            else:
                raise InputError(f"the tfjs operation {node['op']} of the node {name} is not supported")
        return writer.file(places[source], [places[head] for head in heads])


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

    def convolution(self, file: TfjsFile, node: Json, source: int, eight_bits: bool) -> int:
        """Weights in tfjs: (h, w, in, out), or (h, w, in, 1) with a filter for each channel. In tflite: (out, h, w, in)
        or (1, h, w, in)."""
        about, depthwise = node["attr"], "Depthwise" in node["op"]
        if any(int(each) != 1 for each in about.get("dilations", {}).get("list", {}).get("i", [])):
            raise InputError("the tfjs network has dilated convolutions, which are not supported")
        fused = {base64.b64decode(each) for each in about.get("fused_ops", {}).get("list", {}).get("s", [])}
        if unknown := fused - {b"BiasAdd", *_ACTIVATIONS}:
            raise InputError(f"the tfjs network fuses {unknown}, which is not supported")
        weight = file.constants[node["input"][1]].astype(np.float32).transpose(3, 0, 1, 2)
        channels = weight.shape[3 if depthwise else 0]
        bias = file.constants[node["input"][2]] if len(node["input"]) > 2 else np.zeros(channels)
        _, *strides, _ = map(int, about["strides"]["list"]["i"])
        same = base64.b64decode(about["padding"]["s"]) == b"SAME"
        _, *size, wide = self.shapes[source]
        lost = (0, 0) if same else (weight.shape[1] - 1, weight.shape[2] - 1)
        size = [-(-(n - less) // stride) for n, less, stride in zip(size, lost, strides, strict=True)]
        kind = schema.DepthwiseConv2DOptionsT(depthMultiplier=1) if depthwise else schema.Conv2DOptionsT()
        kind.padding = schema.Padding.SAME if same else schema.Padding.VALID
        kind.strideH, kind.strideW = strides
        kind.fusedActivationFunction = max((_ACTIVATIONS.get(each, 0) for each in fused), default=0)
        if eight_bits and weight.shape[1:3] == (1, 1) and wide >= _MANY:
            scales = np.maximum(np.abs(weight).max((1, 2, 3), keepdims=True), 1e-12) / 127
            held = self.tensor(weight.shape, np.round(weight / scales).astype(np.int8), scales.ravel())
        else:
            held = self.tensor(weight.shape, weight)
        inputs = [source, held, self.tensor(bias.shape, bias.astype(np.float32))]
        return self.operator("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", kind, inputs, (1, *size, bias.size))

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


def _numbers(values: Any) -> tuple[int, ...]:
    return () if values is None else tuple(map(int, values))
