"""Pictures by reference: `folder/photo.jpg`, or `video.mp4#12` for frame 12 (from 0) of a video."""

import io
from collections import OrderedDict
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError

from di2pose.errors import InputError, require
from di2pose.files import DAMAGED
from di2pose.image.read import MOST_MEGAPIXELS, upright_rgb

OPEN_VIDEOS = 4
"""Videos kept open: reading several synchronised views in turn must not reopen them at each frame."""
JUMP = 48
"""A frame this far ahead is reached by decoding on; a farther one by seeking to the key frame before it."""
MOST_FRAME_PIXELS = round(MOST_MEGAPIXELS * 1e6)
"""A larger frame counts as damaged."""
UNSTATED_MS = 100
"""How long a frame of a WebP is shown that does not say it: as browsers do, and FFmpeg with GIFs."""


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
        except (*DAMAGED, Image.DecompressionBombError) as error:
            raise InputError(f"the image {path} is damaged and cannot be decoded: {error}. Copy it again") from error

    def _video(self, name: str) -> "Video":
        if name in self._videos:
            self._videos.move_to_end(name)
        else:
            self._videos[name] = Video(self.root / name)
            if len(self._videos) > OPEN_VIDEOS:
                self._videos.popitem(last=False)[1].close()
        return self._videos[name]


class Video:
    """Frames of a video by number, through PyAV; the frame rate may vary."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()
        self._last: tuple[int, Image.Image] | None = None

    def _open(self) -> None:
        av = require("av", extra="video")
        try:
            self._container = av.open(openable(self.path), metadata_errors="replace")
        except (OSError, av.error.FFmpegError) as error:
            raise InputError(f"cannot read the video {self.path}: {error}. Is the image root right?") from error
        if not self._container.streams.video:
            self._container.close()
            raise InputError(f"{self.path} has no video stream, only sound or data: copy the video again")
        self._stream = self._container.streams.video[0]
        set_decoder(self._stream)
        self._decoder: Iterator[Any] = iter(())
        self._next: int | None = None
        """Number of the decoder's next frame; None before the first and after a damaged one."""

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the stored picture."""
        return int(self._stream.width), int(self._stream.height)

    @cached_property
    def _stamps(self) -> list[int]:
        return time_stamps(self._container, self._stream)

    def frame(self, number: int) -> Image.Image:
        """Frame `number`, from 0, as it would be counted by playing the video from its start."""
        if self._last is not None and self._last[0] == number:
            return self._last[1].copy()
        if number >= len(self._stamps):
            raise InputError(f"{self.path} has no frame {number}: it has {len(self._stamps)} frames")
        stamp = self._stamps[number]
        if len(set(self._stamps)) < len(self._stamps):  # such frames can only be counted, from the start
            if self._next is None or number < self._next:
                self.close()
                self._open()
                self._decoder, self._next = decoded(self._container, self._stream), 0
            found = next(islice(self._decoder, number - self._next, None), None)
        else:
            if self._next is None or not self._next <= number < self._next + JUMP:
                try:
                    self._container.seek(stamp, stream=self._stream)  # to a key frame at or before it
                except (OSError, require("av", extra="video").error.FFmpegError) as error:
                    raise InputError(f"{self.path} is damaged at frame {number} ({error}): copy it again") from error
                self._decoder = decoded(self._container, self._stream)
            found = next((each for each in self._decoder if each is not None and each.pts >= stamp), None)
            found = found if found is not None and found.pts == stamp else None
        self._next = None if found is None else number + 1
        if found is None:
            raise InputError(f"frame {number} of {self.path} is damaged and cannot be decoded: copy the video again")
        image = upright(found)
        self._last = (number, image)
        return image.copy()

    def close(self) -> None:
        self._container.close()


def openable(path: Path) -> str | io.BytesIO:
    """What PyAV opens of a file: its path; of a WebP, whose animation FFmpeg does not decode, a film of JPEGs."""
    if path.suffix.lower() != ".webp" or not path.is_file():
        return str(path)
    jpegs, shown_ms = [], []
    try:
        with Image.open(path) as image:
            size = image.size
            if size[0] * size[1] > MOST_FRAME_PIXELS:
                raise InputError(f"{path} has frames of more than {MOST_FRAME_PIXELS} pixels: export it smaller")
            for k in range(getattr(image, "n_frames", 1)):
                image.seek(k)
                still = io.BytesIO()
                upright_rgb(image).save(still, "JPEG", quality=95, subsampling=0)
                jpegs.append(still.getvalue())
                shown_ms.append(image.info.get("duration") or UNSTATED_MS)
    except InputError:
        raise
    except (*DAMAGED, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is damaged and cannot be decoded: {error}. Export or copy it again") from error
    av, film = require("av", extra="video"), io.BytesIO()
    with av.open(film, "w", format="matroska") as container:
        stream = container.add_stream("mjpeg", rate=Fraction(1000 * len(jpegs), sum(shown_ms)))
        stream.width, stream.height, stream.pix_fmt = *size, "yuvj444p"
        for k, jpeg in enumerate(jpegs):
            packet = av.Packet(jpeg)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 1000), True
            packet.pts = packet.dts = sum(shown_ms[:k])
            packet.duration = shown_ms[k]
            container.mux(packet)
    film.seek(0)
    return film


def set_decoder(stream: Any, most_pixels: int = MOST_FRAME_PIXELS) -> None:
    """Before the first frame: use all cores, and refuse larger frames before there is memory for them. A stream may
    change its size at any frame."""
    stream.thread_type = "AUTO"
    if stream.codec_context is not None:  # None for a codec that this FFmpeg lacks
        stream.codec_context.options["max_pixels"] = str(most_pixels)


def time_stamps(container: Any, stream: Any) -> list[int]:
    """The frames' time stamps in order: a pass over the file that decodes nothing."""
    av = require("av", extra="video")
    stamps = []
    try:
        for packet in container.demux(stream):
            if packet.pts is not None and not packet.is_discard:
                stamps.append(packet.pts)
    except av.error.FFmpegError:  # what comes before the damage counts
        pass
    return sorted(stamps)


def decoded(container: Any, stream: Any) -> Iterator[Any]:
    """PyAV's frames in order, None in place of one that cannot be decoded. Ends where reading ends."""
    av = require("av", extra="video")
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError:  # not the end of a file: the file cannot be read on, or a camera was unplugged
            yield None
            return
        if packet is None:
            return
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            frames = [None]
        yield from frames


def upright(frame: Any) -> Image.Image:
    """The RGB picture of a decoded frame, turned by its rotation tag."""
    image: Image.Image = frame.to_image()  # RGB already
    if frame.rotation:  # phones store the turn as a matrix beside the picture, counter-clockwise degrees
        image = image.rotate(frame.rotation, expand=True)
    return image


def video_references(root: Path, video: Path, poses: int) -> list[str | None]:
    """References to the frames of root/video, one per pose, as far as the video goes; None for each pose where there is
    no folder of videos. InputError where the video is missing among others."""
    if not (root / video.parent).is_dir():
        return [None] * poses
    if not (root / video).exists():
        raise InputError(f"the video {video} is missing: its {poses} poses are left out")
    count = min(poses, video_frames(root / video) or poses)
    return [f"{video.as_posix()}#{frame}" for frame in range(count)]


def video_frames(path: Path) -> int | None:
    """How many frames the header of a video promises; None where it does not say."""
    av = require("av", extra="video")
    try:
        with av.open(str(path), metadata_errors="replace") as container:
            return container.streams.video[0].frames or None
    except (OSError, IndexError, av.error.FFmpegError) as error:
        raise InputError(f"cannot read the video {path}: {error}") from error


def picture_size(path: Path) -> tuple[int, int] | None:
    """(width, height) of a picture; None where it cannot be opened, which is reported where it is read."""
    try:
        with Image.open(path) as picture:
            return picture.size
    except (OSError, Image.DecompressionBombError):
        return None
