"""A tfjs graph network as a tflite file in memory, for Google's runtime: the same operations, weights in f32 or, which
is quicker, most of them in 8 bits.

The package `tflite` has the functions that write each table of the format; tables are written children first.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

from di2pose.image.tfjs_graph import Convolution, TfjsFile, read_operation, running_order

Shape = tuple[int, int, int, int]

_VERSION = 3  # of the tflite format
_ALIGNMENT = 16  # bytes, of constants
_TABLES = 1 << 17  # bytes, about: all but the constants
_MANY = 40
"""Input channels of a 1x1 convolution that is worth 8 bits: with all of them MoveNet is no quicker, and its keypoints
move nearly twice as far."""
_ACTIVATIONS = {
    "": tflite.ActivationFunctionType.NONE,
    "Relu": tflite.ActivationFunctionType.RELU,
    "Relu6": tflite.ActivationFunctionType.RELU6,
}
_TYPES = {"<f4": tflite.TensorType.FLOAT32, "<i4": tflite.TensorType.INT32, "|i1": tflite.TensorType.INT8}
_OPERATORS = {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 1, "ADD": 1, "RESIZE_BILINEAR": 3}
"""Kind -> version: those that brought 8-bit weights with a step for each output, and half-pixel centres."""
_CODES = {kind: place for place, kind in enumerate(_OPERATORS)}


def to_tflite(file: TfjsFile, source: str, heads: Sequence[str], shape: Shape, eight_bits: bool = False) -> bytes:
    """The network from the node `source`, of that shape (1, H, W, C), to the nodes `heads`: a tflite file whose outputs
    are the heads in this order.

    `eight_bits`: 1x1 convolutions of many channels, but for the heads, have 8-bit weights; the runtime then rounds
    their inputs to 8 bits, too, over the range that it meets.
    """
    writer = _Writer(sum(each.size for each in file.constants.values()) * 4 + _TABLES)
    places = {source: writer.tensor(shape)}
    shapes = {source: shape}
    for name, inputs in running_order(file, source, heads):
        operation = read_operation(file, name)
        _, height, width, channels = shapes[inputs[0]]
        live = [places[each] for each in inputs]
        if isinstance(operation, Convolution):
            shapes[name] = (1, *operation.output_size(height, width), operation.bias.size)
            coarse = eight_bits and operation.weight.shape[:2] == (1, 1) and channels >= _MANY and name not in heads
            places[name] = writer.convolution(operation, live[0], shapes[name], coarse)
        elif operation == "add":
            shapes[name] = shapes[inputs[0]]
            places[name] = writer.add(live, shapes[name])
        else:
            shapes[name] = (1, 2 * height, 2 * width, channels)
            places[name] = writer.resize(live[0], shapes[name])
    return writer.file(places[source], [places[head] for head in heads])


class _Writer:
    """A flatbuffer that grows by tensors and operators, then is closed by `file`."""

    def __init__(self, bytes_expected: int) -> None:
        self._builder = flatbuffers.Builder(bytes_expected)
        self._tensors: list[int] = []
        self._operators: list[int] = []
        self._buffers = [self._buffer(b"")]  # the first is that of tensors without a value

    def convolution(self, operation: Convolution, source: int, shape: Shape, eight_bits: bool) -> int:
        """File: (h, w, in, out), or (h, w, in, 1) where each channel has its own filter. Tflite: (out, h, w, in) or
        (1, h, w, in)."""
        kind = "DepthwiseConv2D" if operation.depthwise else "Conv2D"
        weight = operation.weight.transpose((3, 0, 1, 2))
        held = self._rounded(weight) if eight_bits else self.tensor(weight.shape, weight)
        inputs = [source, held, self.tensor(operation.bias.shape, operation.bias)]
        settings = {
            "Padding": tflite.Padding.SAME if operation.same else tflite.Padding.VALID,
            "StrideH": operation.stride[0],
            "StrideW": operation.stride[1],
            "DilationHFactor": 1,
            "DilationWFactor": 1,
            "FusedActivationFunction": _ACTIVATIONS[operation.activation],
        }
        settings |= {"DepthMultiplier": 1} if operation.depthwise else {}
        return self._operator("DEPTHWISE_CONV_2D" if operation.depthwise else "CONV_2D", kind, settings, inputs, shape)

    def add(self, inputs: Sequence[int], shape: Shape) -> int:
        return self._operator("ADD", "Add", {}, inputs, shape)

    def resize(self, source: int, shape: Shape) -> int:
        """To that height and width; pixels are squares, as PyTorch has them without align_corners."""
        size = self.tensor((2,), np.array(shape[1:3], np.int32))
        return self._operator("RESIZE_BILINEAR", "ResizeBilinear", {"HalfPixelCenters": True}, [source, size], shape)

    def tensor(self, shape: Sequence[int], value: np.ndarray | None = None, steps: np.ndarray | None = None) -> int:
        """Its index; without a value it is one that depends on the picture. `steps`: what the integers of the value
        count, for each row."""
        buffer = 0
        if value is not None:
            self._buffers.append(self._buffer(np.ascontiguousarray(value).tobytes()))
            buffer = len(self._buffers) - 1
        kind = tflite.TensorType.FLOAT32 if value is None else _TYPES[value.dtype.str]
        fields = {"Shape": self._builder.CreateNumpyVector(np.array(shape, np.int32)), "Type": kind, "Buffer": buffer}
        if steps is not None:
            levels = {
                "Scale": self._builder.CreateNumpyVector(steps),
                "ZeroPoint": self._builder.CreateNumpyVector(np.zeros(len(steps), np.int64)),
                "QuantizedDimension": 0,
            }
            fields["Quantization"] = self._table("QuantizationParameters", levels)
        self._tensors.append(self._table("Tensor", fields))
        return len(self._tensors) - 1

    def _rounded(self, weight: np.ndarray) -> int:
        """Weights (out, ...) as 8-bit multiples of a step for each output."""
        axes = tuple(range(1, weight.ndim))
        steps = np.maximum(np.abs(weight).max(axes, keepdims=True), 1e-12) / 127
        return self.tensor(weight.shape, np.round(weight / steps).astype(np.int8), steps.ravel())

    def file(self, source: int, outputs: Sequence[int]) -> bytes:
        graph = {
            "Tensors": self._tables(tflite.SubGraphStartTensorsVector, self._tensors),
            "Inputs": self._builder.CreateNumpyVector(np.array([source], np.int32)),
            "Outputs": self._builder.CreateNumpyVector(np.array(outputs, np.int32)),
            "Operators": self._tables(tflite.SubGraphStartOperatorsVector, self._operators),
        }
        codes = []
        for kind, version in _OPERATORS.items():
            number = getattr(tflite.BuiltinOperator, kind)
            fields = {"DeprecatedBuiltinCode": number, "BuiltinCode": number, "Version": version}
            codes.append(self._table("OperatorCode", fields))
        model = {
            "Version": _VERSION,
            "OperatorCodes": self._tables(tflite.ModelStartOperatorCodesVector, codes),
            "Subgraphs": self._tables(tflite.ModelStartSubgraphsVector, [self._table("SubGraph", graph)]),
            "Buffers": self._tables(tflite.ModelStartBuffersVector, self._buffers),
        }
        self._builder.Finish(self._table("Model", model), b"TFL3")
        return bytes(self._builder.Output())

    def _operator(self, kind: str, options: str, settings: dict[str, Any], inputs: Sequence[int], shape: Shape) -> int:
        output = self.tensor(shape)
        fields = {
            "OpcodeIndex": _CODES[kind],
            "Inputs": self._builder.CreateNumpyVector(np.array(inputs, np.int32)),
            "Outputs": self._builder.CreateNumpyVector(np.array([output], np.int32)),
            "BuiltinOptionsType": getattr(tflite.BuiltinOptions, f"{options}Options"),
            "BuiltinOptions": self._table(f"{options}Options", settings),
        }
        self._operators.append(self._table("Operator", fields))
        return output

    def _buffer(self, data: bytes) -> int:
        if not data:
            return self._table("Buffer", {})
        self._builder.Prep(_ALIGNMENT, len(data))
        return self._table("Buffer", {"Data": self._builder.CreateByteVector(data)})

    def _table(self, name: str, fields: dict[str, Any]) -> int:
        getattr(tflite, f"{name}Start")(self._builder)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(self._builder, value)
        return int(getattr(tflite, f"{name}End")(self._builder))

    def _tables(self, start: Callable[[Any, int], Any], tables: Sequence[int]) -> int:
        """A vector of tables; a flatbuffer is written from its end."""
        start(self._builder, len(tables))
        for table in reversed(tables):
            self._builder.PrependUOffsetTRelative(table)
        return int(self._builder.EndVector())
