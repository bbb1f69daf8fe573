"""Stopping a prediction from outside: its loops call `check`, which calls the caller's function."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

_function: ContextVar[Callable[[], None] | None] = ContextVar("interruption", default=None)


def check() -> None:
    """Called once in each diffusion step, encoder batch and guidance step; raises what the caller's function raises."""
    function = _function.get()
    if function is not None:
        function()


@contextmanager
def interruptible(function: Callable[[], None]) -> Iterator[None]:
    """Inside, `check` calls `function`. Without this it does nothing."""
    token = _function.set(function)
    try:
        yield
    finally:
        _function.reset(token)


@contextmanager
def deferred_sigint() -> Iterator[None]:
    """Inside, Ctrl-C is raised by the next `check` or at the end of the block, never while a file is written; a second
    Ctrl-C is raised at once. SIGTERM, where nobody handles it, counts as Ctrl-C.

    Without effect outside of the main thread, and where SIGINT is ignored or handled by the caller.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    before: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        before[signal.SIGTERM] = signal.SIG_DFL
    received = waiting = False

    def defer(number: int, frame: FrameType | None) -> None:
        nonlocal received, waiting
        if received:
            raise KeyboardInterrupt
        received = waiting = True

    def raise_waiting() -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, defer)
    try:
        with interruptible(raise_waiting):
            yield
        raise_waiting()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
