"""The frames of a video file or a camera, one at a time."""

import io
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from di2pose.data.frames import MOST_FRAME_PIXELS, decoded, set_decoder, upright
from di2pose.errors import InputError, require

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

CAMERAS = {"linux": ("v4l2", "/dev/video{}"), "darwin": ("avfoundation", "{}:none")}
"""sys.platform -> FFmpeg's camera device and how it names the camera of an index."""
LEAST_STEP_S = 0.001
"""Least time between two frames; a time stamp that does not increase is moved."""
PROBED_FRAMES = 8
"""If the first so many frames of a file have one time stamp, its times and average rate are ignored."""
RATES = (1.0, 1000.0)
ASSUMED_RATE = 30.0
"""Plausible frames a second of a file without times, and the rate where it has none."""
SHORT_S = 0.25
"""A video that ends this much before its stated duration is broken. Sound may be longer by less."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture of a video."""

    index: int
    """In the file, from 0."""
    time_s: float
    """Since the video's start, by the file's time stamps; always increases."""
    picture: Image.Image
    """RGB, upright."""


@dataclass(frozen=True)
class Broken:
    """What is wrong with a video that could only be read in part."""

    source: str
    frames: int
    """Good ones."""
    damaged: int
    """Left out: not decoded, or only in part, or too large."""
    until_s: float
    promised_s: float | None
    """The duration stated in the file."""

    def __str__(self) -> str:
        parts = [f"{self.source} is not whole: {self.frames} frames could be read"]
        if self.damaged:
            parts.append(f"{self.damaged} damaged ones were left out")
        if self.promised_s is not None and self.until_s < self.promised_s - SHORT_S:
            parts.append(f"it breaks off after {self.until_s:.2f} s of {self.promised_s:.2f} s")
        return ", ".join(parts) + ". Copy or export it again to have the rest"


class VideoBytes(NamedTuple):
    """A video file in memory."""

    content: bytes
    container: str
    """FFmpeg's name of its format: FFmpeg must not choose, because some formats refer to other files."""
    frames: int | None = None
    """Number of frames, where it is known."""

    def __str__(self) -> str:
        return "the video"


Source = str | Path | int | VideoBytes
"""A file, the index of a camera, or the bytes of a file."""


class BrokenVideoWarning(UserWarning):
    """Given at the end of a video that could only be read in part; `args[0]` is the `Broken`."""


class TimeStampWarning(UserWarning):
    """The time stamps of a video stand still; the message names the rate used instead."""


class Stream:
    """The frames of `source`: every `every`-th from `start` to before `stop` (seconds). Iterating again starts again.

    A damaged video gives what can be read; then `broken` says what is missing and a BrokenVideoWarning is given. Where
    the time stamps stand still, frames are counted by the codec's rate; `note` and a TimeStampWarning say so.
    A frame of more than `most_pixels` is not decoded and counts as damaged; `oversized` is True afterwards.
    """

    def __init__(
        self, source: Source, every: int = 1, start: float = 0.0, stop: float | None = None,
        most_pixels: int = MOST_FRAME_PIXELS,
    ) -> None:  # fmt: skip
        if every < 1 or not (start >= 0 and (stop is None or stop > start)):
            raise InputError(f"a video needs every >= 1 and 0 <= start < stop in seconds, got {every}, {start}, {stop}")
        self.source, self.every, self.start, self.stop = source, every, start, stop
        self.most_pixels, self.oversized = most_pixels, False
        self.broken: Broken | None = None
        container, video = open_video(source)
        with container:
            rate = video.average_rate or video.guessed_rate
            self.rate = float(rate) if rate else ASSUMED_RATE
            self.duration_s = None if isinstance(source, int) else _duration(container, video)
            self.note = ""
            if not isinstance(source, int) and _stands_still(container, video):
                self._count(video)

    def _count(self, video: "VideoStream") -> None:
        """Use times by frame number and the codec's rate instead of the file's."""
        known = [float(rate) for rate in (video.codec_context.framerate, video.guessed_rate) if rate]
        sane = [rate for rate in known if RATES[0] <= rate <= RATES[1]]
        self.rate = sane[0] if sane else ASSUMED_RATE
        self.duration_s = video.frames / self.rate if video.frames else None
        source = "as its codec says" if sane else "an assumption"
        self.note = f"the time stamps of {self.source} stand still: taken as {self.rate:g} frames a second, {source}"

    @property
    def name(self) -> str | None:
        """The file's path; None for a camera and for bytes."""
        return str(self.source) if isinstance(self.source, str | Path) else None

    @property
    def fps(self) -> float:
        """Average rate of the frames given."""
        return self.rate / self.every

    @property
    def expected(self) -> int | None:
        """Approximate number of frames; None for a camera."""
        end = self._end()
        return None if end is None else max(1, round((end - self.start) * self.fps))

    def _end(self) -> float | None:
        """Seconds: the earlier of the file's duration and `stop`."""
        return min((end for end in (self.duration_s, self.stop) if end is not None), default=None)

    def __iter__(self) -> Iterator[Frame]:
        self.broken, self.oversized = None, False
        if self.note:
            warnings.warn(self.note, TimeStampWarning, stacklevel=2)
        container, video = open_video(self.source)
        set_decoder(video, self.most_pixels)
        with container:
            yield from self._frames(container, video)

    def _frames(self, container: "InputContainer", video: "VideoStream") -> Iterator[Frame]:
        index, good, given, damaged, now = -1, 0, 0, 0, -LEAST_STEP_S
        origin: float | None = None
        for frame in decoded(container, video):
            index += 1
            # A frame that the decoder refused for its size has the stream's size, or none.
            width, height = (video.width, video.height) if frame is None else (frame.width, frame.height)
            oversized = not 0 < width * height <= self.most_pixels
            if frame is None or frame.is_corrupt or oversized:
                damaged += 1
                self.oversized = self.oversized or oversized
                continue
            stamp = index / self.rate if frame.time is None or self.note else frame.time
            if origin is None:
                start = 0.0 if self.note else _seconds(video, video.start_time)
                origin = stamp if start is None else start
            now = max(stamp - origin, now + LEAST_STEP_S)
            if self.stop is not None and now >= self.stop:
                break
            good += 1
            if now >= self.start:
                given += 1
                if (given - 1) % self.every == 0:
                    yield Frame(index, now, upright(frame))
        until = now + 1 / self.rate
        if damaged or until < (self._end() or 0.0) - SHORT_S:
            self.broken = Broken(str(self.source), good, damaged, until, self.duration_s)
            warnings.warn(BrokenVideoWarning(self.broken), stacklevel=2)
        if good == 0 and self.oversized:
            raise InputError(f"{self.source} has frames of more than {self.most_pixels} pixels: export it smaller")
        if good == 0:
            raise InputError(f"{self.source} holds no frame that can be decoded. Copy or export it again")
        if given == 0:
            raise InputError(f"{self.source} ends after {until:.2f} s, before start = {self.start} s")


def open_video(source: Source) -> "tuple[InputContainer, VideoStream]":
    """PyAV's container and its first video stream."""
    av = require("av", extra="video")
    options: dict[str, Any] = {}
    advice = "it is no video, or its end (which may hold its index) is missing. Copy or export it again"
    name: str | io.BytesIO
    if isinstance(source, VideoBytes):
        name, options = io.BytesIO(source.content), {"format": source.container, "io_open": _open_nothing}
    elif isinstance(source, int):
        if sys.platform not in CAMERAS:
            raise InputError("cameras can be read on Linux and macOS only: record to a file and give its path")
        device, pattern = CAMERAS[sys.platform]
        name, options = pattern.format(source), {"format": device}
        advice = f"is camera {source} there, free, and may you use it? Otherwise give a video file"
    else:
        if not Path(source).is_file():
            raise InputError(f"no video file at {source}")
        name = str(source)
    try:
        container = av.open(name, metadata_errors="replace", **options)
    except (OSError, ValueError, av.error.FFmpegError) as error:
        raise InputError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}; {advice}") from error
    if not container.streams.video:
        container.close()
        raise InputError(f"{source} has no video stream, only sound or data: give a file with pictures")
    video = container.streams.video[0]
    if video.codec_context is None:
        container.close()
        raise InputError(f"{source} is coded in a way that this FFmpeg does not know: export it as MP4 (H.264)")
    return container, video


def _open_nothing(url: str, flags: int, options: dict[str, str]) -> None:
    raise InputError("the video names another file, which is not opened")


def _stands_still(container: "InputContainer", video: "VideoStream") -> bool:
    """Whether the first frames of a file all have the same time stamp."""
    av = require("av", extra="video")
    stamps = []
    try:
        for packet in container.demux(video):
            if packet.pts is not None:
                stamps.append(packet.pts)
            if len(stamps) == PROBED_FRAMES:
                break
    except av.error.FFmpegError:  # reported where the frames are read
        pass
    return len(stamps) > 1 and len(set(stamps)) == 1


def _duration(container: "InputContainer", video: "VideoStream") -> float | None:
    """Seconds of the video stream, else of the whole file; None where neither is known."""
    whole = None if container.duration is None else container.duration / 1_000_000
    own = _seconds(video, video.duration)
    return whole if own is None else own


def _seconds(video: "VideoStream", ticks: int | None) -> float | None:
    return None if ticks is None or video.time_base is None else float(ticks * video.time_base)
