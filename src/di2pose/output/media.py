"""Pictures made while a video is processed: the overlay video, and thumbnails for the page."""

import dataclasses
import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.files import replacing
from di2pose.output.overlay import draw_overlay, moved
from di2pose.output.viewer import FRAME_SIDE, MOST_FRAMES
from di2pose.result import Motion, Result

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

MOST_SIDE = 1280
"""Pixels of the overlay video's longer side: every joint is visible, and it is drawn twice as fast as full HD."""
CODECS = ("libx264", "libopenh264", "mpeg4")
"""The first that this build of FFmpeg can write is used; every browser plays the first two."""


class OverlayVideo:
    """An MP4 with the overlay on every frame: `add` frames, then `finish`. After an error no file is left."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self._av = require("av", extra="video")
        codecs = [name for name in CODECS if name in self._av.codecs_available]
        if not codecs:
            raise InputError(f"this PyAV writes none of {', '.join(CODECS)}: leave 'overlay' out of --format")
        self._codec = codecs[0]
        self._rate = Fraction(fps).limit_denominator(100_000)
        self._temporary = ExitStack()
        self._open: "tuple[OutputContainer, VideoStream] | None" = None

    def add(self, result: Result, picture: Image.Image) -> None:
        """Append a frame: the result's people on the picture."""
        scale = min(1.0, MOST_SIDE / max(picture.size))
        width, height = (max(2, 2 * round(side * scale / 2)) for side in picture.size)  # codecs need even sides
        small = picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
        drawn = draw_overlay(small, [moved(person, 0, 0, scale) for person in result.people])
        with self._aborting():
            if self._open is None:
                temporary = self._temporary.enter_context(replacing(self.path, lambda: self.path))
                container: OutputContainer = self._av.open(str(temporary), "w", format="mp4")
                stream = cast("VideoStream", container.add_stream(self._codec, rate=self._rate))
                self._open = container, stream
                stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            container, stream = self._open
            if drawn.size != (stream.width, stream.height):  # the frame size of a video may change
                drawn = drawn.resize((stream.width, stream.height))
            container.mux(stream.encode(self._av.VideoFrame.from_image(drawn)))

    def finish(self, path: Path | None = None) -> Path | None:
        """Close the file, under another name in the same folder if one is given; None where no frame came."""
        if self._open is None:
            return None
        self.path = path or self.path
        container, stream = self._open
        with self._aborting():
            container.mux(stream.encode(None))
            container.close()
        self._temporary.close()
        return self.path

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """On an OSError remove the temporary file; `replacing` turns the error into an InputError."""
        try:
            yield
        except OSError as error:
            if self._open is not None:
                with suppress(OSError):  # closing writes the index, which may fail, too
                    self._open[0].close()
                self._open = None
            self._temporary.__exit__(type(error), error, error.__traceback__)
            raise


class Thumbnails:
    """JPEGs of every `every`-th frame: at most twice as many as a page shows, however long the video is."""

    def __init__(self) -> None:
        self.every = 1
        self._kept: dict[int, bytes] = {}

    def add(self, k: int, picture: Image.Image) -> None:
        """Keep the picture of result k, unless it is not needed."""
        if k % self.every:
            return
        small = picture.copy()
        small.thumbnail((FRAME_SIDE, FRAME_SIDE))
        data = io.BytesIO()
        small.save(data, "JPEG", quality=90)
        self._kept[k] = data.getvalue()
        if len(self._kept) > 2 * MOST_FRAMES:
            self.every *= 2
            self._kept = {at: still for at, still in self._kept.items() if at % self.every == 0}

    def on(self, motion: Motion) -> Motion:
        """The frames that a page can show, with their pictures."""
        every = self.every * -(-len(motion) // (MOST_FRAMES * self.every))
        results = [
            dataclasses.replace(motion[k], picture=Image.open(io.BytesIO(self._kept[k])))
            for k in range(0, len(motion), every)
        ]
        return Motion(results, motion.fps / every)
