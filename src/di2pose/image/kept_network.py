"""Networks made ready for Google's runtime out of third-party files, kept in the cache: it takes as long to make them
as to run them, and the runtime opens a file without copying it."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from di2pose.assets import ASSETS, cache_dir
from di2pose.checked import forget, has_sha256
from di2pose.errors import InputError
from di2pose.files import write_bytes, write_text

MOST = 4
"""Of one network: sizes of pictures, and what earlier versions of this package made."""
MAKERS = ("blazepose", "efficientdet", "movenet", "multipose", "tfjs_graph", "tfjs_to_tflite", "tflite_cut")
"""The modules that say what is in such a file: when one of them changes, the file is made anew."""


def kept(network: str, detail: str, sources: Sequence[str], make: Callable[[], bytes]) -> Path | bytes:
    """The tflite file that `make` gives out of those assets: from the cache where it is there and whole, else made and
    kept. Where the cache cannot be written, its bytes. `detail`: what tells it from others of the same network."""
    folder = cache_dir() / "networks"
    try:
        path = folder / f"{network}-{detail}-{_key(sources)}.tflite"
    except OSError:  # an installation without source code
        return make()
    told = path.with_suffix(".sha256")
    with suppress(OSError, ValueError):
        if has_sha256(path, told.read_text().strip()):
            return path
    content = make()
    try:
        write_text(told, hashlib.sha256(content).hexdigest() + "\n")
        write_bytes(path, content)
    except InputError:
        return content
    _tidy(folder, network, path)
    return path


def _key(sources: Sequence[str]) -> str:
    """Of the assets, and of the code that reads and writes them."""
    known = hashlib.sha256("".join(ASSETS[name].sha256 for name in sources).encode())
    for name in MAKERS:
        known.update(files("di2pose.image").joinpath(f"{name}.py").read_bytes())
    return known.hexdigest()[:16]


def _tidy(folder: Path, network: str, newest: Path) -> None:
    """Remove the oldest files of a network."""
    with suppress(OSError):  # another process tidies up, too
        others = [path for path in folder.glob(f"{network}-*.tflite") if path != newest]
        for path in sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)[MOST - 1 :]:
            forget(path)
            path.with_suffix(".sha256").unlink(missing_ok=True)
