"""A tflite network in Google's own runtime (package ai-edge-litert): CPU only, about 1.5 times as fast as PyTorch.

An image has as many threads as PyTorch may use, four at most; with more than that, as many images go side by side.
"""

import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from queue import Empty, LifoQueue
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

if TYPE_CHECKING:
    from di2pose.image.tflite_file import TfliteFile

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
    file, the bytes of one, or what gives its bytes or path whenever it is built. `outputs`: None are the file's own.

    XNNPACK is not faster on a batch. A network that is begun while another is at work waits for its threads: each has
    all of them, so that no core is idle when one takes longer than the other.
    """

    def __init__(
        self, network: "TfliteFile | bytes | Callable[[], Path | bytes]", outputs: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(network, bytes) and not callable(network):
            from di2pose.image.tflite_cut import cut

            network = cut(network, network.outputs if outputs is None else outputs)
        self._network = network
        threads = _threads()
        first = self._interpreter(threads)
        told = {each["index"]: tuple(map(int, each["shape"])) for each in first.get_output_details()}
        self._outputs = tuple(told if outputs is None else outputs)
        self.shapes = tuple(told[index] for index in self._outputs)
        """Of the outputs, for one image."""
        # By threads; the one that was used last is the one whose weights are near.
        self._idle: dict[int, LifoQueue[Any]] = defaultdict(LifoQueue)
        self._idle[threads].put(first)
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
        from ai_edge_litert.interpreter import Interpreter

        network = self._network() if callable(self._network) else self._network
        if isinstance(network, Path) and not str(network).isascii():  # on Windows C++ opens no other names
            network = network.read_bytes()
        given = {"model_content": network} if isinstance(network, bytes) else {"model_path": str(network)}
        with _building, without_information():
            made = Interpreter(**given, num_threads=threads)
            made.allocate_tensors()
        return made


class LitertSizes(nn.Module):
    """A network for images of any size, (B, H, W, C) -> its outputs. `write(H, W)` gives its tflite file for that size,
    as `LitertGraph` takes it; the networks of the last few sizes stay ready."""

    def __init__(self, write: Callable[[int, int], bytes | Callable[[], Path | bytes]]) -> None:
        super().__init__()
        self._ready = lru_cache(maxsize=_SIZES)(lambda height, width: LitertGraph(write(height, width)))

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
