"""Runs commands as processes: a few at a time, each with a log; a stop ends them all."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from di2pose.errors import InputError
from di2pose.training.options import stop_signals
from di2pose_experiments.plan import Options, Run, needs_first

POLL_S, GRACE_S = 0.2, 120.0
"""Between two looks for ended processes and signals; and how long stopped processes have to save what they did."""
LAST_LINES = 8
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824",
               "MALLOC_TOP_PAD_": "67108864"}  # fmt: skip
"""Of runs on CPUs: one thread each; and glibc keeps what was freed, where each iteration would be given new pages."""


def command_line(run: Run, launch: str | None = None) -> list[str]:
    """The command as a process: this Python's `di2pose`, or what launches the training commands (torchrun ...)."""
    start = shlex.split(launch) if launch and run.trains else [sys.executable, "-m", "di2pose"]
    return [*start, *run.words]


def run_all(
    runs: Sequence[Run], options: Options, finished: Callable[[Run], object] = lambda run: None
) -> tuple[dict[Run, str], int]:
    """Carry out what is not finished, `options.jobs` at a time; `finished` is called with each run that ends well.

    Returns the runs that failed with the end of their logs ("": not started, because a run that it needs failed), and
    the number of the signal that stopped it, or 0."""
    every = needs_first(runs)  # a cell is measured as soon as it is trained
    waiting = [run for run in every if not run.finished()]
    count, done, failures = len(waiting), 0, dict[Run, str]()
    if count < len(every):
        print(f"{len(every) - count} of {len(every)} runs are finished already", flush=True)
    running: dict[Run, tuple[subprocess.Popen, float]] = {}
    with _alone(options.out) as lock, stop_signals() as signals:
        try:
            while (waiting or running) and not signals:
                unfinished = {*waiting, *running}
                for run in [run for run in waiting if not unfinished & {*run.needs}]:
                    if failures.keys() & {*run.needs}:
                        failures[run] = ""
                    elif len(running) < options.jobs:
                        running[run] = _start(run, options, lock), time.monotonic()
                    else:
                        continue
                    waiting.remove(run)
                ended = [(run, code, since) for run, (child, since) in running.items()
                         if (code := child.poll()) is not None]  # fmt: skip
                for run, code, since in ended:
                    del running[run]
                    done += 1
                    state = f"FAILED, exit code {code}" if code else f"{time.monotonic() - since:.0f} s"
                    print(f"[{done}/{count}] {run.name}: {state}", flush=True)
                    if code:
                        failures[run] = _last_lines(_log(run, options), code)
                    else:
                        finished(run)
                if running and not ended:
                    time.sleep(POLL_S)
        finally:
            _stop([child for child, _ in running.values()])
    return failures, signals[0] if signals else 0


def failure_text(failures: Mapping[Run, str]) -> str:
    """Every run that failed with the end of its log, and the names of those that were not started."""
    texts = [f"\n{run.name} failed: {why}" for run, why in failures.items() if why]
    others = sorted(run.name for run, why in failures.items() if not why)
    return "\n".join([*texts, *([f"\nnot run, since they need these: {', '.join(others)}"] if others else [])])


def _start(run: Run, options: Options, lock: IO[str]) -> subprocess.Popen:
    log, command = _log(run, options), command_line(run, options.launch)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"+ {shlex.join(command)}\n")
        file.flush()
        # A session of its own: Ctrl-C reaches it through us, once. The lock is held as long as one of them lives.
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | (ENVIRONMENT if options.launch is None else {}),
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


def _log(run: Run, options: Options) -> Path:
    return options.out / "logs" / f"{run.name}.log"


def _last_lines(log: Path, code: int) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").strip().split("\n")
    return "\n".join([f"exit code {code}; the end of {log}:", *(f"  {line}" for line in lines[-LAST_LINES:])])
