"""Imports and the loading of a model make a million objects and no garbage; a fifth of their time would go into looking
for it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, nobody looks for garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def never_again() -> None:
    """What is there now is not looked through any more, nor when the process ends: for one that runs one command."""
    gc.freeze()


def still_never() -> None:
    """The same for what was loaded since, where `never_again` was said before; nothing in a process that goes on."""
    if gc.get_freeze_count():
        gc.freeze()
