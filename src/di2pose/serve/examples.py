"""Example people for the page: what `di2pose demo` shows, where it is in the cache already. Nothing is fetched."""

import io
import threading
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec

from PIL import Image

from di2pose.assets import extracted, fetch, state
from di2pose.commands.demo import CLIP, FRAME, REGION, hide_legs
from di2pose.data.frames import Video


@dataclass(frozen=True)
class Example:
    """One picture."""

    name: str
    title: str
    jpeg: bytes


class Examples:
    """Made when they are first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Example] | None = None
        self._lock = threading.Lock()

    def all(self) -> dict[str, Example]:
        """By name; empty where the cache has none."""
        with self._lock:
            if self._made is None:
                self._made = {example.name: example for example in _make()}
            return self._made


def _make() -> list[Example]:
    found = []
    folder = extracted("sports2d-demo", CLIP)
    if folder is not None and find_spec("av"):
        with closing(Video(folder / CLIP)) as video:
            walker = video.frame(FRAME).crop(REGION)
        found.append(Example("walker", "a walker", _jpeg(walker)))
        found.append(Example("walker-hidden", "the walker behind a board", _jpeg(hide_legs(walker))))
    if state("astronaut") == "ready":
        with Image.open(fetch("astronaut")) as picture:
            found.append(Example("astronaut", "an astronaut, cut by the picture", _jpeg(picture.convert("RGB"))))
    return found


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=92)
    return data.getvalue()
