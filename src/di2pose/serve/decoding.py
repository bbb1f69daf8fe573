"""Checks and decoders of uploaded pictures and videos, and the process that runs them, so that each can be ended: by
its time limit, or by its own crash."""

import itertools
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from importlib import import_module
from typing import Any

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.image.read import LEAST_PIXELS, decode_image, header_size
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.processes import end_with_parent
from di2pose.video.stream import Frame, Stream, VideoBytes, open_video

START_S = 120.0
"""For Python and its imports, on a busy machine; usually a fraction of a second."""
ADVICE = "save the file again in a common format (JPEG, MP4), or smaller"
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")
"""Pictures that browsers show. Other readers of Pillow are not tried: some call programs."""
CONTAINERS = ((4, b"ftyp", "mov"), (0, b"\x1aE\xdf\xa3", "matroska"), (0, b"RIFF", "avi"))
"""Offset and mark in a video's first bytes -> FFmpeg's reader. It must not choose by itself: some formats name other
files."""
Between = Callable[[], None]


def check_picture(content: bytes, limits: Limits) -> None:
    """ApiError where the header's size is not allowed, or where there is none."""
    try:
        width, height = header_size(content, FORMATS)
    except InputError as error:
        known = "JPEG, PNG, WebP, GIF, BMP or AVIF"
        raise ApiError(415, f"the file is no picture that can be read: send a whole {known} ({error})") from error
    if width * height > limits.pixels:
        raise ApiError(
            413, f"a picture may have {limits.pixels} pixels, this one has {width}x{height}: shrink it first"
        )
    if min(width, height) < LEAST_PIXELS:
        raise ApiError(422, f"a picture needs {LEAST_PIXELS} pixels a side, this one has {width}x{height}")


def decode_picture(content: bytes) -> Image.Image:
    """Upright RGB."""
    try:
        return decode_image(content, FORMATS)
    except InputError as error:
        raise ApiError(422, str(error)) from error


def check_video(content: bytes, limits: Limits) -> tuple[str, int]:
    """FFmpeg's name of the container and the number of frames, if size and number are allowed. Packets are counted,
    and not decoded."""
    av = require("av", extra="video")
    container = next((name for at, mark, name in CONTAINERS if content[at : at + len(mark)] == mark), None)
    if container is None:
        raise ApiError(415, "the file is no video that can be read: send MP4, MOV, WebM, MKV or AVI")
    try:
        opened, video = open_video(VideoBytes(content, container))
        with opened:
            width, height = video.width, video.height
            stamps = [packet.pts for packet in opened.demux(video) if packet.pts is not None]
            seconds = float((max(stamps) - min(stamps)) * (video.time_base or 0)) if stamps else 0.0
    except InputError as error:
        raise ApiError(422, str(error)) from error
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise ApiError(422, f"the video cannot be read ({type(error).__name__}): copy or export it again") from error
    most = round(limits.video_rate * limits.video_seconds)
    if width * height > limits.pixels:
        raise ApiError(413, f"a frame may have {limits.pixels} pixels, this video's have {width}x{height}: shrink it")
    if seconds > limits.video_seconds:
        raise ApiError(413, f"a video may last {limits.video_seconds:g} s, this one lasts {seconds:.1f} s: cut it")
    if len(stamps) > most:
        raise ApiError(413, f"a video may have {most} frames, this one has {len(stamps)}: cut it")
    return container, len(stamps)


def decode_frames(source: VideoBytes, most_pixels: int) -> Iterator[Frame]:
    """The readable frames of a video; ApiError at a frame that is too large."""
    stream = Stream(source, most_pixels=most_pixels)
    try:
        yield from itertools.takewhile(lambda _: not stream.oversized, stream)
    except InputError:
        if not stream.oversized:
            raise
    if stream.oversized:
        problem = "one of this video has more, or its size is damaged: shrink or export it again"
        raise ApiError(413, f"a frame may have {most_pixels} pixels, {problem}")


class WatchedStream(Stream):
    """A stream that is decoded in a process of its own; calls `on_frame` with each frame before it is used."""

    def __init__(self, source: VideoBytes, limits: Limits, on_frame: Callable[[Frame], None]) -> None:
        super().__init__(source)
        self.limits, self.on_frame = limits, on_frame

    def __iter__(self) -> Iterator[Frame]:
        process = DecodingProcess(self.limits.decode_s)
        try:
            process.run(_open_frames, self.source, self.limits.pixels)
            while (frame := process.run(_next_frame)) is not None:
                self.on_frame(frame)
                yield frame
        finally:
            process.close()


_frames: Iterator[Frame] = iter(())
"""Of the video that this process decodes."""


def _open_frames(source: VideoBytes, most_pixels: int) -> None:
    global _frames
    _frames = decode_frames(source, most_pixels)


def _next_frame() -> Frame | None:
    return next(_frames, None)


class DecodingProcess:
    """Calls functions in another process, each for at most `seconds`; threads take turns. Where a function takes longer
    or ends the process, its caller gets an ApiError and the next caller a new process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn = threading.Lock()
        self._open()

    def _open(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare)
        self._pool.submit(os.getpid)  # starts the process, and does not wait for it

    def close(self) -> None:
        for process in list((self._pool._processes or {}).values()):  # `kill_workers` in Python 3.14
            process.kill()
        self._pool.shutdown()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a module there: its result, or its exception."""
        with self._turn:
            try:
                self._pool.submit(os.getpid).result(START_S)
            except (BrokenProcessPool, TimeoutError):  # it ended between two calls, or did not start
                self._restart()
                self._pool.submit(os.getpid).result(START_S)
            try:
                return self._pool.submit(function, *arguments).result(self.seconds)
            except TimeoutError:
                problem = f"decoding was ended, for it took longer than {self.seconds:g} s"
            except BrokenProcessPool:
                problem = "the decoder ended at this file"
            self._restart()
        raise ApiError(422, f"{problem}: {ADVICE}")

    def _restart(self) -> None:
        self.close()
        self._open()


def _prepare() -> None:
    """Of a new process: Ctrl-C of a terminal is for its parent alone, with which it ends. Nothing is printed of damaged
    files: their readable part is answered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    end_with_parent()
    with suppress(ImportError):
        import_module("av")  # not within the time of the first call
