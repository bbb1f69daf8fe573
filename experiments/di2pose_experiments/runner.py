"""Runs of ordinary commands as processes of their own: a few at a time, each with a log, and gone with us."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from di2pose.errors import InputError
from di2pose.training.options import stop_signals
from di2pose_experiments.plan import Run, in_order

POLL_S, GRACE_S = 0.05, 120.0
"""From look to look at the children; and how long they have to save what they did when they are stopped."""
LAST_LINES = 8


@dataclass(frozen=True)
class Failure:
    """A run that did not end well."""

    run: Run
    why: str = ""
    """Empty where it was not started, because a run that it needs failed."""


def command_line(run: Run, launch: str | None = None) -> list[str]:
    """The command as a process: this Python's `di2pose`, or what launches the training commands (torchrun ...)."""
    start = shlex.split(launch) if launch and run.trains else [sys.executable, "-m", "di2pose"]
    return [*start, *run.words]


def run_all(
    runs: Sequence[Run],
    out: Path,
    jobs: int,
    launch: str | None = None,
    finished: Callable[[Run], object] = lambda run: None,
) -> tuple[list[Failure], int]:
    """Carry out what is not finished, `jobs` at a time, and call `finished` with each run that ends well. A failed run
    takes those that need it with it, and no others. The failures, and the number of the signal that stopped it all, or
    0."""
    order = [run for group in in_order(runs) for run in group]
    waiting = [run for run in order if not run.finished()]
    count, ended = len(waiting), len(order) - len(waiting)
    failures: list[Failure] = []
    if ended:
        print(f"{ended} of {len(order)} runs are finished already", flush=True)
    running: dict[Run, tuple[subprocess.Popen, float]] = {}
    with _alone(out) as lock, stop_signals() as signals:
        try:
            while (waiting or running) and not signals:
                failed = {failure.run for failure in failures}
                for run in list(waiting):
                    if not failed.isdisjoint(run.needs):
                        waiting.remove(run)
                        failures.append(Failure(run))
                        failed.add(run)
                    elif len(running) < jobs and not any(need in waiting or need in running for need in run.needs):
                        waiting.remove(run)
                        running[run] = _start(run, out, launch, lock), time.monotonic()
                time.sleep(POLL_S)
                for run, (process, since) in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[run]
                    done = count - len(waiting) - len(running)
                    good = process.returncode == 0
                    state = f"{time.monotonic() - since:.0f} s" if good else f"FAILED, exit code {process.returncode}"
                    print(f"[{done}/{count}] {run.name}: {state}", flush=True)
                    if good:
                        finished(run)
                    else:
                        failures.append(Failure(run, _last_lines(_log(run, out), process.returncode)))
        finally:
            _stop([process for process, _ in running.values()])
    return failures, signals[0] if signals else 0


def failure_text(failures: Sequence[Failure]) -> str:
    """Every run that failed with the end of its log, and the names of those that were not started."""
    texts = [f"\n{failure.run.name} failed: {failure.why}" for failure in failures if failure.why]
    others = sorted(failure.run.name for failure in failures if not failure.why)
    return "\n".join([*texts, *([f"\nnot run, since they need these: {', '.join(others)}"] if others else [])])


def _start(run: Run, out: Path, launch: str | None, lock: IO[str]) -> subprocess.Popen:
    log = _log(run, out)
    log.parent.mkdir(parents=True, exist_ok=True)
    threads = {"OMP_NUM_THREADS": "1"} if launch is None else {}
    with log.open("a", encoding="utf-8") as file:
        file.write(f"+ {shlex.join(command_line(run, launch))}\n")
        file.flush()
        # A session of its own: Ctrl-C reaches it through us, once. The lock is held as long as one of them lives.
        return subprocess.Popen(
            command_line(run, launch),
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | threads,
            start_new_session=True,
            pass_fds=(lock.fileno(),) if os.name == "posix" else (),
        )


def _stop(children: Sequence[subprocess.Popen]) -> None:
    """Ask them to end, wait until they have saved what they did, and end those that do not."""
    for child in children:
        child.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
            child.wait()


@contextmanager
def _alone(out: Path) -> Iterator[IO[str]]:
    """Nobody else, and no child that a killed one left behind, works in this folder."""
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
