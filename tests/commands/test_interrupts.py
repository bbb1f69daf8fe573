"""Ctrl-C at any moment: what is done is kept and marked, whole files stay whole."""

import json
import os
import pty
import re
import signal
import termios
from functools import partial

import pytest
from commands.running import part_of, started, written
from output.people import person, result

from di2pose.commands import videos as videos_module
from di2pose.commands.inputs import sort_inputs
from di2pose.commands.predict import run as run_inputs
from di2pose.commands.predict import work_in_turn
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import OutputFiles
from di2pose.errors import InputError
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion

FORMATS = "json,csv,trc,html,overlay"
ENDINGS = [".csv", ".html", ".json", ".overlay.mp4", ".trc"]
WHOLE, PARTIAL = ([f"{stem}{ending}" for ending in ENDINGS] for stem in ("walk", "walk.partial"))
FEW, LONG = 3, 24


@pytest.fixture(scope="module")
def model(model_folder):
    return Di2Pose.from_pretrained(model_folder)


@pytest.fixture(scope="module")
def film(clip, tmp_path_factory):
    return part_of(clip, tmp_path_factory.mktemp("film") / "walk.mp4", (162, 132), FEW)


@pytest.fixture
def go(model, film, tmp_path, monkeypatch):
    """Run on the film with people who need no model; `at(frame)` is called before each frame is given."""

    def run(at=lambda frame: None, formats=FORMATS):
        def known_results(model, stream, **options):
            for frame in stream:
                at(frame.index)
                someone, index, picture = person(frame.index, track=0), frame.index, frame.picture
                yield result([someone], size=picture.size, frame_index=index, time_s=frame.time_s, picture=picture)

        monkeypatch.setattr(videos_module, "video_results", known_results)
        options = PredictOptions(out=tmp_path, format=formats)
        return run_inputs(partial(work_in_turn, model), sort_inputs([str(film)]), options)

    return run


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("frame", range(FEW))
def test_ctrl_c_before_a_frame_keeps_the_frames_so_far(go, tmp_path, capsys, frame):
    (tmp_path / "walk.json").write_text("an older whole file")
    with pytest.raises(KeyboardInterrupt):
        go(lambda index: interrupt() if index == frame else None)
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
    real, presses = OutputFiles.save, [1]

    def save(*arguments):
        for _ in range(presses[0]):
            interrupt()
        real(*arguments)

    monkeypatch.setattr(OutputFiles, "save", save)
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
    assert go() == 0
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


def test_a_real_ctrl_c_at_a_terminal(clip, model_folder, tmp_path):
    film, out, frames = part_of(clip, tmp_path / "walk.mp4", (324, 264), LONG), tmp_path / "out", 4
    words = [film, "-o", out, "--model", model_folder, "--hypotheses", 2, "--steps", 2, "--format", FORMATS]
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
    assert written(out) == PARTIAL, text
    assert frames <= len(Motion.load(out / "walk.partial.json")) < LONG
