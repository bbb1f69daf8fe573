"""Runs that were killed go on bit for bit, and two ranks train as one process: real processes, a real kill -9."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from di2pose import Di2Pose
from di2pose.cli import main
from di2pose.training.log import read_rows
from di2pose.training.sources import FeatureSource, MemorySource


def di2pose(*words):
    return main([*map(str, words)])


def assert_equal_runs(one, other):
    first, second = load_file(one / "last.safetensors"), load_file(other / "last.safetensors")
    assert first.keys() == second.keys()
    assert [key for key in first if not torch.equal(first[key], second[key])] == []
    rows, others = (read_rows(run / "metrics.jsonl") for run in (one, other))
    assert [row | {"seconds": 0} for row in rows] == [row | {"seconds": 0} for row in others]
    files = [path.relative_to(one) for name in ("model", "best") for path in (one / name).iterdir()]
    assert {file.parts[0] for file in files} == {"model", "best"}
    for file in files:
        assert (one / file).read_bytes() == (other / file).read_bytes(), file


def test_kill_9_in_the_middle_of_a_checkpoint_then_resume_equals_the_uninterrupted_run(poses, tmp_path, capsys):
    command = ("train", "tokenizer", "--recipe", "tiny", "--data", poses, "--iterations", 5, "--batch", 16)
    command += ("--log-every", 2, "--validate-every", 2, "--save-minutes", 0, "--threads", 1)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert di2pose(*command, "--out", whole) == 0
    words = [sys.executable, *map(str, (Path(__file__).with_name("killed.py"), *command, "--out", cut))]
    killed = subprocess.run(words, env=os.environ | {"KILL_AT": "3"}, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(cut.glob(".last.*"))) == 1  # the half-written file
    assert not (cut / "metrics.csv").exists()
    (cut / ".tmpA1b2C3").write_bytes(b"half")  # as safetensors leaves it, killed while it writes
    assert di2pose(*command, "--out", cut) == 0
    assert not list(cut.glob(".*"))
    assert_equal_runs(whole, cut)

    # Killed after the last checkpoint, while the model was written: the next one writes it.
    shutil.rmtree(cut / "model")
    (cut / "metrics.csv").unlink()
    (cut / ".model.half").mkdir()
    assert di2pose(*command, "--out", cut) == 0
    assert (cut / "metrics.csv").is_file()
    assert not list(cut.glob(".*"))
    assert_equal_runs(whole, cut)
    capsys.readouterr()
    assert di2pose(*command, "--out", cut, "--learning-rate", 0.1) == 2
    assert "config.tokenizer_training.learning_rate was 0.002, is 0.1" in capsys.readouterr().err


SMALL = ("width=16", "heads=2", "layers=1", "adapter_width=32", "adapter_channels=4", "adapter_tokens=2")
TRUNK = [word for size in SMALL for word in ("--set", f"trunk.{size}")]


def test_every_stage_goes_on_bit_for_bit_after_a_sigterm(poses, features, tmp_path, monkeypatch):
    """A learned codebook, the denoiser, the baselines."""
    vq = ["quantiser=vq", "vq_channels=6", "levels=[20]", "tokens=8"]
    vq = [word for setting in vq for word in ("--set", f"tokenizer.{setting}")]
    tiny = ("--recipe", "tiny", "--set", "diffusion.steps=4", "--set", "diffusion.pose_weight=1", *vq)
    tokenizer = ("--tokenizer", tmp_path / "tokenizer" / "whole")
    for name, *words in (
        ("tokenizer", "tokenizer", "--data", poses, *tiny),
        ("denoiser", "denoiser", *tokenizer, "--features", features, *tiny),
        ("gaussian", "model", "gaussian", "--features", features, *TRUNK),
        ("pct", "model", "pct", *tokenizer, "--features", features, *TRUNK),
    ):
        command = ("train", *words, "--iterations", 4, "--batch", 16, "--log-every", 3, "--validate-every", 2)
        command += ("--threads", 1, "--seed", 1, "--out")
        whole, cut = tmp_path / name / "whole", tmp_path / name / "cut"
        assert di2pose(*command, whole) == 0
        source = MemorySource if name == "tokenizer" else FeatureSource
        read, calls = source.batch, []

        def batch(self, rows, read=read, calls=calls):
            calls.append(rows)
            if len(calls) == 4:  # of them one or two are of a validation, or of the adapter's statistics
                os.kill(os.getpid(), signal.SIGTERM)
            return read(self, rows)

        with monkeypatch.context() as patch:
            patch.setattr(source, "batch", batch)
            assert di2pose(*command, cut) == 128 + signal.SIGTERM
        if name == "tokenizer":  # the codebook had begun to move
            assert load_file(cut / "last.safetensors")["model/tokenizer.quantiser.size"].sum() > 0
        assert di2pose(*command, cut) == 0
        assert_equal_runs(whole, cut)


def test_two_ranks_give_the_curve_of_one_process(poses, features, tmp_path):
    """Both stages; the learned codebook moves by the latents of all ranks."""
    small = ("--recipe", "tiny", "--set", "tokenizer.quantiser=vq", "--iterations", 6, "--log-every", 1)
    small += ("--validate-every", 6, "--threads", 1)
    one, two = tmp_path / "one", tmp_path / "two"
    stages = {
        "tokenizer": ("--data", poses, "--batch", 30, *small),
        "denoiser": ("--features", features, "--tokenizer", one / "tokenizer", *small),
    }
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "di2pose", "train")
    started = {}
    for stage, words in stages.items():
        assert di2pose("train", stage, *words, "--out", one / stage) == 0
        command = [sys.executable, *torchrun, stage, *words, "--out", two / stage]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started[stage] = subprocess.Popen([*map(str, command)], text=True, **pipes)
    names = {"tokenizer": ("loss", "mpjpe_mm", "commitment"), "denoiser": ("loss", "vlb", "aux")}
    for stage, process in started.items():
        said, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
        assert said.count("6 iterations") == 1  # only rank 0 prints
        rows, others = (read_rows(folder / stage / "metrics.jsonl") for folder in (one, two))
        assert [row["iteration"] for row in rows] == [row["iteration"] for row in others]
        for name in (*names[stage], "gradient_norm"):
            wanted = [row[name] for row in rows]
            assert [row[name] for row in others] == pytest.approx(wanted, rel=2e-4, abs=1e-6), (stage, name)
        assert others[-1]["held_out_mm"] == pytest.approx(rows[-1]["held_out_mm"], rel=0.02)
    key = "model/tokenizer.quantiser.size"
    sizes = [load_file(folder / "tokenizer/last.safetensors")[key] for folder in (one, two)]
    torch.testing.assert_close(*sizes, atol=0.5, rtol=0)
    assert float(sizes[0].sum()) == pytest.approx(float(sizes[1].sum()), rel=1e-5)
    assert Di2Pose.from_pretrained(two / "denoiser" / "model").config.name == "tiny"
