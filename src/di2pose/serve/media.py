"""The formats that can be written here, their media types, and the page's example people."""

import io
import logging
import threading
from functools import cache
from importlib.util import find_spec
from mimetypes import MimeTypes
from pathlib import Path

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


class Examples:
    """Example people, made of what the cache has. A thread that starts with the service fetches what it lacks; offline
    that is logged, and the service runs without them."""

    def __init__(self) -> None:
        self.reads_videos = find_spec("av") is not None
        self.fetching = threading.Thread(target=self._fetch, name="di2pose-examples", daemon=True)
        if state("astronaut") != "ready" or (self.reads_videos and extracted("sports2d-demo", CLIP) is None):
            self.fetching.start()

    def all(self) -> dict[str, tuple[str, bytes]]:
        """Name -> title and JPEG of those that are in the cache now."""
        folder = extracted("sports2d-demo", CLIP) if self.reads_videos else None
        return _walkers(folder) | (_astronaut() if state("astronaut") == "ready" else {})

    def _fetch(self) -> None:
        try:
            if self.reads_videos:
                extract("sports2d-demo", CLIP)
            fetch("astronaut")
        except (InputError, OSError) as error:
            log.warning("the page has no examples, or not all of them: %s", error)


@cache
def _walkers(folder: Path | None) -> dict[str, tuple[str, bytes]]:
    if folder is None:
        return {}
    whole = walker(folder)
    return {
        "walker": ("a walker", _jpeg(whole)),
        "walker-hidden": ("the walker behind a board", _jpeg(hide_legs(whole))),
    }


@cache
def _astronaut() -> dict[str, tuple[str, bytes]]:
    with Image.open(fetch("astronaut")) as picture:
        return {"astronaut": ("an astronaut, cut by the picture", _jpeg(picture.convert("RGB")))}


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=92)
    return data.getvalue()
