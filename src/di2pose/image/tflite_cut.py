"""A tflite file with other outputs."""

import struct
from collections.abc import Sequence

import tflite

from di2pose.image.tflite_file import TfliteFile

_OUTPUTS, _OPERATORS = 8, 10  # places in the vtable of a SubGraph, fixed by the tflite schema


def cut(file: TfliteFile, outputs: Sequence[int]) -> bytes:
    """The network's file with other outputs, and only the operations that they need."""
    data = bytearray(file.data)
    table = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)._tab
    needed, keep = set(outputs), []
    for index, operation in reversed(list(enumerate(file.operations))):
        if operation.output in needed:
            needed.update(operation.inputs)
            keep.append(index)
    # Operators: the vector of offsets is closed up and shortened where it stands. An offset counts from its own place.
    start = table.Vector(table.Offset(_OPERATORS))
    targets = [table.Indirect(start + 4 * index) for index in reversed(keep)]
    for slot, target in enumerate(targets):
        struct.pack_into("<I", data, start + 4 * slot, target - (start + 4 * slot))
    struct.pack_into("<I", data, start - 4, len(targets))
    # Outputs: a new vector behind the file's last byte.
    data += bytes(-len(data) % 4)
    field = table.Pos + table.Offset(_OUTPUTS)
    struct.pack_into("<I", data, field, len(data) - field)
    data += struct.pack(f"<I{len(outputs)}i", len(outputs), *outputs)
    return bytes(data)
