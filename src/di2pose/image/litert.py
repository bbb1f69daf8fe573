"""tflite networks in LiteRT (package ai-edge-litert), the one runtime of the frozen networks; CPU only.

An image gets as many threads as PyTorch may use, four at most; with more threads than that, images run side by side.
"""

import os
import sys
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
from typing import IO, Any

import numpy as np
from jaxtyping import Float32, Shaped

_SIZES = 4  # a network takes about twice its weights' memory
_THREADS = 4
"""Of one image: on two it takes half as long as on one, with the same numbers."""
_PASSES, _LANES = 4, 4
"""Images before a network is built once more, to run a second image beside the first: building takes as long as two or
three images. And how often it is built at most, for its memory: 60 MB for BlazePose heavy."""

Outputs = tuple[np.ndarray, ...]
Source = Callable[[], Path | bytes]
"""Gives the path or the content of a tflite file; called whenever an interpreter is built."""
_building = threading.Lock()


class LitertNetwork:
    """Images (B, H, W, C), of the network's own type -> the file's outputs, in its order.

    LiteRT is not faster on a batch, so images run one by one. A second network that begins meanwhile waits: each has
    all threads, so that no core is idle when one takes longer than the other.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        threads = _threads()
        first = self._interpreter(threads)
        self.shapes = tuple(tuple(map(int, each["shape"])) for each in first.get_output_details())
        """Of the outputs, for one image."""
        # By threads; last in, first out: the weights of the one that was used last are in the processor's cache.
        self._idle: dict[int, LifoQueue[Any]] = defaultdict(LifoQueue)
        self._idle[threads].put(first)
        self._passes = 0

    def __call__(self, images: Shaped[np.ndarray, "B H W C"]) -> Outputs:
        return self.begin(images)()

    def begin(self, images: Shaped[np.ndarray, "B H W C"]) -> Callable[[], Outputs]:
        """Start; the returned function waits for the outputs. With one thread they are computed at once."""
        threads, count = _threads(), len(images)
        room = _all_threads() // threads
        lanes = min(room, _LANES, count, 1 + self._passes // _PASSES)
        self._passes += count
        shares = [images[lane::lanes] for lane in range(lanes)]
        if threads == 1:
            rows = [self._run(share, threads) for share in shares]
            return lambda: _joined(rows)
        waiting = [_pool(room).submit(self._run, share, threads) for share in shares]
        return lambda: _joined([each.result() for each in waiting])

    def _run(self, images: Shaped[np.ndarray, "b H W C"], threads: int) -> list[Outputs]:
        try:
            interpreter = self._idle[threads].get_nowait()
        except Empty:
            interpreter = self._interpreter(threads)
        place = interpreter.get_input_details()[0]["index"]
        outputs = [each["index"] for each in interpreter.get_output_details()]
        rows = []
        for image in images:
            interpreter.set_tensor(place, image[None])
            interpreter.invoke()
            rows.append(tuple(interpreter.get_tensor(index) for index in outputs))
        self._idle[threads].put(interpreter)
        return rows

    def _interpreter(self, threads: int) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        network = self._source()
        if isinstance(network, Path) and not str(network).isascii():  # on Windows C++ opens no other names
            network = network.read_bytes()
        given = {"model_content": network} if isinstance(network, bytes) else {"model_path": str(network)}
        with _building, without_information():
            made = Interpreter(**given, num_threads=threads)
            made.allocate_tensors()
        return made


class LitertSizes:
    """A network for images of any size. `source(H, W)` gives the tflite file for that size; the networks of the last
    few sizes stay ready."""

    def __init__(self, source: Callable[[int, int], Source]) -> None:
        self._ready = lru_cache(maxsize=_SIZES)(lambda height, width: LitertNetwork(source(height, width)))

    def __call__(self, images: Shaped[np.ndarray, "B H W C"]) -> Outputs:
        return self.begin(images)()

    def begin(self, images: Shaped[np.ndarray, "B H W C"]) -> Callable[[], Outputs]:
        """As `LitertNetwork.begin`."""
        return self._ready(*images.shape[1:3]).begin(images)


def exp(values: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """Correctly rounded; numpy's own of float32 differs between processors."""
    with np.errstate(over="ignore"):
        return np.exp(values.astype(np.float64)).astype(np.float32)


def sigmoid(logits: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    return 1 / (1 + exp(-logits))


def _all_threads() -> int:
    """As PyTorch has them, which workers set; without PyTorch as OMP_NUM_THREADS says, or as many as processors."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) else os.cpu_count() or 1


def _threads() -> int:
    """Of one image."""
    return min(_all_threads(), _THREADS)


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, thread_name_prefix="litert")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def _joined(lanes: Sequence[list[Outputs]]) -> Outputs:
    """Outputs of single images, image i in lane i modulo their number, as those of the batch."""
    rows = [row for turn in zip_longest(*lanes) for row in turn if row is not None]
    return rows[0] if len(rows) == 1 else tuple(np.concatenate(column) for column in zip(*rows, strict=True))


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
