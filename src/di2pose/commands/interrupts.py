"""Ctrl-C at safe moments only: a file or a message is finished first."""

import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class DeferredSigint:
    """Inside `with DeferredSigint() as deferred:` Ctrl-C waits for the end of the block, or for the next item of
    `deferred.between(...)`. A second one while the first waits is raised at once.

    Without effect outside of the main thread, and where the caller has a SIGINT handler of its own.
    """

    def __init__(self) -> None:
        self._waiting = self._open = self._installed = False

    def __enter__(self) -> "DeferredSigint":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._defer)
            self._installed = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._waiting and kind is not KeyboardInterrupt:
                raise KeyboardInterrupt

    def between(self, items: Iterable[T]) -> Iterator[T]:
        """The items; Ctrl-C is raised while one is made, and not while the caller works on it."""
        iterator = iter(items)
        while True:
            try:
                self._open = True
                if self._waiting:
                    self._waiting = False
                    raise KeyboardInterrupt
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._open = False
            yield item

    def _defer(self, number: int, frame: FrameType | None) -> None:
        if self._open or self._waiting:
            self._waiting = self._open = False
            raise KeyboardInterrupt
        self._waiting = True
