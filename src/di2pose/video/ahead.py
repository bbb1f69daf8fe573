"""Work ahead: what comes is made by another thread while the caller is busy with what came before.

Two cores are then at work on a video, where one would wait for the other: reading, looking and drawing are different
networks and files, and each needs only what the one before has made.
"""

import atexit
import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")

THREAD = "di2pose ahead"
"""Name of the threads."""
LISTEN_S = 1.0
"""A wait has an end, after which it goes on: on Windows Ctrl-C does not reach one that has none."""


def ahead(items: Generator[T, None, None], room: int) -> Generator[T, None, None]:
    """The items in their order; a thread makes them, at most `room` before they are asked for.

    An error of the thread is raised here, behind the items that came before it. When this generator is closed, early
    or at its end, the thread ends as soon as it has the item that it is at, and has closed the items (a video file).
    """
    shelf = _Shelf[T](room)
    # With the caller's context variables; that of PyTorch which is a thread's own (no_grad) is not carried over.
    thread = threading.Thread(target=copy_context().run, args=(shelf.fill, items), name=THREAD, daemon=True)

    def end() -> None:
        shelf.close()
        if thread is not threading.current_thread():  # whose garbage collection may find a forgotten generator
            thread.join()

    # A generator that is left half-way would be closed when the interpreter is torn down, and wait for a thread that
    # the interpreter has stopped by then.
    atexit.register(end)
    thread.start()
    try:
        yield from shelf.taken()
    finally:
        end()
        atexit.unregister(end)


class _Shelf(Generic[T]):
    """Between the thread that fills it and the one that takes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = self._done = False
        self._error: BaseException | None = None

    def fill(self, items: Generator[T, None, None]) -> None:
        """Put everything there until all is done, or nobody wants more."""
        try:
            with closing(items):
                while self._wanted():
                    self._put(next(items))
        except StopIteration:
            pass
        except BaseException as error:  # whatever it is, it belongs to the one who takes
            self._error = error
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def taken(self) -> Iterator[T]:
        """What is put there, as it comes."""
        while True:
            with self._changed:
                while not self._items and not self._done:
                    self._changed.wait(LISTEN_S)
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
            del item  # else a picture would live until the next one comes
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def close(self) -> None:
        """Nobody takes any more."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def _wanted(self) -> bool:
        """Waits for room. Whether there is somebody who takes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self.room)
            return not self._closed

    def _put(self, item: T) -> None:
        with self._changed:
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
