"""Checks and decoders of uploaded pictures and videos, and the process that runs them, so that each can be ended: by
its time limit, or by its own crash."""

import io
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.image.read import LEAST_PIXELS, decode_image, header_size
from di2pose.serve.limits import ApiError, Limits
from di2pose.video.stream import Frame, Stream, VideoBytes, open_video

START_S = 120.0
"""For Python and its imports, on a busy machine; usually a fraction of a second."""
PART = 2**20
"""Bytes of pixels in one message."""
ADVICE = "save the file again in a common format (JPEG, MP4), or smaller"
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")
"""Pictures that browsers show. Other readers of Pillow are not tried: some call programs."""
CONTAINERS = ((4, b"ftyp", "mov"), (0, b"\x1aE\xdf\xa3", "matroska"), (0, b"RIFF", "avi"))
"""Offset and mark in a video's first bytes -> FFmpeg's reader. It must not choose by itself: some formats name other
files."""
Between = Callable[[], None]


def check_picture(content: bytes, limits: Limits) -> int:
    """The number of pixels in the header, if it is allowed."""
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
    return width * height


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the readable frames are answered
            for frame in stream:
                if stream.oversized:
                    break
                yield frame
    except InputError:
        if not stream.oversized:
            raise
    if stream.oversized:
        problem = "one of this video has more, or its size is damaged: shrink or export it again"
        raise ApiError(413, f"a frame may have {most_pixels} pixels, {problem}")


class WatchedStream(Stream):
    """A stream that is decoded in a process of its own; calls `between` before each frame, and `seen` with it."""

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


class DecodingProcess:
    """Calls functions in another process, each for at most `seconds`; threads take turns. Where a function takes longer
    or ends the process, its caller gets an ApiError and the next caller a new process. An executor of
    `concurrent.futures` cannot end a call, and would copy pixels more often."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn = threading.Lock()
        self._process: SpawnProcess | None = None

    def start(self) -> None:
        """Does not wait until it runs."""
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=_answer_calls, args=(there,), daemon=True)
        with _blocked_interrupts():
            self._process.start()
        there.close()
        self._ready = False

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a module there: its result, or its exception."""
        with self._turn:
            return self._ask(self._started(), function, *arguments)

    def each(self, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """The items of a generator, each in at most `seconds`."""
        with self._turn:
            process = self._started()
            self._ask(process, function, *arguments)
            while (item := self._ask(process, None)) is not None:
                yield item

    def _started(self) -> SpawnProcess:
        if self._process is None or not self._process.is_alive():
            self.start()
        assert self._process is not None
        return self._process

    def _ask(self, process: SpawnProcess, function: Callable[..., Any] | None, *arguments: Any) -> Any:
        """The result of a call; of a generator, an item for each later call of None."""
        try:
            if not self._ready and not self._connection.poll(START_S):
                self.close()
                raise ApiError(503, "the decoder does not start: try again later", retry_after_s=60.0)
            self._ready = self._ready or self._connection.recv() is None
            self._connection.send((function, arguments))
            if not self._connection.poll(self.seconds):
                self.close()
                raise ApiError(422, f"decoding was ended, for it took longer than {self.seconds:g} s: {ADVICE}")
            answer = _receive(self._connection)
        except (EOFError, OSError) as error:
            self.close()
            raise ApiError(422, f"the decoder ended at this file (exit code {process.exitcode}): {ADVICE}") from error
        try:
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            del answer, arguments  # else the exception and this frame would hold each other, and the file


def _answer_calls(connection: Connection) -> None:
    """The process: one call after the other, until its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(ImportError):
        import_module("av")  # not within the time of the first call
    items: Iterator[Any] = iter(())
    with suppress(EOFError, OSError):  # the parent has ended
        connection.send(None)
        while True:
            function, arguments = connection.recv()
            try:
                answer = next(items, None) if function is None else function(*arguments)
                if isinstance(answer, Iterator):
                    items, answer = answer, None
            except Exception as error:
                error.add_note(traceback.format_exc())  # is not sent otherwise
                answer = error
            _send(connection, answer)
            del arguments, answer


class _Pickler(pickle.Pickler):
    """RGB pixels go beside the pickle: as a part of it they would be copied more often."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Image.Image):
            return _picture, (value.size, value.info, pickle.PickleBuffer(value.tobytes()))
        return NotImplemented


def _picture(size: tuple[int, int], info: dict[Any, Any], pixels: memoryview) -> Image.Image:
    picture = Image.frombytes("RGB", size, pixels)
    picture.info = info
    return picture


def _send(connection: Connection, answer: Any) -> None:
    content, beside = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(content, protocol=5, buffer_callback=beside.append).dump(answer)
    views = [each.raw() for each in beside]
    connection.send((content.getvalue(), [len(view) for view in views]))
    for view in views:
        for first in range(0, len(view), PART):
            connection.send_bytes(view[first : first + PART])


def _receive(connection: Connection) -> Any:
    content, sizes = connection.recv()
    beside = [bytearray(size) for size in sizes]
    for part in beside:
        for first in range(0, len(part), PART):
            connection.recv_bytes_into(part, first)
    return pickle.loads(content, buffers=beside)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """A process that is started inside gets no SIGINT: Ctrl-C of a terminal is for the parent alone."""
    if os.name != "posix":
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
