"""`predict --engine ray`: batches of work by actors of Ray Data, each with a loaded pipeline; the ordinary files out.

All machines must see inputs and output folder under the same paths.
"""

import dataclasses
import logging
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from di2pose.commands.inputs import Input, work_batches
from di2pose.commands.predict import PredictOptions, do_batch, load
from di2pose.commands.writing import Report, ReportCallback
from di2pose.errors import InputError, MissingExtra, require

ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_worker_niceness": "0"}


def work_on_ray(items: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """All inputs; False where it was given up because the disk is full."""
    if any(item.kind == "camera" for item in items):
        raise InputError("a camera is recorded by one process: leave --engine out")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray, data = require("ray", extra="ray"), require("ray.data", extra="ray")
    own = options.ray_address is None
    ray.init(
        address=options.ray_address, num_cpus=(options.workers or None) if own else None,
        include_dashboard=False if own else None, logging_level=logging.ERROR, log_to_driver=False,
    )  # fmt: skip
    try:
        context = data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.max_errored_blocks = -1  # a batch that ends its actors has failed, the others go on
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        batches = [{"batch": pickle.dumps(batch)} for batch in work_batches(items)]
        actors = options.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        rows = data.from_items(batches, override_num_blocks=len(batches)).map_batches(
            PredictActor, fn_constructor_args=(dataclasses.replace(options, out=options.out.resolve()), Path.cwd()),
            batch_size=1, num_cpus=1, num_gpus=1 if options.device == "cuda" else 0, ray_remote_args_fn=_retry_once,
            compute=data.ActorPoolStrategy(size=min(actors, len(batches))),
        )  # fmt: skip
        left = {item.name: item for item in items}
        for row in rows.iter_rows():
            outcome: Report = pickle.loads(row["report"])
            del left[outcome.item.name]
            report(outcome)
            if outcome.disk_full:
                return False
        for item in left.values():
            report(Report(item, problems=["an actor ended at it: try fewer --workers, or without --engine"]))
        return True
    finally:
        ray.shutdown()


def _retry_once() -> dict[str, Any]:
    """Without it, Ray gives a batch to new actors for ever."""
    return {"max_task_retries": 1}


class PredictActor:
    """A loaded pipeline, for one batch after the other."""

    def __init__(self, options: PredictOptions, place: Path) -> None:
        self.options, self.model, self.problem = options, None, ""
        try:
            os.chdir(place)  # inputs have the names that the user gave
            self.model = load(options)
        except (InputError, MissingExtra, OSError) as error:  # Ray starts an actor that cannot start again and again
            self.problem = str(error)

    def __call__(self, row: dict[str, Any]) -> dict[str, list[bytes]]:
        """A pickled batch -> a pickled report for each of its inputs."""
        batch: list[Input] = pickle.loads(row["batch"][0])
        reports = [Report(item, problems=[self.problem]) for item in batch] if self.model is None else []
        if self.model is not None:
            do_batch(self.model, batch, self.options, reports.append)
        return {"report": [pickle.dumps(each) for each in reports]}
