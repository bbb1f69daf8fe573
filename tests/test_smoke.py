"""The paper's whole road by the README's commands, on small data: experiments/smoke.sh, and reproduce.sh upon it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from di2pose_experiments.results import read_results

pytest.importorskip("transformers", reason="ViTPose needs the extra 'vitpose'")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def script(name, work, **more):
    settings = {"PYTHON": sys.executable, "WORK": str(work), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    settings |= {"TOKENIZER_ITERATIONS": "10", "DENOISER_ITERATIONS": "5"} | more
    done = subprocess.run(
        ["bash", str(EXPERIMENTS / name)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def smoked(tmp_path_factory):
    """The folder, and what was said."""
    work = tmp_path_factory.mktemp("smoke")
    return work, script("smoke.sh", work, TABLES="matrices")


def test_from_human36m_to_a_table_and_a_person(smoked):
    work, text = smoked
    commands = [line for line in text.splitlines() if line.startswith("+ ")]
    assert len(commands) == 7 + 2  # a table and the ledger
    report = (work / "evaluation" / "report.md").read_text()
    assert all(name in report for name in ("h36m-p1", "h36m-p2", "advocc-40"))
    config = json.loads((work / "runs" / "denoiser" / "model" / "config.json").read_text())
    assert config["config"]["encoder"] == f"vitpose:{work / 'vitpose'}"
    (frame,) = json.loads((work / "prediction" / "photo.json").read_text())["frames"]
    assert len(frame["people"]) == 1


def test_the_whole_paper_is_that_road_with_other_sizes_and_the_tables(smoked):
    """Upon what smoke.sh made, which is not made again; the tables as lists of commands."""
    work, _ = smoked
    launch = f"{sys.executable} -m di2pose"
    before = (work / "runs" / "denoiser" / "last.safetensors").stat().st_mtime_ns
    settings = {"DATA": "", "ENCODER": "", "RECIPE": "tiny", "EVERY": "1", "DEVICE": "cpu", "LAUNCH": launch}
    settings |= {"EVALUATE": "--every 1000 --hypotheses 1 --steps 4 --no-second-look --no-flip-test --batch 32"}
    settings |= {"PHOTO": str(work / "photo.jpg"), "BOXES": str(work / "boxes.json")}
    settings |= {"TABLES": "steps", "SEEDS": "2", "ABLATE": "--iterations 2 --list"}
    text = script("reproduce.sh", work, **settings)
    assert (work / "runs" / "denoiser" / "last.safetensors").stat().st_mtime_ns == before
    (table,) = text.split(" ablate ")[1:]
    assert table.split()[0] == "steps"
    assert sum(" train " in line for line in table.splitlines()) == 2 * (1 + 2)
    assert f"--data {work}/features/h36m --protocol h36m-p1,h36m-p2" in table


def test_a_table_at_tiny_size_ends_in_a_ledger(smoked):
    work, _ = smoked
    results = read_results(work / "results" / "matrices.json")
    assert {figure["cell"] for figure in results.content["figures"]} == set(results.cells)
    assert len(results.cells) == 3
    page = (work / "ledger.md").read_text()
    assert "not decided (1 seeds, 5 needed)" in page
    assert "not testable here" in page
