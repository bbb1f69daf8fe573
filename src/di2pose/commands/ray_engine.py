"""`predict --engine ray`: photos by actors of Ray Data, each with a loaded pipeline; Parquet out.

The photos are cut into parts. An actor does a part, writes its rows as one whole file and says what became of each
photo. A file's metadata names its photos and how they were looked at, so the same command given again does only what is
missing. Everything goes by path: all machines must see the photos and the output folder under the same names.
"""

import dataclasses
import hashlib
import logging
import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from di2pose import __version__
from di2pose.commands.inputs import Input, pieces
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import Report, Tell, Written
from di2pose.errors import InputError, MissingExtra, require
from di2pose.files import Json, remove_leftovers

if TYPE_CHECKING:
    from di2pose.pipeline.pipeline import Di2Pose

FOLDER = "poses.parquet"
"""In the output folder: one table, as many files."""
MOST_IN_A_PART, PARTS_AN_ACTOR = 32, 4
"""Pieces of work in a part: what is lost where a run is killed. In small folders fewer, so that everybody has some."""
MOST_ATTEMPTS = 2
NOT_ABOUT_ROWS = ("out", "format", "workers", "engine", "ray_address", "device", "model", "boxes", "camera")
"""Options that do not change what stands in the rows, or name a file, of which the content counts."""


def work_on_ray(items: Sequence[Input], options: PredictOptions, tell: Tell) -> bool:
    """All photos whose rows are not there yet; False where the disk is full."""
    if others := [item.label for item in items if item.kind != "photo"]:
        raise InputError(f"--engine ray takes photos, got {', '.join(others)}: for videos there is --workers")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about anybody's work leaves the machine
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_worker_niceness", "0")  # a cluster of our own has its turn like any other program
    ray = require("ray", extra="ray")
    data = require("ray.data", extra="ray")
    folder = options.out.resolve() / FOLDER
    made_by = settings(options)
    done = photos_in(folder, made_by)
    todo = [[item for item in piece if str(item.source) not in done] for piece in pieces(items)]
    todo = [piece for piece in todo if piece]
    for item in items:
        if str(item.source) in done:
            tell(Report(item, earlier=True))
    if there := len(items) - sum(map(len, todo)):
        print(f"{there} of {len(items)} photos are in {folder} already", flush=True)
    if options.box_file is not None:  # the actors have one of their own: here it learns which of its names are met
        for item in items:
            options.box_file.of(Path(str(item.source)))
    if not todo:
        return True
    ray.init(
        address=options.ray_address,
        num_cpus=None if options.ray_address else options.workers or None,
        include_dashboard=None if options.ray_address else False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    try:
        return _run(ray, data, todo, options, folder, made_by, tell)
    finally:
        ray.shutdown()


def _run(
    ray: Any, data: Any, work: list[list[Input]], options: PredictOptions, folder: Path, made_by: Json, tell: Tell
) -> bool:
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    actors = options.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = min(MOST_IN_A_PART, math.ceil(len(work) / (actors * PARTS_AN_ACTOR)))
    parts = [{"first": start, "last": min(start + size, len(work)) - 1} for start in range(0, len(work), size)]
    items = {item.name: item for piece in work for item in piece}
    here = dataclasses.replace(options, out=folder)
    attempts = ray.remote(num_cpus=0)(Attempts).remote()
    rows = (
        data.from_items(parts, override_num_blocks=len(parts))
        .map_batches(
            PhotoActor,
            fn_constructor_args=(work, here, made_by, Path.cwd(), attempts),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(actors, len(parts))),
            num_cpus=1,
            num_gpus=1 if options.device == "cuda" else 0,
        )
        .iter_rows()
    )
    for row in tqdm(rows, total=len(items), unit="photo", disable=None):
        files = [Path(row["file"])] if row["file"] else []
        problems = row["problems"].splitlines()
        tell(Report(items[row["name"]], row["text"], Written(files), int(row["people"]), problems=problems))
        if row["disk_full"]:
            return False
    return True


class Attempts:
    """How often each part was begun. Ray starts an actor that died anew and gives it the same part, for ever."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()

    def begin(self, part: int) -> int:
        self.begun[part] += 1
        return self.begun[part]


class PhotoActor:
    """A pipeline that stays loaded, and parts of the work that come to it."""

    def __init__(
        self, work: list[list[Input]], options: PredictOptions, made_by: Json, place: Path, attempts: Any
    ) -> None:
        import torch

        from di2pose.commands.predict import load

        self.work, self.options, self.made_by, self.attempts = work, options, made_by, attempts
        self.model: Di2Pose | None = None
        self.problem = ""
        torch.set_num_threads(1)
        try:
            os.chdir(place)  # photos have the names that the user gave
            self.model = load(options)
        except (InputError, MissingExtra, OSError) as error:  # an actor that cannot start is tried for ever
            self.problem = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """A part, first and last piece of work -> a row for each photo: what became of it. The poses are in a file."""
        from di2pose.commands.photos import enlarged, photo_results, report_of
        from di2pose.output.parquet import write_rows
        from di2pose.output.tables import about, joint_records

        part = self.work[int(batch["first"][0]) : int(batch["last"][0]) + 1]
        written, rows, seen = Written(), [], []
        reports: list[Report] = []
        notes: Json = {}
        problem = self.problem or self._crashed(int(batch["first"][0]))
        for piece in part:
            if problem or self.model is None:
                reports += [Report(item, problems=[problem]) for item in piece]
                continue
            for item, photo, shown in photo_results(self.model, piece, self.options, reports.append):
                rows += joint_records([enlarged(shown, photo)], None)[1]
                seen.append(str(item.source))
                notes = about(shown)
                reports.append(report_of(item, photo, shown, written))
        if seen:
            key = hashlib.sha256("\n".join(seen).encode(errors="surrogateescape")).hexdigest()[:16]
            try:
                path = self.options.out / f"part-{key}.parquet"
                written.files.append(write_rows(path, rows, notes | {"images": seen, "options": self.made_by}))
            except InputError as error:
                written.fail(error)
        failed = "\n".join(written.failed)
        first = next((report for report in reports if report.text), None)
        return {
            "name": [report.item.name for report in reports],
            "text": ["" if failed else report.text for report in reports],
            "people": [report.people for report in reports],
            "problems": ["\n".join(report.problems) or failed for report in reports],
            "file": [str(written.files[0]) if report is first and written.files else "" for report in reports],
            "disk_full": [written.disk_full] * len(reports),
        }

    def _crashed(self, part: int) -> str:
        """What to say of a part, known by its first piece, that ended its actors."""
        import ray

        if ray.get(self.attempts.begin.remote(part)) <= MOST_ATTEMPTS:
            return ""
        return f"actors ended {MOST_ATTEMPTS} times at it or one of its part: try fewer --workers, or without --engine"


def settings(options: PredictOptions) -> Json:
    """What decides about the rows: options, and the content of the files that they name."""
    from di2pose.model import find_model

    kept = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    told = {name: None if value is None else str(value) for name, value in kept.items() if name not in NOT_ABOUT_ROWS}
    # A model's config.json holds the sha256 of its weights.
    model = b"".join(path.read_bytes() for path in sorted(find_model(options.model).glob("*.json")))
    told |= {"model": hashlib.sha256(model).hexdigest(), "version": __version__}
    for name, path in (("boxes", options.boxes), ("camera", options.camera)):
        content = b"" if path is None else path.read_bytes() if path.is_file() else str(path).encode()
        told[name] = hashlib.sha256(content).hexdigest()
    return told


def photos_in(folder: Path, made_by: Json) -> set[str]:
    """The photos whose rows are there, without what killed runs left. They must have been made in the same way."""
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
