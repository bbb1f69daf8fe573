"""What two processes bring on a folder of photos: `di2pose predict FOLDER --workers 2` over `--workers 1`, in one run.

    python benchmarks/many_pictures.py
    python benchmarks/many_pictures.py --count 40 --workers 4

The photos are parts of the demo's frames, no two alike. Both commands start from nothing, model and all; they take
turns, and the ratio is of the medians. The files that they write are compared byte for byte.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import tyro
from PIL import Image

from di2pose.assets import extract
from di2pose.data.frames import Video
from di2pose.text_table import markdown

CLIP = "Sports2D/Demo/demo.mp4"


def main(count: int = 200, workers: int = 2, rounds: int = 1) -> None:
    """Measure it.

    Args:
        count: photos in the folder
        workers: processes that share the work
        rounds: how often each command runs
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "photos"
        write_photos(folder, count)
        seconds: dict[int, list[float]] = {1: [], workers: []}
        for _ in range(rounds):
            for each, times in seconds.items():
                started = time.perf_counter()
                predict(folder, Path(scratch) / str(each), each)
                times.append(time.perf_counter() - started)
        one, many = (
            {path.name: path.read_bytes() for path in (Path(scratch) / str(each)).iterdir()} for each in seconds
        )
    ratio = statistics.median(seconds[1]) / statistics.median(seconds[workers])
    same = "the same files" if one == many else "OTHER FILES"
    row = [str(count), str(workers), f"{ratio:.2f}", same]
    print(markdown(["photos", "processes", "times as fast", "result"], [row]))


def write_photos(folder: Path, count: int) -> None:
    """As JPEG files."""
    folder.mkdir()
    for k, picture in enumerate(frames(count)):
        picture.save(folder / f"{k:04}.jpg", quality=92)


def frames(count: int) -> Iterator[Image.Image]:
    """Frames of the demo, each cut a little differently."""
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        for k in range(count):
            shift = 3 * (k // 100)
            yield video.frame(60 + k % 100).crop((510 - shift, 464 - shift, 1160 + shift, 994 + shift))


def predict(folder: Path, out: Path, workers: int) -> None:
    """The real command, one thread a process."""
    words = [sys.executable, "-m", "di2pose", "predict", str(folder), "-o", str(out), "--format", "json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*words, "--workers", str(workers)], env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    tyro.cli(main)
