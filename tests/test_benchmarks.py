"""The benchmark of speed runs, and what it measures against computes the same thing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from di2pose.diffusion import Schedule, diffusion_loss, forward_sample, posterior

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reference_sampler

    return reference_sampler


def test_the_reference_sampler_has_the_same_posterior_and_the_same_loss(reference):
    schedule, generator = Schedule(12, 20, 0.6), torch.Generator().manual_seed(0)
    logits = torch.randn(3, 7, 12, generator=generator)
    k0 = torch.randint(12, (3, 7), generator=generator)
    for s in (1, 2, 11, 20):
        ks, steps = forward_sample(k0, s, schedule, generator), torch.full((3,), s)
        found = reference.log_posterior(reference.log_p0_of(logits), ks, steps, schedule).exp().movedim(1, -1)
        wanted = posterior(logits.softmax(-1), ks, s - 1, s, schedule)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        ours = diffusion_loss(logits, k0, ks, steps, schedule, 0.1)["loss"]
        torch.testing.assert_close(
            reference.reference_loss(logits, k0, ks, steps, schedule, 0.1), ours, atol=1e-4, rtol=1e-3
        )


def test_the_benchmark_of_speed_fills_its_table(tmp_path):
    out = tmp_path / "speed.json"
    command = [sys.executable, str(BENCHMARKS / "speed.py"), "--quick", "--threads", "1", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    sections = {"denoiser", "sampler", "photo", "stations", "training", "features", "startup"}
    assert {row["section"] for row in rows} == sections
    for section, least in (("denoiser", 4), ("sampler", 6), ("photo", 4), ("training", 3), ("startup", 4)):
        assert sum(row["section"] == section for row in rows) >= least
    assert all(row["value"] > 0 for row in rows if row["section"] in ("photo", "features", "startup"))
    verdicts = [row["verdict"] for row in rows if row["section"] in ("photo", "startup")]
    assert [each.rpartition(": ")[0] for each in verdicts if each] == [f"at most {n}" for n in ("6", "3", "2.5", "1.6")]
    assert all(row["what"] in done.stdout for row in rows)


def test_the_benchmark_of_batches_fills_its_table():
    command = [sys.executable, str(BENCHMARKS / "photo_batches.py"), "--count", "8", "--rounds", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--hypotheses", "1"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["1", "2", "4", "8"]
    assert rows[3][1:] == ["1.000", "0 mm"]


def test_the_benchmark_of_a_busy_machine_prints_its_ratio():
    command = [sys.executable, str(BENCHMARKS / "busy_machine.py"), "--quick"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| four photos beside 2 busy loops \| +[0-9.]+ times one thread \| at most 1.3: ", done.stdout)
