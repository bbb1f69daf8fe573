"""Media types, the formats that can be written here, the files of the page, and its example people."""

import io
import logging
import threading
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import NamedTuple

from PIL import Image

from di2pose.assets import extract, extracted, fetch, state
from di2pose.data.demo_footage import CLIP, hide_legs, walker
from di2pose.errors import InputError
from di2pose.result import WRITERS

MEDIA = {
    "json": "application/json", "csv": "text/csv", "npz": "application/octet-stream",
    "trc": "text/tab-separated-values", "bvh": "text/plain", "html": "text/html", "png": "image/png",
    "jpg": "image/jpeg", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "ico": "image/x-icon",
    "woff2": "font/woff2",
}  # fmt: skip
"""Ending -> media type; other formats are plain bytes."""
NEEDS = {"parquet": "pyarrow"}

log = logging.getLogger(__name__)


def media_type(ending: str) -> str:
    """Of a format of `Result.save` ('angles.csv') or the ending of a file."""
    return MEDIA.get(ending.rpartition(".")[2], "application/octet-stream")


@cache
def formats() -> list[str]:
    """Endings of `Result.save` whose packages are installed."""
    endings = [ending.removeprefix(".") for ending in WRITERS]
    return [ending for ending in endings if ending not in NEEDS or find_spec(NEEDS[ending])]


def static_files() -> dict[str, tuple[bytes, str]]:
    """Name -> (content, media type) of everything that the page links: read once, so that no request opens a file."""
    found = {}
    for room in ("di2pose.output", "di2pose.serve"):
        for file in files(room).joinpath("static").iterdir():
            ending = file.name.rpartition(".")[2]
            if file.is_file() and ending in MEDIA:
                found[file.name] = (file.read_bytes(), MEDIA[ending])
    return found


class Example(NamedTuple):
    """One example picture."""

    name: str
    title: str
    jpeg: bytes


class Examples:
    """Example people, made at the first request. A thread that starts with the service fetches what the cache lacks;
    offline that is logged, and the service runs without them."""

    def __init__(self) -> None:
        self._made: dict[str, Example] | None = None
        self._lock = threading.Lock()
        self.fetching = threading.Thread(target=self._fetch, name="di2pose-examples", daemon=True)
        if not (_has_walker() and state("astronaut") == "ready"):
            self.fetching.start()

    def all(self) -> dict[str, Example]:
        """By name: those that are in the cache now."""
        with self._lock:
            if self._made is None:
                self._made = {example.name: example for example in _make()}
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
    found = []
    folder = extracted("sports2d-demo", CLIP)
    if folder is not None and find_spec("av"):
        whole = walker(folder)
        found.append(Example("walker", "a walker", _jpeg(whole)))
        found.append(Example("walker-hidden", "the walker behind a board", _jpeg(hide_legs(whole))))
    if state("astronaut") == "ready":
        with Image.open(fetch("astronaut")) as picture:
            found.append(Example("astronaut", "an astronaut, cut by the picture", _jpeg(picture.convert("RGB"))))
    return found


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=92)
    return data.getvalue()
