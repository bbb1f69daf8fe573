from dataclasses import replace

import pytest
import torch

from di2pose import recipes
from di2pose.config import DenoiserConfig
from di2pose.diffusion.adapter import Adapter, aligned_error, drop
from di2pose.errors import InputError
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import training_generators
from di2pose.pose.metrics import mpjpe, pa_mpjpe

CONFIG = DenoiserConfig(
    tokens=6, codes=11, steps=8, feature_width=20, width=32, layers=1, heads=4,
    adapter_layers=2, adapter_width=24, adapter_channels=3, adapter_tokens=5, adapter_dropout=0.3, feature_tokens=7,
)  # fmt: skip


@pytest.fixture
def adapter():
    torch.manual_seed(0)
    return Adapter(CONFIG)


def test_a_whole_sequence_becomes_a_summary_a_pose_and_visibilities(adapter):
    y = torch.randn(3, 7, 20)
    output = adapter(y)
    assert (output.summary - adapter(y.flip(1)).summary).abs().max() > 1e-3  # places tell tokens apart
    assert output.summary.shape == (3, 24)
    assert output.joints_mm.shape == (3, 17, 3)
    assert (output.joints_mm[:, 0] == 0).all()
    assert output.visibility_logits.shape == (3, 17, 4)


def test_standardising_undoes_any_scale_and_offset_of_a_channel(adapter):
    y = torch.randn(200, 7, 20)
    factor, offset = torch.rand(7, 20) * 30 + 0.1, torch.randn(7, 20) * 9
    y[:, 2, 3] = 5.0  # a constant channel is not scaled
    factor[2, 3] = 1.0
    adapter.standardise(y)
    assert (adapter.scale[2, 3], adapter.mean[2, 3]) == (1, 5)
    plain = adapter(y[:4])
    adapter.standardise(y * factor + offset)
    for found, wanted in zip(adapter(y[:4] * factor + offset), plain, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-2, rtol=1e-3)


def test_what_is_dropped_is_drawn_per_row_and_only_where_noise_is_given(adapter):
    y = torch.randn(4, 7, 20)
    whole = adapter(y, training_generators(0, 1, 0, 4)).joints_mm
    halves = [adapter(y[i : i + 2], training_generators(0, 1, i, 2)).joints_mm for i in (0, 2)]
    torch.testing.assert_close(whole, torch.cat(halves), atol=0.01, rtol=1e-4)  # two ranks drop what one process drops
    assert (whole - adapter(y).joints_mm).abs().max() > 1
    assert torch.equal(adapter(y).joints_mm, adapter(y).joints_mm)
    ones = drop(torch.ones(50, 400), 0.25, training_generators(0, 1, 0, 50))
    assert set(ones.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}
    assert float(ones.mean()) == pytest.approx(1, abs=0.02)


def test_the_model_drops_in_training_only():
    torch.manual_seed(0)
    config = with_adapter()
    model = Di2PoseNetwork(replace(config, denoiser=replace(config.denoiser, adapter_dropout=0.5)))
    batch = {"features": torch.randn(4, 17, 32), "joints_mm": torch.randn(4, 17, 3) * 200}
    noise = [training_generators(0, i, 0, 4) for i in (0, 1)]
    first, second = (model.loss(batch, each)["regression"] for each in noise)
    assert first != second
    plain = mpjpe(model.point_estimates(batch["features"])["regression"], batch["joints_mm"], root=0).mean() / 1000
    torch.testing.assert_close(model.eval().loss(batch, noise[0])["regression"], plain)


def with_adapter(**diffusion):
    config = recipes.tiny()
    adapter = {"adapter_layers": 1, "adapter_width": 48, "adapter_channels": 4, "adapter_tokens": 6}
    denoiser = replace(config.denoiser, feature_tokens=17, **adapter)
    return replace(config, denoiser=denoiser, diffusion=replace(config.diffusion, **diffusion))


@pytest.mark.parametrize("aligned", [0.0, 3.0])
def test_the_regression_joins_the_loss_and_is_saved_with_the_model(aligned, tmp_path):
    torch.manual_seed(0)
    model = Di2PoseNetwork(with_adapter(regression_weight=2.0, aligned_weight=aligned))
    batch = {"features": torch.randn(4, 17, 32), "joints_mm": torch.randn(4, 17, 3) * 200}
    losses = model.loss(batch, torch.Generator().manual_seed(0))
    assert ("aligned" in losses) == bool(aligned)
    own = 2 * losses["regression"] + aligned * losses.get("aligned", 0)
    torch.testing.assert_close(losses["loss"], losses["vlb"] + 0.1 * losses["aux"] + own)
    assert losses.get("aligned", 0) < losses["regression"]
    direct = model.point_estimates(batch["features"])["regression"]
    torch.testing.assert_close(losses["regression"] * 1000, mpjpe(direct, batch["joints_mm"], root=0).mean())
    again = load_model(save_model(model, tmp_path / "model"))
    torch.testing.assert_close(again.point_estimates(batch["features"])["regression"], direct)


def with_self_condition():
    config = with_adapter()
    return replace(config, denoiser=replace(config.denoiser, hint_channels=3))


def test_wrong_features_and_sizes_are_named(adapter, as_user):
    with pytest.raises(InputError, match=r"\(B, 7, 20\), got \(3, 8, 20\)"):
        adapter(torch.randn(3, 8, 20))
    config = with_self_condition()
    for base, changes, words in (
        (CONFIG, {"adapter_tokens": 0}, "adapter_tokens must be above 0"),
        (CONFIG, {"adapter_dropout": 1.0}, r"adapter_dropout must lie in \[0, 1\)"),
        (CONFIG, {"observer_tokens": 7}, "observer_tokens"),
        (config.denoiser, {"adapter_layers": 0}, "needs adapter_layers"),
        (config, {"denoiser": replace(config.denoiser, hint_channels=4)}, "hint_channels must be 0 or 3"),
    ):
        with pytest.raises(InputError, match=words):
            replace(base, **changes)


def test_the_self_condition_is_of_the_adapters_own_pose_and_of_every_hypothesis():
    torch.manual_seed(0)
    model = Di2PoseNetwork(with_self_condition()).eval()
    features = torch.randn(2, 17, 32)
    condition = model.condition(features)
    codes = model.tokenizer.latents(model.point_estimates(features)["regression"])
    assert torch.equal(condition.self_condition, model.denoiser.hint_embed(codes))
    assert condition.self_condition.shape == (2, 16, 64)
    ks, s = torch.full((6, 16), 125), torch.full((6,), 20)
    told = model.denoiser(ks, s, condition)
    other = model.denoiser(ks, s, condition._replace(self_condition=condition.self_condition.flip(0)))
    assert torch.equal(told[0], told[2])
    assert (told - other).abs().amax((1, 2)).min() > 1e-4
    config = model.config
    model = Di2PoseNetwork(replace(config, denoiser=replace(config.denoiser, hint_dropout=0.5)))
    features = torch.randn(40, 17, 32)
    gone = (model.condition(features, training_generators(0, 0, 0, 40)).self_condition == 0).all(-1).all(-1)
    assert 10 < gone.sum() < 30  # in training only
    assert not (model.condition(features).self_condition == 0).all(-1).any()


def test_what_was_not_observed_counts_as_the_mean(adapter):
    features = torch.randn(50, 7, 20) * 3 + 1
    missing = features.clone()
    missing[:30, 5:] = torch.nan
    adapter.standardise(missing)
    torch.testing.assert_close(adapter.mean[5:], features[30:, 5:].mean(0))
    torch.testing.assert_close(adapter.scale[:5], 1 / features[:, :5].std(0))
    torch.testing.assert_close(adapter.scale[5:], 1 / features[30:, 5:].std(0))
    filled = torch.where(missing.isnan(), adapter.mean, missing)
    torch.testing.assert_close(adapter(missing).joints_mm, adapter(filled).joints_mm)


def test_the_second_observer_is_withheld_from_some_crops_in_training_only():
    torch.manual_seed(0)
    adapter = Adapter(replace(CONFIG, adapter_dropout=0.0, observer_tokens=2, observer_dropout=0.5))
    features = torch.randn(40, 7, 20)
    withheld = features.clone()
    withheld[:, 5:] = torch.nan
    plain, without = adapter(features).joints_mm, adapter(withheld).joints_mm
    found = adapter(features, training_generators(0, 0, 0, 40)).joints_mm
    is_plain, is_without = ((found - each).abs().amax((1, 2)) < 1e-3 for each in (plain, without))
    assert (is_plain ^ is_without).all()
    assert 10 < is_without.sum() < 30


def test_the_error_after_alignment_is_pa_mpjpe_and_leads_to_the_aligned_pose():
    torch.manual_seed(0)
    truth = torch.randn(5, 17, 3, dtype=torch.float64) * 200
    pose = (truth + torch.randn_like(truth) * 60).requires_grad_()
    errors = aligned_error(pose, truth)
    torch.testing.assert_close(errors, pa_mpjpe(pose.detach(), truth))
    turn = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(aligned_error(2 * pose.detach() @ turn, truth), errors.detach())
    errors.sum().backward()
    assert (aligned_error((pose - 20 * pose.grad).detach(), truth) < errors.detach()).all()
