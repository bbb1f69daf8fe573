"""What the README shows, runs."""

import re
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serve.running import running
from video.films import write_film

from di2pose import Di2Pose
from di2pose.assets import extract, fetch
from di2pose.cli import all_commands, main
from di2pose.video.stream import Stream

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "packages/people", "experiments", "experiments/results")
TEXTS = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
RUN = "".join((ROOT / name).read_text() for name in ("README.md", "docs/serve.md"))
BLOCKS = re.findall(r"```python\n(.*?)```", RUN, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "photo.jpg" in block:
        Image.open(fetch("astronaut")).convert("RGB").save("photo.jpg")
    if "walk.mp4" in block:
        name = "Pose2Sim/Demo_SinglePerson/videos/cam01.mp4"
        frames = islice(Stream(extract("pose2sim-videos", name) / name), 4)
        small = [np.asarray(frame.picture.resize((324, 576), Image.Resampling.BOX)) for frame in frames]
        write_film(tmp_path / "walk.mp4", small, rate=10)
    with ExitStack() as stack:
        if "127.0.0.1:8000" in block:
            service = stack.enter_context(running(Di2Pose.from_pretrained()))
            block = block.replace(":8000", f":{service.port}")
        exec(compile(block, "README.md", "exec"), {})


COMMANDS = all_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*name.split(), "--help"])
    assert stopped.value.code == 0
    assert f"usage: di2pose {name}" in capsys.readouterr().out


def test_every_command_of_the_docs_exists():
    shown = {
        words
        for text in TEXTS
        for words in re.findall(r"^(?:\$ )?di2pose ((?:[a-z]+)(?: [a-z]+)?)", text.read_text(), flags=re.MULTILINE)
    }
    assert shown
    assert [w for w in shown if w not in COMMANDS and w.split()[0] not in COMMANDS] == []


def test_links_of_the_docs_lead_somewhere():
    for text in TEXTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", text.read_text()):
            assert (text.parent / target).exists(), f"{text.name} links to {target}"
