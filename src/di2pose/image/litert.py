"""Frozen networks: made once, kept in the cache, and run in LiteRT (package ai-edge-litert) on the CPU.

An image gets as many threads as PyTorch may use, four at most; with more threads than that, images run side by side.
"""

import hashlib
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, LifoQueue
from typing import IO, Any, Literal

import numpy as np
from jaxtyping import Float32, Shaped

from di2pose.assets import ASSETS, cache_dir, fetch, sha256_of
from di2pose.errors import InputError
from di2pose.files import write_bytes, write_text

_THREADS = 4
"""Of one image: on two it takes half as long as on one, with the same numbers."""
_LANES = 4
"""Most images side by side: each needs the network once more, 60 MB for BlazePose heavy."""
MOST_KEPT = 4
"""Made files of one asset: sizes of pictures, and what earlier versions of this package made."""

Outputs = tuple[np.ndarray, ...]
_building = threading.Lock()


class LitertNetwork:
    """Images (B, H, W, C), of the network's own type -> the file's outputs, in its order.

    LiteRT is not faster on a batch, so images run one by one. A second network that begins meanwhile waits: each has
    all threads, so that no core is idle when one takes longer than the other.
    """

    def __init__(self, source: Callable[[], Path | bytes]) -> None:
        """source: gives the path or the content of a tflite file; called whenever an interpreter is built."""
        self._source = source
        # By threads; last in, first out: the weights of the one that was used last are in the processor's cache.
        self._idle: dict[int, LifoQueue[tuple[Any, int, list[int]]]] = defaultdict(LifoQueue)
        self._idle[_threads()].put(self._interpreter(_threads()))

    def __call__(self, images: Shaped[np.ndarray, "B H W C"]) -> Outputs:
        return self.begin(images)()

    def begin(self, images: Shaped[np.ndarray, "B H W C"]) -> Callable[[], Outputs]:
        """Start; the returned function waits for the outputs. With one thread they are computed at once."""
        threads = _threads()
        if threads == 1:
            rows = [self._run(image, threads) for image in images]
            return lambda: _joined(rows)
        pool = _pool(min(_all_threads() // threads, _LANES))
        waiting = [pool.submit(self._run, image, threads) for image in images]
        return lambda: _joined([each.result() for each in waiting])

    def _run(self, image: Shaped[np.ndarray, "H W C"], threads: int) -> Outputs:
        try:
            ready = self._idle[threads].get_nowait()
        except Empty:
            ready = self._interpreter(threads)
        interpreter, source, outputs = ready
        interpreter.set_tensor(source, image[None])
        interpreter.invoke()
        found = tuple(interpreter.get_tensor(each) for each in outputs)
        self._idle[threads].put(ready)
        return found

    def _interpreter(self, threads: int) -> tuple[Any, int, list[int]]:
        """With the numbers of its input and of its outputs."""
        from ai_edge_litert.interpreter import Interpreter

        network = self._source()
        if isinstance(network, Path) and not str(network).isascii():  # on Windows C++ opens no other names
            network = network.read_bytes()
        given = {"model_content": network} if isinstance(network, bytes) else {"model_path": str(network)}
        with _building, without_information():
            made = Interpreter(**given, num_threads=threads)
            made.allocate_tensors()
        (source,), outputs = made.get_input_details(), made.get_output_details()
        return made, source["index"], [each["index"] for each in outputs]


def made_network(how: Literal["cut", "convert"], assets: Sequence[str], *details: Any) -> Path | bytes:
    """The tflite file that the function `how` of `networks` makes of those assets and details: from the cache where it
    is there and whole, else made and kept. Where the cache cannot be written, its content."""
    key = hashlib.sha256(repr((how, [ASSETS[name].sha256 for name in assets], details)).encode())
    maker = find_spec("di2pose.image.networks")
    if maker is not None and maker.origin is not None:  # other code may make another file
        key.update(Path(maker.origin).read_bytes())
    path = cache_dir() / "networks" / f"{assets[-1]}-{key.hexdigest()[:16]}.tflite"
    digest = path.with_suffix(".sha256")
    with suppress(OSError, ValueError):
        if sha256_of(path) == digest.read_text().strip():
            return path
    from di2pose.image import networks

    content: bytes = getattr(networks, how)(*map(fetch, assets), *details)
    try:
        write_text(digest, hashlib.sha256(content).hexdigest() + "\n")
        write_bytes(path, content)
    except InputError:
        return content
    with suppress(OSError):  # another process removes some, too
        others = [each for each in path.parent.glob(f"{assets[-1]}-*.tflite") if each != path]
        for each in sorted(others, key=lambda other: other.stat().st_mtime, reverse=True)[MOST_KEPT - 1 :]:
            each.unlink()
            each.with_suffix(".sha256").unlink(missing_ok=True)
    return path


def exp(values: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """Correctly rounded; numpy's own of float32 differs between processors."""
    with np.errstate(over="ignore"):
        return np.exp(values.astype(np.float64)).astype(np.float32)


def sigmoid(logits: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    return 1 / (1 + exp(-logits))


def _all_threads() -> int:
    """As PyTorch has them, which workers set; without PyTorch by OMP_NUM_THREADS, or as many as processors."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else os.cpu_count() or 1


def _threads() -> int:
    """Of one image."""
    return min(_all_threads(), _THREADS)


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, thread_name_prefix="litert")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def _joined(rows: Sequence[Outputs]) -> Outputs:
    """Outputs of single images as those of the batch."""
    return rows[0] if len(rows) == 1 else tuple(np.concatenate(column) for column in zip(*rows, strict=True))


@contextmanager
def without_information() -> Iterator[None]:
    """What C++ writes to stderr, without its lines of information ("INFO: Created TensorFlow Lite XNNPACK ...")."""
    with ExitStack() as stack:
        try:
            written = stack.enter_context(_scratch_file())
            stderr = os.dup(2)
        except OSError:  # no stderr, or no room
            yield
            return
        try:
            os.dup2(written.fileno(), 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            os.write(2, b"".join(line for line in written if not line.startswith(b"INFO: ")))


def _scratch_file() -> IO[bytes]:
    """In memory where the system can: a service may have no disk to write to."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("di2pose-stderr"), "w+b")
    return tempfile.TemporaryFile()
