"""The paper's whole road by the README's commands, on small data: experiments/smoke.sh, and reproduce.sh upon it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from di2pose_experiments.results import read_results
from parsing import parsed

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
ONE_CELL = """
title = "One cell"
[[cells]]
name = "0.5"
settings = { "diffusion.final_occlude" = 0.5 }
"""


def script(name, work, **settings):
    environment = os.environ | {"WORK": str(work), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | settings
    words = ["bash", str(EXPERIMENTS / name)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line.removeprefix("+ ") for line in done.stdout.splitlines() if line.startswith("+ ")]


def test_from_human36m_to_a_person_a_table_and_a_ledger(tmp_path):
    pytest.importorskip("transformers", reason="ViTPose needs the extra 'vitpose'")
    (tmp_path / "one.toml").write_text(ONE_CELL)
    settings = {"PYTHON": sys.executable, "TOKENIZER_ITERATIONS": "2", "DENOISER_ITERATIONS": "2", "TABLES": "one"}
    settings |= {"PROTOCOLS": "h36m-p1,h36m-p2"}
    settings |= {"ABLATE": f"--cells {tmp_path / 'one.toml'} --iterations 1 --hypotheses 1 --steps 1"}
    assert len(script("smoke.sh", tmp_path, **settings)) == 7 + 2  # a table and the ledger
    report = (tmp_path / "evaluation" / "report.md").read_text()
    assert all(name in report for name in ("h36m-p1", "h36m-p2"))
    config = json.loads((tmp_path / "runs" / "denoiser" / "model" / "config.json").read_text())
    assert config["config"]["encoder"] == f"vitpose:{tmp_path / 'vitpose'}"
    (frame,) = json.loads((tmp_path / "prediction" / "photo.json").read_text())["frames"]
    assert len(frame["people"]) == 1
    figures = read_results(tmp_path / "results" / "one.json").content["figures"]
    assert {(figure["cell"], figure["protocol"]) for figure in figures} == {("0.5", "h36m-p1"), ("0.5", "h36m-p2")}
    assert "### One cell (`one`)" in (tmp_path / "ledger.md").read_text()


@pytest.mark.parametrize("name", ["smoke.sh", "reproduce.sh"])
def test_every_command_of_the_scripts_parses(name, tmp_path):
    """The commands alone, printed instead of run: the same road, at tiny size and at the paper's."""
    settings = {"PYTHON": "echo", "DI2POSE": "echo", "LAUNCH": "echo", "TABLES_LAUNCH": "torchrun -m di2pose"}
    settings |= {"DATA": "H36M", "THREEDPW": "3DPW", "SMPL": "SMPL", "ENCODER": "vitpose:V", "BOXES": ""}
    commands = [shlex.split(line)[1:] for line in script(name, tmp_path, **settings)]
    tables = [words[1] for words in commands if words[0] == "ablate"]
    assert len(commands) == 8 + len(tables) + 1
    assert {"methods", "matrices", "share", "steps", "joint-shift", "levels", "block"} <= set(tables)
    recipe = {"smoke.sh": "tiny", "reproduce.sh": "paper"}[name]
    assert all(words[words.index("--recipe") + 1] == recipe for words in commands if "--recipe" in words)
    first = next(words for words in commands if words[0] == "ablate")
    for words in (*(words for words in commands if words[0] != "ablate"), first):
        parsed(words)
