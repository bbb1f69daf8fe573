"""PCT's way: tokens classified in one pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stick_figures import seen_from_the_front, stick_figures

from di2pose import Di2Pose, recipes
from di2pose.baselines.gaussian import Gaussian
from di2pose.baselines.pct import PCT
from di2pose.baselines.regression import Regression
from di2pose.errors import InputError
from di2pose.model import Constraints, PoseModel, load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators, training_generators
from di2pose.pose.metrics import mpjpe
from di2pose.training.overrides import overridden

SIZES = {"width": 32, "layers": 1, "heads": 2, "adapter_width": 64, "adapter_channels": 8, "adapter_tokens": 4}
TOKENIZER = replace(recipes.tiny().tokenizer, quantiser="vq", vq_channels=8, block="mixer", levels=(64,))


def made(**changes):
    torch.manual_seed(0)
    config = PCT.token_recipe("none", 17, 32, TOKENIZER)
    return PCT(replace(config, trunk=replace(config.trunk, **SIZES, **changes)))


@pytest.fixture(scope="module")
def model():
    return made().eval()


def fit(parameters, loss, after=lambda: None, steps=300, rate=3e-3):
    optimiser = torch.optim.Adam(parameters, rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        optimiser.zero_grad()
        loss(step).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        after()


def test_it_is_a_pose_model_whose_tokens_are_drawn_apart(model):
    assert isinstance(model, PoseModel)
    features = torch.randn(2, 17, 32)
    found = model.predict(features, 4, 1, torch.Generator().manual_seed(0))
    assert found.joints_mm.shape == (2, 4, 17, 3)
    assert (found.joints_mm[:, :, 0] == 0).all()
    torch.testing.assert_close(found.visibility.sum(-1), torch.ones(2, 17))
    assert list(model.point_estimates(features)) == ["regression", "soft decode"]
    certainty = model.certainty(features)
    assert ((-torch.log(torch.tensor(64.0)) <= certainty) & (certainty < 0)).all()


def test_draws_have_the_classifiers_probabilities_and_do_not_depend_on_the_batch(model, monkeypatch):
    features = torch.randn(3, 17, 32)
    whole = model.predict(features, 2, 1, hypothesis_generators(0, "abc", 2)).joints_mm
    alone = model.predict(features[1:2], 2, 1, hypothesis_generators(0, "b", 2)).joints_mm
    torch.testing.assert_close(alone[0], whole[1], atol=1e-2, rtol=0)
    drawn = {}
    decode = model.tokenizer.decode
    monkeypatch.setattr(model.tokenizer, "decode", lambda tokens: decode(drawn.setdefault("tokens", tokens)))
    model.predict(features[:1], 4000, 1, torch.Generator().manual_seed(0))
    share = torch.nn.functional.one_hot(drawn["tokens"], 64).float().mean(0)
    torch.testing.assert_close(share, model(model.condition(features[:1])).softmax(-1)[0].detach(), atol=0.03, rtol=0)


def test_it_learns_poses_on_a_frozen_tokenizer_and_comes_back_from_its_folder(tmp_path):
    model = made(adapter_dropout=0.0, hint_dropout=0.0)
    joints = stick_figures(8, torch.Generator().manual_seed(0))
    batch = {"features": seen_from_the_front(joints, 32), "joints_mm": joints}
    model.tokenizer.requires_grad_(True).train()
    fit(list(model.tokenizer.parameters()), lambda step: model.tokenizer.loss(joints)["loss"], model.tokenizer.learn)
    model.tokenizer.requires_grad_(False).eval()
    assert mpjpe(model.tokenizer.decode(model.tokenizer.encode(joints)), joints).mean() < 30
    model.prepare(batch["features"])
    codebook = model.tokenizer.quantiser.codebook.clone()
    learned = [p for p in model.parameters() if p.requires_grad]
    model.train()
    fit(learned, lambda step: model.loss(batch, training_generators(0, step, 0, 8))["loss"], steps=300, rate=5e-3)
    assert torch.equal(codebook, model.tokenizer.quantiser.codebook)
    again = load_model(save_model(model, tmp_path / "model"))
    assert (again.kind, again.config) == ("pct", model.config)
    assert again.loss(batch, training_generators(0, 0, 0, 8))["accuracy"] > 0.95
    found = again.predict(batch["features"], 1, 1, torch.Generator().manual_seed(0)).joints_mm[:, 0]
    assert mpjpe(found, joints).mean() < 45  # they lie 300 mm from their mean
    assert mpjpe(again.point_estimates(batch["features"])["soft decode"], joints).mean() < 30


def test_what_it_cannot_do_is_named(model):
    pins = (torch.zeros(1, 17, 3), torch.ones(1, 17, dtype=torch.bool))
    with pytest.raises(InputError, match="kind 'pct' draws each token apart"):
        model.predict(torch.randn(1, 17, 32), 2, 1, torch.Generator(), Constraints(pins=pins))
    with pytest.raises(InputError, match=r"trunk.tokens must be the tokenizer's 16, trunk.steps 1"):
        replace(model.config, trunk=replace(model.config.trunk, steps=2))


def test_all_kinds_of_the_comparison_have_as_many_trainable_parameters():
    compare = recipes.compare()
    size = ("blazepose-heavy+movenet", compare.denoiser.feature_tokens, compare.denoiser.feature_width)
    vq = overridden(compare, ["tokenizer.quantiser=vq"]).tokenizer
    with torch.device("meta"):
        models = (
            Di2PoseNetwork(compare),
            Gaussian(Gaussian.recipe(*size)),
            PCT(PCT.token_recipe(*size, vq)),
            Regression(overridden(Regression.recipe(*size), ["adapter_width=512", "adapter_channels=16"])),
        )
    counts = {model.kind: sum(p.numel() for p in model.parameters() if p.requires_grad) for model in models}
    assert max(counts.values()) < 1.1 * min(counts.values()), counts


@pytest.mark.parametrize("kind", ["gaussian", "pct"])
def test_they_look_at_pictures_like_any_other(kind, tmp_path):
    torch.manual_seed(0)
    size = ("blazepose-lite", 117, 200)
    model = Gaussian(Gaussian.recipe(*size)) if kind == "gaussian" else PCT(PCT.token_recipe(*size, TOKENIZER))
    pipeline = Di2Pose.from_pretrained(save_model(model, tmp_path / "model"))
    picture = np.random.default_rng(0).integers(0, 256, (200, 160, 3), dtype=np.uint8)
    (person,) = pipeline(picture, boxes=[(20.0, 10.0, 140.0, 190.0)], hypotheses=3).people
    assert person.samples_mm.shape == (3, 17, 3)
    assert person.tokens is None
