"""`--set` and `--share`: a run that differs from its recipe in one thing."""

import numpy as np
import pytest
import torch

from di2pose import checkpoint, recipes
from di2pose.baselines.regression import Regression
from di2pose.cli import main
from di2pose.config import Config
from di2pose.errors import InputError
from di2pose.model import load_model
from di2pose.training.log import read_rows
from di2pose.training.overrides import overridden
from di2pose.training.sources import feature_sources, pose_sources


def train(*words):
    return main(["train", *map(str, words), "--threads", "1"])


def test_a_field_is_set_by_its_path_and_others_follow():
    base = recipes.compare()
    found = overridden(
        base, ["tokenizer.levels=[8,5,5,5]", "tokenizer.tokens=24", "diffusion.steps=3", "tokenizer.block=local"]
    )
    assert (found.tokenizer.levels, found.tokenizer.block) == ((8, 5, 5, 5), "local")
    assert (found.denoiser.tokens, found.denoiser.codes, found.denoiser.hint_channels) == (24, 1000, 4)
    assert (found.diffusion.steps, found.denoiser.steps, found.sample_steps) == (3, 3, 3)
    assert overridden(base, ["denoiser.adapter_layers=0"]).denoiser.hint_channels == 0
    assert overridden(base, ["tokenizer.quantiser=vq"]).denoiser.hint_channels == base.tokenizer.vq_channels
    assert overridden(base, ["diffusion.final_occlude=1"]).diffusion.final_occlude == 1.0
    assert overridden(base, []) is base
    assert overridden(Regression.recipe("none", 17, 6), ["adapter_width=64"]).adapter_width == 64


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tokenizer.colour=red", "TokenizerConfig has no 'colour'; it has tokens, levels"),
        ("colour=red", "Config has no 'colour'; it has name, tokenizer"),
        ("tokenizer.tokens", "expected KEY=VALUE"),
        ("tokenizer=1", "tokenizer is a group; name a field of it: tokens, levels"),
        ("tokenizer.tokens.more=1", "nothing is below a plain value"),
        ("tokenizer.tokens=4.5", "TokenizerConfig.tokens must be of type int, got 4.5"),
        ("tokenizer.block=glass", "TokenizerConfig.block must be one of local, mixer, got 'glass'"),
        ("tokenizer.levels=[1]", "FSQ levels must be one or more integers >= 2"),
        ("denoiser.codes=7", "the denoiser's codes must equal 512, as the other parts have it, got 7"),
        ("sample_steps=101", "sample_steps must lie in 1..100"),
    ],
)
def test_what_cannot_be_set_is_named(setting, message):
    with pytest.raises(InputError) as error:
        overridden(recipes.compare(), [setting])
    assert message in str(error.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_tokenizers_learn_from_the_same_share_as_denoisers(features, share):
    crops, held_out = feature_sources([features], share)
    poses, others = pose_sources([features], share)
    assert torch.equal(poses.records["joints_mm"], crops.joints_mm)
    assert torch.equal(others.records["joints_mm"], held_out.joints_mm)


def test_a_smaller_share_is_part_of_a_larger_one_and_what_is_held_out_stays(features):
    whole, held_out = feature_sources([features])
    shares = {share: feature_sources([features], share) for share in (0.05, 0.1, 0.5, 1.0)}
    crops = {share: {tuple(place) for place in train.places.tolist()} for share, (train, _) in shares.items()}
    assert [len(found) for found in crops.values()] == [2, 4, 22, 45]  # of 45
    assert crops[0.05] < crops[0.1] < crops[0.5] < crops[1.0]
    assert all(other.fingerprint == held_out.fingerprint for _, other in shares.values())
    assert shares[1.0][0].fingerprint == whole.fingerprint != shares[0.5][0].fingerprint
    some = shares[0.5][0]
    rows = np.arange(len(some))
    np.testing.assert_allclose(some.batch(rows)["features"][..., :3], some.joints_mm / 1000, atol=1e-3)
    for bad in (0.0, 1.5):
        with pytest.raises(InputError, match="--share must lie above 0"):
            feature_sources([features], bad)


def test_a_vq_tokenizer_then_pct_and_gaussian_by_the_ordinary_commands(poses, features, tmp_path, capsys):
    sizes = ("--set", "tokenizer.tokens=8", "--set", "tokenizer.encoder_width=16", "--set", "tokenizer.levels=[20]")
    vq = ("--set", "tokenizer.quantiser=vq", "--set", "tokenizer.vq_channels=6")
    words = ("--iterations", 6, "--batch", 16, "--validate-every", 3, "--log-every", 3, "--recipe", "tiny")
    tokenizer = ("tokenizer", "--data", poses, *sizes, *vq, *words)
    assert train(*tokenizer, "--out", tmp_path / "t") == 0
    config = checkpoint.read_config(tmp_path / "t" / "model")
    assert (config.tokenizer.quantiser, config.tokenizer.codes, config.denoiser.codes) == ("vq", 20, 20)
    assert "commitment" in read_rows(tmp_path / "t" / "metrics.jsonl")[-1]
    in_parts = tmp_path / "parts"
    assert train(*tokenizer, "--accumulate", 3, "--out", in_parts) == 0  # the codebook learns from the whole batch
    one, other = (read_rows(run / "metrics.jsonl")[-1]["held_out_mm"] for run in (tmp_path / "t", in_parts))
    assert other == pytest.approx(one, rel=1e-3)

    small = [word for name in ("width=16", "heads=2", "adapter_width=32", "adapter_channels=4", "adapter_tokens=2")
             for word in ("--set", f"trunk.{name}")]  # fmt: skip
    stage = ("--features", features, "--iterations", 4, "--batch", 16, *small)
    assert train("model", "pct", "--tokenizer", tmp_path / "t", *stage, "--out", tmp_path / "pct") == 0
    pct = load_model(tmp_path / "pct")
    assert (pct.kind, pct.config.trunk.width, pct.config.trunk.tokens) == ("pct", 16, 8)
    assert pct.tokenizer.state_dict()["quantiser.codebook"].equal(
        checkpoint.read_part(tmp_path / "t" / "model", "tokenizer")["quantiser.codebook"]
    )
    half = (*stage, "--share", 0.5, "--out", tmp_path / "half")
    assert train("model", "gaussian", *half) == 0
    assert checkpoint.read_notes(tmp_path / "half" / "model")["crops"] == 22
    assert load_model(tmp_path / "half").kind == "gaussian"
    for words, message in (
        (("gaussian", *stage, "--share", 0.25, "--out", tmp_path / "half"), "share was 0.5, is 0.25"),
        (("gaussian", *half, "--set", "eta=0.5"), "config.eta was 0.0, is 0.5"),
        (("pct", *stage, "--out", tmp_path / "no"), "kind 'pct' needs --tokenizer"),
        (("gaussian", *stage, "--tokenizer", tmp_path / "t", "--out", tmp_path / "no"), "kind 'gaussian' has none"),
        (("regression", *stage[:6], "--adapter", tmp_path / "t", "--out", tmp_path / "no"), "no place for one"),
        (("pct", *stage, "--tokenizer", tmp_path / "t", "--set", "tokenizer.tokens=9", "--out", tmp_path / "no"),
         "trunk.tokens must be the tokenizer's 9"),
    ):  # fmt: skip
        capsys.readouterr()
        assert train("model", *words) == 2
        assert message in capsys.readouterr().err

    read = ("denoiser", "--tokenizer", tmp_path / "t", "--features", features, "--recipe", "tiny", "--iterations", 1)
    assert train(*read, *vq, "--set", "diffusion.steps=5", "--out", tmp_path / "d") == 0
    found = load_model(tmp_path / "d").config
    assert isinstance(found, Config)
    assert (found.tokenizer.quantiser, found.diffusion.steps, found.sample_steps) == ("vq", 5, 5)
    capsys.readouterr()
    assert train(*read, "--set", "tokenizer.tokens=9", "--out", tmp_path / "no") == 2
    assert "--set tokenizer.tokens: the tokenizer that was trained has 8" in capsys.readouterr().err


def test_a_trained_adapter_is_handed_to_a_baseline_and_stays(features, tmp_path):
    sizes = ("adapter_width=32", "adapter_channels=4", "adapter_tokens=2", "width=16", "heads=2")
    words = ("--features", features, "--iterations", 2, "--batch", 8)
    mine = [word for size in sizes for word in ("--set", f"denoiser.{size}")]
    assert train("adapter", *words, "--recipe", "compare", *mine, "--out", tmp_path / "a") == 0
    theirs = [word for size in sizes for word in ("--set", f"trunk.{size}")]
    assert train("model", "gaussian", *words, *theirs, "--adapter", tmp_path / "a", "--out", tmp_path / "g") == 0
    given = checkpoint.read_part(tmp_path / "a" / "model", "adapter")
    kept = load_model(tmp_path / "g").trunk.adapter.state_dict()
    assert all(kept[name].equal(value) for name, value in given.items())
