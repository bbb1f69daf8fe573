"""What a .tflite file says: its operations, shapes and constants (the package `tflite` reads the flatbuffer)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from di2pose.errors import InputError
from di2pose.files import reading

_KINDS = {code: kind for kind, code in vars(tflite.BuiltinOperator).items() if not kind.startswith("_")}
_DTYPES = {
    tflite.TensorType.FLOAT32: "<f4",
    tflite.TensorType.FLOAT16: "<f2",
    tflite.TensorType.INT32: "<i4",
    tflite.TensorType.INT8: "<i1",
}


AGAIN = "delete it to fetch it again"
_UNPACKING = ("DEQUANTIZE", "DENSIFY")
"""Operations that only change how a constant is stored."""


@dataclass(frozen=True)
class Operation:
    """One node of the graph; tensors by their index in the file."""

    kind: str
    inputs: tuple[int, ...]
    output: int
    options: Any


class TfliteFile:
    """What a .tflite file says: operations in running order, shapes (batch first, 1), inputs, outputs, constants."""

    def __init__(self, path: Path) -> None:
        with reading(path, AGAIN):
            self._read(path)

    def _read(self, path: Path) -> None:
        self.data = path.read_bytes()
        if self.data[4:8] != b"TFL3":
            raise InputError(f"{path} is not a tflite network (no TFL3 mark in its head): {AGAIN}")
        self._model = tflite.Model.GetRootAsModel(self.data, 0)
        self._graph = self._model.Subgraphs(0)
        self.shapes = [_numbers(self._graph.Tensors(i).ShapeAsNumpy()) for i in range(self._graph.TensorsLength())]
        self.inputs = _numbers(self._graph.InputsAsNumpy())
        self.outputs = _numbers(self._graph.OutputsAsNumpy())
        self.operations = [self._operation(i) for i in range(self._graph.OperatorsLength())]
        self._makers = {operation.output: operation for operation in self.operations}

    def _operation(self, index: int) -> Operation:
        operator = self._graph.Operators(index)
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        # Old files hold the kind in the first field, new ones in the second; the unused one is 0.
        kind = _KINDS[max(code.DeprecatedBuiltinCode(), code.BuiltinCode())]
        (output,) = _numbers(operator.OutputsAsNumpy())
        return Operation(kind, _numbers(operator.InputsAsNumpy()), output, operator.BuiltinOptions())

    def output_named(self, name: str) -> int:
        """The index of one of the network's outputs."""
        names = {self._graph.Tensors(i).Name().decode(): i for i in self.outputs}
        if name not in names:
            raise InputError(f"the network has no output '{name}', only {sorted(names)}")
        return names[name]

    def upstream(self, *outputs: int) -> list[Operation]:
        """The operations that the given tensors need, constants left out, in running order."""
        needed = set(outputs)
        for operation in reversed(self.operations):
            if operation.output in needed and not self.is_constant(operation.output):
                needed.update(operation.inputs)
        return [op for op in self.operations if op.output in needed and not self.is_constant(op.output)]

    def is_constant(self, index: int) -> bool:
        """Whether a tensor does not depend on the input. Its value is not unpacked for that: `constant` takes long."""
        maker = self._makers.get(index)
        if maker is not None:
            return maker.kind in _UNPACKING and self.is_constant(maker.inputs[0])
        return bool(self._model.Buffers(self._graph.Tensors(index).Buffer()).DataLength())

    def constant(self, index: int) -> np.ndarray | None:
        """A stored tensor's value (widened from f16, scaled from integers, made dense), or None for a tensor that
        depends on the input."""
        maker = self._makers.get(index)
        if not self.is_constant(index):
            return None
        if maker is not None:
            value = self.constant(maker.inputs[0])
            assert value is not None
            return value.astype(np.float32)
        tensor = self._graph.Tensors(index)
        buffer = self._model.Buffers(tensor.Buffer())
        if tensor.Type() not in _DTYPES:
            raise InputError(
                f"tensor {index} of the tflite network has type {tensor.Type()}: only f32, f16, i32, i8 are read"
            )
        values = buffer.DataAsNumpy().view(_DTYPES[tensor.Type()])
        if tensor.Sparsity() is not None:
            return _dense(values, self.shapes[index], tensor.Sparsity())
        values = values.reshape(self.shapes[index])
        if (levels := self._levels(index)) is None:
            return values
        scales, zeros, axis = levels
        along = [-1 if each == axis else 1 for each in range(values.ndim)]  # a scale a channel, or one for all
        return ((values - zeros.reshape(along)) * scales.reshape(along)).astype(np.float32)

    def levels(self, index: int) -> tuple[float, int] | None:
        """(step, zero) of a tensor that the network keeps in 8 bits, value = step * (integer - zero); else None."""
        if self._graph.Tensors(index).Type() != tflite.TensorType.INT8 or (levels := self._levels(index)) is None:
            return None
        return float(levels[0][0]), int(levels[1][0])

    def _levels(self, index: int) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Steps, zeros and the axis that they run along; None for a tensor that is not quantised."""
        about = self._graph.Tensors(index).Quantization()
        if about is None or about.ScaleLength() == 0:
            return None
        return about.ScaleAsNumpy().astype(np.float64), about.ZeroPointAsNumpy(), about.QuantizedDimension()


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in np.atleast_1d(values)) if not isinstance(values, int) else ()


def _dense(values: np.ndarray, shape: tuple[int, ...], sparsity: Any) -> np.ndarray:
    """A tensor stored by rows of its last axis: segment bounds a row, and the columns that are not zero."""
    last = sparsity.DimMetadata(len(shape) - 1)
    plain = sparsity.BlockMapLength() == 0 and sparsity.DimMetadataLength() == len(shape)
    sparse_axes = [sparsity.DimMetadata(i).Format() == tflite.DimensionType.SPARSE_CSR for i in range(len(shape))]
    if not plain or sparse_axes != [False] * (len(shape) - 1) + [True]:
        raise InputError("the tflite network holds weights in a sparse form other than rows of the last axis")
    bounds = _index_vector(last.ArraySegmentsType(), last.ArraySegments())
    columns = _index_vector(last.ArrayIndicesType(), last.ArrayIndices())
    rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    dense = np.zeros((len(bounds) - 1, shape[-1]), values.dtype)
    dense[rows, columns] = values
    return dense.reshape(shape)


def _index_vector(kind: int, table: Any) -> np.ndarray:
    vector = {1: tflite.Int32Vector, 2: tflite.Uint16Vector, 3: tflite.Uint8Vector}[kind]()
    vector.Init(table.Bytes, table.Pos)
    return vector.ValuesAsNumpy().astype(np.int64)
