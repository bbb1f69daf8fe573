"""Continuous diffusion on joints: a kind of model like any other."""

from dataclasses import replace

import pytest
import torch
from stick_figures import seen_from_the_front, stick_figures

from di2pose.baselines.gaussian import Gaussian
from di2pose.errors import InputError
from di2pose.model import Constraints, PoseModel, TorchModel, load_model, save_model
from di2pose.noise import hypothesis_generators, training_generators
from di2pose.pipeline.flip import predict_both
from di2pose.pose.metrics import mpjpe

SIZES = {"width": 32, "layers": 1, "heads": 2, "adapter_width": 64, "adapter_channels": 8, "adapter_tokens": 4}


def made(**changes):
    torch.manual_seed(0)
    config = Gaussian.recipe("none", 17, 32)
    return Gaussian(replace(config, trunk=replace(config.trunk, **SIZES), **changes))


@pytest.fixture(scope="module")
def model():
    return made().eval()


def test_it_is_a_pose_model_of_many_hypotheses(model):
    assert isinstance(model, PoseModel)
    features = torch.randn(2, 17, 32)
    found = model.predict(features, 4, 3, torch.Generator().manual_seed(0))
    assert found.joints_mm.shape == (2, 4, 17, 3)
    assert (found.joints_mm[:, :, 0] == 0).all()
    assert found.joints_mm.std(1)[:, 1:].min() > 1
    torch.testing.assert_close(found.visibility.sum(-1), torch.ones(2, 17))
    assert list(model.point_estimates(features)) == ["regression"]
    assert model.certainty(features) is None
    both = predict_both(TorchModel(model), features.numpy(), features.numpy(), 4, 3, torch.Generator())
    assert both.joints_mm.shape == (2, 4, 17, 3)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_what_is_drawn_for_a_crop_does_not_depend_on_its_batch(eta):
    model = made(eta=eta).eval()
    features = torch.randn(3, 17, 32)
    whole = model.predict(features, 2, 4, hypothesis_generators(0, "abc", 2)).joints_mm
    alone = model.predict(features[1:2], 2, 4, hypothesis_generators(0, "b", 2)).joints_mm
    torch.testing.assert_close(alone[0], whole[1], atol=1e-2, rtol=0)


def test_it_learns_poses_and_comes_back_from_its_folder(tmp_path):
    config = made().config
    trunk = replace(config.trunk, adapter_dropout=0.0, hint_dropout=0.0, steps=20)
    torch.manual_seed(0)
    model = Gaussian(replace(config, trunk=trunk))
    joints = stick_figures(8, torch.Generator().manual_seed(0))
    batch = {"features": seen_from_the_front(joints, 32).repeat(2, 1, 1), "joints_mm": joints.repeat(2, 1, 1)}
    model.prepare(batch["features"])
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 250)
    for step in range(250):
        optimiser.zero_grad()
        model.loss(batch, training_generators(0, step, 0, 16))["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    again = load_model(save_model(model, tmp_path / "model", data="stick figures"))
    assert (again.kind, again.config) == ("gaussian", model.config)
    features = batch["features"][:8]
    found = again.predict(features, 2, 10, hypothesis_generators(0, range(8), 2)).joints_mm
    assert mpjpe(found[:, 0], joints).mean() < 40  # they lie 300 mm from their mean
    torch.testing.assert_close(
        found, model.eval().predict(features, 2, 10, hypothesis_generators(0, range(8), 2)).joints_mm
    )


def test_a_network_that_predicts_the_noise_is_asked_for_the_noise():
    model = made(target="eps").eval()
    batch = {"features": torch.randn(64, 17, 32), "joints_mm": stick_figures(64, torch.Generator())}
    for part in (model.to_joints.weight, model.to_joints.bias):
        torch.nn.init.zeros_(part)
    silent = model.loss(batch, training_generators(0, 0, 0, 64))["diffusion"].detach()
    assert float(silent) == pytest.approx(1, abs=0.1)  # the variance of the noise
    found = model.predict(batch["features"][:2], 2, 5, torch.Generator().manual_seed(0)).joints_mm
    assert found.abs().max() <= 2 * 6 * model.config.scale_mm  # cut where no joint lies


def test_a_hint_that_is_withheld_changes_the_answer_and_none_is_needed(model):
    features = torch.randn(64, 17, 32)
    told = model.condition(features, training_generators(0, 0, 0, 64)).hint
    silent = (told == 0).flatten(1).all(1)
    assert 0 < int(silent.sum()) < 40
    bare = made()
    bare = Gaussian(replace(bare.config, trunk=replace(bare.config.trunk, adapter_layers=0, hint_channels=0)))
    batch = {"features": features[:4], "joints_mm": stick_figures(4, torch.Generator())}
    assert set(bare.loss(batch, training_generators(0, 0, 0, 4))) == {"loss", "diffusion"}
    assert bare.eval().predict(features[:4, :5], 2, 3, torch.Generator()).visibility is None
    assert bare.point_estimates(features[:4]) == {}


def test_what_it_cannot_do_is_named(model):
    pins = (torch.zeros(1, 17, 3), torch.ones(1, 17, dtype=torch.bool))
    with pytest.raises(InputError, match="kind 'gaussian' has no tokens"):
        model.predict(torch.randn(1, 17, 32), 2, 1, torch.Generator(), Constraints(pins=pins))
    with pytest.raises(InputError, match="hypotheses must be 1 or more"):
        model.predict(torch.randn(1, 17, 32), 0, 1, torch.Generator())
    with pytest.raises(InputError, match=r"sample_steps must lie in 1..5, got 10"):
        replace(model.config, trunk=replace(model.config.trunk, steps=5))
    with pytest.raises(InputError, match=r"trunk.tokens must be 17"):
        replace(model.config, trunk=replace(model.config.trunk, tokens=16))
    with pytest.raises(InputError, match=r"eta must lie in \[0, 1\]"):
        replace(model.config, eta=2.0)
