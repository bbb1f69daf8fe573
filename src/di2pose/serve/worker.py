"""One thread that owns the model, and a bounded queue before it: requests of the same options share a batch."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from PIL import Image

from di2pose.commands.photos import BATCH_PIXELS
from di2pose.errors import InputError, MissingExtra
from di2pose.pipeline import Di2Pose
from di2pose.serve.decoding import DecodingProcess
from di2pose.serve.pictures import Between, decode_picture
from di2pose.serve.refusal import Limits, Refusal

OF_A_PICTURE = ("boxes", "occluded")
"""Options that every picture of a batch has for itself; the others are the batch's."""
ALONE = ("pin", "keep_tokens")
"""Options that are about one picture of one person."""
MEMORY = 0.8
"""How much of the mean time of a photo the earlier ones make up."""
LONGEST_RETRY_S = 60.0
Alone = Callable[[Di2Pose, Between], Any]

log = logging.getLogger(__name__)


class Job:
    """The work for one request. `future` gets its answer, or the Refusal that says what went wrong. It may wait for
    `wait_s` and, once it is begun, take `work_s`."""

    def __init__(self, wait_s: float, work_s: float) -> None:
        self.future: Future[Any] = Future()
        self.until = time.monotonic() + wait_s
        self.work_s = work_s
        self.gone = False

    def begin(self) -> bool:
        """False where it is no longer wanted, or has waited too long, which it then says."""
        if not self.future.set_running_or_notify_cancel():
            return False
        if time.monotonic() > self.until:
            self.future.set_result(self.late(begun=False))
            return False
        self.until = time.monotonic() + self.work_s
        return True

    def late(self, begun: bool) -> Refusal:
        """Its time is over."""
        if not begun:
            return Refusal(503, "too many requests were before this one: try again later", LONGEST_RETRY_S)
        return Refusal(504, "the answer took too long: ask for fewer hypotheses or steps, or a smaller grid")

    def check(self) -> None:
        if self.gone:
            raise Refusal(503, "nobody waits for the answer")
        if time.monotonic() > self.until:
            raise self.late(begun=True)


class PhotoJob(Job):
    """A picture's people. Those of the same `key` may be looked at together."""

    def __init__(self, wait_s: float, content: bytes, pixels: int, options: dict[str, Any]) -> None:
        super().__init__(wait_s, wait_s)
        self.content, self.pixels, self.options = content, pixels, options

    @property
    def key(self) -> tuple[Any, ...] | None:
        """None: it is looked at alone."""
        if any(self.options.get(name) for name in ALONE):
            return None
        return tuple(sorted((name, value) for name, value in self.options.items() if name not in OF_A_PICTURE + ALONE))


class AloneJob(Job):
    """Anything else that needs the model: `run(model, between)` calls `between` as often as it can stop."""

    def __init__(self, wait_s: float, work_s: float, run: Alone) -> None:
        super().__init__(wait_s, work_s)
        self.run = run


class Worker:
    """`start`, `submit` jobs, `close`. At most `most_waiting` jobs wait, at most `most_together` share a batch."""

    def __init__(
        self, model: Di2Pose, most_waiting: int, most_together: int, decode_s: float = Limits.decode_s
    ) -> None:
        self.model, self.most_waiting, self.most_together = model, most_waiting, most_together
        self.checks = DecodingProcess(decode_s)  # of uploads, before they are queued
        self.decoder = DecodingProcess(decode_s)  # of pictures, for this thread
        self.busy = False
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seconds = 1.0
        self._thread = threading.Thread(target=self._loop, name="di2pose-worker", daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def retry_after_s(self) -> float:
        """About how long it takes until a place is free."""
        return min(LONGEST_RETRY_S, max(1.0, self.waiting * self._seconds))

    def start(self) -> None:
        self.checks.start()
        self.decoder.start()
        self._thread.start()

    def close(self) -> None:
        """Finish what is begun, refuse what waits."""
        with self._changed:
            self._closing = True
            jobs, self._jobs = list(self._jobs), deque()
            self._changed.notify()
        for job in jobs:
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(Refusal(503, "the service ends: try another", retry_after_s=LONGEST_RETRY_S))
        self._thread.join()
        self.checks.close()
        self.decoder.close()

    def submit(self, job: Job) -> "Future[Any]":
        """Put a job at the end of the queue; a Refusal where that is full, or too long for the job's time."""
        with self._changed:
            late = len(self._jobs) * self._seconds > job.until - time.monotonic()
            if self._closing or late or len(self._jobs) >= self.most_waiting:
                message = f"{len(self._jobs)} requests wait already: try again in a moment"
                raise Refusal(503, message, retry_after_s=self.retry_after_s)
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def abandon(self, job: Job) -> None:
        """Nobody waits for the answer any more: it leaves the queue, or ends at the next picture, if it is not done."""
        job.gone = True
        if job.future.cancel():
            with self._changed:
                if job in self._jobs:
                    self._jobs.remove(job)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self.busy = False
                self._changed.wait_for(lambda: self._jobs or self._closing)
                if not self._jobs:
                    return
                batch = self._take(self._jobs[0])
                self.busy = True
            self._do(batch)
            del batch  # else its pictures would stay until the next request

    def _take(self, first: Job) -> list[Job]:
        """The first job, and those that can be done together with it."""
        batch, pixels = [first], first.pixels if isinstance(first, PhotoJob) else 0
        if isinstance(first, PhotoJob) and first.key is not None:
            for job in self._jobs:
                fits = len(batch) < self.most_together and isinstance(job, PhotoJob) and job is not first
                if fits and isinstance(job, PhotoJob) and job.key == first.key and pixels + job.pixels <= BATCH_PIXELS:
                    batch.append(job)
                    pixels += job.pixels
        for job in batch:
            self._jobs.remove(job)
        return batch

    def _do(self, batch: Sequence[Job]) -> None:
        began = time.monotonic()
        batch = [job for job in batch if job.begin()]
        photos = [job for job in batch if isinstance(job, PhotoJob)]
        for job in batch:
            if isinstance(job, AloneJob):
                self._settle(job, lambda job=job: job.run(self.model, lambda: self._between(job)))  # type: ignore[misc]
        opened = [(job, picture) for job in photos if (picture := self._open(job)) is not None]
        self._look(opened)
        if photos:
            each = (time.monotonic() - began) / len(photos)
            self._seconds = MEMORY * self._seconds + (1 - MEMORY) * each

    def _between(self, job: Job) -> None:
        """Between two pictures of a long job: is it still wanted; and photos that wait need not wait for its end."""
        job.check()
        if self._closing:
            raise Refusal(503, "the service ends: try another", retry_after_s=LONGEST_RETRY_S)
        with self._changed:
            first = next((other for other in self._jobs if isinstance(other, PhotoJob)), None)
            batch = [] if first is None else self._take(first)
        if batch:
            self._do(batch)

    def decoded(self, content: bytes) -> Image.Image:
        picture: Image.Image = self.decoder.run(decode_picture, content)
        return picture

    def _open(self, job: PhotoJob) -> Image.Image | None:
        """The picture; None where it is damaged, which the job then says."""
        try:
            job.check()
            return self.decoded(job.content)
        except Refusal as error:
            job.future.set_result(error.bare())
        except Exception as error:  # hostile bytes must not end the thread
            self._fail(job, error)
        return None

    def _look(self, opened: Sequence[tuple[PhotoJob, Image.Image]]) -> None:
        """Everybody in all pictures; where that fails, in each alone, so that one cannot hurt its neighbours."""
        if len(opened) == 1:
            job, picture = opened[0]
            self._settle(job, lambda: self.model(picture, **job.options))
        elif opened:
            shared = {name: value for name, value in opened[0][0].options.items() if name not in OF_A_PICTURE + ALONE}
            boxes = [job.options.get("boxes") for job, _ in opened]
            hidden = [job.options.get("occluded", ()) for job, _ in opened]
            try:
                results = self.model([picture for _, picture in opened], boxes=boxes, occluded=hidden, **shared)
            except Exception:  # whatever it is, it comes again below, where it is told to the one it belongs to
                for one in opened:
                    self._look([one])
                return
            for (job, _), result in zip(opened, results, strict=True):
                job.future.set_result(result)

    def _settle(self, job: Job, work: Callable[[], Any]) -> None:
        try:
            job.future.set_result(work())
        except Refusal as error:
            job.future.set_result(error.bare())
        except (InputError, MissingExtra) as error:
            job.future.set_result(Refusal(422, str(error)))
        except Exception as error:  # the thread must outlive every job
            self._fail(job, error)

    def _fail(self, job: Job, error: Exception) -> None:
        log.error("a request failed in the program", exc_info=error)
        job.future.set_result(Refusal(500, f"the program failed ({type(error).__name__}): please report it"))
