"""The decoding process: limits by time, deaths, and what is left of it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image
from serve.running import QUICK, running
from video.films import grey_jpeg, write_jpegs, write_latin_1

from di2pose.serve.decoding import DecodingProcess, WatchedStream, decode_picture
from di2pose.serve.limits import ApiError, Limits
from di2pose.video.stream import VideoBytes

BOX = [20, 10, 200, 250]


@pytest.fixture(scope="module")
def process():
    process = DecodingProcess(seconds=60.0)
    yield process
    process.close()


def test_what_takes_too_long_is_ended_and_the_next_call_is_answered(process, monkeypatch):
    assert process.run(len, b"abc") == 3  # it has started
    monkeypatch.setattr(process, "seconds", 0.1)
    with pytest.raises(ApiError, match=r"longer than 0\.1 s") as refused:
        process.run(time.sleep, 600)
    assert refused.value.status == 422
    monkeypatch.undo()
    assert process.run(len, b"abc") == 3


def test_a_death_is_an_answer_and_the_next_call_has_another_process(process):
    with pytest.raises(ApiError, match="the decoder ended at this file") as refused:
        process.run(os._exit, 7)
    assert refused.value.status == 422
    first = process.run(os.getpid)
    (idle,) = process._pool._processes.values()
    idle.kill()
    idle.join()
    assert process.run(os.getpid) not in (first, os.getpid())


def test_pictures_and_errors_come_back_as_they_are(process, photos):
    here, there = decode_picture(photos[0]), process.run(decode_picture, photos[0])
    assert (there.mode, there.size, there.info) == (here.mode, here.size, here.info)
    assert there.tobytes() == here.tobytes()
    with pytest.raises(ApiError, match="damaged") as refused:
        process.run(decode_picture, photos[0][:2000])
    assert refused.value.status == 422
    with pytest.raises(ZeroDivisionError):
        process.run(divmod, 1, 0)


def test_a_picture_that_takes_too_long_is_refused_and_the_service_goes_on(model, photos, monkeypatch, tmp_path):
    """The picture is large, the limit far below what any machine needs for it."""
    Image.new("RGB", (3000, 3000), "grey").save(tmp_path / "a.jpg", progressive=True)
    large = (tmp_path / "a.jpg").read_bytes()
    with running(model) as service:
        monkeypatch.setattr(service.worker.decoder, "seconds", 0.001)
        answers = [service.post(f"/v1/{route}", large, boxes=[BOX]) for route in ("predict", "reveal", "lab")]
        monkeypatch.undo()
        assert [(answer.status, answer.error) for answer in answers] == [(422, "unusable_picture")] * 3
        assert all("longer than 0.001 s" in answer.json["error"]["message"] for answer in answers)
        assert service.post("/v1/predict", photos[0], **QUICK, boxes=[BOX]).status == 200
        (process,) = service.worker.decoder._pool._processes.values()
    assert not process.is_alive()


def test_a_frame_that_takes_too_long_ends_the_video(tmp_path):
    content = write_jpegs(tmp_path / "a.avi", [grey_jpeg(6400, 6400)]).read_bytes()
    limits = Limits(decode_s=0.001)
    with pytest.raises(ApiError, match=r"longer than 0\.001 s"):
        list(WatchedStream(VideoBytes(content, "avi"), limits, lambda: None, lambda frame: None))


def test_a_video_with_a_frame_that_is_too_large(service, tmp_path):
    small = grey_jpeg(64, 32)
    path = write_jpegs(tmp_path / "a.avi", [small, small, grey_jpeg(16_000, 16_000), small])
    answer = service.post("/v1/video", path.read_bytes(), "video", hypotheses=1, steps=1)
    assert (answer.status, answer.error) == (413, "too_large")
    assert "a frame may have 50000000 pixels" in answer.json["error"]["message"]


def test_a_video_with_a_title_that_is_not_utf_8(service, tmp_path):
    content = write_latin_1(tmp_path / "a.mp4").read_bytes()
    answer = service.post("/v1/video", content, "video", hypotheses=1, steps=1)
    assert (answer.status, len(answer.json.get("frames", ()))) == (200, 3)


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
