"""The real command in a process of its own, files of a run, and short films."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import av

import di2pose
from di2pose.commands import workers

ENVIRONMENT = {"PYTHONPATH": str(Path(di2pose.__file__).parents[1]), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
RATE = 30


def started(*words, **options):
    """`di2pose predict WORDS`, with its output in pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    line = [sys.executable, "-m", "di2pose", "predict", *map(str, words)]
    return subprocess.Popen(line, env=os.environ | ENVIRONMENT, **pipes | options)


def written(out):
    return sorted(path.name for path in out.iterdir())


def part_of(clip, path, size, count):
    """Some frames of the walker; the index stands at the front, as in videos for the web."""
    with av.open(str(clip)) as source, av.open(str(path), "w", options={"movflags": "faststart"}) as sink:
        stream = sink.add_stream("mpeg4", rate=RATE, options={"g": "2"})
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = *size, "yuv420p", 2_000_000
        for index, frame in enumerate(source.decode(video=0)):
            if 120 <= index < 120 + count:
                picture = frame.to_image().crop((510, 464, 1160, 994)).resize(size)
                sink.mux(stream.encode(av.VideoFrame.from_image(picture)))
            if index >= 120 + count:
                break
        sink.mux(stream.encode())
    return path


def work_or_die(batch):
    """In place of `workers._work` in the parent: a process that comes to the photo `deadly` is killed."""
    if any(item.name == "deadly" for item in batch):
        os.kill(os.getpid(), signal.SIGKILL)
    return workers._work(batch)
