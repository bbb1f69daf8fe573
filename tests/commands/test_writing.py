"""What a run prints while it goes on, and how it ends."""

import os
import signal
import sys
from pathlib import Path

import pytest
from commands.running import started
from commands.test_predict import written
from commands.test_predict_videos import part_of

from di2pose.commands import writing
from di2pose.commands.inputs import Input
from di2pose.commands.writing import OutputFiles, Report, RunLog


def test_a_photo_is_printed_when_it_is_done_and_ctrl_c_keeps_it(model_folder, portrait, tmp_path):
    """In a pipe, where Python holds lines back unless they are flushed."""
    (tmp_path / "photos").mkdir()
    for k in range(8):
        portrait.save(tmp_path / "photos" / f"{k}.png")
    words = [tmp_path / "photos", "-o", tmp_path / "out", "--model", model_folder, "--boxes", "60,20,440,500"]
    process = started(*words, "--format", "json", "--hypotheses", 100, "--steps", 20)
    assert process.stdout.readline().startswith("0.png  1 person")
    process.send_signal(signal.SIGINT)
    said, problems = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in problems
    assert "stopped: what is done is kept" in said
    assert "0.json" in written(tmp_path / "out")
    assert "7.json" not in written(tmp_path / "out")


def test_lines_of_progress_are_printed_where_there_is_no_terminal(run, portrait, clip, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "PROGRESS_S", 0.0)
    (tmp_path / "in").mkdir()
    portrait.save(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "b.png").write_text("this is no picture")
    part_of(clip, tmp_path / "in" / "walk.mp4", (162, 132), 3)
    _, _, problems, _ = run(tmp_path / "in", boxes=Path("60,20,440,500"))
    lines = [line for line in problems.splitlines() if "failed: " not in line]
    frames = [f"walk.mp4: {k} of about 3 frames" for k in (1, 2, 3)]
    assert lines == ["1 of 3 files, 1 failed", "2 of 3 files, 1 failed", *frames, "3 of 3 files, 1 failed"]
    here, there = os.openpty()
    with os.fdopen(here), os.fdopen(there, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        run(tmp_path / "in" / "a.png", boxes=Path("60,20,440,500"))
        os.set_blocking(here, False)
        with pytest.raises(BlockingIOError):
            os.read(here, 1)


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ([{"text": "1 person"}], 0),
        ([{"earlier": True}], 0),
        ([{"text": "1 person"}, {"problems": ["damaged"]}], 1),
        ([{"earlier": True}, {"problems": ["damaged"]}], 1),
        ([{"problems": ["damaged"]}], 2),
        ([{"text": "1 person", "files": OutputFiles(failed=["no space left"])}], 2),
    ],
)
def test_the_exit_code_counts_what_was_done_earlier(tmp_path, reports, code):
    log = RunLog(tmp_path, 5, len(reports))
    for k, report in enumerate(reports):
        log.add(Report(Input("photo", Path(f"{k}.png"), str(k)), **report))
    assert log.exit_code == code
