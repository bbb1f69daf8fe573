"""Several worker processes behind one port: each is started anew with a model of its own, and again where it ends."""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import connection
from pathlib import Path
from typing import Any

END_S = 20.0
"""For workers to end by themselves."""
ABSENT = 1_000_000
"""The load of a worker that does not answer yet, or no more."""
PATIENCE_S, ACCEPTED_S = 0.02, 0.005
"""How long a connection is left to a worker with fewer requests; how long after it its request may not count yet."""
Target = Callable[..., None]
"""Called in each process with its SharedListener, the paths of all workers' own sockets, and its own socket."""


class SharedListener(socket.socket):
    """The public socket in a worker, which leaves connections to workers that have fewer requests. `loads`: number of
    requests of each worker, in shared memory."""

    def __init__(self, listening: socket.socket, index: int, loads: Any) -> None:
        super().__init__(fileno=listening.detach())
        self.index, self.loads = index, loads
        self._accepted = 0.0

    def begin(self) -> None:
        """From now on this worker answers."""
        self.loads[self.index] = 0

    def count(self, by: int) -> None:
        """A request begins (1) or ends (-1)."""
        self.loads[self.index] += by

    def accept(self) -> tuple[socket.socket, Any]:
        if self.loads[self.index] + (time.monotonic() - self._accepted < ACCEPTED_S) > min(self.loads):
            time.sleep(PATIENCE_S)  # the work goes on, in threads
        accepted = super().accept()  # BlockingIOError where another worker was first
        self._accepted = time.monotonic()
        return accepted


def run_workers(count: int, listening: socket.socket, target: Target, ready: str) -> int:
    """Keep `count` processes that answer at one listening socket, until SIGTERM or Ctrl-C; `ready` is printed when all
    of them do. The exit code: 1 where one ends before it has answered."""
    context, ended_by = multiprocessing.get_context("spawn"), 0

    def end(number: int, _: Any) -> None:
        nonlocal ended_by
        ended_by = number
        raise KeyboardInterrupt

    def start(index: int) -> Any:
        loads[index] = ABSENT
        process = context.Process(target=_run_worker, args=(target, index, listening, loads, paths, own[index]))
        process.start()
        return process

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="di2pose-"))
        paths = tuple(str(Path(folder) / str(index)) for index in range(count))
        own = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in paths]
        for each, path in zip(own, paths, strict=True):
            each.bind(path)
            each.listen(128)
        loads, processes, shown = context.RawArray("i", [ABSENT] * count), list[Any](), False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        try:
            processes += map(start, range(count))
            while True:
                connection.wait([process.sentinel for process in processes], None if shown else 0.2)
                if not shown and max(loads) < ABSENT:
                    shown = True
                    print(ready, flush=True)
                for index, process in enumerate(processes):
                    if process.exitcode is not None:
                        if loads[index] >= ABSENT:
                            return 1
                        print(f"worker {index} ended ({process.exitcode}): it is started again", file=sys.stderr)
                        processes[index] = start(index)
        except KeyboardInterrupt:
            print("ended", flush=True) if ended_by == signal.SIGINT else None
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(END_S)
                process.kill()
    if ended_by == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    return 0


def _run_worker(target: Target, index: int, listening: socket.socket, loads: Any, *sockets: Any) -> None:
    end_with_parent()
    target(SharedListener(listening, index, loads), *sockets)


def end_with_parent() -> None:
    """This process gets SIGTERM where its parent ends without sending one."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
