"""Jobs: requests whose work goes on without a connection. Jobs and results are in memory, for a client that asks for
them again in time, and end with the process."""

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from di2pose.result import Result
from di2pose.serve.decoding import Between
from di2pose.serve.limits import CODES, ApiError, Limits

JOB_ID = re.compile(r"([0-9]{1,4})-[A-Za-z0-9_-]{24}")
"""The worker that has it, and 144 random bits."""
POLL_S, HEARTBEAT_S = 0.2, 15.0
"""Of a stream of events: between looks at the job, and between lines that keep the connection."""
ENDED = ("done", "failed", "cancelled")


@dataclass(eq=False)
class BackgroundJob:
    """One job, in place of a request and its connection."""

    id: str
    client: str
    frames: int = 1
    calls: int = 0
    """Of its `between`: frames that have begun."""
    begun: bool = False
    answer: bytes | None = None
    error: ApiError | None = None
    latest: Result | None = None
    """Of a video: the frame that was estimated last, not yet smoothed."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where it is cancelled, or was not asked for in time."""
    seen: float = field(default_factory=time.monotonic)
    """Its clock when its client last asked for it."""

    @property
    def state(self) -> str:
        if self.gone.is_set():
            return "cancelled"
        if self.error is not None:
            return "failed"
        return "done" if self.answer is not None else "running" if self.begun else "waiting"

    def report(self) -> dict[str, Any]:
        error = None if self.error is None else error_record(self.error)["error"]
        frames_done = self.frames if self.answer is not None else min(max(0, self.calls - 1), self.frames)
        return {"id": self.id, "state": self.state, "frames_done": frames_done, "frames": self.frames, "error": error}

    def show(self, latest: Result) -> None:
        self.latest = latest

    def counting(self, work: Callable[[Between], Any], frames: int) -> Callable[[Between], Any]:
        """The same work, which calls its `between` before each frame; the frames are counted."""
        self.frames = frames

        def counted(between: Between) -> Any:
            def count() -> None:
                self.calls += 1
                between()

            self.begun = True
            return work(count)

        return counted


class BackgroundJobs:
    """The jobs of one process. `index`: of the process, in the names of its jobs."""

    def __init__(self, limits: Limits, index: int) -> None:
        self.limits, self.index = limits, index
        self.jobs: dict[str, BackgroundJob] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self, client: str, run: Callable[[BackgroundJob], Awaitable[bytes]]) -> BackgroundJob:
        """A new job; ApiError where there are too many, or where the work is refused at once."""
        mine = sum(job.client == client for job in self.jobs.values())
        if len(self.jobs) >= self.limits.jobs or mine >= self.limits.jobs_a_client:
            problem = f"{len(self.jobs)} jobs are kept, {mine} of this client; {self.limits.jobs} may be, "
            raise ApiError(503, f"{problem}{self.limits.jobs_a_client} of a client: DELETE those that are fetched", 10)
        job = BackgroundJob(f"{self.index}-{secrets.token_urlsafe(18)}", client)
        self._keep(asyncio.create_task(self._run(job, run)))
        await asyncio.sleep(0)  # in which it comes to the queue
        if job.error is not None:
            raise ApiError(*job.error.args)
        self.jobs[job.id] = job
        self._keep(asyncio.create_task(self._expire(job)))
        return job

    def find(self, name: str) -> BackgroundJob:
        if name not in self.jobs:
            raise ApiError(404, "no job of this name: it was cancelled, not asked for in time, or never was")
        self.jobs[name].seen = time.monotonic()
        return self.jobs[name]

    def forget(self, job: BackgroundJob) -> None:
        """The work stops at its next step, the result is freed."""
        self.jobs.pop(job.id, None)
        job.gone.set()
        job.answer = None

    def result(self, job: BackgroundJob) -> bytes:
        if job.error is not None:
            raise ApiError(*job.error.args)
        if job.answer is None:
            raise ApiError(409, f"the job is {job.state}: ask again when it is done", 1)
        return job.answer

    async def events(self, job: BackgroundJob, ending: Callable[[], bool]) -> AsyncIterator[str]:
        """Server-sent events: the job's report where it changed, until it ends; the event's name is its state. Between
        them 'frame': the JSON of a frame of the video that was estimated."""
        shown, said = "", time.monotonic()
        frame: Result | None = None
        while not ending():
            job.seen, report = time.monotonic(), job.report()
            if job.latest is not None and job.latest is not frame:
                frame = job.latest
                contents = await asyncio.to_thread(frame.to_files, "frame.json")
                yield f"event: frame\ndata: {contents['frame.json'].decode().replace(chr(10), '')}\n\n"
            line = f"event: {report['state']}\ndata: {json.dumps(report)}\n\n"
            if line != shown or job.seen - said > HEARTBEAT_S:
                yield line if line != shown else ": \n\n"
                shown, said = line, job.seen
            if report["state"] in ENDED:
                return
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        for job in list(self.jobs.values()):
            self.forget(job)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _run(self, job: BackgroundJob, run: Callable[[BackgroundJob], Awaitable[bytes]]) -> None:
        try:
            answer = await run(job)
        except ApiError as error:
            job.error = ApiError(*error.args)  # without its traceback, which has the picture
            return
        if not job.gone.is_set():
            job.answer = answer
        done = [each for each in self.jobs.values() if each.answer is not None]
        held = sum(len(each.answer or b"") for each in done)
        for each in done:  # the oldest first
            if held > self.limits.jobs_bytes:
                held -= len(each.answer or b"")
                self.forget(each)

    async def _expire(self, job: BackgroundJob) -> None:
        while not job.gone.is_set() and (left := job.seen + self.limits.job_kept_s - time.monotonic()) > 0:
            await asyncio.sleep(left)
        self.forget(job)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def error_record(error: ApiError) -> dict[str, Any]:
    return {"error": {"code": CODES.get(error.status_code, CODES[400]), "message": error.detail}}
