"""Continuous diffusion: its marginals, its sampler with a predictor that knows, its options."""

from dataclasses import replace

import pytest
import torch
from baselines.test_baselines import made
from stick_figures import stick_figures

from di2pose.baselines.gaussian import Gaussian, GaussianSchedule, ddim, x0_of
from di2pose.errors import InputError
from di2pose.noise import hypothesis_generators, normal, training_generators


def test_a_network_may_predict_the_noise():
    model = made("gaussian", target="eps", eta=1.0).eval()
    batch = {"features": torch.randn(64, 17, 32), "joints_mm": stick_figures(64, torch.Generator())}
    for part in (model.to_joints.weight, model.to_joints.bias):
        torch.nn.init.zeros_(part)
    silent = model.loss(batch, training_generators(0, 0, 0, 64))["diffusion"].detach()
    assert float(silent) == pytest.approx(1, abs=0.1)  # the variance of the noise
    found = model.predict(batch["features"][:2], 2, 5, torch.Generator().manual_seed(0)).joints_mm
    assert found.abs().max() <= 2 * 6 * model.config.scale_mm  # cut at the bound


def test_the_self_condition_is_dropped_for_some_and_optional():
    model, features = made("gaussian"), torch.randn(64, 17, 32)
    embedded = model.condition(features, training_generators(0, 0, 0, 64)).self_condition
    assert 0 < int((embedded == 0).flatten(1).all(1).sum()) < 40
    bare = Gaussian(replace(model.config, trunk=replace(model.config.trunk, adapter_layers=0, hint_channels=0)))
    batch = {"features": features[:4], "joints_mm": stick_figures(4, torch.Generator())}
    assert set(bare.loss(batch, training_generators(0, 0, 0, 4))) == {"loss", "diffusion"}
    assert bare.eval().predict(features[:4, :5], 2, 3, torch.Generator()).visibility is None
    assert bare.point_estimates(features[:4]) == {}


def test_impossible_options_are_named():
    config = made("gaussian").config
    for changes, words in (
        ({"trunk": replace(config.trunk, steps=5)}, r"sample_steps must lie in 1..5, got 10"),
        ({"trunk": replace(config.trunk, tokens=16)}, "trunk.tokens and trunk.joints must be 17"),
        ({"eta": 2.0}, r"eta must lie in \[0, 1\]"),
    ):
        with pytest.raises(InputError, match=words):
            replace(config, **changes)
    with pytest.raises(InputError, match=r"must lie in 1..20, got 21"):
        ddim(lambda xs, s: xs, GaussianSchedule(20), 21, (1, 1), torch.Generator())


@pytest.mark.parametrize(("shape", "steps"), [("cosine", 20), ("linear", 20), ("cosine", 1000)])
def test_a_schedule_goes_from_data_to_noise(shape, steps):
    schedule = GaussianSchedule(steps, shape)
    assert len(schedule.alpha_bar) == steps + 1
    assert float(schedule.alpha_bar[0]) == 1
    assert float(schedule.alpha_bar[-1]) < 1e-3
    assert (schedule.alpha_bar.diff() < 0).all()


def test_the_forward_process_has_the_marginals_of_its_formula_and_of_single_steps():
    schedule = GaussianSchedule(20)
    x0 = torch.full((20_000, 2), 1.5)
    eps = normal(x0.shape, torch.Generator().manual_seed(0))
    for s in (1, 10, 20):
        xs = schedule.noised(x0, torch.full((len(x0),), s), eps)
        signal = float(schedule.alpha_bar[s].sqrt())
        assert float(xs.mean()) == pytest.approx(1.5 * signal, abs=0.03)
        assert float(xs.var()) == pytest.approx(1 - signal**2, abs=0.03)
    # One small step after the other arrives at the same: q(x_s | x_{s-1}) = N(sqrt(a) x, 1 - a).
    x, generator = x0, torch.Generator().manual_seed(1)
    for s in range(1, 11):
        a = float(schedule.alpha_bar[s] / schedule.alpha_bar[s - 1])
        x = a**0.5 * x + (1 - a) ** 0.5 * normal(x.shape, generator)
    assert float(x.mean()) == pytest.approx(1.5 * float(schedule.alpha_bar[10].sqrt()), abs=0.03)
    assert float(x.var()) == pytest.approx(1 - float(schedule.alpha_bar[10]), abs=0.03)


@pytest.mark.parametrize(("steps", "eta"), [(1, 0.0), (3, 0.5), (20, 1.0)])
def test_a_perfect_predictor_is_believed(steps, eta):
    x0 = torch.randn(4, 17, 3, generator=torch.Generator().manual_seed(0))
    found = ddim(lambda xs, s: x0, GaussianSchedule(20), steps, (4, 17, 3), torch.Generator().manual_seed(1), eta)
    torch.testing.assert_close(found, x0, atol=1e-5, rtol=0)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_the_best_predictor_of_a_normal_gives_back_the_normal(eta):
    """x_0 ~ N(m, v): E[x_0 | x_s] is known, and draws must have that mean and variance."""
    schedule, mean, variance = GaussianSchedule(100), 0.7, 0.25

    def expected(xs, s):
        signal, noise = schedule.levels(s, xs)
        return mean + signal * variance / (signal**2 * variance + noise**2) * (xs - signal * mean)

    x = ddim(expected, schedule, 100, (20_000, 1), torch.Generator().manual_seed(0), eta)
    assert float(x.mean()) == pytest.approx(mean, abs=0.03)
    assert float(x.var()) == pytest.approx(variance, abs=0.03)


def test_predicted_noise_says_the_same_as_predicted_data():
    schedule, x0 = GaussianSchedule(50), torch.randn(3, 17, 3)
    s, eps = torch.tensor([1, 20, 45]), torch.randn(3, 17, 3)
    xs = schedule.noised(x0, s, eps)
    torch.testing.assert_close(x0_of(eps, xs, s, schedule, "eps"), x0, atol=1e-4, rtol=0)
    assert x0_of(x0, xs, s, schedule, "x0") is x0


def test_the_hypotheses_of_a_record_mirror_each_other_and_do_not_depend_on_the_batch():
    one, other = normal((2, 4), hypothesis_generators(0, ["a"], 2), mirrors=True)
    torch.testing.assert_close(one, -other, atol=1e-3, rtol=0)
    pair = normal((4, 4), hypothesis_generators(0, ["b", "a"], 2), mirrors=True)
    assert torch.equal(pair[2], one)
    assert float(normal((100_000,), torch.Generator().manual_seed(0)).std()) == pytest.approx(1, abs=0.01)
