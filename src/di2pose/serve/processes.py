"""Several worker processes behind one port: each is started anew with a model of its own, and again where it ends."""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from types import FrameType
from typing import Any

END_S = 20.0
"""For workers to end by themselves."""
Target = Callable[..., None]
"""Called in each process with its index, the public and all own sockets' paths, its own socket, an event to set when it
answers, and the arguments."""


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
        events = [context.Event() for _ in paths]

        def start(index: int) -> Any:
            events[index].clear()
            process = context.Process(
                target=target, args=(index, listening, paths, own[index], events[index], arguments)
            )
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
                if not shown and all(event.is_set() for event in events):
                    shown = True
                    print(ready, flush=True)
                for index, process in enumerate(processes):
                    if process.exitcode is not None and not events[index].is_set():
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


def end_with_parent() -> None:
    """Of a worker: SIGTERM to itself where its parent ends without one."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
