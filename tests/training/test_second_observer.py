"""Features of a second observer: some caches lack them, and models that did not know them learn on with them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from training.conftest import WIDTH, Crops, write_cache

from di2pose import recipes
from di2pose.checkpoint import read_part
from di2pose.config import DenoiserConfig
from di2pose.diffusion.adapter import Adapter
from di2pose.errors import InputError
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.training.sources import feature_sources
from di2pose.training.stages import load_adapter, load_denoiser

MORE = FeatureLayout((*Crops.layout.blocks, TokenBlock("movenet", 17, 2, WIDTH)))


class Observed(Crops):
    """The same figures, seen by a second observer, too."""

    name = "none+movenet"
    layout = MORE

    def cache_parts(self, crops):
        seen = self.joints_mm[crops[:, 0, 0, 0]] / 1000
        return super().cache_parts(crops) | {"movenet": seen[..., :2].astype(np.float32)}


@pytest.fixture(scope="module")
def observed(figures, tmp_path_factory):
    return write_cache(Observed(figures), tmp_path_factory.mktemp("observed") / "cache")


def sizes(tokens, width):
    return DenoiserConfig(
        tokens=16, codes=125, steps=20, feature_width=width, width=64, layers=2, heads=4, adapter_layers=1,
        adapter_width=32, adapter_channels=4, adapter_tokens=3, feature_tokens=tokens,
    )  # fmt: skip


def network(tokens, width):
    torch.manual_seed(0)
    return Di2PoseNetwork(replace(recipes.tiny(), denoiser=sizes(tokens, width)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_caches_with_and_without_the_second_observer_are_learned_from_together(features, observed, order):
    folders = [(features, observed)[k] for k in order]
    train, held_out = feature_sources(folders)
    assert train.layout == held_out.layout == MORE
    assert train.encoder == "none+movenet"
    batch = train.batch(np.arange(len(train)))
    missing = batch["features"][:, 17:, WIDTH:].isnan().all(-1).all(-1)
    assert missing.sum() == len(train) // 2
    assert batch["features"][:, :17].isfinite().all()
    there = batch["features"][~missing]
    torch.testing.assert_close(there[:, 17:, WIDTH:], batch["joints_mm"][~missing][..., :2] / 1000, atol=1e-3, rtol=0)


def test_other_features_are_still_refused(features, figures, tmp_path):
    class Other(Crops):
        layout = FeatureLayout((TokenBlock("tokens", 17, WIDTH, 0), TokenBlock("more", 17, WIDTH, 0)))

        def cache_parts(self, crops):
            parts = super().cache_parts(crops)
            return parts | {"more": parts["tokens"]}

    with pytest.raises(InputError, match="differ in kind"):
        feature_sources([features, write_cache(Other(figures), tmp_path / "other")])


def test_a_model_learns_on_with_more_observers_from_where_it_was(tmp_path):
    old = network(17, WIDTH).eval()
    old.denoiser.adapter.standardise(torch.randn(30, 17, WIDTH))
    folder = save_model(old, tmp_path / "old")
    y = torch.randn(5, 34, 8)
    y[:, :17, WIDTH:], y[:, 17:, :WIDTH] = 0, 0
    before = load_model(folder).denoiser.adapter(y[:, :17, :WIDTH])
    adapter = Adapter(sizes(34, 8))
    adapter.standardise(y)
    load_adapter(adapter, folder)
    after = adapter(y)
    torch.testing.assert_close(after.joints_mm, before.joints_mm, atol=1e-2, rtol=1e-4)
    after.joints_mm.square().sum().backward()
    assert adapter.join.weight.grad.unflatten(1, (34, -1))[:, 17:].abs().sum() > 0  # what is new can be learned
    new = network(34, 8)
    load_denoiser(new.denoiser, folder)
    assert torch.equal(new.denoiser.to_logits.weight, read_part(folder, "denoiser")["to_logits.weight"])


def test_fewer_image_tokens_than_before_are_refused(tmp_path):
    folder = save_model(network(34, 8), tmp_path / "large")
    with pytest.raises(InputError, match=r"mean has shape \(34, 8\), expected \(17, 6\)"):
        load_adapter(Adapter(sizes(17, WIDTH)), folder)
