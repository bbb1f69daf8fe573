"""Runs commands as processes: a few at a time, each with a log; a stop ends them all."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from di2pose.errors import InputError
from di2pose.training.options import stop_signals
from di2pose_experiments.plan import Run, in_order, ordered

POLL_S, GRACE_S = 0.2, 120.0
"""Between two checks for a signal; and how long stopped processes have to save what they did."""
LAST_LINES = 8


@dataclass(frozen=True)
class Outcome:
    """How a number of runs ended."""

    failures: dict[Run, str]
    """Run -> the end of its log; '' where it was not started, because a run that it needs failed."""
    stopped: int
    """Number of the signal that stopped them, or 0."""

    @property
    def code(self) -> int:
        """Exit code of the command."""
        return 128 + self.stopped if self.stopped else int(bool(self.failures))

    @property
    def text(self) -> str:
        """Every run that failed with the end of its log, and the names of those that were not started."""
        if self.stopped:
            return f"stopped by signal {self.stopped}: the same command goes on"
        texts = [f"\n{run.name} failed: {why}" for run, why in self.failures.items() if why]
        others = sorted(run.name for run, why in self.failures.items() if not why)
        return "\n".join([*texts, *([f"\nnot run, since they need these: {', '.join(others)}"] if others else [])])


def command_line(run: Run, launch: str | None = None) -> list[str]:
    """The command as a process: this Python's `di2pose`, or what launches the training commands (torchrun ...)."""
    start = shlex.split(launch) if launch and run.trains else [sys.executable, "-m", "di2pose"]
    return [*start, *run.words]


def run_all(
    runs: Sequence[Run], out: Path, jobs: int, launch: str | None = None,
    finished: Callable[[Run], object] = lambda run: None,
) -> Outcome:  # fmt: skip
    """Carry out what is not finished, `jobs` at a time; `finished` is called with each run that ends well. A failed run
    takes those that need it with it, and no others."""
    every = [run for group in in_order(runs) for run in group]
    count = sum(not run.finished() for run in every)
    if count < len(every):
        print(f"{len(every) - count} of {len(every)} runs are finished already", flush=True)
    sorter, ready, done = ordered(runs), list[Run](), 0
    failures: dict[Run, str] = {}
    running: dict[Future[int], tuple[Run, subprocess.Popen, float]] = {}
    with _alone(out) as lock, stop_signals() as signals, ThreadPoolExecutor(jobs) as pool:
        try:
            while sorter.is_active() and not signals:
                ready += sorter.get_ready()
                while ready and len(running) < jobs:
                    run = ready.pop(0)
                    if failures.keys() & {*run.needs}:
                        failures[run] = ""
                        sorter.done(run)
                    elif run.finished():
                        sorter.done(run)
                    else:
                        child = _start(run, out, launch, lock)
                        running[pool.submit(child.wait)] = run, child, time.monotonic()
                for future in wait(running, POLL_S, FIRST_COMPLETED).done if running else ():
                    run, _, since = running.pop(future)
                    code, done = future.result(), done + 1
                    state = f"FAILED, exit code {code}" if code else f"{time.monotonic() - since:.0f} s"
                    print(f"[{done}/{count}] {run.name}: {state}", flush=True)
                    if code:
                        log = _log(run, out).read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
                        failures[run] = "\n  ".join([f"exit code {code}", *log.strip().split("\n")[-LAST_LINES:]])
                    else:
                        finished(run)
                    sorter.done(run)
        finally:
            _stop([child for _, child, _ in running.values()])
    return Outcome(failures, signals[0] if signals else 0)


def _start(run: Run, out: Path, launch: str | None, lock: IO[str]) -> subprocess.Popen:
    log, command = _log(run, out), command_line(run, launch)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"+ {shlex.join(command)}\n")
        file.flush()
        # A session of its own: Ctrl-C reaches it through us, once. The lock is held as long as one of them lives.
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | ({"OMP_NUM_THREADS": "1"} if launch is None else {}),
            pass_fds=(lock.fileno(),) if os.name == "posix" else (),
        )  # fmt: skip


def _stop(children: Sequence[subprocess.Popen]) -> None:
    """Interrupt them, wait until they have saved what they did, and kill those that do not end."""
    for child in children:
        child.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()


@contextmanager
def _alone(out: Path) -> Iterator[IO[str]]:
    """Lock the folder, also against processes that a killed run left behind."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w", encoding="utf-8") as lock:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InputError(
                    f"another `di2pose ablate`, or a run that a killed one left behind, still works in {out}: wait for "
                    "it, or choose another --out"
                ) from error
        yield lock


def _log(run: Run, out: Path) -> Path:
    return out / "logs" / f"{run.name}.log"
