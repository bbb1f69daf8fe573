"""Garbage collection during imports and the loading of a model, which make a million objects and no garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable cyclic GC: it would take a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def freeze_gc(again: bool = False) -> None:
    """Exempt all objects from GC, for a process that runs one command. `again`: only where it was done before."""
    if not again or gc.get_freeze_count():
        gc.freeze()
