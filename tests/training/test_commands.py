"""The commands on small data: what they learn, what they write, what they refuse; `--set`."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from di2pose import Di2Pose, checkpoint, recipes
from di2pose.baselines.regression import Regression
from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.model import load_model
from di2pose.noise import generator_of
from di2pose.pose.metrics import mpjpe
from di2pose.training.log import read_rows
from di2pose.training.options import overridden
from di2pose.training.sources import feature_sources, open_caches

ADAPTER = ("adapter_width=32", "adapter_channels=4", "adapter_tokens=2", "width=16", "heads=2", "layers=1")


def train(*words):
    return main(["train", *map(str, words), "--threads", "1"])


def settings(*pairs, group="denoiser"):
    return [word for pair in pairs for word in ("--set", f"{group}.{pair}")]


def held_out_mm(run):
    return [row["held_out_mm"] for row in read_rows(run / "metrics.jsonl") if "held_out_mm" in row]


@pytest.fixture(scope="module")
def trained(poses, features, tmp_path_factory):
    """All stages of a tiny Di2Pose with an adapter; the denoiser hardly moves."""
    out = tmp_path_factory.mktemp("run")
    tiny = ("--recipe", "tiny", "--validate-every", 20, "--out")
    adapter = ("adapter_layers=1", "adapter_width=64", "adapter_channels=6", "adapter_tokens=4", "feature_tokens=17")
    weights = settings("regression_weight=1", "visibility_weight=0.1", group="diffusion")
    seen = ("--features", features, *settings(*adapter), *weights, *tiny)
    quick = ("--learning-rate", 5e-3)
    before = ("--tokenizer", out / "tokenizer", "--adapter", out / "adapter", "--learning-rate", 1e-9)
    assert train("tokenizer", "--data", poses, "--iterations", 60, *quick, *tiny, out / "tokenizer") == 0
    assert train("adapter", "--iterations", 50, "--batch", 32, *seen, out / "adapter") == 0
    assert train("denoiser", "--iterations", 2, *before, *seen, out / "denoiser") == 0
    return out


def test_every_stage_learns_and_the_run_holds_the_whole_model(trained, features):
    figures = held_out_mm(trained / "tokenizer")
    assert len(figures) == 3
    assert figures[-1] < 0.97 * figures[0]
    figures = held_out_mm(trained / "adapter")
    assert figures[-1] < 0.9 * figures[0]

    model = Di2Pose.from_pretrained(trained / "denoiser" / "model")
    assert model.config.denoiser.feature_width == 6  # the caches', not the recipe's
    handed_on = load_file(trained / "adapter" / "model" / "adapter.safetensors")
    adapter = model.model.denoiser.adapter.state_dict()
    assert all(torch.equal(adapter[name], value) for name, value in handed_on.items())  # it stays as it is
    batch = feature_sources(open_caches([features]))[1].batch(np.arange(3))
    assert model.predict_joints(batch["features"], 2, 4, generator_of(0)).shape == (3, 2, 17, 3)
    last = read_rows(trained / "denoiser" / "metrics.jsonl")[-1]
    assert {"held_out_mm", "held_out_single_mm", "held_out_loss", "vlb", "aux", "learning_rate"} <= last.keys()
    assert last["held_out_mm"] <= last["held_out_single_mm"]
    with pytest.raises(InputError, match="has no part 'denoiser'; it has tokenizer"):
        Di2Pose.from_pretrained(trained / "tokenizer")


def test_blocks_are_compiled_and_weights_keep_their_names(trained, poses, tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda module: compiled.append(type(module).__name__))
    words = ("tokenizer", "--data", poses, "--iterations", 1, "--recipe", "tiny", "--compile", "--out", tmp_path)
    assert train(*words) == 0
    assert compiled == ["LocalMLP"] * 4
    assert load_file(tmp_path / "last.safetensors").keys() == load_file(trained / "tokenizer/last.safetensors").keys()


def test_training_goes_on_from_the_weights_of_another_run(trained, poses, features, tmp_path, capsys):
    config = checkpoint.read_config(trained / "denoiser" / "model").denoiser
    same = settings(*(f"{name}={getattr(config, name)}" for name in (
        "adapter_layers", "adapter_width", "adapter_channels", "adapter_tokens", "feature_tokens")))  # fmt: skip
    words = ("--recipe", "tiny", "--features", features, "--iterations", 1, "--learning-rate", 1e-9)
    stage2 = ("denoiser", "--tokenizer", trained / "denoiser", "--init", trained / "denoiser", *words, *same)
    assert train("adapter", *words, *same, "--init", trained / "adapter", "--seed", 1, "--out", tmp_path / "a") == 0
    assert train(*stage2, "--out", tmp_path / "on") == 0
    assert train(*stage2, "--adapter", tmp_path / "a", "--out", tmp_path / "both") == 0
    before = checkpoint.read_part(trained / "denoiser" / "model", "denoiser")
    for run in ("on", "both"):
        after = checkpoint.read_part(tmp_path / run / "model", "denoiser")
        assert all(torch.allclose(after[name], value, atol=1e-5) for name, value in before.items())
    other = ("--data", poses, "--recipe", "tiny", "--iterations", 1, "--seed", 5, "--out", tmp_path / "t")
    assert train("tokenizer", *other, "--init", trained / "tokenizer") == 0  # one step away: another tokenizer
    another = ("denoiser", "--tokenizer", tmp_path / "t", *stage2[3:], "--seed", 7, "--out", tmp_path / "new")
    assert train(*another) == 0
    assert "has another tokenizer" in capsys.readouterr().out
    after = checkpoint.read_part(tmp_path / "new" / "model", "denoiser")
    kept = {name for name, value in before.items() if torch.allclose(after[name], value, atol=1e-5)}
    assert before.keys() - kept == {"token_embed.weight", "position", "to_logits.weight"}  # biases begin at 0
    no = ("--out", tmp_path / "no")
    for refused, message in (
        (("adapter", *words, *no), "has no adapter (adapter_layers is 0)"),
        (("denoiser", *stage2[1:3], *words, "--adapter", tmp_path / "a", *no), "the recipe tiny has no adapter"),
        (("denoiser", "--tokenizer", trained, *words, *no), "is not a checkpoint"),
    ):
        capsys.readouterr()
        assert train(*refused) == 2
        assert message in capsys.readouterr().err


def test_another_kind_of_model_is_trained_by_the_same_loop(trained, features, tmp_path, capsys):
    words = ("model", "regression", "--features", features)
    size = ("--set", "adapter_width=128")
    assert train(*words, *size, "--iterations", 30, "--batch", 32, "--validate-every", 10, "--out", tmp_path / "a") == 0
    figures = held_out_mm(tmp_path / "a")
    assert len(figures) == 3
    assert figures[-1] < 0.8 * figures[0]
    model = load_model(tmp_path / "a")
    assert (model.kind, model.config.feature_size, model.config.training.iterations) == ("regression", (17, 6), 30)
    _, held_out = feature_sources(open_caches([features]))
    batch = held_out.batch(np.arange(len(held_out)))
    found = model.predict(batch["features"], 1, 1, generator_of(0)).joints_mm[:, 0]
    assert float(mpjpe(found, batch["joints_mm"]).mean()) == pytest.approx(figures[-1], rel=1e-4)

    on = ("--iterations", 1, "--learning-rate", 1e-9, "--init", tmp_path / "a", "--out", tmp_path / "on")
    assert train(*words, *size, *on) == 0
    again = load_model(tmp_path / "on").state_dict()
    assert all(torch.allclose(again[name], value, atol=1e-6) for name, value in model.state_dict().items())
    for kind, init, message in (
        ("regression", ("--init", trained / "denoiser"), "of kind 'di2pose', expected one of 'regression'"),
        ("di2pose", (), "learns in stages: `di2pose train tokenizer`"),
        ("crystal-ball", (), "no model is of kind 'crystal-ball'"),
    ):
        capsys.readouterr()
        assert train("model", kind, *words[2:], "--out", tmp_path / "no", *init) == 2
        assert message in capsys.readouterr().err


def test_a_vq_tokenizer_then_pct_and_gaussian_by_the_ordinary_commands(poses, features, tmp_path, capsys):
    sizes = settings("tokens=8", "encoder_width=16", "levels=[20]", group="tokenizer")
    vq = settings("quantiser=vq", "vq_channels=6", group="tokenizer")
    words = ("--iterations", 4, "--batch", 16, "--validate-every", 4, "--log-every", 2, "--recipe", "tiny")
    tokenizer = ("tokenizer", "--data", poses, *sizes, *vq, *words)
    assert train(*tokenizer, "--out", tmp_path / "t") == 0
    config = checkpoint.read_config(tmp_path / "t" / "model")
    assert (config.tokenizer.quantiser, config.tokenizer.codes, config.denoiser.codes) == ("vq", 20, 20)
    assert "commitment" in read_rows(tmp_path / "t" / "metrics.jsonl")[-1]
    in_parts = tmp_path / "parts"
    assert train(*tokenizer, "--accumulate", 3, "--out", in_parts) == 0  # the codebook learns from the whole batch
    assert held_out_mm(in_parts)[-1] == pytest.approx(held_out_mm(tmp_path / "t")[-1], rel=1e-3)

    stage = ("--features", features, "--iterations", 2, "--batch", 16)
    adapter = ("adapter", *stage, "--recipe", "compare", *settings(*ADAPTER), "--out", tmp_path / "a")
    assert train(*adapter) == 0
    small = settings(*ADAPTER, group="trunk")
    assert train("model", "pct", "--tokenizer", tmp_path / "t", *stage, *small, "--out", tmp_path / "pct") == 0
    pct = load_model(tmp_path / "pct")
    assert (pct.kind, pct.config.trunk.width, pct.config.trunk.tokens) == ("pct", 16, 8)
    assert pct.tokenizer.state_dict()["quantiser.codebook"].equal(
        checkpoint.read_part(tmp_path / "t" / "model", "tokenizer")["quantiser.codebook"]
    )
    half = (*stage, *small, "--adapter", tmp_path / "a", "--share", 0.5, "--out", tmp_path / "half")
    assert train("model", "gaussian", *half) == 0
    assert checkpoint.read_notes(tmp_path / "half" / "model")["crops"] == 22
    given = checkpoint.read_part(tmp_path / "a" / "model", "adapter")
    kept = load_model(tmp_path / "half").trunk.adapter.state_dict()
    assert all(kept[name].equal(value) for name, value in given.items())
    no = ("--out", tmp_path / "no")
    read = ("denoiser", "--tokenizer", tmp_path / "t", "--features", features, "--recipe", "tiny", "--iterations", 1)
    for refused, message in (
        (("model", "gaussian", *half, "--share", 0.25), "share was 0.5, is 0.25"),
        (("model", "gaussian", *half, "--set", "eta=0.5"), "config.eta was 0.0, is 0.5"),
        (("model", "pct", *stage, *no), "kind 'pct' needs --tokenizer"),
        (("model", "gaussian", *stage, "--tokenizer", tmp_path / "t", *no), "kind 'gaussian' has none"),
        (("model", "regression", *stage, "--adapter", tmp_path / "a", *no), "no place for one"),
        (("model", "pct", *stage, "--tokenizer", tmp_path / "t", *settings("tokens=9", group="tokenizer"), *no),
         "trunk.tokens must be the tokenizer's 9"),
        ((*read, *settings("tokens=9", group="tokenizer"), *no), "the tokenizer that was trained has 8"),
    ):  # fmt: skip
        capsys.readouterr()
        assert train(*refused) == 2
        assert message in capsys.readouterr().err
    assert train(*read, *vq, "--set", "diffusion.steps=5", "--out", tmp_path / "d") == 0
    found = load_model(tmp_path / "d").config
    assert (found.tokenizer.quantiser, found.diffusion.steps, found.sample_steps) == ("vq", 5, 5)


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
    assert overridden(Regression.recipe("none", 17, 6), ["adapter_width=64"]).adapter_width == 64


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tokenizer.colour=red", "keys there: tokens, levels"),
        ("colour=red", "keys there: name, tokenizer"),
        ("tokenizer.tokens", "expected KEY=VALUE"),
        ("tokenizer=1", "expected KEY=VALUE"),
        ("tokenizer.tokens.more=1", "keys there: tokens, levels"),
        ("tokenizer.tokens=4.5", "TokenizerConfig.tokens must be of type int, got 4.5"),
        ("tokenizer.block=glass", "TokenizerConfig.block must be one of local, mixer, got 'glass'"),
        ("tokenizer.levels=[1]", "FSQ levels must be one or more integers >= 2"),
        ("denoiser.codes=7", "the denoiser's codes must equal 175, as the other parts have it, got 7"),
        ("sample_steps=101", "sample_steps must lie in 1..100"),
    ],
)
def test_what_cannot_be_set_is_named(setting, message):
    with pytest.raises(InputError) as error:
        overridden(recipes.compare(), [setting])
    assert message in str(error.value)
