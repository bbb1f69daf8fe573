"""`di2pose people render`: dressed people in real motion, with exact 3D, as a prepared dataset."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from di2pose.data.sample import Dataset, Sample, Writer
from di2pose.errors import InputError
from di2pose.files import write_bytes
from di2pose.pose.skeleton import H36M_21
from di2pose_people import sampling
from di2pose_people.sampling import Plan

SHARD = 500
"""Pictures that a killed run loses at most, and that one process draws in a row."""
LICENCE = "the clothes' own: AGPL-3.0, CC-BY or CC0 (packages/people/README.md)"


def render(
    people: Annotated[Plan, tyro.conf.arg(name="")],
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("people"),
    count: int = 1000,
    workers: int = 1,
) -> None:
    """Render dressed adults in real motion: 256 x 256 crops with 3D joints, visibility and camera.

    Picture i depends on the seed, the split and i alone. A killed run continues where it stopped; a larger --count
    extends a finished set. The folder is a prepared dataset, as `di2pose data prepare` makes them.

    Args:
        people: which people are rendered
        out: folder that the pictures go to
        count: how many pictures
        workers: processes, one core each
    """
    made = render_people(people, out, count, workers)
    print(f"{count} people in {out} ({made} rendered now)")


def check_counts(count: int, workers: int) -> None:
    if count < 1 or workers < 1:
        raise InputError(f"--count and --workers must be 1 or more, got {count} and {workers}")


def render_people(plan: Plan, out: Path, count: int, workers: int = 1, shard: int = SHARD) -> int:
    """Bring the dataset in folder `out` to `count` pictures; returns how many were rendered now."""
    check_counts(count, workers)
    settings = plan.settings()
    finished = Dataset(out) if (out / "dataset.json").is_file() else None
    if finished is not None:
        found = finished.header["settings"]
        if wrong := [key for key in settings if found.get(key) != settings[key]]:
            others = "; ".join(f"{key} {found.get(key)!r}, not {settings[key]!r}" for key in wrong)[:300]
            raise InputError(f"{out} holds another set ({others}): choose an empty --out, or the same flags")
        if len(finished) >= count:
            return 0
    (out / "dataset.json").unlink(missing_ok=True)  # from here on the set is unfinished
    writer = Writer(out, "people", H36M_21, image_root=".", licence=LICENCE, source="di2pose people", settings=settings)
    spans = {f"{first:07d}-{min(first + shard, count):07d}": first for first in range(0, count, shard)}
    for path in writer.parts.glob("*.npz"):
        if path.stem not in spans:  # of a run with another --count
            path.unlink()
    missing: dict[str, range] = {}
    for key, first in spans.items():
        span = range(first, min(first + shard, count))
        if finished is not None and span.stop <= len(finished):
            writer.write(key, [finished[i] for i in span])
        elif not writer.has(key):
            missing[key] = span
    del finished  # unmaps the arrays, which are replaced now
    total = sum(map(len, missing.values()))
    with tqdm(total=total, unit="people", disable=None, smoothing=0.05) as bar:
        for key, samples in _drawn(plan, out, missing, workers):
            writer.write(key, samples)
            bar.update(len(samples))
    writer.finish()
    return total


def _drawn(plan: Plan, out: Path, spans: dict[str, range], workers: int) -> Iterator[tuple[str, list[Sample]]]:
    """The records of each span, as they get finished; their pictures are on disk then."""
    if workers == 1 or not spans:
        yield from ((key, _draw(plan, out, span)) for key, span in spans.items())
        return
    _draw(plan, out, range(1))  # fills every cache (bodies, clothes, motion, compiled loops) before workers start
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=begin_worker) as pool:
        jobs = {pool.submit(_draw, plan, out, span): key for key, span in spans.items()}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def _draw(plan: Plan, out: Path, span: range) -> list[Sample]:
    samples = []
    for index in span:
        made = sampling.picture(plan, index)
        write_bytes(out / sampling.picture_path(index), made.jpeg)
        samples.append(made.sample)
    return samples


def begin_worker() -> None:
    """Run first in a worker: one thread, and the worker exits when its parent does. Files that it was writing have
    temporary names, and are made again."""
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
