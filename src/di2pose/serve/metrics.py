"""GET /metrics: counts, histograms and gauges of all workers in Prometheus' text format 0.0.4. Labels are templates of
routes, statuses and kinds of jobs alone."""

import os
import resource
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, float("inf"))
"""Upper bounds of a histogram, in seconds."""
FAMILIES = {
    "requests_total": ("counter", "Requests by route, method and status (499: the client left)."),
    "rejected_total": ("counter", "Requests refused as too_busy, too_large or too_dear."),
    "wait_seconds": ("histogram", "Time in the queue of jobs that began."),
    "work_seconds": ("histogram", "Time of a job's own work."),
    "queue_length": ("gauge", "Jobs that have not begun."),
    "running_job_age_seconds": ("gauge", "Time of work of the job whose turn it is."),
    "ready": ("gauge", "1 where new requests are taken."),
    "kept_jobs": ("gauge", "Jobs of /v1/jobs in memory."),
    "held_bytes": ("gauge", "Bytes of all requests in memory."),
    "model_info": ("gauge", "The models that are loaded."),
    "resident_memory_bytes": ("gauge", "Memory of the process, without its decoders."),
}
"""Name -> type and meaning; in the text it has the prefix di2pose_."""
ENDINGS = {"histogram": ("_bucket", "_sum", "_count")}
Sample = tuple[str, dict[str, Any], float]
"""Name (and ending), labels, value."""


class Metrics:
    """Counters and histograms of one process."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, Any], ...]], float] = Counter()  # type: ignore[assignment]

    def count(self, name: str, by: float = 1, **labels: Any) -> None:
        self._values[name, tuple(labels.items())] += by

    def observe(self, name: str, seconds: float, **labels: Any) -> None:
        for bound in BUCKETS:
            self.count(f"{name}_bucket", seconds <= bound, **labels, le="+Inf" if bound == BUCKETS[-1] else bound)
        self.count(f"{name}_sum", seconds, **labels)
        self.count(f"{name}_count", **labels)

    def samples(self) -> list[Sample]:
        return [(name, dict(labels), value) for (name, labels), value in self._values.items()]


def prometheus_text(workers: Mapping[int, Sequence[Sample]]) -> str:
    """The samples of all workers by their families."""
    lines = []
    for family, (kind, text) in FAMILIES.items():
        lines += [f"# HELP di2pose_{family} {text}", f"# TYPE di2pose_{family} {kind}"]
        names = [family + ending for ending in ENDINGS.get(kind, ("",))]
        for worker, samples in workers.items():
            for name, labels, value in (each for each in samples if each[0] in names):
                own = {"worker": worker, **labels}
                pairs = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in own.items())
                lines.append(f"di2pose_{name}{{{pairs}}} {value:.10g}")
    return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    """Memory of this process: now where /proc says it, else the most it has had."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
