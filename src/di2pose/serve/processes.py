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
from multiprocessing import connection
from pathlib import Path
from types import FrameType
from typing import Any

END_S = 20.0
"""For workers to end by themselves."""
ABSENT = 1_000_000
"""The load of a worker that does not answer yet, or no more."""
PATIENCE_S, ACCEPTED_S = 0.05, 0.005
"""How long a connection is left to a worker with fewer requests; how long after it its request may not count yet."""
Target = Callable[..., None]
"""Called in each process with its SharedListener, the paths of all workers' own sockets, its own socket, and the
arguments."""


class SharedListener(socket.socket):
    """The public socket in a worker, which leaves connections to workers that have fewer requests. `loads`: number of
    requests of each worker, in shared memory."""

    def __init__(self, listening: socket.socket, index: int, loads: Any) -> None:
        super().__init__(fileno=listening.detach())
        self.index, self.loads = index, loads
        self._accepted = self._left = self._since = 0.0

    def begin(self) -> None:
        """From now on this worker answers."""
        self.loads[self.index] = 0

    def count(self, by: int) -> None:
        """A request begins (1) or ends (-1)."""
        self.loads[self.index] += by

    def accept(self) -> tuple[socket.socket, Any]:
        now = time.monotonic()
        mine = self.loads[self.index] + (now - self._accepted < ACCEPTED_S)
        if mine > min(self.loads):
            if now - self._left > PATIENCE_S:
                self._since = now
            self._left = now
            if now - self._since < PATIENCE_S:
                raise BlockingIOError
        self._accepted = now
        return super().accept()


def run_workers(count: int, listening: socket.socket, target: Target, arguments: dict[str, Any], ready: str) -> int:
    """Keep `count` processes that answer at one listening socket, until SIGTERM or Ctrl-C; `ready` is printed when all
    of them do. The exit code: 1 where one ends before it has answered."""
    context = multiprocessing.get_context("spawn")
    ended_by = signal.SIGTERM

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended_by
        ended_by = signal.Signals(number)
        raise KeyboardInterrupt

    with tempfile.TemporaryDirectory(prefix="di2pose-") as folder:
        paths = tuple(str(Path(folder) / str(index)) for index in range(count))
        own = [socket.socket(socket.AF_UNIX) for _ in paths]
        for each, path in zip(own, paths, strict=True):
            each.bind(path)
            each.listen(128)
        loads = context.RawArray("i", [ABSENT] * count)

        def start(index: int) -> Any:
            loads[index] = ABSENT
            work = (target, index, listening, loads, paths, own[index], arguments)
            process = context.Process(target=_run_worker, args=work)
            process.start()
            return process

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        processes: list[Any] = []
        code, shown = 0, False
        try:
            processes += map(start, range(count))
            while not code:
                connection.wait([process.sentinel for process in processes], None if shown else 0.2)
                if not shown and max(loads) < ABSENT:
                    shown = True
                    print(ready, flush=True)
                for index, process in enumerate(processes):
                    if process.exitcode is not None and loads[index] >= ABSENT:
                        code = 1
                    elif process.exitcode is not None:
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
            for each in own:
                each.close()
    if not code and ended_by == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    return code


def _run_worker(target: Target, index: int, listening: socket.socket, loads: Any, *arguments: Any) -> None:
    """Of a worker: it gets SIGTERM where its parent ends without sending one."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    target(SharedListener(listening, index, loads), *arguments)
