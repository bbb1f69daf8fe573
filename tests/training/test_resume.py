"""Runs that were killed go on bit for bit, and two ranks train as one process: real processes, a real kill -9."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from di2pose import Di2Pose, recipes
from di2pose.cli import main
from di2pose.training.log import read_rows
from di2pose.training.loop import train
from di2pose.training.options import RunOptions
from di2pose.training.overrides import overridden
from di2pose.training.stages import denoiser_job, model_job, tokenizer_job


def run(program, *words, **environment):
    """Another process: python PROGRAM WORDS."""
    return subprocess.run(
        [sys.executable, *map(str, (*program, *words))],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


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
    command = ("train", "tokenizer", "--recipe", "tiny", "--data", poses, "--iterations", 12, "--batch", 16)
    command += ("--log-every", 3, "--validate-every", 5, "--save-minutes", 0, "--threads", 1)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert di2pose(*command, "--out", whole) == 0
    killed = run((Path(__file__).with_name("killed.py"),), *command, "--out", cut, KILL_AT="7")
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


def test_the_denoiser_goes_on_bit_for_bit(poses, features, tmp_path):
    tiny = recipes.tiny()
    training = replace(tiny.tokenizer_training, iterations=3, batch=8)
    config = replace(tiny, tokenizer_training=training, denoiser_training=replace(training, iterations=24, batch=32))
    diffusion = replace(config.diffusion, pose_weight=1.0, steps=4)
    denoiser = replace(config.denoiser, steps=4)
    config = replace(config, diffusion=diffusion, denoiser=denoiser, sample_steps=2)
    assert train(tokenizer_job(config, [poses], tmp_path / "t", 0), tmp_path / "t", RunOptions()) == 0

    def job(out):
        return denoiser_job(config, tmp_path / "t", [features], out, seed=1)

    options = RunOptions(log_every=5, validate_every=12)
    cut_and_resumed_equals_whole(job, tmp_path, options, at=16)


def cut_and_resumed_equals_whole(job, folder, options, at):
    """Train a job at once, and again with a SIGTERM while batch `at` is read; what was saved then."""
    whole, cut = folder / "whole", folder / "cut"
    assert train(job(whole), whole, options) == 0
    stopped = job(cut)
    read = stopped.source.batch
    calls = []

    def batch(rows):
        calls.append(rows)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return read(rows)

    stopped.source.batch = batch
    assert train(stopped, cut, options) == signal.SIGTERM
    saved = load_file(cut / "last.safetensors")
    assert train(job(cut), cut, options) == 0
    assert_equal_runs(whole, cut)
    return saved


def test_a_learned_codebook_and_the_baselines_go_on_bit_for_bit(poses, features, tmp_path):
    settings = ["tokenizer.quantiser=vq", "tokenizer.vq_channels=6", "tokenizer.levels=[20]", "tokenizer.tokens=8"]
    config = overridden(recipes.tiny(), [*settings, "tokenizer_training.iterations=8", "tokenizer_training.batch=16"])
    options = RunOptions(log_every=3, validate_every=4)
    saved = cut_and_resumed_equals_whole(
        lambda out: tokenizer_job(config, [poses], out, seed=0), tmp_path / "t", options, at=5
    )
    assert saved["model/tokenizer.quantiser.size"].sum() > 0  # the codebook had begun to move
    small = ["width=16", "heads=2", "layers=1", "adapter_width=32", "adapter_channels=4", "adapter_tokens=2"]
    settings = [*(f"trunk.{size}" for size in small), "training.iterations=6", "training.batch=8"]
    for kind, tokenizer in (("gaussian", None), ("pct", tmp_path / "t" / "whole")):
        cut_and_resumed_equals_whole(
            lambda out, kind=kind, tokenizer=tokenizer: model_job(
                kind, [features], out, seed=1, settings=settings, tokenizer=tokenizer
            ),
            tmp_path / kind,
            options,
            at=4,
        )


def test_two_ranks_give_the_curve_of_one_process(poses, features, tmp_path):
    """Both stages; the learned codebook moves by the latents of all ranks."""
    command = ("train", "all", "--recipe", "tiny", "--data", poses, "--features", features, "--iterations", 6, 6, 6)
    command += ("--set", "tokenizer.quantiser=vq", "--set", "tokenizer_training.batch=30", "--log-every", 1)
    command += ("--validate-every", 6, "--threads", 1)
    one, two = tmp_path / "one", tmp_path / "two"
    assert di2pose(*command, "--out", one) == 0
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "di2pose")
    done = run(torchrun, *command, "--out", two)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("6 iterations") == 2  # only rank 0 prints, once a stage
    stages = {"tokenizer": ("loss", "mpjpe_mm", "commitment"), "denoiser": ("loss", "vlb", "aux")}
    for stage, names in stages.items():
        rows, others = (read_rows(folder / stage / "metrics.jsonl") for folder in (one, two))
        assert [row["iteration"] for row in rows] == [row["iteration"] for row in others]
        for name in (*names, "gradient_norm"):
            wanted = [row[name] for row in rows]
            assert [row[name] for row in others] == pytest.approx(wanted, rel=2e-4, abs=1e-6), (stage, name)
        assert others[-1]["held_out_mm"] == pytest.approx(rows[-1]["held_out_mm"], rel=0.02)
    key = "model/tokenizer.quantiser.size"
    sizes = [load_file(folder / "tokenizer/last.safetensors")[key] for folder in (one, two)]
    torch.testing.assert_close(*sizes, atol=0.5, rtol=0)
    assert float(sizes[0].sum()) == pytest.approx(float(sizes[1].sum()), rel=1e-5)
    assert Di2Pose.from_pretrained(two / "denoiser" / "model").config.name == "tiny"
