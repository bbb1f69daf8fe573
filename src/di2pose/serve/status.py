"""State and metrics of one process: what /livez, /readyz and /metrics answer."""

from typing import TYPE_CHECKING, Any

from di2pose.serve.metrics import family, resident_bytes
from di2pose.serve.worker import Worker

if TYPE_CHECKING:
    from di2pose.serve.app import Service

STUCK_S = 60.0
"""A job that works for so much longer than its time limit, which it checks at every step, does not come back."""


def state(worker: Worker, index: int) -> dict[str, Any]:
    """Whether new requests would be taken (`ready`), and whether the work goes on (`alive`)."""
    job, problem = worker.running, None
    running = None if job is None else {"kind": job.kind, "age_s": round(job.worked_s(), 3), "limit_s": job.work_s}
    alive = job is None or job.worked_s() < job.work_s + STUCK_S
    if worker.ending:
        problem = "it ends"
    elif not alive:
        problem = "the running job is stuck"
    elif worker.waiting >= worker.most_waiting:
        problem = "the queue is full"
    return {"worker": index, "ready": problem is None, "alive": alive, "problem": problem, "waiting": worker.waiting,
            "running": running}  # fmt: skip


def metrics_text(service: "Service") -> str:
    """Prometheus' text of this process; labels hold templates of routes, statuses and kinds of jobs alone."""
    worker, config = service.worker, service.model.config
    own = {"worker": service.siblings.index}
    now = state(worker, service.siblings.index)
    model = {"name": config.name, "kind": service.model.model.kind}
    age_s = 0.0 if worker.running is None else worker.running.worked_s()
    return "".join([
        family("di2pose_requests_total", "counter", "Requests by route, method and status (499: the client left).",
               service.requests.samples(), **own),
        family("di2pose_rejected_total", "counter", "Requests refused as too_busy, too_large or too_dear.",
               service.rejected.samples(), **own),
        family("di2pose_wait_seconds", "histogram", "Time in the queue of jobs that began.",
               worker.waits.samples(), **own),
        family("di2pose_work_seconds", "histogram", "Time of a job's own work.", worker.works.samples(), **own),
        *(family(f"di2pose_{name}", "gauge", text, [("", labels, value)], **own) for name, text, labels, value in (
            ("queue_length", "Jobs that have not begun.", {}, worker.waiting),
            ("running_job_age_seconds", "Time of work of the job whose turn it is.", {}, age_s),
            ("ready", "1 where new requests are taken.", {}, now["ready"]),
            ("kept_jobs", "Jobs of /v1/jobs in memory.", {}, len(service.jobs.jobs)),
            ("held_bytes", "Bytes of all requests in memory.", {}, service.budget.now),
            ("model_info", "The models that are loaded.", model, 1),
            ("resident_memory_bytes", "Memory of the process, without its decoders.", {}, resident_bytes()),
        )),
    ])  # fmt: skip
