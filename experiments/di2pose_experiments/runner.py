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
"""Between two looks for a signal; and how long stopped processes have to save what they did."""
LAST_LINES = 8


@dataclass(frozen=True)
class Failure:
    """A run that failed; `why` is empty where it was not started, because a run that it needs failed."""

    run: Run
    why: str = ""


def command_line(run: Run, launch: str | None = None) -> list[str]:
    """The command as a process: this Python's `di2pose`, or what launches the training commands (torchrun ...)."""
    start = shlex.split(launch) if launch and run.trains else [sys.executable, "-m", "di2pose"]
    return [*start, *run.words]


def run_all(
    runs: Sequence[Run], out: Path, jobs: int, launch: str | None = None,
    finished: Callable[[Run], object] = lambda run: None,
) -> tuple[list[Failure], int]:  # fmt: skip
    """Carry out what is not finished, `jobs` at a time; `finished` is called with each run that ends well. A failed run
    takes those that need it with it, and no others. Returns the failures, and the number of the signal that stopped
    it, or 0."""
    every = [run for group in in_order(runs) for run in group]
    count = sum(not run.finished() for run in every)
    if count < len(every):
        print(f"{len(every) - count} of {len(every)} runs are finished already", flush=True)
    sorter, failures, ready, done = ordered(runs), list[Failure](), list[Run](), 0
    running: dict[Future[int], tuple[Run, subprocess.Popen, float]] = {}
    with _alone(out) as lock, stop_signals() as signals, ThreadPoolExecutor(jobs) as pool:
        try:
            while sorter.is_active() and not signals:
                ready += sorter.get_ready()
                while ready and len(running) < jobs:
                    run = ready.pop(0)
                    if any(failure.run in run.needs for failure in failures):
                        failures.append(Failure(run))
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
                        failures.append(Failure(run, _last_lines(_log(run, out), code)))
                    else:
                        finished(run)
                    sorter.done(run)
        finally:
            _stop([child for _, child, _ in running.values()])
    return failures, signals[0] if signals else 0


def failure_text(failures: Sequence[Failure]) -> str:
    """Every run that failed with the end of its log, and the names of those that were not started."""
    texts = [f"\n{failure.run.name} failed: {failure.why}" for failure in failures if failure.why]
    others = sorted(failure.run.name for failure in failures if not failure.why)
    return "\n".join([*texts, *([f"\nnot run, since they need these: {', '.join(others)}"] if others else [])])


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


def _last_lines(log: Path, code: int) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").strip().split("\n")
    return "\n".join([f"exit code {code}; the end of {log}:", *(f"  {line}" for line in lines[-LAST_LINES:])])
