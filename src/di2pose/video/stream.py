"""The frames of a video file or a camera, one at a time."""

import io
import math
import sys
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from di2pose.data.frames import MOST_FRAME_PIXELS, decoded, openable, set_decoder, time_stamps, upright
from di2pose.errors import InputError, require

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

CAMERAS = {"linux": ("v4l2", "/dev/video{}"), "darwin": ("avfoundation", "{}:none")}
"""sys.platform -> FFmpeg's camera device and how it names the camera of an index."""
RATES, ASSUMED_RATE = (1.0, 1000.0), 30.0
"""Plausible frames a second, and the rate of a file that has none of them."""
CLOSE_S = 1e-6
"""Times as close as this are the same."""
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
    """Given at the end of a video that could only be read in part."""


class Stream:
    """The frames of `source`. Iterating again starts again.

    A damaged video gives what can be read; then `broken` says what is missing and a BrokenVideoWarning is given.
    A frame of more than `most_pixels` is not decoded and counts as damaged; `oversized` is True afterwards.

    start_s, end_s: only the frames from one time to before the other; their times are still those of the whole video
    fps: at most so many frames a second
    """

    def __init__(
        self, source: Source, most_pixels: int = MOST_FRAME_PIXELS, *, start_s: float | None = None,
        end_s: float | None = None, fps: float | None = None,
    ) -> None:  # fmt: skip
        check_part(start_s, end_s, fps)
        self.source, self.most_pixels, self.most_fps = source, most_pixels, fps
        self.start_s, self.end_s = start_s or 0.0, math.inf if end_s is None else end_s
        self.broken, self.oversized = "", False
        container, video = open_video(source)
        with container:
            known = (video.average_rate, video.guessed_rate, video.codec_context.framerate)
            sane = [float(rate) for rate in known if rate and RATES[0] <= rate <= RATES[1]]
            self.file_fps = sane[0] if sane else ASSUMED_RATE
            self.fps = min(self.file_fps, fps or math.inf)
            own, whole = _seconds(video, video.duration), container.duration  # of the video, and of all in the file
            known_s = whole / 1_000_000 if own is None and whole is not None else own
            self.duration_s = None if isinstance(source, int) else known_s
        if self.duration_s is not None and self.start_s >= self.duration_s:
            raise self._too_late(self.duration_s)

    @property
    def name(self) -> str | None:
        """The file's path; None for a camera and for bytes."""
        return str(self.source) if isinstance(self.source, str | Path) else None

    @property
    def expected(self) -> int | None:
        """Approximate number of frames; None for a camera."""
        if self.duration_s is None:
            return None
        return max(1, round((min(self.duration_s, self.end_s) - self.start_s) * self.fps))

    def __iter__(self) -> Iterator[Frame]:
        self.broken, self.oversized = "", False
        container, video = open_video(self.source)
        set_decoder(video, self.most_pixels)
        with container:
            yield from self._frames(container, video)

    def _frames(self, container: "InputContainer", video: "VideoStream") -> Iterator[Frame]:
        index, good, damaged, now, slot, shown = -1, 0, 0, -1.0, -1, 0.0
        origin: float | None = None
        first_s: float | None = None
        stamps = self._seek(container, video)
        for frame in decoded(container, video):
            index += 1
            # A frame that the decoder refused for its size has the stream's size, or none.
            width, height = (video.width, video.height) if frame is None else (frame.width, frame.height)
            oversized = not 0 < width * height <= self.most_pixels
            if frame is None or frame.is_corrupt or oversized:
                self.oversized = self.oversized or oversized
                damaged += 1
                continue
            if good == 0 and stamps and frame.pts is not None:
                index = bisect_left(stamps, frame.pts)
            stamp = index / self.file_fps if frame.time is None else frame.time
            if origin is None:
                start = _seconds(video, video.start_time)
                origin = stamp if start is None else start
            # A time stamp that stands still or goes back counts as the next by the rate.
            now = max(stamp - origin, 0.0) if good == 0 or stamp - origin > now else now + 1 / self.file_fps
            good, shown = good + 1, _seconds(video, getattr(frame, "duration", None)) or 0.0
            if now >= self.end_s - CLOSE_S:
                break
            if now < self.start_s - CLOSE_S:
                continue
            first_s = now if first_s is None else first_s
            here = math.floor((now - first_s + 0.5 / self.file_fps) * (self.most_fps or 0) + CLOSE_S)
            if self.most_fps and here <= slot:
                continue
            slot = here
            yield Frame(index, now, upright(frame))
        until = max(now, 0.0) + max(shown, 1 / self.file_fps)
        short = (
            now < self.end_s - 1 / self.file_fps and self.duration_s is not None and until < self.duration_s - SHORT_S
        )
        cut = container.format.name == "gif" and _ends_early(self.source)
        if damaged or short or cut:
            parts = [f"{self.source} is not whole: {good} frames could be read"]
            parts += [f"{damaged} damaged ones were left out"] if damaged else []
            parts += [f"it breaks off after {until:.2f} s of {self.duration_s:.2f} s"] if short else []
            parts += ["its end is missing"] if cut and not short else []
            self.broken = ", ".join(parts) + ". Copy or export it again to have the rest"
            warnings.warn(self.broken, BrokenVideoWarning, stacklevel=2)
        if good == 0 and self.oversized:
            raise InputError(f"{self.source} has frames of more than {self.most_pixels} pixels: export it smaller")
        if good == 0:
            raise InputError(f"{self.source} holds no frame that can be decoded. Copy or export it again")
        if first_s is None:
            raise self._too_late(until)

    def _seek(self, container: "InputContainer", video: "VideoStream") -> list[int]:
        """Go to the key frame before the start. The time stamps of all frames, by which they are counted then; empty
        where nothing was done: at the start, in a camera, and in a file without a time stamp for each frame."""
        if not self.start_s or isinstance(self.source, int) or video.start_time is None or video.time_base is None:
            return []
        other, its = open_video(self.source)
        with other:
            stamps = time_stamps(other, its)
        if len(set(stamps)) < len(stamps) or not stamps:
            return []
        before = bisect_right(stamps, video.start_time + self.start_s / float(video.time_base)) - 1
        container.seek(stamps[max(0, before)], stream=video)
        return stamps

    def _too_late(self, until_s: float) -> InputError:
        return InputError(
            f"the start at {self.start_s:g} s is after the end of {self.source}: it lasts {until_s:.2f} s. Give less"
        )


def check_part(start_s: float | None, end_s: float | None, fps: float | None) -> None:
    """InputError where these cannot be a part of a video."""
    for name, value in (("start_s", start_s), ("end_s", end_s)):
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{name} must be 0 or more seconds, got {value:g}")
    if end_s is not None and end_s <= (start_s or 0.0):
        raise InputError(f"end_s must be after the start at {start_s or 0.0:g} s, got {end_s:g}")
    if fps is not None and not RATES[0] <= fps <= RATES[1]:
        raise InputError(f"fps must be from {RATES[0]:g} to {RATES[1]:g} frames a second, got {fps:g}")


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
        name = openable(Path(source))
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


def _ends_early(source: Source) -> bool:
    """Whether a GIF lacks the byte that ends it; its duration is not stated anywhere."""
    if isinstance(source, int):
        return False
    content = source.content if isinstance(source, VideoBytes) else Path(source).read_bytes()
    return not content.rstrip(b"\0").endswith(b";")


def _open_nothing(url: str, flags: int, options: dict[str, str]) -> None:
    raise InputError("the video names another file, which is not opened")


def _seconds(video: "VideoStream", ticks: int | None) -> float | None:
    return None if ticks is None or video.time_base is None else float(ticks * video.time_base)
