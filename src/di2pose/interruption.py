"""Stopping a prediction from outside: its loops call `check`, which calls the caller's function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
