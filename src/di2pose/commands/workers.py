"""`predict --workers N`: processes that share the inputs, each with a pipeline of its own and one thread.

The parent hands out one piece of work at a time to whoever is free, and says what became of it; the workers read and
write. Noise depends on (seed, person, hypothesis) alone, so it does not matter who does what.
"""

import _thread
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

from tqdm import tqdm

from di2pose.commands.inputs import Input, pieces
from di2pose.commands.interrupts import HeldInterrupts
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import Report, Tell
from di2pose.errors import InputError, MissingExtra

READY = "ready"
"""Said by a worker who waits for its next piece."""
Message = Report | InputError | MissingExtra | str
"""What a worker says: what became of an input, why it cannot work at all, or READY."""


class Worker:
    """A process, the connection to it, and the inputs that it has in hand."""

    def __init__(self, context: SpawnContext, options: PredictOptions) -> None:
        self.connection, there = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(there, options))
        with _ignored_interrupts():  # what the child is born with
            self.process.start()
        there.close()
        self.items: list[Input] = []
        self.alone = False
        """Its piece of work is a single input."""

    def give(self, piece: list[Input]) -> None:
        """The next piece of work; an empty one: there are no more."""
        self.items, self.alone = list(piece), len(piece) == 1
        with suppress(OSError):  # it died: `hear` will say so
            self.connection.send(piece)

    def hear(self) -> Message | None:
        """What it says next; None where it has ended."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        return message

    def interrupt(self) -> None:
        """As Ctrl-C does: of a video it then writes what is done. Who has nothing in hand has nothing to write."""
        if not self.items:
            self.process.kill()
        elif os.name == "posix" and self.process.pid is not None:  # elsewhere the terminal has told it already
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)

    @property
    def end(self) -> str:
        """How it ended: 'killed by SIGKILL', 'exit code 1'."""
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def work_in_processes(items: Sequence[Input], options: PredictOptions, tell: Tell) -> bool:
    """All inputs; False where it was given up because the disk is full."""
    if any(item.kind == "camera" for item in items):
        raise InputError("a camera is recorded by one process: leave --workers out")
    for item in items:  # the workers have a box file of their own: here it learns which of its names are met
        if options.box_file is not None:
            options.box_file.of(Path(str(item.source)))
    context = multiprocessing.get_context("spawn")
    # Videos first: the longest pieces must not be the last.
    waiting = deque(sorted(pieces(items), key=lambda piece: piece[0].kind == "photo"))
    workers = [Worker(context, options) for _ in range(min(options.processes, len(waiting)))]
    try:
        with tqdm(total=len(items), unit="file", disable=None) as bar:
            return _hand_out(waiting, workers, context, options, tell, bar)
    except BaseException:
        for worker in workers:
            worker.interrupt()
        for worker in workers:  # a second Ctrl-C comes out here, and the rest is cut short below
            while (message := worker.hear()) is not None:
                if isinstance(message, Report):
                    tell(message)
        raise
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _hand_out(
    waiting: deque[list[Input]],
    workers: list[Worker],
    context: SpawnContext,
    options: PredictOptions,
    tell: Tell,
    bar: "tqdm[object]",
) -> bool:
    """Until all is done or the disk is full. Another takes the place of a worker that died. What it had in hand is
    tried again, each alone, and whatever ends a worker then has failed."""
    room = True
    at_work = list(workers)
    with HeldInterrupts() as held:  # Ctrl-C comes while it waits, and never in the middle of a message
        for worker in held.between(_speakers(at_work)):
            message = worker.hear()
            if isinstance(message, InputError | MissingExtra):
                raise message
            if isinstance(message, Report):
                tell(message)
                worker.items.remove(message.item)
                room = room and not message.written.disk_full
                bar.update()
                continue
            if message is not None:
                worker.give(waiting.popleft() if waiting and room else [])
                continue
            at_work.remove(worker)
            if not worker.items and worker.process.exitcode == 0:
                continue
            if not worker.items:
                problem = f"a process ended before its first file ({worker.end})"
                if not at_work and waiting:
                    raise InputError(f"{problem}, and no other is left: try fewer --workers")
                tqdm.write(f"{problem}: the others go on", file=sys.stderr)
                continue
            if worker.alone:
                problem = f"the process that was at it ended ({worker.end}); the others go on. Try fewer --workers"
                tell(Report(worker.items[0], problems=[problem]))
                bar.update()
            else:
                labels = ", ".join(item.label for item in worker.items)
                tqdm.write(f"a process ended ({worker.end}) at {labels}: tried again, each alone", file=sys.stderr)
                waiting.extendleft([item] for item in reversed(worker.items))
            if waiting and room:
                workers.append(Worker(context, options))
                at_work.append(workers[-1])
    return room


def _speakers(at_work: list[Worker]) -> Iterator[Worker]:
    """Whoever has something to say, until nobody is at work."""
    while at_work:
        spoke = wait([worker.connection for worker in at_work])
        yield from [worker for worker in at_work if worker.connection in spoke]


def _work(connection: Connection, options: PredictOptions) -> None:
    """A worker's life: one piece after the other, until there are no more, Ctrl-C, or its parent's end."""
    if os.name == "posix":
        os.setpgrp()  # Ctrl-C of a terminal goes to the parent alone, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_follow_parent, daemon=True).start()

    def say(message: Message) -> None:
        with HeldInterrupts():  # never half a message
            connection.send(message)

    with suppress(KeyboardInterrupt, BrokenPipeError):
        try:
            import torch

            from di2pose.commands.predict import do_piece, load

            torch.set_num_threads(1)
            model = load(options)
        except (InputError, MissingExtra) as error:
            say(error)
            return
        for piece in _given(connection, say):
            do_piece(model, piece, options, say, bar=False)


def _given(connection: Connection, say: Callable[[Message], None]) -> Iterator[list[Input]]:
    while True:
        say(READY)
        try:
            piece = connection.recv()
        except EOFError:  # the parent is gone
            return
        if not piece:
            return
        yield piece


def _follow_parent() -> None:
    """Whoever kills the parent leaves no orphans: they stop as by Ctrl-C."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _thread.interrupt_main()


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """A process that is started here takes no notice of Ctrl-C until it says otherwise; this one gets it afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
