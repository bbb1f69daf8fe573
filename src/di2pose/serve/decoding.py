"""A process that decodes what clients send, so that every decoder can be ended: by its time, or by its own crash."""

import io
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from PIL import Image

from di2pose.serve.refusal import Refusal

START_S = 120.0
"""For Python and its imports, on a busy machine; usually a fraction of a second."""
PART = 2**20
"""Bytes of pixels in one message."""
AGAIN = "save the file again in a common format (JPEG, MP4), or smaller"


class DecodingProcess:
    """Calls functions in another process, each for at most `seconds`; threads take turns. Where a function takes longer
    or ends the process, its caller gets a Refusal and the next caller a new process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn = threading.Lock()
        self._process: SpawnProcess | None = None

    def start(self) -> None:
        """Does not wait until it is there."""
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=_answer_calls, args=(there,), daemon=True)
        with _blocked_interrupts():
            self._process.start()
        there.close()
        self._ready = False

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of a module returns or raises."""
        with self._turn:
            return self._ask(self._started(), function, *arguments)

    def each(self, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """The items of a generator, each in at most `seconds`."""
        with self._turn:
            process = self._started()
            self._ask(process, _begin, function, *arguments)
            while (item := self._ask(process, _next)) is not None:
                yield item

    def _started(self) -> SpawnProcess:
        if self._process is None or not self._process.is_alive():
            self.start()
        assert self._process is not None
        return self._process

    def _ask(self, process: SpawnProcess, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            if not self._ready and not self._connection.poll(START_S):
                self.close()
                raise Refusal(503, "the decoder does not start: try again later", retry_after_s=60.0)
            self._ready = self._ready or self._connection.recv() is None
            self._connection.send((function, arguments))
            if not self._connection.poll(self.seconds):
                self.close()
                raise Refusal(422, f"decoding was ended, for it took longer than {self.seconds:g} s: {AGAIN}")
            answer = _receive(self._connection)
        except (EOFError, OSError) as error:
            self.close()
            raise Refusal(422, f"the decoder ended at this file (exit code {process.exitcode}): {AGAIN}") from error
        try:
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            del answer, arguments  # else the exception and this frame would hold each other, and the file


_items: Iterator[Any] = iter(())
"""In the process: what `each` goes through."""


def _begin(function: Callable[..., Iterator[Any]], *arguments: Any) -> None:
    global _items
    _items = function(*arguments)


def _next() -> Any:
    return next(_items, None)


def _answer_calls(connection: Connection) -> None:
    """The process: one call after the other, until its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    import_module("di2pose.serve.pictures")  # not within the time of the first call
    with suppress(ImportError):
        import_module("av")
    with suppress(EOFError, OSError):  # the parent is gone
        connection.send(None)
        while True:
            _send(connection, _answer(*connection.recv()))


class _Pickler(pickle.Pickler):
    """RGB pixels go beside the pickle: as a part of it they would be copied more often."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Image.Image):
            return _picture, (value.size, value.info, pickle.PickleBuffer(value.tobytes()))
        return NotImplemented


def _picture(size: tuple[int, int], info: dict[Any, Any], pixels: memoryview) -> Image.Image:
    picture = Image.frombytes("RGB", size, pixels)
    picture.info = info
    return picture


def _send(connection: Connection, answer: Any) -> None:
    content, beside = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(content, protocol=5, buffer_callback=beside.append).dump(answer)
    views = [each.raw() for each in beside]
    connection.send((content.getvalue(), [len(view) for view in views]))
    for view in views:
        for first in range(0, len(view), PART):
            connection.send_bytes(view[first : first + PART])


def _receive(connection: Connection) -> Any:
    content, sizes = connection.recv()
    beside = [bytearray(size) for size in sizes]
    for part in beside:
        for first in range(0, len(part), PART):
            connection.recv_bytes_into(part, first)
    return pickle.loads(content, buffers=beside)


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())  # is not sent otherwise
        return error


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Ctrl-C of a terminal is for the parent alone: a process that is started here gets no SIGINT."""
    if os.name != "posix":
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
