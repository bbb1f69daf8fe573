"""A video with the overlay drawn on every frame, written as the frames come."""

from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.files import replacing
from di2pose.output.overlay import draw_overlay, moved
from di2pose.result import Result

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

MOST_SIDE = 1280
"""Pixels of the longer side: enough to see every joint, and twice as quick to draw as full HD."""
CODECS = ("libx264", "libopenh264", "mpeg4")
"""The first that this build of FFmpeg can write; every browser plays the first two."""


class OverlayVideo:
    """An MP4, whole or not at all: `add` every frame, then `finish`. After an error nothing of it is left."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self._av = require("av", extra="video")
        codecs = [name for name in CODECS if name in self._av.codecs_available]
        if not codecs:
            raise InputError(f"this PyAV writes none of {', '.join(CODECS)}: leave 'overlay' out of --format")
        self._codec = codecs[0]
        self._rate = Fraction(fps).limit_denominator(100_000)
        self._half_way = ExitStack()
        self._open: "tuple[OutputContainer, VideoStream] | None" = None

    def add(self, result: Result, picture: Image.Image) -> None:
        """One frame: the result's people on the picture."""
        scale = min(1.0, MOST_SIDE / max(picture.size))
        size = (_even(picture.width * scale), _even(picture.height * scale))
        small = picture.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
        drawn = draw_overlay(small, [moved(person, 0, 0, scale) for person in result.people])
        try:
            if self._open is None:
                temporary = self._half_way.enter_context(replacing(self.path, lambda: self.path))
                container: OutputContainer = self._av.open(str(temporary), "w", format="mp4")
                stream = cast("VideoStream", container.add_stream(self._codec, rate=self._rate))
                self._open = container, stream
                stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            container, stream = self._open
            if size != (stream.width, stream.height):  # a stream may change its size half-way
                drawn = drawn.resize((stream.width, stream.height))
            container.mux(stream.encode(self._av.VideoFrame.from_image(drawn)))
        except OSError as error:
            self._give_up(error)
            raise

    def finish(self, path: Path | None = None) -> Path | None:
        """The file, in its place or, beside it, under another name; None where no frame came."""
        if self._open is None:
            return None
        self.path = path or self.path
        container, stream = self._open
        try:
            container.mux(stream.encode(None))
            container.close()
        except OSError as error:
            self._give_up(error)
            raise
        self._half_way.close()
        return self.path

    def _give_up(self, error: OSError) -> None:
        """Remove the half-written file; `replacing` makes an InputError of what the system refused."""
        if self._open is not None:
            with suppress(OSError):  # it tries to write its index; open, the file would hold its room
                self._open[0].close()
            self._open = None
        self._half_way.__exit__(type(error), error, error.__traceback__)


def _even(length: float) -> int:
    """The codecs halve the colour in both directions."""
    return max(2, 2 * round(length / 2))
