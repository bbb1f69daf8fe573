"""Ctrl-C at any moment, errors and full disks: what is done is kept and marked, whole files stay whole."""

import json
import os
import pty
import re
import signal
import termios
from functools import partial

import numpy as np
import pytest
from commands.running import RATE, part_of, started, written
from output.people import person, result
from video.films import write_film

from di2pose import recipes
from di2pose.commands import videos as videos_module
from di2pose.commands.inputs import sort_inputs
from di2pose.commands.predict import PredictOptions, work_in_turn
from di2pose.commands.predict import run as run_inputs
from di2pose.commands.writing import Report
from di2pose.errors import InputError
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion

FORMATS = "json,csv,trc,html,overlay"
ENDINGS = [".csv", ".html", ".json", ".overlay.mp4", ".trc"]
WHOLE, PARTIAL = ([f"{stem}{ending}" for ending in ENDINGS] for stem in ("walk", "walk.partial"))
FEW, LONG = 3, 24


def noise(path, width, height):
    """A film of noise, which takes many bytes."""
    pictures = np.random.default_rng(0).integers(0, 255, (FEW, height, width, 3), dtype=np.uint8)
    return write_film(path, pictures, RATE, movflags="faststart")


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return noise(tmp_path_factory.mktemp("film") / "walk.mp4", 162, 132)


@pytest.fixture
def go(film, tmp_path, monkeypatch):
    """Run on the film with people who need no model; `at(frame)` is called before each frame is given."""
    unused = Di2Pose(recipes.tiny())

    def run(at=lambda frame: None, formats=FORMATS, film=film, out=tmp_path):
        def known_results(model, stream, **options):
            for frame in stream:
                at(frame.index)
                known = {"frame_index": frame.index, "time_s": frame.time_s, "picture": frame.picture}
                yield result([person(frame.index, track=0)], size=frame.picture.size, **known)

        monkeypatch.setattr(videos_module, "video_results", known_results)
        options = PredictOptions(out=out, format=formats)
        return run_inputs(partial(work_in_turn, unused), sort_inputs([str(film)]), options)

    return run


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(("frame", "number"), [(0, signal.SIGINT), (FEW - 1, signal.SIGINT), (0, signal.SIGTERM)])
def test_a_signal_before_a_frame_keeps_the_frames_so_far(go, tmp_path, capsys, frame, number):
    (tmp_path / "walk.json").write_text("an older whole file")
    with pytest.raises(KeyboardInterrupt):
        go(lambda index: signal.raise_signal(number) if index == frame else None)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert (tmp_path / "walk.json").read_text() == "an older whole file"
    assert written(tmp_path) == sorted(["walk.json", *PARTIAL])
    record = json.loads((tmp_path / "walk.partial.json").read_text())
    done = frame + 1  # the one that was begun
    assert (record["partial"], record["frames_done"], record["frames_wanted"]) == (True, done, FEW)
    assert len(Motion.load(tmp_path / "walk.partial.json")) == done
    said = capsys.readouterr().out
    assert f"partial, in files named *.partial.*: walk.mp4 ({done} of about {FEW} frames)" in said
    assert "stopped: what is done is kept" in said


def test_ctrl_c_while_files_are_written_lets_them_be_written_and_a_second_one_does_not(go, tmp_path, monkeypatch):
    """The first ends the run behind the last file."""
    real, presses = Report.save, [1]

    def save(*arguments):
        for _ in range(presses[0]):
            interrupt()
        real(*arguments)

    monkeypatch.setattr(Report, "save", save)
    with pytest.raises(KeyboardInterrupt):
        go()
    assert written(tmp_path) == WHOLE
    for path in tmp_path.iterdir():
        path.unlink()
    presses[0] = 2
    with pytest.raises(KeyboardInterrupt):
        go()
    assert written(tmp_path) == ["walk.overlay.mp4"]  # it was there before


def test_ctrl_c_in_a_photo_keeps_the_photos_before_it(run, portrait, tmp_path, monkeypatch):
    for k in range(5):
        portrait.resize((128, 128)).save(tmp_path / f"{k}.png")
    real, calls = Di2Pose.__call__, []

    def call(self, images, **options):
        calls.append(len(images))
        if len(calls) == 2:
            interrupt()
        return real(self, images, **options)

    monkeypatch.setattr(Di2Pose, "__call__", call)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, boxes="15,5,110,125")
    assert (calls, written(tmp_path / "out")) == ([2, 2], ["0.json", "1.json"])


def test_a_whole_run_removes_the_partial_files_of_stopped_ones(go, tmp_path):
    for name in ("walk.partial.json", "walk.partial_p1.trc", "walk.partial.overlay.mp4", "walk.partial.npz"):
        (tmp_path / name).write_text("of a stopped run")
    kept = ["walk.partial.json.mine", "walk.partial_px.trc", "walk2.partial.json"]
    for name in kept:
        (tmp_path / name).write_text("not ours to remove")
    assert go(formats="json") == 0
    assert [name for name in written(tmp_path) if "partial" in name] == kept
    assert json.loads((tmp_path / "walk.json").read_text()).get("partial") is None


def test_an_error_half_way_is_partial_too(go, tmp_path, capsys):
    def fail(frame):
        if frame == 2:
            raise InputError("cannot go on")

    (tmp_path / "walk.json").write_text("an older whole file")
    assert go(fail, "json") == 1
    assert written(tmp_path) == ["walk.json", "walk.partial.json"]
    assert (tmp_path / "walk.json").read_text() == "an older whole file"
    assert "PARTIAL, 2 frames" in capsys.readouterr().out


def test_a_film_that_finds_no_room_does_not_take_the_numbers_with_it(go, tmp_path, small_disk, capsys):
    assert go(formats="json,overlay", film=noise(tmp_path / "walk.mp4", 648, 528), out=small_disk) == 1
    assert written(small_disk) == ["walk.json"]
    assert len(Motion.load(small_disk / "walk.json")) == FEW
    said = capsys.readouterr()
    assert "walk.overlay.mp4: No space left on device" in said.err
    assert "given up: the disk is full" in said.out


def test_a_real_ctrl_c_at_a_terminal(clip, model_folder, tmp_path):
    film, out, frames = part_of(clip, tmp_path / "walk.mp4", (324, 264), LONG), tmp_path / "out", 4
    words = [film, "-o", out, "--model", model_folder, "--hypotheses", 2, "--steps", 2, "--format", "json,overlay"]
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (24, 80))
    process = started(*words, "--no-smooth", stdout=there, stderr=there)
    os.close(there)
    text, sent = "", False
    while True:
        try:
            part = os.read(here, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        text += part.decode(errors="replace")
        done = [int(count) for count in re.findall(rf"(\d+)/{LONG} ", text)]
        if not sent and done and done[-1] >= frames:
            process.send_signal(signal.SIGINT)
            sent = True
    os.close(here)
    assert (process.wait(), sent) == (130, True), text
    assert "Traceback" not in text
    assert "stopped: what is done is kept" in text
    assert written(out) == ["walk.partial.json", "walk.partial.overlay.mp4"], text
    assert frames <= len(Motion.load(out / "walk.partial.json")) < LONG
