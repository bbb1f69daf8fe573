"""The paper's whole road by the README's commands, on small data: experiments/smoke.sh."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="ViTPose needs the extra 'vitpose'")
SCRIPT = Path(__file__).parents[1] / "experiments" / "smoke.sh"


def test_from_human36m_to_a_table_and_a_person(tmp_path):
    settings = {"PYTHON": sys.executable, "WORK": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    settings |= {"TOKENIZER_ITERATIONS": "60", "DENOISER_ITERATIONS": "30"}
    done = subprocess.run(
        ["bash", str(SCRIPT)], env=os.environ | settings, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    commands = [line for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert len(commands) == 7
    report = (tmp_path / "evaluation" / "report.md").read_text()
    assert all(name in report for name in ("h36m-p1", "h36m-p2", "advocc-40"))
    config = json.loads((tmp_path / "runs" / "denoiser" / "model" / "config.json").read_text())
    assert config["config"]["encoder"] == f"vitpose:{tmp_path / 'vitpose'}"
    (frame,) = json.loads((tmp_path / "prediction" / "photo.json").read_text())["frames"]
    assert len(frame["people"]) == 1
