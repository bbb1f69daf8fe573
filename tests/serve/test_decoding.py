"""The decoding process: limits by time, deaths, and what is left of it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from video.films import grey_jpeg, write_jpegs

from di2pose.serve.decoding import DecodingProcess, WatchedStream, decode_picture
from di2pose.serve.limits import ApiError, Limits
from di2pose.video.stream import VideoBytes


@pytest.fixture(scope="module")
def process():
    process = DecodingProcess(seconds=60.0)
    yield process
    process.close()


def test_what_takes_too_long_or_dies_is_an_answer_and_the_next_call_is_answered(process, monkeypatch):
    assert process.run(len, b"abc") == 3  # it has started
    monkeypatch.setattr(process, "seconds", 0.1)
    with pytest.raises(ApiError, match=r"^422: .*longer than 0\.1 s"):
        process.run(time.sleep, 600)
    monkeypatch.undo()
    with pytest.raises(ApiError, match=r"^422: the decoder ended at this file"):
        process.run(os._exit, 7)
    first = process.run(os.getpid)
    (idle,) = process._pool._processes.values()
    idle.kill()
    idle.join()
    assert process.run(os.getpid) not in (first, os.getpid())


def test_pictures_and_errors_come_back_as_they_are(process, photos):
    here, there = decode_picture(photos[0]), process.run(decode_picture, photos[0])
    assert (there.mode, there.size, there.info) == (here.mode, here.size, here.info)
    assert there.tobytes() == here.tobytes()
    with pytest.raises(ApiError, match=r"^422: .*damaged"):
        process.run(decode_picture, photos[0][:2000])
    with pytest.raises(ZeroDivisionError):
        process.run(divmod, 1, 0)


def test_it_starts_without_the_model(process):
    """Quickly, that is: there is one for each video."""
    assert process.run(eval, "'di2pose.pipeline.pipeline' in __import__('sys').modules") is False


def test_a_frame_that_takes_too_long_ends_the_video(tmp_path):
    content = write_jpegs(tmp_path / "a.avi", [grey_jpeg(6400, 6400)]).read_bytes()
    with pytest.raises(ApiError, match=r"longer than 0\.001 s"):
        list(WatchedStream(VideoBytes(content, "avi"), Limits(decode_s=0.001), lambda frame: None))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_its_parent_without_a_word(ending):
    """SIGINT goes to both, as Ctrl-C of a terminal does. The process has stdout open for as long as it lives."""
    script = (
        "import time; from di2pose.serve.decoding import DecodingProcess\n"
        "process = DecodingProcess(600.0); print(process.run(len, b''), flush=True)\n"
        "try:\n    process.run(time.sleep, 600)\nfinally:\n    process.close()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    parent.stdout.readline()
    if ending == signal.SIGINT:
        os.killpg(parent.pid, ending)
    else:
        parent.kill()
    _, said = parent.communicate(timeout=60)
    assert said.count("Traceback") == (1 if ending == signal.SIGINT else 0)  # the parent's own
