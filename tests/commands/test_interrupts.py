"""Ctrl-C and kill -9 at any moment of a video: what is done is kept and marked, whole files stay whole."""

import json
import os
import pty
import re
import signal
import sys
import termios
from functools import partial

import pytest
from commands.running import started
from commands.test_predict import written
from commands.test_predict_videos import RATE, part_of
from output.people import person, result

from di2pose.commands import videos as videos_module
from di2pose.commands.inputs import sort_inputs
from di2pose.commands.predict import run as run_inputs
from di2pose.commands.predict import work_in_turn
from di2pose.commands.predict_options import PredictOptions
from di2pose.errors import InputError
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion

FORMATS = "json,csv,trc,html,overlay"
ENDINGS = [".csv", ".html", ".json", ".overlay.mp4", ".trc"]
WATCHED = [
    os.path.join("di2pose", *part)
    for part in (
        ("commands", "predict.py"), ("commands", "videos.py"), ("commands", "writing.py"),
        ("commands", "interrupts.py"), ("files.py",), ("output", "media.py"),
    )
]  # fmt: skip
FEW, LONG = 3, 24


@pytest.fixture(scope="module")
def model(model_folder):
    return Di2Pose.from_pretrained(model_folder)


@pytest.fixture(scope="module")
def film(clip, tmp_path_factory):
    return part_of(clip, tmp_path_factory.mktemp("film") / "walk.mp4", (162, 132), FEW)


def known_results(model, stream, **options):
    """People without a model, on the frames of the real stream."""
    for frame in stream:
        someone = person(frame.index, track=0)
        yield result(
            [someone], size=frame.picture.size, frame_index=frame.index, time_s=frame.time_s, picture=frame.picture
        )


def interrupted_at(line, model, film, out):
    """Run with a real SIGINT at that line of the watched files (None: never); (was it stopped, lines in all)."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if not frame.f_code.co_filename.endswith(tuple(WATCHED)):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    options = PredictOptions(out=out, format=FORMATS)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_inputs(partial(work_in_turn, model), sort_inputs([str(film)]), options)
    except KeyboardInterrupt:
        return True, seen
    finally:
        sys.settrace(before)
    return False, seen


def test_ctrl_c_at_any_line_keeps_what_is_done_and_every_whole_file(model, film, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(videos_module, "video_results", known_results)
    stopped, lines = interrupted_at(None, model, film, tmp_path / "whole")
    assert not stopped
    whole = [f"walk{ending}" for ending in ENDINGS]
    assert written(tmp_path / "whole") == whole
    met = set()
    for line in range(9, lines, lines // 12):
        out = tmp_path / str(line)
        out.mkdir()
        (out / "walk.json").write_text("an older whole file")
        stopped, _ = interrupted_at(line, model, film, out)
        files = written(out)
        if files == whole:
            assert len(Motion.load(out / "walk.json")) == FEW
            met.add("whole")
            continue
        assert (out / "walk.json").read_text() == "an older whole file", line
        assert stopped, line
        if files == ["walk.json"]:  # before the first frame
            met.add("nothing")
            continue
        assert files == sorted(["walk.json", *(f"walk.partial{ending}" for ending in ENDINGS)]), line
        record = json.loads((out / "walk.partial.json").read_text())
        assert (record["partial"], record["frames_wanted"]) == (True, FEW)
        assert 1 <= record["frames_done"] == len(Motion.load(out / "walk.partial.json")) <= FEW
        said = capsys.readouterr().out
        assert f"partial, in files named *.partial.*: walk.mp4 ({record['frames_done']} of about {FEW} frames)" in said
        met.add("partial")
    assert met == {"nothing", "partial", "whole"}


def test_a_whole_run_removes_the_partial_files_of_stopped_ones(model, film, tmp_path, monkeypatch):
    monkeypatch.setattr(videos_module, "video_results", known_results)
    for name in ("walk.partial.json", "walk.partial_p1.trc", "walk.partial.overlay.mp4"):
        (tmp_path / name).write_text("of a stopped run")
    for name in ("walk.partial.npz", "walk.partial.json.mine", "walk2.partial.json", "walk.partial_px.trc"):
        (tmp_path / name).write_text("not ours to remove")
    interrupted_at(None, model, film, tmp_path)
    kept = ["walk.partial.json.mine", "walk.partial.npz", "walk.partial_px.trc", "walk2.partial.json"]
    assert [name for name in written(tmp_path) if "partial" in name] == kept
    assert json.loads((tmp_path / "walk.json").read_text()).get("partial") is None


def test_an_error_half_way_is_partial_too(model, film, tmp_path, monkeypatch, capsys):
    def failing(*arguments, **options):
        for k, each in enumerate(known_results(*arguments, **options)):
            if k == 2:
                raise InputError("cannot go on")
            yield each

    monkeypatch.setattr(videos_module, "video_results", failing)
    (tmp_path / "walk.json").write_text("an older whole file")
    options = PredictOptions(out=tmp_path, format="json")
    code = run_inputs(partial(work_in_turn, model), sort_inputs([str(film)]), options)
    assert (code, written(tmp_path)) == (1, ["walk.json", "walk.partial.json"])
    assert (tmp_path / "walk.json").read_text() == "an older whole file"
    assert "PARTIAL, 2 frames" in capsys.readouterr().out


@pytest.fixture(scope="module")
def long_film(clip, tmp_path_factory):
    return part_of(clip, tmp_path_factory.mktemp("film") / "walk.mp4", (324, 264), LONG)


def signalled(number, frames, film, model, out):
    """The real command before a terminal, sent a signal when its progress bar has come so far: (exit code, output)."""
    words = [film, "-o", out, "--model", model, "--hypotheses", 2, "--steps", 2, "--format", FORMATS, "--no-smooth"]
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (24, 80))
    process = started(*words, stdout=there, stderr=there)
    os.close(there)
    text, sent = "", False
    while True:
        try:
            part = os.read(here, 4096)
        except OSError:  # Linux says so when the other end is closed
            part = b""
        if not part:
            break
        text += part.decode(errors="replace")
        done = [int(count) for count in re.findall(rf"(\d+)/{LONG} ", text)]
        if not sent and done and done[-1] >= frames:
            process.send_signal(number)
            sent = True
    os.close(here)
    code = process.wait()
    assert sent, text
    return code, text


def test_a_real_ctrl_c_at_a_terminal(long_film, model_folder, tmp_path):
    frames = 4
    (tmp_path / "walk.json").write_text("an older whole file")
    code, text = signalled(signal.SIGINT, frames, long_film, model_folder, tmp_path)
    assert code == 130, text
    assert "Traceback" not in text
    assert (tmp_path / "walk.json").read_text() == "an older whole file"
    assert written(tmp_path) == sorted(["walk.json", *(f"walk.partial{ending}" for ending in ENDINGS)]), text
    assert frames <= len(Motion.load(tmp_path / "walk.partial.json")) < LONG
    assert "stopped: what is done is kept" in text


def test_what_a_killed_run_left_is_removed_by_the_next(run, film, long_film, model_folder, tmp_path):
    out = tmp_path / "out"
    code, _ = signalled(signal.SIGKILL, 2, long_film, model_folder, out)
    assert code == -signal.SIGKILL
    assert [path.name[:14] for path in out.iterdir()] == [".walk.overlay."]
    code, _, _, _ = run(film, format="json")
    assert (code, written(out)) == (0, ["walk.json"])
    assert Motion.load(out / "walk.json").fps == RATE
