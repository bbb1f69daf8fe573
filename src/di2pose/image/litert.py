"""A tflite network in Google's own runtime (package ai-edge-litert): CPU only, about 1.5 times as fast as PyTorch.

An image has as many threads as PyTorch may use, four at most; with more than that, as many images go side by side.
"""

import os
import struct
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from itertools import zip_longest
from queue import Empty, LifoQueue
from typing import IO, Any

import numpy as np
import tflite
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from di2pose.errors import require
from di2pose.image.tflite_file import TfliteFile

_OUTPUTS, _OPERATORS = 8, 10  # places in the vtable of a SubGraph, fixed by the tflite schema
_SIZES = 4  # a network takes about twice its weights' memory
_THREADS = 4
"""Of one image: on two it takes half as long as on one, with the same numbers."""
_PASSES, _LANES = 4, 4
"""Images that a network has seen before it is built once more, for a second image beside the first: it takes as long as
two or three. And how often it is built at most, for its memory: 60 MB for BlazePose heavy."""

Answer = Callable[[], tuple[Tensor, ...]]
"""What a network says, to be waited for."""
_building = threading.Lock()


class LitertGraph(nn.Module):
    """Drop-in for TfliteGraph: images (B, H, W, C), of the network's own type -> the asked tensors. `network`: a tflite
    file, or the bytes of one with these outputs.

    XNNPACK is not faster on a batch. A network that is begun while another is at work waits for its threads: each has
    all of them, so that no core is idle when one takes longer than the other.
    """

    def __init__(self, network: TfliteFile | bytes, outputs: Sequence[int]) -> None:
        super().__init__()
        self._outputs = tuple(outputs)
        self._content = network if isinstance(network, bytes) else cut(network, outputs)
        # By threads; the one that was used last is the one whose weights are near.
        self._idle: dict[int, LifoQueue[Any]] = defaultdict(LifoQueue)
        threads = _threads()
        self._idle[threads].put(self._interpreter(threads))
        self._passes = 0

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> tuple[Tensor, ...]:
        return self.begin(images)()

    def begin(self, images: Shaped[Tensor, "B H W C"]) -> Answer:
        """Begin; the answer is waited for when it is called."""
        threads, count = _threads(), len(images)
        room = torch.get_num_threads() // threads
        lanes = min(room, _LANES, count, 1 + self._passes // _PASSES)
        self._passes += count
        shares = [images[lane::lanes].numpy() for lane in range(lanes)]
        if threads == 1:
            rows = [self._run(share, threads) for share in shares]
            return lambda: _joined(rows)
        waiting = [_pool(room).submit(self._run, share, threads) for share in shares]
        return lambda: _joined([each.result() for each in waiting])

    def _run(self, images: Shaped[np.ndarray, "b H W C"], threads: int) -> list[tuple[Tensor, ...]]:
        """One image after the other, by an interpreter that nobody else uses meanwhile."""
        try:
            interpreter = self._idle[threads].get_nowait()
        except Empty:
            interpreter = self._interpreter(threads)
        rows = []
        for image in images:
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[None])
            interpreter.invoke()
            rows.append(tuple(torch.from_numpy(interpreter.get_tensor(index)) for index in self._outputs))
        self._idle[threads].put(interpreter)
        return rows

    def _interpreter(self, threads: int) -> Any:
        runtime = require("ai_edge_litert.interpreter", extra="litert")
        with _building, without_information():
            made = runtime.Interpreter(model_content=self._content, num_threads=threads)
            made.allocate_tensors()
        return made


class LitertSizes(nn.Module):
    """A network for images of any size, (B, H, W, C) -> its outputs. `write(H, W)` gives its tflite file for that size,
    and the outputs in it; the networks of the last few sizes stay ready."""

    def __init__(self, write: Callable[[int, int], tuple[bytes, Sequence[int]]]) -> None:
        super().__init__()
        self._ready = lru_cache(maxsize=_SIZES)(lambda height, width: LitertGraph(*write(height, width)))

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> tuple[Tensor, ...]:
        return self.begin(images)()

    def begin(self, images: Shaped[Tensor, "B H W C"]) -> Answer:
        """As `LitertGraph.begin`."""
        return self._ready(*images.shape[1:3]).begin(images)


def begin(network: nn.Module, images: Tensor) -> Answer:
    """What a network says of images. Google's runtime begins at once, and other networks may be asked meanwhile;
    PyTorch, which has threads of its own, computes it when it is waited for."""
    if isinstance(network, LitertGraph | LitertSizes):
        return network.begin(images)
    return lambda: network(images)


def _threads() -> int:
    """Of one image."""
    return min(torch.get_num_threads(), _THREADS)


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, thread_name_prefix="litert")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def _joined(lanes: Sequence[list[tuple[Tensor, ...]]]) -> tuple[Tensor, ...]:
    """Answers about single images, image i in lane i modulo their number, as one about all."""
    rows = [row for turn in zip_longest(*lanes) for row in turn if row is not None]
    return rows[0] if len(rows) == 1 else tuple(torch.cat(column) for column in zip(*rows, strict=True))


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
