"""The bytes of a picture or a video that somebody sent: looked at before they are unpacked.

The checks and the decoders are called in a `DecodingProcess`, which can be ended.
"""

import warnings
from collections.abc import Callable, Iterator

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.image.read import LEAST_PIXELS, decode_image, header_size
from di2pose.serve.decoding import DecodingProcess
from di2pose.serve.refusal import Limits, Refusal
from di2pose.video.stream import Frame, Stream, VideoBytes, open_video

Between = Callable[[], None]
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")
"""What browsers show. Others of Pillow's are not tried: some call programs."""
CONTAINERS = ((4, b"ftyp", "mov"), (0, b"\x1aE\xdf\xa3", "matroska"), (0, b"RIFF", "avi"))
"""Where in a video's first bytes stands what -> FFmpeg's reader. It must not choose by itself: some formats name other
files."""


def check_picture(content: bytes, limits: Limits) -> int:
    """The pixels that the header promises, if they are allowed."""
    try:
        width, height = header_size(content, FORMATS)
    except InputError as error:
        known = "JPEG, PNG, WebP, GIF, BMP or AVIF"
        raise Refusal(415, f"the file is no picture that can be read: send a whole {known} ({error})") from error
    if width * height > limits.pixels:
        raise Refusal(413, f"a picture may have {limits.pixels} pixels, this one has {width}x{height}: shrink it first")
    if min(width, height) < LEAST_PIXELS:
        raise Refusal(422, f"a picture needs {LEAST_PIXELS} pixels a side, this one has {width}x{height}")
    return width * height


def decode_picture(content: bytes) -> Image.Image:
    """Upright RGB."""
    try:
        return decode_image(content, FORMATS)
    except InputError as error:
        raise Refusal(422, str(error)) from error


def check_video(content: bytes, limits: Limits) -> tuple[str, int]:
    """FFmpeg's name of the container and the number of frames, if these are not too large and not too many: by a pass
    over the packets, which unpacks none."""
    av = require("av", extra="video")
    container = next((name for at, mark, name in CONTAINERS if content[at : at + len(mark)] == mark), None)
    if container is None:
        raise Refusal(415, "the file is no video that can be read: send MP4, MOV, WebM, MKV or AVI")
    try:
        opened, video = open_video(VideoBytes(content, container))
        with opened:
            size = (video.width, video.height)
            stamps = [packet.pts for packet in opened.demux(video) if packet.pts is not None]
            seconds = float((max(stamps) - min(stamps)) * (video.time_base or 0)) if stamps else 0.0
    except InputError as error:
        raise Refusal(422, str(error)) from error
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise Refusal(422, f"the video cannot be read ({type(error).__name__}): copy or export it again") from error
    most = round(limits.video_rate * limits.video_seconds)
    if size[0] * size[1] > limits.pixels:
        raise Refusal(413, f"a frame may have {limits.pixels} pixels, this video's have {size[0]}x{size[1]}: shrink it")
    if seconds > limits.video_seconds:
        raise Refusal(413, f"a video may last {limits.video_seconds:g} s, this one lasts {seconds:.1f} s: cut it")
    if len(stamps) > most:
        raise Refusal(413, f"a video may have {most} frames, this one has {len(stamps)}: cut it")
    return container, len(stamps)


def decode_frames(source: VideoBytes, most_pixels: int) -> Iterator[Frame]:
    """What can be read of a video, up to a frame that is too large."""
    stream = Stream(source, most_pixels=most_pixels)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what can be read is answered
            for frame in stream:
                if stream.oversized:
                    break
                yield frame
    except InputError:
        if not stream.oversized:
            raise
    if stream.oversized:
        told = "one of this video has more, or its size is damaged: shrink or export it again"
        raise Refusal(413, f"a frame may have {most_pixels} pixels, {told}")


class WatchedStream(Stream):
    """A stream that is decoded in a process of its own, calls `between` before each of its frames, and `seen` with
    each."""

    def __init__(self, source: VideoBytes, limits: Limits, between: Between, seen: Callable[[Frame], None]) -> None:
        super().__init__(source)
        self.limits, self.between, self.seen = limits, between, seen

    def __iter__(self) -> Iterator[Frame]:
        process = DecodingProcess(self.limits.decode_s)
        try:
            for frame in process.each(decode_frames, self.source, self.limits.pixels):
                self.between()
                self.seen(frame)
                yield frame
        finally:
            process.close()
