"""What a run prints while it goes on, and how it ends."""

import io
import sys
from pathlib import Path

import pytest

from di2pose.commands import writing
from di2pose.commands.inputs import Input
from di2pose.commands.writing import Report, RunLog, print_line, progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_bar_at_a_terminal_and_rare_lines_elsewhere(monkeypatch):
    for stream, pause, shown in ((io.StringIO(), 60.0, False), (io.StringIO(), 0.0, True), (Terminal(), 60.0, True)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(writing, "PROGRESS_S", pause)
        with progress_bar("walk.mp4", 3, "frame") as bar:
            bar.update()
            print_line("a.png  failed: damaged", error=True)
            bar.refresh() if shown else None
        assert "a.png  failed: damaged\n" in stream.getvalue()
        assert ("1/3" in stream.getvalue()) == shown


@pytest.mark.parametrize(
    ("earlier", "reports", "code"),
    [
        (0, [{"text": "1 person"}], 0),
        (1, [], 0),
        (0, [{"text": "1 person"}, {"problems": ["damaged"]}], 1),
        (1, [{"problems": ["damaged"]}], 1),
        (0, [{"problems": ["damaged"]}], 2),
        (0, [{"text": "1 person", "problems": ["no space left"]}], 2),
        (0, [{"text": "1 person", "problems": ["no space left"], "paths": [Path("a.json")]}], 1),
    ],
)
def test_the_exit_code_counts_what_was_done_earlier(tmp_path, earlier, reports, code):
    log = RunLog(tmp_path, 5, earlier)
    for k, report in enumerate(reports):
        log.add(Report(Input("photo", Path(f"{k}.png"), str(k)), **report))
    assert log.exit_code == code
