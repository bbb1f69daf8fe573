"""`di2pose people render`: dressed people in real motion, with exact 3D, in shards that a killed run leaves whole."""

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tqdm import tqdm

from di2pose.errors import InputError, require
from di2pose.people.store import HEADER, SHARD, is_whole, write_shard

RENDERER = 1
"""Raised when the same seed gives other pictures."""


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
) -> None:
    """Render dressed adults in real motion: 256 x 256 crops with 3D joints, visibility and camera.

    Picture i depends on the seed, the split and i alone. A killed run continues where it stopped; a larger --count
    extends a finished set.

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
    """
    how: dict[str, Any] = {"seed": seed, "workers": workers, "split": split, "backgrounds": backgrounds}
    made = render_people(motion, out, count, **how, attacked=attacked, natural=natural)
    print(f"{count} people in {out} ({made} rendered now)")


def render_people(
    motion: Path | None,
    out: Path,
    count: int,
    *,
    seed: int = 0,
    workers: int = 1,
    split: str = "train",
    backgrounds: Path | None = None,
    attacked: float = 0.0,
    natural: bool = False,
    shard: int = SHARD,
) -> int:
    """Bring the set in folder `out` to `count` pictures; returns how many were rendered now.

    motion: folder of BVH clips; None for the open clips of `deepmimic.motion_folder`.
    """
    if count < 1 or workers < 1:
        raise InputError(f"--count and --workers must be 1 or more, got {count} and {workers}")
    check_attacked(attacked)
    require("numba", extra="people")
    from di2pose.people.backdrop import photo_files
    from di2pose.people.crew import Plan, picture
    from di2pose.people.deepmimic import motion_folder

    plan = Plan(motion_folder(motion), split, seed, photo_files(backgrounds), attacked, natural)
    _write_header({**header_of(plan), "shard": shard}, out)
    shards = [(number, min(shard, count - number * shard)) for number in range(-(-count // shard))]
    missing = [(number, rows) for number, rows in shards if not is_whole(out, number, rows)]
    if not missing:
        return 0
    picture(plan, 0)  # fills every cache (bodies, clothes, motion, compiled loops) before workers start
    jobs = [_Job(plan, out, number, number * shard, rows) for number, rows in missing]
    total = sum(rows for _, rows in missing)
    with tqdm(total=total, unit="people", disable=None, smoothing=0.05) as bar:
        if workers == 1:
            for job in jobs:
                bar.update(_run(job))
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
                for future in as_completed([pool.submit(_run, job) for job in jobs]):
                    bar.update(future.result())
    return total


@dataclass(frozen=True)
class _Job:
    """One shard."""

    plan: Any
    out: Path
    number: int
    first: int
    rows: int


def _run(job: _Job) -> int:
    from di2pose.people.crew import picture

    pictures = [picture(job.plan, job.first + row) for row in range(job.rows)]
    write_shard(job.out, job.number, [each.jpeg for each in pictures], [each.labels for each in pictures])
    return job.rows


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def check_attacked(share: float) -> None:
    if not 0 <= share <= 1:
        raise InputError(f"--attacked is a share of the people, 0 to 1, got {share}")


def header_of(plan: Any) -> dict[str, Any]:
    """What people.json says about a set: all that its pictures depend on, and the words behind its numbers."""
    from di2pose.people.body import ANNY_VERSION
    from di2pose.people.motion import CLASSES, fingerprint
    from di2pose.people.scene import CROPS, OCCLUSIONS
    from di2pose.people.store import FORMAT_VERSION
    from di2pose.people.wardrobe import HELD_OUT

    return {
        "format_version": FORMAT_VERSION,
        "renderer": RENDERER,
        "skeleton": "h36m_17",
        "seed": plan.seed,
        "split": plan.split,
        "motion": fingerprint(plan.motion),
        "backgrounds": len(plan.photos),
        "anny": ANNY_VERSION,
        "pose_class": list(CLASSES),
        "occlusion": list(OCCLUSIONS),
        "crop": list(CROPS),
        "held_out_wardrobe": sorted(HELD_OUT),
        **({"attacked": plan.attacked} if plan.attacked else {}),
        **({"natural": True} if plan.natural else {}),
    }


def _write_header(header: dict[str, Any], out: Path) -> None:
    """people.json, before the first shard. A folder that holds another set is refused."""
    path = out / HEADER
    if path.is_file():
        found = json.loads(path.read_text())
        keys = [*header, *(key for key in found if key not in header)]
        differing = [key for key in keys if found.get(key) != header.get(key)]
        wrong = [f"{key} {found.get(key)!r}, not {header.get(key)!r}" for key in differing]
        if wrong:
            raise InputError(
                f"{out} holds another set ({'; '.join(wrong)[:300]}): choose an empty --out, or the same flags"
            )
        return
    out.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(json.dumps(header, indent=1) + "\n")
    os.replace(scratch, path)
