"""`predict --workers N`: processes that share the inputs, each with a pipeline of its own and one thread.

The parent hands a batch of work to each idle process, and prints the reports; the processes read and write files. Noise
depends on (seed, person, hypothesis) alone, so results do not depend on the process. A process of its own for each
worker, and no pool of `concurrent.futures`: there the death of one process ends the others, too.
"""

import _thread
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tqdm import tqdm

from di2pose.commands.inputs import Input, work_batches
from di2pose.commands.interrupts import DeferredSigint
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import Report, ReportCallback
from di2pose.errors import InputError, MissingExtra

READY = "ready"
"""Message of an idle worker."""
Message = Report | InputError | MissingExtra | str
"""Of a worker: a report, why it cannot work at all, or READY."""
SPAWN = multiprocessing.get_context("spawn")


class Worker:
    """A process, the connection to it, and the inputs of its batch that it has not reported."""

    def __init__(self, options: PredictOptions) -> None:
        self.connection, there = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_work, args=(there, options))
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
        try:
            self.process.start()  # which inherits that it ignores Ctrl-C
        finally:
            if main:
                signal.signal(signal.SIGINT, before)
        there.close()
        self.items: list[Input] = []
        self.alone = False
        """Its batch is a single input."""

    def give(self, batch: list[Input]) -> None:
        """The next batch; an empty one ends the process."""
        self.items, self.alone = list(batch), len(batch) == 1
        with suppress(OSError):  # it died: `receive` returns None
            self.connection.send(batch)

    def receive(self) -> Message | None:
        """Its next message; None where it has ended."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        return message

    def interrupt(self) -> None:
        """Like Ctrl-C: it writes its part of a video. An idle one is killed."""
        if not self.items:
            self.process.kill()
        elif os.name == "posix" and self.process.pid is not None:  # elsewhere the terminal has done it already
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)

    @property
    def end(self) -> str:
        """How it ended: 'killed by SIGKILL', 'exit code 1'."""
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def work_in_processes(items: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """All inputs; False where it was given up because the disk is full."""
    if any(item.kind == "camera" for item in items):
        raise InputError("a camera is recorded by one process: leave --workers out")
    for item in items:  # the processes have copies of the box file: here the names that are met are counted
        if options.box_file is not None:
            options.box_file.of(Path(str(item.source)))
    # Videos first: the longest batches must not be the last.
    waiting = deque(sorted(work_batches(items), key=lambda batch: batch[0].kind == "photo"))
    workers = [Worker(options) for _ in range(min(options.processes, len(waiting)))]
    try:
        with tqdm(total=len(items), unit="file", disable=None) as bar:

            def count(outcome: Report) -> None:
                report(outcome)
                bar.update()

            return _hand_out(waiting, workers, options, count)
    except BaseException:
        for worker in workers:
            worker.interrupt()
        for worker in workers:  # a second Ctrl-C is raised here, and the rest is cut short below
            while (message := worker.receive()) is not None:
                if isinstance(message, Report):
                    report(message)
        raise
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _hand_out(
    waiting: deque[list[Input]], workers: list[Worker], options: PredictOptions, report: ReportCallback
) -> bool:
    """Until all is done or the disk is full. A worker that died is replaced. The inputs of its batch are tried again,
    each alone; one that ends a worker then has failed."""
    room, running = True, list(workers)
    with DeferredSigint() as deferred:  # Ctrl-C is raised while it waits, never in the middle of a message
        for worker in deferred.between(_with_messages(running)):
            message = worker.receive()
            if isinstance(message, InputError | MissingExtra):
                raise message
            if isinstance(message, Report):
                report(message)
                worker.items.remove(message.item)
                room = room and not message.files.disk_full
                continue
            if message is not None:
                worker.give(waiting.popleft() if waiting and room else [])
                continue
            running.remove(worker)
            if not worker.items:
                if worker.process.exitcode != 0:
                    problem = f"a process ended before its first file ({worker.end})"
                    if not running and waiting:
                        raise InputError(f"{problem}, and no other is left: try fewer --workers")
                    tqdm.write(f"{problem}: the others go on", file=sys.stderr)
                continue
            if worker.alone:
                problem = f"the process that was at it ended ({worker.end}); the others go on. Try fewer --workers"
                report(Report(worker.items[0], problems=[problem]))
            else:
                labels = ", ".join(item.label for item in worker.items)
                tqdm.write(f"a process ended ({worker.end}) at {labels}: tried again, each alone", file=sys.stderr)
                waiting.extendleft([item] for item in reversed(worker.items))
            if waiting and room:
                workers.append(Worker(options))
                running.append(workers[-1])
    return room


def _with_messages(running: list[Worker]) -> Iterator[Worker]:
    """Workers whose message can be received, until none runs."""
    while running:
        ready = wait([worker.connection for worker in running])
        yield from [worker for worker in running if worker.connection in ready]


def _work(connection: Connection, options: PredictOptions) -> None:
    """The process: one batch after the other, until there are no more, Ctrl-C, or the parent's end."""
    if os.name == "posix":
        os.setpgrp()  # Ctrl-C of a terminal goes to the parent alone, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_stop_with_parent, daemon=True).start()

    def send(message: Message) -> None:
        with DeferredSigint():  # never half a message
            connection.send(message)

    with suppress(KeyboardInterrupt, BrokenPipeError, EOFError):  # EOFError: the parent has ended
        try:
            import torch

            from di2pose.commands.predict import do_batch, load

            torch.set_num_threads(1)
            model = load(options)
        except (InputError, MissingExtra) as error:
            send(error)
            return
        send(READY)
        while batch := connection.recv():
            do_batch(model, batch, options, send, bar=False)
            send(READY)


def _stop_with_parent() -> None:
    """Stop as by Ctrl-C when the parent is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _thread.interrupt_main()
