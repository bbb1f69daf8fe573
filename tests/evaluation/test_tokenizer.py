"""`di2pose evaluate tokenizer`: its figures against plain loops, and its command."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from di2pose import Di2Pose, checkpoint, recipes
from di2pose.cli import main
from di2pose.data.sample import Sample, Writer
from di2pose.evaluation.tokenizer import read_poses, reconstruction
from di2pose.pose.skeleton import H36M_17, H36M_21
from di2pose.tokenizer.tokenizer import PoseTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    torch.manual_seed(0)
    return Di2Pose(recipes.tiny()).model.tokenizer.eval()


@pytest.fixture(scope="module")
def poses():
    joints = 300 * torch.randn(40, 17, 3, generator=torch.Generator().manual_seed(1))
    return joints - joints[:, :1]


@pytest.fixture(scope="module")
def folder(poses, tmp_path_factory):
    writer = Writer(tmp_path_factory.mktemp("data") / "set", "random", H36M_17)
    splits = ["test"] * 30 + ["train"] * 10
    writer.write("all", [Sample(f"r{i}", pose, split=splits[i]) for i, pose in enumerate(poses.numpy())])
    writer.finish()
    return writer.folder


def test_errors_are_those_of_a_plain_loop_whatever_the_batch(tokenizer, poses):
    result = reconstruction(tokenizer, poses, batch=7)
    once, twice = (asdict(reconstruction(tokenizer, poses, batch=batch)) for batch in (7, 100))
    assert once.pop("worst_joint") == twice.pop("worst_joint")
    assert once == pytest.approx(twice, rel=1e-5)
    errors = np.zeros((40, 17))
    for i, pose in enumerate(poses):
        back = tokenizer.decode(tokenizer.encode(pose[None]))[0]
        errors[i] = [float(torch.dist(back[j], pose[j])) for j in range(17)]
    assert result.mpjpe_mm == pytest.approx(errors.mean(), rel=1e-4)
    assert result.p95_mm == pytest.approx(np.quantile(errors.mean(1), 0.95), rel=1e-4)
    assert result.worst_joint == H36M_17.joints[errors.mean(0).argmax()]
    assert result.worst_joint_mm == pytest.approx(errors.mean(0).max(), rel=1e-4)
    assert result.pa_mpjpe_mm < result.mpjpe_mm
    tokens = tokenizer.encode(poses).numpy()
    assert result.codes_used == len(np.unique(tokens))
    assert result.codes_used_per_position == pytest.approx(np.mean([len(set(c)) for c in tokens.T.tolist()]))
    shares = [np.unique(column, return_counts=True)[1] / 40 for column in tokens.T]
    perplexities = [np.exp(-(share * np.log(share)).sum()) for share in shares]
    assert result.perplexity_per_position == pytest.approx(np.mean(perplexities), rel=1e-4)
    assert result.wrong_tokens_mm != result.mpjpe_mm  # an untrained decoder still answers to its tokens


def test_the_command_prints_both_columns_and_writes_json(tokenizer, poses, folder, tmp_path, capsys):
    checkpoint.save(tmp_path / "run" / "model", recipes.tiny(), {"tokenizer": tokenizer})
    words = ["evaluate", "tokenizer", str(tmp_path / "run"), "--data", str(folder), "--out", str(tmp_path / "t.json")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "30 poses, 16 tokens of 125 codes" in text
    assert torch.equal(read_poses(folder, "test"), poses[:30])
    assert torch.equal(read_poses(folder, "all"), poses)
    assert all(word in text for word in ("upright", "turned", "mpjpe mm", "pa mpjpe mm", "perplexity", "codes used"))
    figures = json.loads((tmp_path / "t.json").read_text())
    assert f"{figures['upright']['mpjpe_mm']:.2f}" in text
    assert figures["turned"]["mpjpe_mm"] != figures["upright"]["mpjpe_mm"]
    assert main([*words[:5], "--split", "nothing"]) == 2
    assert "has no pose of split 'nothing'; its splits are test, train" in capsys.readouterr().err
    assert main(["evaluate", "tokenizer", str(tmp_path / "nowhere"), "--data", str(folder)]) == 2
    assert "is not a checkpoint" in capsys.readouterr().err


def test_a_tokenizer_with_feet_is_measured_on_all_its_joints(tmp_path, capsys):
    config = replace(recipes.tiny(), tokenizer=replace(recipes.tiny().tokenizer, skeleton="h36m_21"),
                     denoiser=replace(recipes.tiny().denoiser, joints=21))  # fmt: skip
    checkpoint.save(tmp_path / "model", config, {"tokenizer": PoseTokenizer(config.tokenizer)})
    writer = Writer(tmp_path / "set", "random", H36M_21)
    writer.write("all", [Sample("r", np.random.default_rng(0).normal(0, 300, (21, 3)).astype("f4"), split="test")])
    writer.finish()
    assert main(["evaluate", "tokenizer", str(tmp_path / "model"), "--data", str(tmp_path / "set")]) == 0
    assert "125 codes, 21 joints" in capsys.readouterr().out


def test_poses_of_a_cache_are_those_with_all_joints_at_the_pelvis(write_cache, standing, tmp_path):
    joints = standing(5) + np.float32(7)
    joints[2, 0] = np.nan
    folder = write_cache(tmp_path / "cache", {"joints_mm": joints}, np.zeros((5, 1, 1)))
    expected = np.delete(joints - joints[:, :1], 2, 0)
    np.testing.assert_allclose(read_poses(folder, "test"), expected)
