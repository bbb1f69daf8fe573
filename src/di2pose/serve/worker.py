"""One model, one job at a time: a fair queue of the clients' requests, and turns between frames of long ones."""

import logging
import threading
import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from PIL import Image

from di2pose.errors import InputError, MissingExtra
from di2pose.image.read import BATCH_PIXELS
from di2pose.interruption import interruptible
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.serve.decoding import Between, DecodingProcess, decode_picture
from di2pose.serve.limits import ApiError, Limits
from di2pose.video.stream import BrokenVideoWarning

PER_PICTURE = ("boxes", "occluded")
"""Options that every picture of a batch has for itself; the others are the batch's."""
ONE_PICTURE = ("pin", "keep_tokens")
"""Options for one picture of one person."""
BATCH_PRICE = 2_048
"""Of the photos of a batch together (`Limits.check_price`): a turn stays short."""
MEMORY = 0.8
"""Weight of the earlier photos in the mean time of a photo."""
LONGEST_RETRY_S = 60.0
SLICE_S = 2.0
"""After this long a turn ends at the next diffusion step or encoder batch, not only at the next frame."""
MOST_BEGUN = 2
"""Long jobs of one kind that take turns; a client has at most one of each kind. Their frames are in memory."""
Run = Callable[[Di2Pose, Between], Any]
Line = tuple[str, bool]
"""A client, and whether these jobs of it have begun."""

log = logging.getLogger(__name__)


class Job:
    """The work for one request. `future` gets its answer, or the ApiError that says what went wrong. It may wait for
    `wait_s` and, once it has begun, work for `work_s`; turns of other jobs in between do not count."""

    def __init__(self, wait_s: float, work_s: float, client: str = "") -> None:
        self.future: Future[Any] = Future()
        self.work_s, self.client = work_s, client
        self.gone = False
        self._begin_by = time.monotonic() + wait_s
        self._clock: tuple[float, float | None] | None = None
        """Seconds of work in earlier turns, and when this turn began; replaced as a whole, for two threads read it."""

    @property
    def begun(self) -> bool:
        return self._clock is not None

    @property
    def turn_s(self) -> float:
        """Length of the current turn so far."""
        clock = self._clock
        return 0.0 if clock is None or clock[1] is None else time.monotonic() - clock[1]

    @property
    def left_s(self) -> float:
        """Rest of its wait, or of its work."""
        clock = self._clock
        if clock is None:
            return self._begin_by - time.monotonic()
        return self.work_s - clock[0] - (0.0 if clock[1] is None else time.monotonic() - clock[1])

    def begin(self) -> bool:
        """False where the client has gone, or the job has waited too long; its future then says so."""
        if not self.future.set_running_or_notify_cancel():
            return False
        if self.left_s <= 0:
            self.future.set_result(self.late())
            return False
        self._clock = (0.0, time.monotonic())
        return True

    def pause(self) -> None:
        """Its turn ends."""
        assert self._clock is not None
        self._clock = (self._clock[0] + self.turn_s, None)

    def resume(self) -> None:
        """Its next turn begins."""
        assert self._clock is not None
        self._clock = (self._clock[0], time.monotonic())

    def late(self) -> ApiError:
        """The error where its time is over."""
        if not self.begun:
            return ApiError(503, "too many requests were before this one: try again later", LONGEST_RETRY_S)
        return ApiError(504, "the answer took too long: ask for fewer hypotheses or steps, or a smaller grid")


class PhotoJob(Job):
    """A picture's people. Jobs of the same `key` may share a batch."""

    def __init__(
        self, wait_s: float, content: bytes, pixels: int, options: dict[str, Any], price: int = 1, client: str = ""
    ) -> None:
        super().__init__(wait_s, wait_s, client)
        self.content, self.pixels, self.options, self.price = content, pixels, options, price
        self.shared = {name: value for name, value in options.items() if name not in PER_PICTURE + ONE_PICTURE}
        self.key = None if any(map(options.get, ONE_PICTURE)) else tuple(sorted(self.shared.items()))
        """None: it has a batch of its own."""


class ExclusiveJob(Job):
    """Any other job: `run(model, between)` calls `between` where its turn may end. `kind`: see MOST_BEGUN."""

    def __init__(self, wait_s: float, work_s: float, run: Run, client: str = "", kind: str = "") -> None:
        super().__init__(wait_s, work_s, client)
        self.run, self.kind = run, kind
        self.thread: PausableThread | None = None


class PausableThread:
    """A function in a thread of its own that runs only while `resume` waits for it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.ended = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, args=(function,), name="di2pose-long-job", daemon=True).start()

    def resume(self) -> None:
        """Let it run until it pauses or ends."""
        self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """Called by the function: wait for the next `resume`."""
        self._back.release()
        self._go.acquire()

    def _run(self, function: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            function()
        finally:
            self.ended = True
            self._back.release()


class Worker:
    """`start`, `submit` jobs, `close`. At most `most_waiting` jobs wait, `most_a_client` of one client; at most
    `most_together` photos share a batch.

    Clients have turns, one after the other: a photo, or the first frame of a long job. Begun long jobs of a client have
    a place of their own in the round, between whose turns every other client has one.
    """

    def __init__(
        self, model: Di2Pose, most_waiting: int, most_a_client: int, most_together: int,
        decode_s: float = Limits.decode_s,
    ) -> None:  # fmt: skip
        self.model, self.most_waiting, self.most_together = model, most_waiting, most_together
        self.most_a_client = most_a_client
        self.checks = DecodingProcess(decode_s)  # of uploads, before they are queued
        self.decoder = DecodingProcess(decode_s)  # of pictures, for the job whose turn it is
        self.busy = False
        self._lines: OrderedDict[Line, deque[Job]] = OrderedDict()
        """In the order of their turns; none is empty."""
        self._changed = threading.Condition()
        self._ends = float("inf")
        self._seconds = 1.0
        self._thread = threading.Thread(target=self._loop, name="di2pose-worker", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of jobs that have not begun."""
        with self._changed:
            return sum(len(jobs) for (_, begun), jobs in self._lines.items() if not begun)

    def start(self) -> None:
        self.checks.start()
        self.decoder.start()
        self._thread.start()

    def end(self, grace_s: float) -> None:
        """Refuse waiting jobs, and every later one; begun jobs may go on for `grace_s`."""
        with self._changed:
            self._ends = time.monotonic() + grace_s
            waiting = [job for (_, begun), jobs in self._lines.items() if not begun for job in jobs]
            for job in waiting:
                self._remove(job)
            self._changed.notify()
        for job in waiting:
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(_ending())

    def close(self) -> None:
        """Refuse waiting jobs, stop begun ones."""
        self.end(0.0)
        self._thread.join()
        self.checks.close()
        self.decoder.close()

    def submit(self, job: Job) -> "Future[Any]":
        """Put a job at the end of its client's line. ApiError where the queue or the client's share of it is full, or
        where it would wait for too long."""
        with self._changed:
            if self._ends < float("inf"):
                raise _ending()
            line = (job.client, False)
            mine, waiting = len(self._lines.get(line, ())), self.waiting
            # A round for each of its own jobs, in which every other line has a turn.
            others = [mine + 1 if begun else min(len(jobs), mine + 1)
                      for (client, begun), jobs in self._lines.items() if (client, begun) != line]  # fmt: skip
            wait_s = (mine + sum(others)) * self._seconds
            retry_after_s = min(LONGEST_RETRY_S, max(1.0, wait_s))
            if mine >= self.most_a_client:
                message = f"{mine} requests of this client wait, {self.most_a_client} may: wait for an answer first"
                raise ApiError(503, message, retry_after_s)
            if waiting >= self.most_waiting or wait_s > job.left_s:
                raise ApiError(503, f"{waiting} requests wait already: try again in a moment", retry_after_s)
            self._lines.setdefault(line, deque()).append(job)
            self._changed.notify()
        return job.future

    def abandon(self, job: Job) -> None:
        """The client has gone: the job leaves the queue, or stops at its next step."""
        job.gone = True
        if job.future.cancel():
            with self._changed:
                self._remove(job)

    def decoded(self, content: bytes) -> Image.Image:
        picture: Image.Image = self.decoder.run(decode_picture, content)
        return picture

    def _remove(self, job: Job) -> None:
        """Out of its line, if it is there."""
        line = (job.client, job.begun)
        jobs = self._lines.get(line, deque())
        if job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._lines[line]

    def _loop(self) -> None:
        while True:
            with self._changed:
                self.busy = bool(self._lines)
                self._changed.wait_for(lambda: self._lines or self._ends < float("inf"))
                if not self._lines:
                    return
                first, *mates = self._take()
                self.busy = True
            if isinstance(first, ExclusiveJob):
                self._give_turn(first)
            else:
                self._predict([first, *mates])
            del first, mates  # else their pictures would stay until the next request

    def _take(self) -> list[Job]:
        """The next turn: a long job, or a photo and those that share its batch: one photo of each other client, more of
        the same client only where nothing else waits."""
        line, first = next((line, job) for line, jobs in self._lines.items() for job in jobs if self._may_begin(job))
        batch = [first]
        if isinstance(first, PhotoJob) and first.key is not None:
            photos = [first]
            others: list[Sequence[Job]] = [jobs for other, jobs in self._lines.items() if other != line]
            for jobs in others or [[job] for job in self._lines[line]]:
                mate = next((job for job in jobs if isinstance(job, PhotoJob) and self._fits(job, photos)), None)
                photos += [] if mate is None else [mate]
            batch = [*photos]
        for job in batch:
            self._remove(job)
            if (job.client, job.begun) in self._lines:
                self._lines.move_to_end((job.client, job.begun))
        return batch

    def _may_begin(self, job: Job) -> bool:
        """Whether MOST_BEGUN allows it, if it is a long job. While none runs, all of them are in lines."""
        if job.begun or not isinstance(job, ExclusiveJob):
            return True
        begun = [other.client for (_, begun), jobs in self._lines.items() if begun
                 for other in jobs if isinstance(other, ExclusiveJob) and other.kind == job.kind]  # fmt: skip
        return len(begun) < MOST_BEGUN and job.client not in begun

    def _fits(self, job: PhotoJob, batch: Sequence[PhotoJob]) -> bool:
        """Whether a photo can join the batch."""
        return (
            job not in batch and len(batch) < self.most_together and job.key == batch[0].key
            and job.pixels + sum(photo.pixels for photo in batch) <= BATCH_PIXELS
            and job.price + sum(photo.price for photo in batch) <= BATCH_PRICE
        )  # fmt: skip

    def _give_turn(self, job: ExclusiveJob) -> None:
        """Let a long job work until it pauses or ends."""
        if job.thread is not None:
            job.resume()
        elif job.begin():
            work, pause = (lambda: job.run(self.model, lambda: self._between(job))), lambda: self._between(job, SLICE_S)
            job.thread = PausableThread(lambda: self._settle(job, work, pause))
        else:
            return
        with warnings.catch_warnings():  # here, for its filters are those of all threads
            warnings.simplefilter("ignore", BrokenVideoWarning)  # the readable frames are answered
            job.thread.resume()
        job.pause()
        if not job.thread.ended:
            with self._changed:
                self._lines.setdefault((job.client, True), deque()).append(job)

    def _between(self, job: ExclusiveJob, least_s: float = 0.0) -> None:
        """Between two pictures of a long job, or two steps: its turn ends where another job waits."""
        self._check([job])
        with self._changed:
            ends = bool(self._lines) and job.turn_s >= least_s
        if ends and job.thread is not None:
            job.thread.pause()
            self._check([job])

    def _check(self, jobs: Sequence[Job]) -> None:
        """ApiError where the clients of all jobs have gone, where their time is over, or that of the service."""
        if time.monotonic() > self._ends:
            raise _ending()
        wanted = [job for job in jobs if not job.gone]
        if not wanted:
            raise ApiError(503, "the client has gone")
        if all(job.left_s <= 0 for job in wanted):
            raise wanted[0].late()

    def _predict(self, batch: Sequence[Job]) -> None:
        """Photos of the same options."""
        began = time.monotonic()
        photos = [job for job in batch if isinstance(job, PhotoJob) and job.begin()]
        self._predict_opened([(job, picture) for job in photos if (picture := self._open(job)) is not None])
        if photos:
            each = (time.monotonic() - began) / len(photos)
            self._seconds = MEMORY * self._seconds + (1 - MEMORY) * each

    def _open(self, job: PhotoJob) -> Image.Image | None:
        """The picture; None where it is damaged, with the error in the job's future."""
        try:
            self._check([job])
            return self.decoded(job.content)
        except Exception as error:  # hostile bytes must not end the thread
            job.future.set_result(_as_api_error(error))
        return None

    def _predict_opened(self, opened: Sequence[tuple[PhotoJob, Image.Image]]) -> None:
        """Everybody in all pictures together; where that fails, in each alone, so that each gets its own error."""
        if len(opened) == 1:
            job, picture = opened[0]
            self._settle(job, lambda: self.model(picture, **job.options), lambda: self._check([job]))
        elif opened:
            jobs = [job for job, _ in opened]
            boxes = [job.options.get("boxes") for job in jobs]
            occluded = [job.options.get("occluded", ()) for job in jobs]
            try:
                with interruptible(lambda: self._check(jobs)):
                    pictures = [picture for _, picture in opened]
                    results = self.model(pictures, boxes=boxes, occluded=occluded, **jobs[0].shared)
            except Exception:  # comes again below
                for one in opened:
                    self._predict_opened([one])
                return
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

    def _settle(self, job: Job, work: Callable[[], Any], check: Callable[[], None]) -> None:
        """Put the answer of `work` into the job's future; `check` may end it at each of its steps."""
        try:
            with interruptible(check):
                check()
                job.future.set_result(work())
        except Exception as error:  # the thread must outlive every job
            job.future.set_result(_as_api_error(error))


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error.bare()
    if isinstance(error, InputError | MissingExtra):
        return ApiError(422, str(error))
    log.error("a request failed in the program", exc_info=error)
    return ApiError(500, f"the program failed ({type(error).__name__}): please report it")


def _ending() -> ApiError:
    return ApiError(503, "the service ends: try another", retry_after_s=LONGEST_RETRY_S)
