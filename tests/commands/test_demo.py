"""`di2pose demo`: real footage in, a page about a real person out."""

import numpy as np
import pytest

from di2pose.commands import demo as module
from di2pose.commands.demo import demo
from di2pose.data.demo_footage import hide_legs
from di2pose.result import Result


@pytest.fixture
def opened(monkeypatch):
    """The pages that a browser was asked to show: a browser on the machine that tests would be in the way."""
    pages = []
    monkeypatch.setattr(module.webbrowser, "open", pages.append)
    return pages


@pytest.mark.usefixtures("loaded_once")
def test_the_demo_finds_the_walker_in_both_pictures(tmp_path, model_folder, capsys, opened, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert demo(tmp_path / "demo", model=str(model_folder)) == 0
    for name in ("walker", "walker-hidden"):
        assert len(Result.load(tmp_path / "demo" / f"{name}.json").people) == 1
        assert (tmp_path / "demo" / f"{name}.overlay.jpg").stat().st_size > 10_000
    said = capsys.readouterr().out
    assert f"page: {(tmp_path / 'demo' / 'walker.html').resolve()}" in said
    assert "when seen" in said
    assert opened == []
    module._show([tmp_path / "demo" / "walker.html"], open=True)
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    module._show([tmp_path / "demo" / "walker.html"], open=False)
    assert opened == []
    module._show([tmp_path / "demo" / "walker.html"], open=True)
    assert opened == [(tmp_path / "demo" / "walker.html").as_uri()]


def test_the_board_hides_the_legs_and_nothing_above(walker):
    before, after = (np.asarray(picture) for picture in (walker, hide_legs(walker)))
    changed = (before != after).any(-1)
    rows = np.flatnonzero(changed.any(1))
    assert rows[0] > 0.55 * walker.height
    assert changed[-60:-30].mean() > 0.8
