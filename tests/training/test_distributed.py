"""Two real processes under torchrun train as one process does."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from di2pose import Di2Pose
from di2pose.cli import main
from di2pose.training.log import read_rows

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(*words):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def assert_same_curve(one, two, names):
    rows, others = (read_rows(folder / "metrics.jsonl") for folder in (one, two))
    assert [row["iteration"] for row in rows] == [row["iteration"] for row in others]
    for name in (*names, "gradient_norm"):
        assert [row[name] for row in others] == pytest.approx([row[name] for row in rows], rel=2e-4, abs=1e-6), name
    assert others[-1]["held_out_mm"] == pytest.approx(rows[-1]["held_out_mm"], rel=0.02)


def test_both_stages_on_two_ranks_give_the_curve_of_one_process(poses, features, tmp_path):
    command = ("train", "all", "--recipe", "tiny", "--data", poses, "--features", features, "--iterations", 8, 8, 8)
    command += ("--log-every", 1, "--validate-every", 8, "--threads", 1)
    assert main([*map(str, command), "--out", str(tmp_path / "one")]) == 0
    two = run(*TORCHRUN, "-m", "di2pose", *command, "--out", tmp_path / "two")
    assert two.stdout.count("8 iterations") == 2  # each stage said so once: rank 0 speaks
    for stage, names in (("tokenizer", ("loss", "mpjpe_mm")), ("denoiser", ("loss", "vlb", "aux"))):
        assert_same_curve(tmp_path / "one" / stage, tmp_path / "two" / stage, names)
    assert Di2Pose.from_pretrained(tmp_path / "two" / "denoiser" / "model").config.name == "tiny"

    # A learned codebook moves by the latents of all ranks.
    command = ("train", "tokenizer", "--recipe", "tiny", "--data", poses, "--iterations", 6, "--batch", 30)
    command += ("--set", "tokenizer.quantiser=vq", "--log-every", 1, "--threads", 1)
    assert main([*map(str, command), "--out", str(tmp_path / "vq-one")]) == 0
    run(*TORCHRUN, "-m", "di2pose", *command, "--out", tmp_path / "vq-two")
    assert_same_curve(tmp_path / "vq-one", tmp_path / "vq-two", ("loss", "commitment"))
    sizes = [load_file(tmp_path / name / "last.safetensors")["model/tokenizer.quantiser.size"]
             for name in ("vq-one", "vq-two")]  # fmt: skip
    torch.testing.assert_close(*sizes, atol=0.5, rtol=0)
    assert float(sizes[0].sum()) == pytest.approx(float(sizes[1].sum()), rel=1e-5)
