"""Folders of the cache that are built once a machine: body model, wardrobe, motion."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from di2pose.assets import cache_dir


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Folder `name` of the cache. The first call ever on a machine has `build` fill it; it appears whole or not."""
    folder = cache_dir() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        new = Path(scratch) / name
        new.mkdir()
        build(new)
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first: its folder is the same
                raise
    return folder
