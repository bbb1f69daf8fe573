"""The formats that can be written here, their media types, and the page's example people."""

import io
import logging
import threading
from functools import cache
from importlib.util import find_spec
from mimetypes import MimeTypes
from typing import NamedTuple

from PIL import Image

from di2pose.assets import extract, extracted, fetch, state
from di2pose.data.demo_footage import CLIP, hide_legs, walker
from di2pose.errors import InputError
from di2pose.result import WRITERS

NEEDS = {"parquet": "pyarrow"}
"""Format -> package."""

log = logging.getLogger(__name__)


def media_type(ending: str) -> str:
    """Of a format of `Result.save`, e.g. 'angles.csv'. By Python's own table, not by this machine's."""
    return MimeTypes().guess_type(f"x.{ending}")[0] or "application/octet-stream"


@cache
def formats() -> list[str]:
    """Endings of `Result.save` whose packages are installed."""
    endings = [ending.removeprefix(".") for ending in WRITERS]
    return [ending for ending in endings if ending not in NEEDS or find_spec(NEEDS[ending])]


class Example(NamedTuple):
    """One example picture."""

    name: str
    title: str
    jpeg: bytes


class Examples:
    """Example people, made of what the cache has. A thread that starts with the service fetches what it lacks; offline
    that is logged, and the service runs without them."""

    def __init__(self) -> None:
        self._made: list[Example] | None = None
        self._lock = threading.Lock()
        self.fetching = threading.Thread(target=self._fetch, name="di2pose-examples", daemon=True)
        if not (_has_walker() and state("astronaut") == "ready"):
            self.fetching.start()

    def all(self) -> list[Example]:
        """Those that are in the cache now."""
        with self._lock:
            if self._made is None:
                self._made = _make()
            return self._made

    def _fetch(self) -> None:
        try:
            if not _has_walker():
                extract("sports2d-demo", CLIP)
            fetch("astronaut")
        except (InputError, OSError) as error:
            log.warning("the page has no examples, or not all of them: %s", error)
        with self._lock:
            self._made = None


def _has_walker() -> bool:
    """Whether its video needs no fetching; also True without a package that reads videos."""
    return find_spec("av") is None or extracted("sports2d-demo", CLIP) is not None


def _make() -> list[Example]:
    pictures = []
    folder = extracted("sports2d-demo", CLIP)
    if folder is not None and find_spec("av"):
        whole = walker(folder)
        pictures += [("walker", "a walker", whole), ("walker-hidden", "the walker behind a board", hide_legs(whole))]
    if state("astronaut") == "ready":
        with Image.open(fetch("astronaut")) as picture:
            pictures.append(("astronaut", "an astronaut, cut by the picture", picture.convert("RGB")))
    return [Example(name, title, _jpeg(picture)) for name, title, picture in pictures]


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=92)
    return data.getvalue()
