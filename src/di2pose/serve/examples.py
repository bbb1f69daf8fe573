"""Example people for the page, out of the cache. What is missing there is fetched in the background."""

import io
import logging
import threading
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec

from PIL import Image

from di2pose.assets import extract, extracted, fetch, state
from di2pose.commands.demo import CLIP, FRAME, REGION, hide_legs
from di2pose.data.frames import Video
from di2pose.errors import InputError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """One picture."""

    name: str
    title: str
    jpeg: bytes


class Examples:
    """Made when they are first asked for. Their files are fetched by a thread that starts with the service, where the
    cache lacks some; offline that is logged, and the service goes without them."""

    def __init__(self) -> None:
        self._made: dict[str, Example] | None = None
        self._lock = threading.Lock()
        self.fetching = threading.Thread(target=self._fetch, name="di2pose-examples", daemon=True)
        if not (_has_walker() and _has_astronaut()):
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
    """Also where there is nothing to read the video with."""
    return find_spec("av") is None or extracted("sports2d-demo", CLIP) is not None


def _has_astronaut() -> bool:
    return state("astronaut") == "ready"


def _make() -> list[Example]:
    found = []
    folder = extracted("sports2d-demo", CLIP)
    if folder is not None and find_spec("av"):
        with closing(Video(folder / CLIP)) as video:
            walker = video.frame(FRAME).crop(REGION)
        found.append(Example("walker", "a walker", _jpeg(walker)))
        found.append(Example("walker-hidden", "the walker behind a board", _jpeg(hide_legs(walker))))
    if _has_astronaut():
        with Image.open(fetch("astronaut")) as picture:
            found.append(Example("astronaut", "an astronaut, cut by the picture", _jpeg(picture.convert("RGB"))))
    return found


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=92)
    return data.getvalue()
