"""Pictures by reference: `folder/photo.jpg`, or `video.mp4#12` for frame 12 (from 0) of a video."""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError

from di2pose.errors import InputError, require

OPEN_VIDEOS = 4
"""Videos kept open: reading several synchronised views in turn must not reopen them at each frame."""
JUMP = 48
"""A frame this far ahead is reached by decoding on; a farther one by seeking to the key frame before it."""


class Frames:
    """Reads pictures below `root` as upright RGB. Sequential video frames cost one decode each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._videos: OrderedDict[str, Video] = OrderedDict()

    def read(self, reference: str) -> Image.Image:
        name, _, number = reference.rpartition("#")
        if name and number.isdecimal():
            return self._video(name).frame(int(number))
        path = self.root / reference
        try:
            with Image.open(path) as image:
                return ImageOps.exif_transpose(image).convert("RGB")
        except (FileNotFoundError, UnidentifiedImageError) as error:
            raise InputError(f"cannot read the image {path}: {error}. Is the image root right?") from error

    def _video(self, name: str) -> "Video":
        if name in self._videos:
            self._videos.move_to_end(name)
        else:
            self._videos[name] = Video(self.root / name)
            if len(self._videos) > OPEN_VIDEOS:
                self._videos.popitem(last=False)[1].close()
        return self._videos[name]


class Video:
    """Frames of a constant-rate video by number, through PyAV."""

    def __init__(self, path: Path) -> None:
        av = require("av", extra="video")
        self.path = path
        try:
            self._container = av.open(str(path))
        except (OSError, av.error.FFmpegError) as error:
            raise InputError(f"cannot read the video {path}: {error}. Is the image root right?") from error
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "AUTO"
        self._decoder: Iterator[Any] = self._container.decode(self._stream)
        self._next = 0
        self._last: tuple[int, Image.Image] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the stored picture."""
        return int(self._stream.width), int(self._stream.height)

    def _number(self, frame: Any) -> int:
        since = (frame.pts - (self._stream.start_time or 0)) * self._stream.time_base
        return round(since * self._stream.average_rate)

    def frame(self, number: int) -> Image.Image:
        if self._last is not None and self._last[0] == number:
            return self._last[1].copy()
        if not self._next <= number < self._next + JUMP:
            moment = number / self._stream.average_rate / self._stream.time_base + (self._stream.start_time or 0)
            self._container.seek(int(moment), stream=self._stream)  # lands on a key frame at or before
            self._decoder = self._container.decode(self._stream)
        for frame in self._decoder:
            self._next = self._number(frame) + 1
            if self._next > number:
                break
        if self._next != number + 1:
            raise InputError(f"{self.path} has no frame {number}: it has {self._stream.frames} frames")
        image = frame.to_image().convert("RGB")
        if frame.rotation:  # phones store the turn as a matrix beside the picture, counter-clockwise degrees
            image = image.rotate(frame.rotation, expand=True)
        self._last = (number, image)
        return image.copy()

    def close(self) -> None:
        self._container.close()
