"""A video with the overlay drawn on every frame, written as the frames come."""

from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.files import replacing
from di2pose.output.overlay import draw_overlay, moved
from di2pose.result import Result

MOST_SIDE = 1280
"""Pixels of the longer side: enough to see every joint, and twice as quick to draw as full HD."""
CODECS = ("libx264", "libopenh264", "mpeg4")
"""The first that this build of FFmpeg can write; every browser plays the first two."""


class OverlayVideo:
    """An MP4, whole or not at all: `add` every frame, then `finish`. After an error nothing of it is left."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self._av = require("av", extra="video")
        self._codec = next((name for name in CODECS if name in self._av.codecs_available), None)
        if self._codec is None:
            raise InputError(f"this PyAV writes none of {', '.join(CODECS)}: leave 'overlay' out of --format")
        self._rate = Fraction(fps).limit_denominator(100_000)
        self._half_way = ExitStack()
        self._container: Any = None
        self._stream: Any = None

    def add(self, result: Result, picture: Image.Image) -> None:
        """One frame: the result's people on the picture."""
        scale = min(1.0, MOST_SIDE / max(picture.size))
        size = (_even(picture.width * scale), _even(picture.height * scale))
        small = picture.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
        drawn = draw_overlay(small, [moved(person, 0, 0, scale) for person in result.people])
        try:
            if self._container is None:
                temporary = self._half_way.enter_context(replacing(self.path))
                self._container = self._av.open(str(temporary), "w", format="mp4")
                self._stream = self._container.add_stream(self._codec, rate=self._rate)
                self._stream.width, self._stream.height, self._stream.pix_fmt = *size, "yuv420p"
            if size != (self._stream.width, self._stream.height):  # a stream may change its size half-way
                drawn = drawn.resize((self._stream.width, self._stream.height))
            self._container.mux(self._stream.encode(self._av.VideoFrame.from_image(drawn)))
        except OSError as error:
            self._give_up(error)
            raise

    def finish(self) -> Path | None:
        """The file, in its place; None where no frame came."""
        if self._container is None:
            return None
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
        except OSError as error:
            self._give_up(error)
            raise
        self._half_way.close()
        return self.path

    def _give_up(self, error: OSError) -> None:
        """Remove the half-written file; `replacing` makes an InputError of what the system refused."""
        if self._container is not None:
            with suppress(OSError):  # it tries to write its index; open, the file would hold its room
                self._container.close()
            self._container = self._stream = None
        self._half_way.__exit__(type(error), error, error.__traceback__)


def _even(length: float) -> int:
    """The codecs halve the colour in both directions."""
    return max(2, 2 * round(length / 2))
