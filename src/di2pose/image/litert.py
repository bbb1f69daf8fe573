"""A tflite network in Google's own runtime (package ai-edge-litert): CPU only, about 1.5 times as fast as PyTorch."""

import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import IO

import tflite
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from di2pose.errors import require
from di2pose.image.tflite_file import TfliteFile

_OUTPUTS, _OPERATORS = 8, 10  # places in the vtable of a SubGraph, fixed by the tflite schema
_SIZES = 4  # a network takes about twice its weights' memory


class LitertGraph(nn.Module):
    """Drop-in for TfliteGraph: images (B, H, W, C), of the network's own type -> the asked tensors. One thread, one
    image after the other. `network`: a tflite file, or the bytes of one with these outputs.

    XNNPACK is not faster on a batch, and splitting work over processes uses the cores better than threads do.
    """

    def __init__(self, network: TfliteFile | bytes, outputs: Sequence[int]) -> None:
        super().__init__()
        runtime = require("ai_edge_litert.interpreter", extra="litert")
        self._outputs = tuple(outputs)
        content = network if isinstance(network, bytes) else cut(network, outputs)
        with without_information():
            self._interpreter = runtime.Interpreter(model_content=content, num_threads=1)
            self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]["index"]

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> tuple[Tensor, ...]:
        rows = []
        for image in images.numpy():
            self._interpreter.set_tensor(self._input, image[None])
            self._interpreter.invoke()
            rows.append(tuple(torch.from_numpy(self._interpreter.get_tensor(i)) for i in self._outputs))
        return rows[0] if len(rows) == 1 else tuple(torch.cat(column) for column in zip(*rows, strict=True))


class LitertSizes(nn.Module):
    """A network for images of any size, (B, H, W, C) -> its outputs. `write(H, W)` gives its tflite file for that size,
    and the outputs in it; the networks of the last few sizes stay ready."""

    def __init__(self, write: Callable[[int, int], tuple[bytes, Sequence[int]]]) -> None:
        super().__init__()
        self._ready = lru_cache(maxsize=_SIZES)(lambda height, width: LitertGraph(*write(height, width)))

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = self._ready(*images.shape[1:3])(images)
        return outputs


@contextmanager
def without_information() -> Iterator[None]:
    """What C++ writes to stderr, without its lines of information ("INFO: Created TensorFlow Lite XNNPACK ...")."""
    with ExitStack() as stack:
        try:
            said = stack.enter_context(_scratch_file())
            stderr = os.dup(2)
        except OSError:  # no stderr, or no room
            yield
            return
        try:
            os.dup2(said.fileno(), 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            said.seek(0)
            os.write(2, b"".join(line for line in said if not line.startswith(b"INFO: ")))


def _scratch_file() -> IO[bytes]:
    """In memory where the system can: a service writes nothing to the disk."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("di2pose-stderr"), "w+b")
    return tempfile.TemporaryFile()


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
