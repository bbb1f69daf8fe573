"""`predict --engine ray`: photos by actors of Ray Data, each with a loaded pipeline; Parquet out.

An actor writes the rows of a part of the photos as one whole file, whose metadata name the photos and the options: the
same command given again does only what is missing. All machines must see photos and output folder under the same paths.
"""

import dataclasses
import hashlib
import logging
import math
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from di2pose import __version__
from di2pose.commands.inputs import Input, work_batches
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import Report, ReportCallback
from di2pose.errors import InputError, MissingExtra, require
from di2pose.files import Json, remove_leftovers

FOLDER = "poses.parquet"
"""In the output folder: one table, as many files."""
MOST_IN_A_PART, PARTS_AN_ACTOR = 32, 4
"""Batches in a part: what is lost where a run is killed. Fewer in small folders, so that every actor has some."""
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_worker_niceness": "0"}
NOT_ABOUT_ROWS = ("out", "format", "workers", "engine", "ray_address", "device", "model", "box_source", "camera_file")
"""Options that do not change the rows, or name a file, of which the content counts."""
CRASHED = "an actor ended at it or one of its part: try fewer --workers, or without --engine"


def work_on_ray(items: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """All photos whose rows are not there yet; False where the disk is full."""
    if others := [item.label for item in items if item.kind != "photo"]:
        raise InputError(f"--engine ray takes photos, got {', '.join(others)}: for videos there is --workers")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray, data = require("ray", extra="ray"), require("ray.data", extra="ray")
    folder, made_by = options.out.resolve() / FOLDER, settings(options)
    done = photos_in(folder, made_by)
    for item in items:
        if options.box_file is not None:  # the actors have copies: here the names that are met are counted
            options.box_file.of(Path(str(item.source)))
        if str(item.source) in done:
            report(Report(item, earlier=True))
    work = [[item for item in batch if str(item.source) not in done] for batch in work_batches(items)]
    work = [batch for batch in work if batch]
    left = {item.name: item for batch in work for item in batch}
    if len(left) < len(items):
        print(f"{len(items) - len(left)} of {len(items)} photos are in {folder} already", flush=True)
    if not work:
        return True
    ray.init(
        address=options.ray_address,
        num_cpus=None if options.ray_address else options.workers or None,
        include_dashboard=None if options.ray_address else False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    try:
        context = data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.max_errored_blocks = -1  # a part that ends its actors has failed, the others go on
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        actors = options.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        size = min(MOST_IN_A_PART, math.ceil(len(work) / (actors * PARTS_AN_ACTOR)))
        parts = [{"part": pickle.dumps(work[start : start + size])} for start in range(0, len(work), size)]
        here = dataclasses.replace(options, out=folder)
        rows = data.from_items(parts, override_num_blocks=len(parts)).map_batches(
            PhotoActor, fn_constructor_args=(here, made_by, Path.cwd()), batch_size=1, num_cpus=1,
            num_gpus=1 if options.device == "cuda" else 0, ray_remote_args_fn=_retry_once,
            compute=data.ActorPoolStrategy(size=min(actors, len(parts))),
        )  # fmt: skip
        for row in tqdm(rows.iter_rows(), total=len(left), unit="photo", disable=None):
            outcome: Report = pickle.loads(row["report"])
            del left[outcome.item.name]
            report(outcome)
            if outcome.files.disk_full:
                return False
        for item in left.values():
            report(Report(item, problems=[CRASHED]))
        return True
    finally:
        ray.shutdown()


def _retry_once() -> dict[str, Any]:
    """Without it, Ray gives a part to new actors for ever."""
    return {"max_task_retries": 1}


class PhotoActor:
    """A loaded pipeline, for one part of the work after the other."""

    def __init__(self, options: PredictOptions, made_by: Json, place: Path) -> None:
        import torch

        from di2pose.commands.predict import load

        self.options, self.made_by, self.model, self.problem = options, made_by, None, ""
        torch.set_num_threads(1)
        try:
            os.chdir(place)  # photos have the names that the user gave
            self.model = load(options)
        except (InputError, MissingExtra, OSError) as error:  # Ray starts an actor that cannot start again and again
            self.problem = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """A pickled part -> a pickled report for each photo. The poses are in a file."""
        from di2pose.commands.photos import enlarged, photo_results, report_of
        from di2pose.commands.writing import OutputFiles
        from di2pose.output.parquet import write_rows
        from di2pose.output.tables import about, joint_records

        reports: list[Report] = []
        rows, notes = [], {}
        for items in pickle.loads(batch["part"][0]):
            if self.model is None:
                reports += [Report(item, problems=[self.problem]) for item in items]
                continue
            for item, photo, shown in photo_results(self.model, items, self.options, reports.append):
                rows += joint_records([enlarged(shown, photo)], None)[1]
                notes = about(shown)
                reports.append(report_of(item, photo, shown, OutputFiles()))
        if done := [each for each in reports if each.text]:
            seen = [str(each.item.source) for each in done]
            key = hashlib.sha256("\n".join(seen).encode(errors="surrogateescape")).hexdigest()[:16]
            path = self.options.out / f"part-{key}.parquet"
            try:
                done[0].files.paths.append(write_rows(path, rows, notes | {"images": seen, "options": self.made_by}))
            except InputError as error:
                done[0].files.fail(error)
                for each in done:
                    each.text, each.problems = "", [str(error)]
        return {"report": [pickle.dumps(each) for each in reports]}


def settings(options: PredictOptions) -> Json:
    """What decides about the rows: options, and the content of the files that they name."""
    from di2pose.model import find_model

    kept = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    found = {name: None if value is None else str(value) for name, value in kept.items() if name not in NOT_ABOUT_ROWS}
    # A model's config.json holds the sha256 of its weights.
    model = b"".join(path.read_bytes() for path in sorted(find_model(options.model).glob("*.json")))
    found |= {"model": hashlib.sha256(model).hexdigest(), "version": __version__}
    for name, path in (("boxes", options.box_source), ("camera", options.camera_file)):
        content = b"" if path is None else path.read_bytes() if path.is_file() else str(path).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def photos_in(folder: Path, made_by: Json) -> set[str]:
    """The photos whose rows are there. They must have been made with the same settings."""
    from di2pose.output.parquet import read_notes

    if not folder.is_dir():
        return set()
    remove_leftovers(folder)
    photos: set[str] = set()
    for path in sorted(folder.glob("part-*.parquet")):
        notes = read_notes(path)
        then = notes.get("options", {})
        if changed := sorted(name for name in {**then, **made_by} if then.get(name) != made_by.get(name)):
            raise InputError(
                f"{folder} holds rows that were made with another {', '.join(changed)}: give the options of that run, "
                "or another folder with -o"
            )
        photos |= set(notes["images"])
    return photos
