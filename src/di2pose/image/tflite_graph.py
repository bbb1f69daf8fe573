"""A tflite network as a PyTorch module that walks the file's own graph: batched, on any device, only as far as asked.

Inside, images are NCHW tensors in channels-last memory; what comes in and what goes out is NHWC, as in the file. A
quantised network is walked in floats that are rounded to its 8-bit levels after every operation; its convolutions sum
whole numbers, so that every runtime rounds alike. Only the operations that our networks use are here; any other raises
an error that names it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tflite
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.errors import InputError
from di2pose.files import reading
from di2pose.image.padding import same_padding
from di2pose.image.tflite_file import AGAIN, Operation, TfliteFile


class TfliteGraph(nn.Module):
    """Images (B, H, W, C) -> the asked tensors of the file, each with the batch B in place of its first size."""

    def __init__(self, file: TfliteFile, outputs: Sequence[int]) -> None:
        super().__init__()
        with reading("the tflite network", AGAIN):
            self._build(file, outputs)
        self.requires_grad_(False)
        self.eval()

    def _build(self, file: TfliteFile, outputs: Sequence[int]) -> None:
        self.input_shape = file.shapes[file.inputs[0]]
        operations = file.upstream(*outputs)
        self.steps = nn.ModuleList(_step(file, op) for op in operations)
        live = [[i for i in op.inputs if not file.is_constant(i)] for op in operations]
        self._wiring = [(inputs, op.output) for inputs, op in zip(live, operations, strict=True)]
        self._source, self._outputs = file.inputs[0], tuple(outputs)
        last_use = {i: step for step, inputs in enumerate(live) for i in inputs}
        self._drop = [
            [i for i in inputs if last_use[i] == step and i not in outputs] for step, inputs in enumerate(live)
        ]

    def forward(self, images: Float[Tensor, "B H W C"]) -> tuple[Tensor, ...]:
        values = {self._source: images.permute(0, 3, 1, 2)}
        for step, (inputs, output), drop in zip(self.steps, self._wiring, self._drop, strict=True):
            values[output] = step(*(values[i] for i in inputs))
            for index in drop:
                values.pop(index, None)
        return tuple(_to_file_order(values[i]) for i in self._outputs)


class _Quantised(nn.Module):
    """An operation whose result is rounded to the levels that 8 bits of the given step and zero can tell."""

    def __init__(self, step: nn.Module, scale: float, zero: int) -> None:
        super().__init__()
        self.step, self.scale = step, scale
        self.low, self.high = -128 - zero, 127 - zero

    def forward(self, *inputs: Tensor) -> Tensor:
        x: Tensor = self.step(*inputs)
        return (x / self.scale).round_().clamp_(self.low, self.high).mul_(self.scale)


class _Convolution(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        deep = op.kind == "DEPTHWISE_CONV_2D"
        options = _options(op, tflite.DepthwiseConv2DOptions if deep else tflite.Conv2DOptions)
        weight, bias = file.constant(op.inputs[1]), file.constant(op.inputs[2])
        assert weight is not None
        assert bias is not None
        # File: (out, h, w, in) or, depth-wise, (1, h, w, out). PyTorch: (out, in / groups, h, w).
        kernel = torch.from_numpy(weight.transpose((3, 0, 1, 2) if deep else (0, 3, 1, 2)).astype(np.float32))
        self.weight = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(torch.from_numpy(bias.astype(np.float32)))
        self.groups = file.shapes[op.inputs[0]][3] if deep else 1
        self.stride = (options.StrideH(), options.StrideW())
        self.dilation = (options.DilationHFactor(), options.DilationWFactor())
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, kernel.shape[2:], strict=True)]
        self.padding, self.extra = _padding(options.Padding(), file.shapes[op.inputs[0]], reach, self.stride)
        self.low, self.high = _activation(options.FusedActivationFunction())

    def forward(self, x: Tensor) -> Tensor:
        if self.extra is not None:
            x = F.pad(x, self.extra)
        x = F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return x if self.low is None else x.clamp_(self.low, self.high)


class _QuantisedConvolution(_Convolution):
    """Of whole numbers, whose sums a float32 holds exactly, or nearly so, in whatever order they are summed."""

    unit: Tensor

    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__(file, op)
        levels = file.levels(op.inputs[0])
        assert levels is not None
        self.step = levels[0]
        steps = torch.from_numpy(file.steps(op.inputs[1])).float().view(-1, 1, 1, 1)
        self.weight = nn.Parameter((self.weight / steps).round())
        self.register_buffer("unit", (self.step * steps).view(1, -1, 1, 1), persistent=False)
        self.bias = nn.Parameter((self.bias / self.unit.flatten()).round())
        self.range, self.low, self.high = (self.low, self.high), None, None

    def forward(self, x: Tensor) -> Tensor:
        # The second rounding changes nothing, but keeps an optimiser from drawing the unit into the weights.
        x = super().forward((x / self.step).round_()).round_() * self.unit
        return x if self.range[0] is None else x.clamp_(*self.range)


class _MaxPool(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        options = _options(op, tflite.Pool2DOptions)
        self.size = (options.FilterHeight(), options.FilterWidth())
        self.stride = (options.StrideH(), options.StrideW())
        self.padding, self.extra = _padding(options.Padding(), file.shapes[op.inputs[0]], self.size, self.stride)
        self.low, self.high = _activation(options.FusedActivationFunction())

    def forward(self, x: Tensor) -> Tensor:
        if self.extra is not None:
            x = F.pad(x, self.extra, value=-torch.inf)
        x = F.max_pool2d(x, self.size, self.stride, self.padding)
        return x if self.low is None else x.clamp_(self.low, self.high)


class _Add(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        self.low, self.high = _activation(_options(op, tflite.AddOptions).FusedActivationFunction())

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        return total if self.low is None else total.clamp_(self.low, self.high)


class _Pad(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        amounts = file.constant(op.inputs[1])
        assert amounts is not None
        _, rows, columns, channels = amounts.tolist()
        self.amounts = (*columns, *rows, *channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.amounts)


class _ResizeBilinear(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        options = _options(op, tflite.ResizeBilinearOptions)
        if options.AlignCorners() or not options.HalfPixelCenters():
            raise InputError("this tflite network resizes without half-pixel centres, which is not supported")
        self.size = file.shapes[op.output][1:3]

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, size=self.size, mode="bilinear", align_corners=False)


class _ResizeNearest(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        self.size = file.shapes[op.output][1:3]

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, size=self.size, mode="nearest")


class _Same(nn.Module):
    """Between integers and floats: nothing to do, as all is kept in floats."""

    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class _Reshape(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        self.shape = file.shapes[op.output][1:]
        if len(self.shape) == 3:
            raise InputError("this tflite network reshapes into an image, which is not supported")

    def forward(self, x: Tensor) -> Tensor:
        return _to_file_order(x).reshape(x.shape[0], *self.shape)


class _DepthToSpace(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        self.block = _options(op, tflite.DepthToSpaceOptions).BlockSize()

    def forward(self, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        n = self.block
        # tflite's channel is (row in block, column in block, channel); pixel_shuffle would have the channel first.
        x = x.reshape(count, n, n, channels // n**2, height, width).permute(0, 3, 4, 1, 5, 2)
        return x.reshape(count, channels // n**2, height * n, width * n)


class _Concatenation(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()
        axis, rank = _options(op, tflite.ConcatenationOptions).Axis(), len(file.shapes[op.output])
        self.axis = (0, 2, 3, 1)[axis] if rank == 4 else axis

    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, self.axis)


class _Logistic(nn.Module):
    def __init__(self, file: TfliteFile, op: Operation) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()


_BUILDERS: dict[str, Callable[[TfliteFile, Operation], nn.Module]] = {
    "CONV_2D": _Convolution,
    "DEPTHWISE_CONV_2D": _Convolution,
    "MAX_POOL_2D": _MaxPool,
    "ADD": _Add,
    "PAD": _Pad,
    "RESIZE_BILINEAR": _ResizeBilinear,
    "RESIZE_NEAREST_NEIGHBOR": _ResizeNearest,
    "QUANTIZE": _Same,
    "DEQUANTIZE": _Same,
    "RESHAPE": _Reshape,
    "DEPTH_TO_SPACE": _DepthToSpace,
    "CONCATENATION": _Concatenation,
    "LOGISTIC": _Logistic,
}


def _step(file: TfliteFile, op: Operation) -> nn.Module:
    if op.kind not in _BUILDERS:
        raise InputError(f"the tflite operation {op.kind} is not supported; there are: {', '.join(sorted(_BUILDERS))}")
    levels = file.levels(op.output)
    if levels is None:
        return _BUILDERS[op.kind](file, op)
    build = _BUILDERS[op.kind]
    return _Quantised((_QuantisedConvolution if build is _Convolution else build)(file, op), *levels)


def _options(op: Operation, kind: Any) -> Any:
    options = kind()
    options.Init(op.options.Bytes, op.options.Pos)
    return options


def _activation(code: int) -> tuple[float | None, float | None]:
    """The fused activation as a clamp: (None, None) for none."""
    ranges = {
        tflite.ActivationFunctionType.NONE: (None, None),
        tflite.ActivationFunctionType.RELU: (0.0, None),
        tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    }
    if code not in ranges:
        raise InputError(f"the tflite activation {code} is not supported; there are none, relu and relu6")
    return ranges[code]


def _padding(
    kind: int, shape: Sequence[int], reach: Sequence[int], stride: Sequence[int]
) -> tuple[tuple[int, int], tuple[int, int, int, int] | None]:
    """(symmetric padding that a convolution does itself, None), or ((0, 0), what must be padded before it)."""
    if kind == tflite.Padding.VALID:
        return (0, 0), None
    left, right, top, bottom = same_padding(shape[1:3], reach, stride)
    if (left, top) == (right, bottom):
        return (top, left), None
    return (0, 0), (left, right, top, bottom)


def _to_file_order(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x
