"""The commands on small data: what they learn, what they write, what they refuse."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from stick_figures import write_set

from di2pose import Di2Pose, recipes
from di2pose.checkpoint import read_part
from di2pose.cli import main
from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.model import find_model, load_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import generator_of, training_generators
from di2pose.pose.metrics import mpjpe
from di2pose.training.distributed import ALONE
from di2pose.training.log import read_rows
from di2pose.training.sources import feature_sources, pose_sources, read_poses
from di2pose.training.stages import adopt, denoiser_job, model_folder


def command(*words):
    return main(["train", *map(str, words), "--recipe", "tiny", "--threads", "1"])


@pytest.fixture(scope="module")
def trained(poses, features, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    words = ("all", "--data", poses, "--features", features, "--out", out, "--iterations", 100, 1, 10)
    assert command(*words, "--validate-every", 25) == 0
    return out


def test_the_tokenizer_learns_poses_that_it_has_not_seen(trained, poses):
    figures = [row["held_out_mm"] for row in read_rows(trained / "tokenizer" / "metrics.jsonl") if "held_out_mm" in row]
    assert len(figures) == 4
    train, held_out = pose_sources([poses])
    seen, unseen = train.records["joints_mm"], held_out.records["joints_mm"]
    of_mean_pose = mpjpe(seen.mean(0).expand_as(unseen), unseen).mean()
    assert figures[-1] < min(figures[0], float(of_mean_pose))
    assert (trained / "tokenizer" / "plot.png").is_file()


def test_the_run_holds_the_whole_model_for_use(trained, features):
    model = Di2Pose.from_pretrained(trained / "denoiser" / "model")
    assert model.config.denoiser.feature_width == 6  # the caches', not the recipe's
    _, held_out = feature_sources([features])
    batch = held_out.batch(np.arange(3))
    found = model.predict_joints(batch["features"], 2, 4, generator_of(0))
    assert found.shape == (3, 2, 17, 3)
    last = read_rows(trained / "denoiser" / "metrics.jsonl")[-1]
    assert {"held_out_mm", "held_out_single_mm", "held_out_loss", "vlb", "aux", "learning_rate"} <= last.keys()
    assert last["held_out_mm"] <= last["held_out_single_mm"]


def test_validation_draws_in_few_steps_and_its_cost_is_known(trained, features, tmp_path):
    job = denoiser_job(recipes.tiny(), trained / "tokenizer", [features], tmp_path, seed=0)
    predict, passes = job.model.predict, []

    def counted(features, hypotheses, steps, noise):
        passes.append(len(features) * hypotheses * steps)
        return predict(features, hypotheses, steps, noise)

    job.model.predict = counted
    figures = job.validate(job.model, ALONE)
    assert figures["mm"] > 0
    assert passes == [15 * 4 * 10]  # 15 crops are held out; the model's own steps are 20
    assert job.validation_passes == sum(passes) + 15
    paper = replace(job, validation_passes=256 * (4 * 10 + 1), training=recipes.paper().denoiser_training)
    assert paper.validate_every == 1094  # 100 steps every 500 iterations were 107 %


def test_compiled_blocks_learn_the_same_under_the_same_names(poses, tmp_path):
    words = ("tokenizer", "--data", poses, "--iterations", 3, "--log-every", 1)
    assert command(*words, "--out", tmp_path / "plain") == 0
    words = ("train", *words, "--recipe", "tiny", "--threads", 1, "--compile", "--out", tmp_path / "compiled")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compiled.py")), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("compiled: LocalMLP LocalMLP LocalMLP LocalMLP\n")
    plain, other = (load_file(tmp_path / name / "last.safetensors") for name in ("plain", "compiled"))
    assert plain.keys() == other.keys()
    losses = [[row["loss"] for row in read_rows(tmp_path / name / "metrics.jsonl")] for name in ("plain", "compiled")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_training_goes_on_from_the_weights_of_another_run(trained, poses, features, tmp_path):
    words = ("--features", features, "--iterations", 1, "--learning-rate", 1e-9)
    before = load_model(trained / "denoiser").denoiser.state_dict()
    init = ("--tokenizer", trained / "denoiser", "--init", trained / "denoiser")
    assert command("denoiser", *init, *words, "--out", tmp_path / "on") == 0
    after = load_model(tmp_path / "on").denoiser.state_dict()
    assert all(torch.allclose(after[name], before[name], atol=1e-6) for name in before)
    other = ("--data", poses, "--iterations", 1, "--seed", 5, "--out", tmp_path / "other")
    assert command("tokenizer", *other, "--init", trained / "tokenizer") == 0  # one step away: another tokenizer
    stranger = ("--tokenizer", tmp_path / "other", "--init", trained / "denoiser", "--out", tmp_path / "no")
    assert command("denoiser", *stranger, *words) == 2


def test_the_adapter_is_trained_first_and_handed_to_the_denoiser(trained, features, tmp_path, monkeypatch):
    tiny = recipes.tiny()
    sizes = {"adapter_layers": 1, "adapter_width": 64, "adapter_channels": 6, "adapter_tokens": 4}
    denoiser = replace(tiny.denoiser, feature_tokens=17, adapter_dropout=0.1, **sizes)
    weights = replace(tiny.diffusion, regression_weight=1.0, visibility_weight=0.1)
    monkeypatch.setattr(recipes, "tiny", lambda: replace(tiny, denoiser=denoiser, diffusion=weights))
    words = ("--features", features, "--validate-every", 50)
    assert command("adapter", *words, "--out", tmp_path / "adapter", "--iterations", 150) == 0
    figures = [row["held_out_mm"] for row in read_rows(tmp_path / "adapter" / "metrics.jsonl") if "held_out_mm" in row]
    assert figures[-1] < 0.85 * figures[0]
    stage2 = ("denoiser", *words, "--tokenizer", trained / "tokenizer", "--iterations", 1, "--learning-rate", 1e-9)
    assert command(*stage2, "--adapter", tmp_path / "adapter", "--out", tmp_path / "denoiser") == 0
    model = load_model(tmp_path / "denoiser").denoiser.adapter
    handed_on = load_file(tmp_path / "adapter" / "model" / "adapter.safetensors")
    assert all(torch.allclose(value, handed_on[name], atol=1e-6) for name, value in model.state_dict().items())
    assert command("adapter", *words, "--out", tmp_path / "second", "--iterations", 5, "--seed", 1) == 0
    both = ("--adapter", tmp_path / "second", "--init", tmp_path / "denoiser", "--out", tmp_path / "both")
    assert command(*stage2, *both) == 0
    assert not any("adapter" in name for name in load_file(tmp_path / "both" / "model" / "denoiser.safetensors"))
    first, mixed = (read_part(tmp_path / run / "model", "denoiser") for run in ("denoiser", "both"))
    second = load_file(tmp_path / "second" / "model" / "adapter.safetensors")
    expected = first | {f"adapter.{name}": value for name, value in second.items()}
    for name, value in mixed.items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=0)
    assert any(not torch.allclose(first[f"adapter.{name}"], value) for name, value in second.items())
    monkeypatch.setattr(recipes, "tiny", lambda: tiny)
    assert command("adapter", *words, "--out", tmp_path / "no", "--iterations", 1) == 2
    assert command(*stage2, "--adapter", tmp_path / "adapter", "--out", tmp_path / "no") == 2


def test_another_kind_of_model_is_trained_by_the_same_loop(trained, features, tmp_path, capsys):
    words = ("train", "model", "regression", "--features", features, "--out", tmp_path / "run", "--iterations", 60)
    words = [*map(str, (*words, "--batch", 32, "--validate-every", 20, "--threads", 1))]
    assert main(words) == 0
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    figures = [row["held_out_mm"] for row in rows if "held_out_mm" in row]
    assert len(figures) == 3
    assert figures[-1] < 0.7 * figures[0]
    assert rows[-1]["held_out_single_mm"] == pytest.approx(figures[-1])  # it says one thing only
    model = load_model(tmp_path / "run")
    assert (model.kind, model.config.feature_size, model.config.training.iterations) == ("regression", (17, 6), 60)
    _, held_out = feature_sources([features])
    batch = held_out.batch(np.arange(len(held_out)))
    found = model.predict(batch["features"], 1, 1, generator_of(0)).joints_mm[:, 0]
    assert float(mpjpe(found, batch["joints_mm"]).mean()) == pytest.approx(figures[-1], rel=1e-4)

    on = ("--features", features, "--iterations", 1, "--learning-rate", 1e-9, "--threads", 1, "--out", tmp_path / "on")
    assert main([*map(str, ("train", "model", "regression", *on, "--init", tmp_path / "run"))]) == 0
    again = load_model(tmp_path / "on").state_dict()
    assert all(torch.allclose(again[name], value, atol=1e-6) for name, value in model.state_dict().items())
    for kind, init, message in (
        ("regression", ("--init", trained / "denoiser"), "of kind 'di2pose', expected one of 'regression'"),
        ("di2pose", (), "learns in stages: `di2pose train all`"),
        ("crystal-ball", (), "no model is of kind 'crystal-ball'"),
    ):
        capsys.readouterr()
        assert main([*map(str, ("train", "model", kind, *on[:2], "--out", tmp_path / "no", *init))]) == 2
        assert message in capsys.readouterr().err


def test_a_tokenizer_alone_is_a_checkpoint_but_not_a_di2pose(trained):
    assert model_folder(Path("small")) == find_model("small")  # a name in the package
    folder = model_folder(trained / "tokenizer")
    assert folder == trained / "tokenizer" / "model"
    with pytest.raises(InputError, match="has no part 'denoiser'; it has tokenizer"):
        Di2Pose.from_pretrained(folder)
    with pytest.raises(InputError, match="holds no model: expected a run"):
        model_folder(trained)


def test_the_recipe_takes_over_the_tokenizer_that_was_trained(features):
    source = feature_sources([features])[0]
    other = recipes.small()
    config = adopt(recipes.tiny(), other, source)
    assert config.tokenizer == other.tokenizer
    assert (config.denoiser.codes, config.denoiser.tokens) == (other.tokenizer.codes, other.tokenizer.tokens)
    assert config.denoiser.width == recipes.tiny().denoiser.width


def test_poses_come_from_datasets_caches_and_rendered_people(poses, features, figures, tmp_path):
    samples = [Sample(f"people_{i}", pose, split="train") for i, pose in enumerate(figures[:5])]
    write_set(tmp_path, samples, "people", settings={"split": "train", "seed": 0})
    for folder, count in ((poses, 60), (features, 60), (tmp_path, 5)):
        joints, splits, ids = read_poses(folder)
        assert np.array_equal(joints, figures[:count])
        assert len(splits) == len(set(ids)) == count
    train, held_out = pose_sources([poses, tmp_path, features])
    assert (len(train), len(held_out)) == (45 + 5 + 45, 15 + 15)
    with pytest.raises(InputError, match="none is held out"):
        pose_sources([tmp_path])
    with pytest.raises(InputError, match="--data needs one folder or more"):
        pose_sources([])
    with pytest.raises(InputError, match="--features needs one folder or more"):
        feature_sources([])
    with pytest.raises(InputError, match=r"holds no dataset.json"):
        pose_sources([tmp_path / "nowhere"])


def test_crops_of_several_caches_come_in_the_order_asked_for(features, figures):
    train, held_out = feature_sources([features, features])
    assert (len(train), len(held_out)) == (90, 30)
    rows = np.array([50, 3, 80, 4])
    batch = train.batch(rows)
    wanted = figures[[i for i in range(60) if i % 4] * 2][rows]
    assert np.array_equal(batch["joints_mm"].numpy(), wanted)
    assert batch["features"].shape == (4, 17, 6)
    np.testing.assert_allclose(batch["features"][..., :3].numpy(), wanted / 1000, atol=1e-3)
    assert train.fingerprint != held_out.fingerprint == feature_sources([features, features])[1].fingerprint


def test_the_pose_loss_is_the_error_of_the_softly_decoded_pose_in_metres():
    tiny = recipes.tiny()
    models = []
    for weight in (0.0, 10.0):
        torch.manual_seed(0)
        models.append(Di2PoseNetwork(replace(tiny, diffusion=replace(tiny.diffusion, pose_weight=weight))))
    batch = {"features": torch.randn(4, 5, 32), "joints_mm": 300 * torch.randn(4, 17, 3) + 1000}
    paper, ours = (model.loss(batch, training_generators(0, 0, 0, 4)) for model in models)
    assert "pose" not in paper
    torch.testing.assert_close(ours["loss"], paper["loss"] + 10 * ours["pose"])
    seen = {}
    models[1].denoiser.register_forward_hook(lambda module, inputs, logits: seen.update(logits=logits))
    again = models[1].loss(batch, training_generators(0, 0, 0, 4))
    soft = models[1].tokenizer.decode_soft(seen["logits"].softmax(-1))
    truth = batch["joints_mm"] - batch["joints_mm"][:, :1]
    torch.testing.assert_close(again["pose"], mpjpe(soft, truth).mean() / 1000)
    again["pose"].backward()
    assert models[1].denoiser.to_logits.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in models[1].tokenizer.parameters())
