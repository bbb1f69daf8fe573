"""`predict --workers N`: processes that share the inputs, each with a pipeline of its own and one thread.

Noise depends on (seed, person, hypothesis) alone, so results do not depend on the process. Each process is a pool of
one: where it dies, its own batch is tried again and the others are not affected.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.synchronize import Event
from types import SimpleNamespace

from di2pose.commands.inputs import Input, work_batches
from di2pose.commands.predict import PredictOptions, do_batch, load
from di2pose.commands.writing import Report, ReportCallback, print_line
from di2pose.errors import InputError
from di2pose.interruption import interruptible

SPAWN = multiprocessing.get_context("spawn")
process = SimpleNamespace(model=None)
"""Of a worker: `options`, `stop` (an Event that the parent sets) and the loaded model."""


def work_in_processes(items: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """All inputs; False where it was given up because the disk is full."""
    if any(item.kind == "camera" for item in items):
        raise InputError("a camera is recorded by one process: leave --workers out")
    # Videos first: the longest batches must not be the last.
    waiting = deque(sorted(work_batches(items), key=lambda batch: batch[0].kind == "photo"))
    stop = SPAWN.Event()
    pools = [_pool(options, stop) for _ in range(min(options.processes, len(waiting)))]
    free, room = list(pools), True
    running: dict[Future[list[Report]], tuple[ProcessPoolExecutor, list[Input]]] = {}
    try:
        while running or (waiting and room):
            while free and waiting and room:
                pool, batch = free.pop(), waiting.popleft()
                running[pool.submit(_work, batch)] = pool, batch
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                pool, batch = running[future]
                try:
                    for outcome in future.result():
                        report(outcome)
                        room = room and not outcome.disk_full
                except BrokenProcessPool:
                    pool = _pool(options, stop)
                    pools.append(pool)
                    if len(batch) > 1:
                        print_line(f"a process ended at {' or '.join(item.label for item in batch)}: tried again, "
                                   "each alone", error=True)  # fmt: skip
                        waiting.extendleft([item] for item in reversed(batch))
                    else:
                        problem = "the process that was at it ended; the others go on. Try fewer --workers"
                        report(Report(batch[0], problems=[problem]))
                del running[future]
                free.append(pool)
        return room
    except BaseException:  # Ctrl-C, or what no process can do
        stop.set()
        for future in running:
            with suppress(Exception):
                for outcome in future.result():
                    report(outcome)
        raise
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _pool(options: PredictOptions, stop: Event) -> ProcessPoolExecutor:
    """One process, which ignores Ctrl-C: the parent sets `stop`."""
    pool = ProcessPoolExecutor(1, SPAWN, _start, (options, stop))
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        pool.submit(os.getpid)  # starts the process, which inherits that SIGINT is ignored
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    return pool


def _start(options: PredictOptions, stop: Event) -> None:
    process.options, process.stop = options, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it is not inherited
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _work(batch: list[Input]) -> list[Report]:
    """The reports of a batch; of a part of it where the parent stops."""
    if process.model is None:
        process.model = load(process.options)
    reports: list[Report] = []
    with suppress(KeyboardInterrupt), interruptible(_raise_if_stopped):
        _raise_if_stopped()
        do_batch(process.model, batch, process.options, reports.append)
    return reports


def _raise_if_stopped() -> None:
    if process.stop.is_set():
        raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Without it, the process would wait for ever for the next batch of a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
