"""tflite files made of third-party ones, kept in the cache: making one takes as long as running it."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from di2pose.assets import ASSETS, cache_dir, sha256_of
from di2pose.errors import InputError
from di2pose.files import write_bytes, write_text

MOST = 4
"""Of one network: sizes of pictures, and what earlier versions of this package made."""
MAKERS = ("blazepose", "movenet", "networks")
"""The modules that decide what is in such a file: when one of them changes, the file is made anew."""


def cached_network(network: str, detail: str, sources: Sequence[str], make: Callable[[], bytes]) -> Path | bytes:
    """The tflite file that `make` gives out of those assets: from the cache where it is there and whole, else made and
    kept. Where the cache cannot be written, its content. `detail` tells it from others of the same network."""
    folder = cache_dir() / "networks"
    try:
        path = folder / f"{network}-{detail}-{_key(sources)}.tflite"
    except OSError:  # an installation without source code
        return make()
    digest = path.with_suffix(".sha256")
    with suppress(OSError, ValueError):
        if sha256_of(path) == digest.read_text().strip():
            return path
    content = make()
    try:
        write_text(digest, hashlib.sha256(content).hexdigest() + "\n")
        write_bytes(path, content)
    except InputError:
        return content
    _remove_oldest(folder, network, path)
    return path


def _key(sources: Sequence[str]) -> str:
    """Of the assets, and of the code that reads and writes them."""
    known = hashlib.sha256("".join(ASSETS[name].sha256 for name in sources).encode())
    for name in MAKERS:
        known.update(files("di2pose.image").joinpath(f"{name}.py").read_bytes())
    return known.hexdigest()[:16]


def _remove_oldest(folder: Path, network: str, newest: Path) -> None:
    with suppress(OSError):  # another process removes some, too
        others = [path for path in folder.glob(f"{network}-*.tflite") if path != newest]
        for path in sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)[MOST - 1 :]:
            path.unlink()
            path.with_suffix(".sha256").unlink(missing_ok=True)
