"""What GET /metrics answers: counters and histograms in Prometheus' text format 0.0.4. Nothing is about pictures."""

import os
import resource
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
"""Upper bounds of a histogram's buckets."""
Sample = tuple[str, dict[str, Any], float]
"""What follows the family's name (`_sum`), labels, value."""


class LabelledCounter:
    """Counts by the values of its labels."""

    def __init__(self, *labels: str) -> None:
        self.labels, self.values = labels, Counter[tuple[str, ...]]()

    def add(self, *values: str, by: float = 1) -> None:
        self.values[values] += by  # type: ignore[assignment]  # Counter[float] has the same methods

    def samples(self) -> list[Sample]:
        return [("", dict(zip(self.labels, values, strict=True)), count) for values, count in self.values.items()]


class Histogram:
    """Seconds by one label."""

    def __init__(self, label: str) -> None:
        self.label, self.buckets, self.sums = label, dict[str, list[int]](), Counter[str]()

    def observe(self, value: str, seconds: float) -> None:
        self.buckets.setdefault(value, [0] * (len(SECONDS) + 1))[bisect_left(SECONDS, seconds)] += 1
        self.sums[value] += seconds  # type: ignore[assignment]

    def samples(self) -> list[Sample]:
        found: list[Sample] = []
        for value, buckets in self.buckets.items():
            own, bounds = {self.label: value}, (*map(str, SECONDS), "+Inf")
            counts = list(accumulate(buckets))
            found += [("_bucket", own | {"le": at}, count) for at, count in zip(bounds, counts, strict=True)]
            found += [("_sum", own, self.sums[value]), ("_count", own, counts[-1])]
        return found


def family(name: str, kind: str, text: str, samples: Iterable[Sample], **labels: Any) -> str:
    """The lines of one metric; `labels`: of all its samples."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for suffix, own, value in samples:
        pairs = ",".join(f'{key}="{_escaped(str(each))}"' for key, each in (labels | own).items())
        lines.append(f"{name}{suffix}{{{pairs}}} {value:.10g}")
    return "\n".join(lines) + "\n"


def merged(texts: Sequence[str]) -> str:
    """The metrics of several processes, which have the same families in the same order, as one text."""
    blocks = [text.split("# HELP ")[1:] for text in texts]
    lines = []
    for block in zip(*blocks, strict=True):
        lines += [f"# HELP {block[0].splitlines()[0]}", block[0].splitlines()[1]]
        lines += [line for each in block for line in each.splitlines()[2:]]
    return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    """Memory of this process: now where /proc says it, else the most it has had."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
