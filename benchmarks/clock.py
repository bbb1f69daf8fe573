"""Times of several things, taken in turns, so that a busy moment of the machine falls on all of them."""

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Job = Callable[[], object]


def peak_bytes() -> int:
    """The most memory that this process had. Linux's `ru_maxrss` also counts what its parent had when it started it."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(found.split()[1])


@dataclass(frozen=True)
class Clock:
    """`cpu` counts the process's own time instead of the wall's: for one thread on a busy machine."""

    repeats: int
    cpu: bool = False

    def now(self) -> float:
        return time.process_time() if self.cpu else time.perf_counter()

    def once(self, job: Job) -> float:
        begin = self.now()
        job()
        return self.now() - begin

    def least(self, jobs: Mapping[str, Job], repeats: int | None = None) -> dict[str, float]:
        """The least of the repeats of each, A B A B ..., after one that does not count."""
        for job in jobs.values():
            job()
        rounds = [{name: self.once(job) for name, job in jobs.items()} for _ in range(repeats or self.repeats)]
        return {name: min(each[name] for each in rounds) for name in jobs}


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure without a unit of time, and what it should be."""

    section: str
    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def verdict(self) -> str:
        """The target, and whether it is met; empty where there is none."""
        if self.least is None and self.most is None:
            return ""
        bound = f"at least {self.least:g}" if self.most is None else f"at most {self.most:g}"
        met = self.value >= (self.least or -np.inf) and self.value <= (np.inf if self.most is None else self.most)
        return f"{bound}: {'met' if met else 'missed'}"
