"""The model's turns: one job at a time, clients one after the other; a job that takes long gives way to others.

The queue lives in the event loop; the work runs in threads, which ask the loop for their next turn.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from PIL import Image

from di2pose.errors import InputError, MissingExtra
from di2pose.interruption import interruptible
from di2pose.serve.decoding import Between, DecodingProcess, decode_picture
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.metrics import Metrics

MEMORY = 0.8
"""Weight of the earlier photos in the mean time of a photo's turn."""
LONGEST_RETRY_S = 60.0
SLICE_S = 2.0
"""After this long a turn ends at the next diffusion step or encoder batch, not only at the next frame."""
MOST_BEGUN = 2
"""Jobs of one kind that take turns; a client has at most one of each kind. Their pictures are in memory."""
PHOTO = "photo"
STUCK_S = 60.0
"""A job that works for so much longer than its time limit, which it checks at every step, does not come back."""
MOST_THREADS = 16
Line = tuple[str, bool]
"""A client, and whether these jobs of it have begun."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """One request's place in the queue."""

    client: str
    """Its address."""
    kind: str
    """PHOTO, 'video', 'reveal' or 'lab'."""
    wait_s: float
    work_s: float
    """How long it may wait, and work once it has begun; turns of other jobs do not count."""
    came: float = 0.0
    """When it was queued."""
    begun: bool = False
    gone: bool = False
    """Whether its client has gone."""
    turn_began: float = 0.0
    until: float = 0.0
    """Its clock: when its turn began, and when its work has to end."""
    turn: asyncio.Future[ApiError | None] | None = None
    """What it waits for: its turn, or the error instead of it."""

    def worked_s(self) -> float:
        """Seconds of its own work; turns of other jobs do not count."""
        return time.monotonic() - self.until + self.work_s

    def late(self) -> ApiError:
        """The error where its time is over."""
        if not self.begun:
            return ApiError(503, "too many requests were before this one: try again later", LONGEST_RETRY_S)
        return ApiError(504, "the answer took too long: ask for fewer hypotheses or steps, or a smaller grid")


class Worker:
    """Runs jobs. At most `most_waiting` wait, `most_a_client` of one client.

    Clients have turns, one after the other. Begun jobs of a client have a place of their own in the round, between
    whose turns every other client has one.
    """

    def __init__(self, most_waiting: int, most_a_client: int, decode_s: float = Limits.decode_s) -> None:
        self.most_waiting, self.most_a_client = most_waiting, most_a_client
        self.checks = DecodingProcess(decode_s)  # of uploads, before they are queued
        self.decoder = DecodingProcess(decode_s)  # of pictures, for the job whose turn it is
        self.running: Job | None = None
        """The job whose turn it is."""
        self.metrics = Metrics()
        self._threads = ThreadPoolExecutor(MOST_THREADS, "di2pose-model")
        self._lines: OrderedDict[Line, deque[Job]] = OrderedDict()
        """Waiting jobs, in the order of their turns; none is empty."""
        self._begun: list[Job] = []
        self._ends = float("inf")
        self._turn_s = 1.0

    @property
    def busy(self) -> bool:
        return self.running is not None

    @property
    def ending(self) -> bool:
        return self._ends < float("inf")

    @property
    def waiting(self) -> int:
        """Number of jobs that have not begun."""
        return sum(len(jobs) for (_, begun), jobs in self._lines.items() if not begun)

    def state(self, index: int) -> dict[str, Any]:
        """Whether new requests would be taken (`ready`), and whether the work goes on (`alive`)."""
        job, problem = self.running, None
        running = None if job is None else {"kind": job.kind, "age_s": round(job.worked_s(), 3), "limit_s": job.work_s}
        alive = job is None or job.worked_s() < job.work_s + STUCK_S
        if self.ending:
            problem = "it ends"
        elif not alive:
            problem = "the running job is stuck"
        elif self.waiting >= self.most_waiting:
            problem = "the queue is full"
        return {"worker": index, "ready": problem is None, "alive": alive, "problem": problem,
                "waiting": self.waiting, "running": running}  # fmt: skip

    async def run(self, job: Job, work: Callable[[Between], Any]) -> Any:
        """What `work(between)` returns, which runs in a thread and calls `between` where its turn may end; ApiError
        says what went wrong."""
        self._admit(job)
        _return_or_raise(await self._wait(job))
        loop = asyncio.get_running_loop()

        def between(least_s: float = 0.0) -> None:
            self._check(job)
            if self._lines and time.monotonic() - job.turn_began >= least_s:
                asyncio.run_coroutine_threadsafe(self._give_way(job), loop).result()
                self._check(job)

        self._begun.append(job)
        self.metrics.observe("wait_seconds", job.turn_began - job.came, kind=job.kind)
        try:
            call = partial(_settle, partial(work, between), lambda: between(SLICE_S))
            return _return_or_raise(await loop.run_in_executor(self._threads, call))
        finally:
            self.metrics.observe("work_seconds", job.worked_s(), kind=job.kind)
            if job.kind == PHOTO:
                self._turn_s = MEMORY * self._turn_s + (1 - MEMORY) * (time.monotonic() - job.turn_began)
            self._begun.remove(job)
            self._next_turn()

    def abandon(self, job: Job) -> None:
        """The client has gone: the job leaves the queue, or stops at its next step."""
        job.gone = True
        if not job.begun:
            self._refuse(job, _gone())

    def end(self, grace_s: float) -> None:
        """Refuse waiting jobs, and every later one; begun jobs may go on for `grace_s`."""
        self._ends = time.monotonic() + grace_s
        for job in [job for (_, begun), jobs in self._lines.items() if not begun for job in jobs]:
            self._refuse(job, _ending())

    def close(self) -> None:
        """After `end`, when the event loop has ended, too."""
        self.checks.close()
        self.decoder.close()
        self._threads.shutdown()

    def decoded(self, content: bytes) -> Image.Image:
        """A picture; to be called in the thread of a job."""
        picture: Image.Image = self.decoder.run(decode_picture, content)
        return picture

    def _admit(self, job: Job) -> None:
        """ApiError where the queue or the client's share of it is full, or where the job would wait for too long."""
        if self.ending:
            raise _ending()
        job.came = time.monotonic()
        line = (job.client, False)
        mine, waiting = len(self._lines.get(line, ())), self.waiting
        # A round for each of its own jobs, in which every other line has a turn.
        others = [mine + 1 if begun else min(len(jobs), mine + 1)
                  for (client, begun), jobs in self._lines.items() if (client, begun) != line]  # fmt: skip
        wait_s = (mine + sum(others)) * self._turn_s
        retry_after_s = min(LONGEST_RETRY_S, max(1.0, wait_s))
        if mine >= self.most_a_client:
            message = f"{mine} requests of this client wait, {self.most_a_client} may: wait for an answer first"
            raise ApiError(503, message, retry_after_s)
        if waiting >= self.most_waiting or wait_s > job.wait_s:
            raise ApiError(503, f"{waiting} requests wait already: try again in a moment", retry_after_s)

    async def _wait(self, job: Job) -> ApiError | None:
        """Stay in the client's line until it is the job's turn; an ApiError where that does not come."""
        job.turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault((job.client, job.begun), deque()).append(job)
        if not self.busy:
            self._next_turn()
        await asyncio.wait([job.turn], timeout=None if job.begun else job.wait_s)
        if not job.turn.done():
            self._refuse(job, job.late())
        return job.turn.result()

    async def _give_way(self, job: Job) -> None:
        """The turn ends; the job waits for its next one."""
        left, self.running = time.monotonic(), None
        await self._wait(job)
        job.until += job.turn_began - left

    def _next_turn(self) -> None:
        """The first job in the lines that may begin (MOST_BEGUN) or go on has the next turn."""
        self.running = None
        for job in chain.from_iterable(self._lines.values()):
            clients = [other.client for other in self._begun if other.kind == job.kind]
            if job.turn is not None and (job.begun or (len(clients) < MOST_BEGUN and job.client not in clients)):
                self.running = job
                self._remove(job)
                job.turn_began = time.monotonic()
                if not job.begun:
                    job.begun, job.until = True, job.turn_began + job.work_s
                job.turn.set_result(None)
                return

    def _refuse(self, job: Job, error: ApiError) -> None:
        """Answer a job that waits."""
        if job.turn is not None and not job.turn.done():
            self._remove(job)
            job.turn.set_result(error)

    def _remove(self, job: Job) -> None:
        """Out of its line, which goes to the end of the round."""
        line = (job.client, job.begun)
        self._lines[line].remove(job)
        self._lines.move_to_end(line)
        if not self._lines[line]:
            del self._lines[line]

    def _check(self, job: Job) -> None:
        """ApiError where the client has gone, where the job's time is over, or that of the service."""
        now = time.monotonic()
        if now > self._ends:
            raise _ending()
        if job.gone:
            raise _gone()
        if now >= job.until:
            raise job.late()


def _settle(work: Callable[[], Any], check: Callable[[], None]) -> Any:
    """The answer of `work`, or an ApiError; `check` may end it at each of its steps. Errors are returned, without
    their tracebacks, which would keep the picture in memory."""
    try:
        with interruptible(check):
            check()
            return work()
    except ApiError as error:
        return ApiError(*error.args)
    except (InputError, MissingExtra) as error:
        return ApiError(422, str(error))
    except Exception as error:  # the service must outlive every job
        log.error("a request failed in the program", exc_info=error)
        return ApiError(500, f"the program failed ({type(error).__name__}): please report it")


def _return_or_raise(answer: Any) -> Any:
    """A new error is raised: that of a future, with its traceback, would refer to itself."""
    if isinstance(answer, ApiError):
        raise ApiError(*answer.args)
    return answer


def _gone() -> ApiError:
    return ApiError(503, "the client has gone")


def _ending() -> ApiError:
    return ApiError(503, "the service ends: try another", LONGEST_RETRY_S)
