"""`di2pose people render`: dressed people in real motion, with exact 3D, as a prepared dataset."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from di2pose.data.sample import Dataset, Sample, Writer
from di2pose.errors import InputError
from di2pose.files import write_bytes
from di2pose.pose.skeleton import H36M_17
from di2pose_people.store import agree, picture_path

SHARD = 500
"""Pictures that a killed run loses at most, and that one process draws in a row."""
LICENCE = "the clothes' own: AGPL-3.0, CC-BY or CC0 (packages/people/README.md)"


@dataclass(frozen=True)
class Plan:
    """What is rendered: the motion folder, the split, the seed, and folders of background photos."""

    motion: Path
    split: str
    seed: int
    photos: tuple[Path, ...] = ()
    attacked: float = 0.0
    """Share of the pictures with a large patch on the person, cropped as by a detector that the patch misleads."""
    natural: bool = False
    """Poses as often as they are in the motion, instead of rare kinds more often."""
    settled: float = 0.0
    """Share of the people who sit, kneel, lie or bend, on furniture and seen as in photos of such scenes."""


def make_plan(
    motion: Path | None, split: str, seed: int, backgrounds: Path | None, attacked: float = 0.0, natural: bool = False,
    settled: float = 0.0,
) -> Plan:  # fmt: skip
    """A plan from what the user says; motion None takes the open clips of `deepmimic.motion_folder`."""
    for name, share in (("attacked", attacked), ("settled", settled)):
        if not 0 <= share <= 1:
            raise InputError(f"--{name} is a share of the people, 0 to 1, got {share}")
    from di2pose_people.backdrop import photo_files
    from di2pose_people.deepmimic import motion_folder

    return Plan(motion_folder(motion), split, seed, photo_files(backgrounds), attacked, natural, settled)


def check_counts(count: int, workers: int) -> None:
    if count < 1 or workers < 1:
        raise InputError(f"--count and --workers must be 1 or more, got {count} and {workers}")


def render(
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("people"),
    motion: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    count: int = 1000,
    seed: int = 0,
    workers: int = 1,
    split: Literal["train", "test"] = "train",
    backgrounds: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    attacked: float = 0.0,
    natural: bool = False,
    settled: float = 0.0,
) -> None:
    """Render dressed adults in real motion: 256 x 256 crops with 3D joints, visibility and camera.

    Picture i depends on the seed, the split and i alone. A killed run continues where it stopped; a larger --count
    extends a finished set. The folder is a prepared dataset, as `di2pose data prepare` makes them.

    Args:
        out: folder that the pictures go to
        motion: folder of BVH clips (the CMU motion capture database in its BVH conversion: the most varied people);
            by default 20 open clips, fetched with pip
        count: how many pictures
        seed: another seed gives other people
        workers: processes, one core each
        split: train, or test: other motion subjects and other clothes, which no training picture shows
        backgrounds: folder of photos without people to put behind most figures
        attacked: share of people behind a large patch, cropped as by a detector that the patch misleads
        natural: poses as often as they are in the motion, mostly upright, instead of rare kinds more often
        settled: share of people who sit, kneel, lie or bend, on furniture and seen as in photos of such scenes
    """
    check_counts(count, workers)
    plan = make_plan(motion, split, seed, backgrounds, attacked, natural, settled)
    made = render_people(plan, out, count, workers)
    print(f"{count} people in {out} ({made} rendered now)")


def render_people(plan: Plan, out: Path, count: int, workers: int = 1, shard: int = SHARD) -> int:
    """Bring the dataset in folder `out` to `count` pictures; returns how many were rendered now."""
    check_counts(count, workers)
    from di2pose_people.sampling import settings

    about = settings(plan)
    agree(out, about)
    finished = Dataset(out) if (out / "dataset.json").is_file() else None
    if finished is not None and len(finished) >= count:
        return 0
    (out / "dataset.json").unlink(missing_ok=True)  # from here on the set is unfinished
    writer = Writer(out, "people", H36M_17, image_root=".", licence=LICENCE, source="di2pose people", settings=about)
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
    from di2pose_people.sampling import picture

    samples = []
    for index in span:
        made = picture(plan, index)
        write_bytes(out / picture_path(index), made.jpeg)
        samples.append(made.sample)
    return samples


def begin_worker() -> None:
    """The first thing in a worker: one thread, and the end when its parent ends. Whatever it had in hand has a
    temporary name, and is made again."""
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
