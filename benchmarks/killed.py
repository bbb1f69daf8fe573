"""kill -9 at random moments of training, rendering, feature caching and prediction: does the same command go on, and
end with the files of a run that nobody disturbed?

    python benchmarks/killed.py
    python benchmarks/killed.py --kills 10 --seed 3 --motion cmu-bvh

Real commands as process groups of their own, killed whole, workers and all. Each job first runs undisturbed, which
gives its files and its time; then it is started again and again, and killed after a random part of that time, until it
has had its share of the kills. Whenever a run comes to its end its files are compared, byte for byte, and the next one
begins from nothing. What tells a time, as logs do, is not compared, and a leftover temporary file is a fault.
"""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro

from di2pose.assets import extract
from di2pose.data.frames import Video
from di2pose.text_table import markdown

CLIP = "Sports2D/Demo/demo.mp4"
TIMED = {"metrics.jsonl", "metrics.csv", "metrics.png", "last.safetensors", "config.json"}
"""Files that hold the time that a run took; of the model's weights, tokens and all, nothing is in them alone."""


@dataclass(frozen=True)
class Job:
    """A command; its last word is the folder that it writes to."""

    name: str
    words: tuple[str, ...]


@dataclass
class Count:
    """What became of a job."""

    kills: int = 0
    ends: int = 0
    faults: int = 0


def main(motion: Path, kills: int = 50, seed: int = 0, people: int = 24, iterations: int = 150) -> int:
    """Kill and compare.

    Args:
        kills: in all, shared among the jobs
        seed: of the moments
        motion: folder of BVH clips for the rendered people
        people: rendered for the jobs
        iterations: of each training
    """
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        jobs = prepared(root, motion, people, iterations)
        rows, faults = [], 0
        for number, job in enumerate(jobs):
            share = kills // len(jobs) + (number < kills % len(jobs))
            count = disturbed(job, root, share, draw)
            faults += count.faults
            rows.append([job.name, str(count.kills), str(count.ends), str(count.faults)])
            print(f"{job.name}: {count.kills} kills, {count.ends} ends, {count.faults} faults", flush=True)
    print(markdown(["job", "kills", "runs that came to the end", "of them with other files, or failed"], rows))
    return 1 if faults else 0


def prepared(root: Path, motion: Path, people: int, iterations: int) -> list[Job]:
    """The jobs, each with what it reads made by a run that nobody disturbs."""
    moving = ("--motion", str(motion.resolve()))
    render = ("people", "render", *moving, "--count", str(people), "--workers", "2", "--out")
    once(Job("people", (*render, str(root / "train"))), root / "log")
    once(Job("people", (*render[:-1], "--split", "test", "--out", str(root / "test"))), root / "log")
    sets = (str(root / "train"), str(root / "test"))
    for each in sets:
        once(Job("features", ("features", each, "--runtime", "litert", "--out", f"{each}-features")), root / "log")
    caches = tuple(f"{each}-features" for each in sets)
    learn = ("--iterations", str(iterations), "--batch", "16", "--save-minutes", "0", "--threads", "1")
    tokenizer = ("train", "tokenizer", "--recipe", "compare", "--data", *sets, *learn, "--out")
    once(Job("tokenizer", (*tokenizer, str(root / "tokenizer"))), root / "log")
    denoiser = ("train", "denoiser", "--recipe", "compare", "--tokenizer", str(root / "tokenizer"), "--features")
    photos(root / "photos", 4)
    return [
        Job("render people", (*render, str(root / "render"))),
        Job("people to features", (*("people", "features", *moving, "--count", str(people), "--workers", "2"), "--out",
                                   str(root / "cached"))),
        Job("dataset to features", ("features", sets[0], "--runtime", "litert", "--out", str(root / "features"))),
        Job("train a tokenizer", (*tokenizer, str(root / "killed-tokenizer"))),
        Job("train a denoiser", (*denoiser, *caches, *learn, "--out", str(root / "killed-denoiser"))),
        Job("predict photos", ("predict", str(root / "photos"), "--format", "json,csv,bvh,overlay", "-o",
                               str(root / "predicted"))),
    ]  # fmt: skip


def photos(folder: Path, count: int) -> None:
    """Frames of the demo's video."""
    folder.mkdir()
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        for k in range(count):
            video.frame(60 + 20 * k).crop((510, 464, 1160, 994)).save(folder / f"{k}.jpg", quality=92)


def start(job: Job, log: Path) -> subprocess.Popen:
    """The command in a process group of its own, one thread a process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "di2pose", *job.words],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True,
        )  # fmt: skip


def once(job: Job, log: Path) -> float:
    """Run it to its end, in seconds."""
    begin = time.monotonic()
    if code := start(job, log).wait():
        raise SystemExit(f"{job.name} failed with exit code {code}:\n{log.read_text(errors='replace')[-2000:]}")
    return time.monotonic() - begin


def disturbed(job: Job, root: Path, kills: int, draw: random.Random) -> Count:
    """Kill it so many times, and let it come to its end after the last one."""
    out, log, count = Path(job.words[-1]), root / f"{job.name.replace(' ', '-')}.log", Count()
    whole = once(job, log)
    wanted = digests(out)
    shutil.rmtree(out)
    while True:
        process = start(job, log)
        try:
            code = process.wait(draw.uniform(0, whole) if count.kills < kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            count.kills += 1
            continue
        count.ends += 1
        if code or digests(out) != wanted:
            count.faults += 1
            found = digests(out)
            print(f"{job.name}: exit code {code}, other files: "
                  f"{sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))}\n"
                  f"{log.read_text(errors='replace')[-1500:]}", flush=True)  # fmt: skip
        if count.kills >= kills:
            return count
        shutil.rmtree(out)


def digests(folder: Path) -> dict[str, str]:
    """Path -> sha256 of all files, but for those that tell times, of which there is only the name."""
    found = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        timed = path.name in TIMED or path.suffix == ".log"
        found[str(path.relative_to(folder))] = "" if timed else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
