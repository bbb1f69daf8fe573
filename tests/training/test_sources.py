"""Training records: poses and cached features, shares of them, features that a second observer adds."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from stick_figures import stick_figures, write_set
from training.conftest import WIDTH, Crops, write_cache

from di2pose import recipes
from di2pose.checkpoint import read_part
from di2pose.cli import main
from di2pose.config import DenoiserConfig, to_json
from di2pose.data.feature_cache import FeatureCache, write_features
from di2pose.data.sample import Dataset, Sample
from di2pose.diffusion.adapter import Adapter
from di2pose.errors import InputError
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import generator_of
from di2pose.pose.skeleton import H36M_17, H36M_21
from di2pose.training.sources import feature_sources, fullest, open_caches, pose_sources, read_poses
from di2pose.training.stages import load_adapter, load_denoiser
from di2pose.training.state import check_identity

MORE = FeatureLayout((*Crops.layout.blocks, TokenBlock("movenet", 17, 2, WIDTH)))


class Observed(Crops):
    """The same figures, seen by a second observer, too."""

    name = "none+movenet"
    layout = MORE

    def cache_parts(self, crops):
        seen = self.joints_mm[crops[:, 0, 0, 0]] / 1000
        return super().cache_parts(crops) | {"movenet": seen[..., :2].astype(np.float32)}


def test_poses_come_from_datasets_caches_and_rendered_people(poses, features, figures, tmp_path):
    samples = [Sample(f"people_{i}", pose, split="train") for i, pose in enumerate(figures[:5])]
    write_set(tmp_path, samples, "people", settings={"split": "train", "seed": 0})
    opened = Dataset(poses), FeatureCache(features), Dataset(tmp_path)
    for folder, count in zip(opened, (60, 60, 5), strict=True):
        joints, _, splits, ids = read_poses(folder)
        assert np.array_equal(joints, figures[:count])
        assert len(splits) == len(set(ids)) == count
    train, held_out = pose_sources([poses, tmp_path, features])
    assert (len(train), len(held_out)) == (45 + 5 + 45, 15 + 15)
    for make, folders, message in (
        (pose_sources, [tmp_path], "none is held out"),
        (pose_sources, [], "--data needs one folder or more"),
        (open_caches, [], "--features needs one folder or more"),
        (pose_sources, [tmp_path / "nowhere"], r"holds no dataset.json"),
    ):
        with pytest.raises(InputError, match=message):
            make(folders)


def test_crops_of_several_caches_come_in_the_order_asked_for(features, figures):
    train, held_out = feature_sources(open_caches([features, features]))
    assert (len(train), len(held_out)) == (90, 30)
    rows = np.array([50, 3, 80, 4])
    batch = train.batch(rows)
    wanted = figures[[i for i in range(60) if i % 4] * 2][rows]
    assert np.array_equal(batch["joints_mm"].numpy(), wanted)
    assert batch["features"].shape == (4, 17, 6)
    np.testing.assert_allclose(batch["features"][..., :3].numpy(), wanted / 1000, atol=1e-3)
    again = feature_sources(train.caches)[1]
    assert train.fingerprint != held_out.fingerprint == again.fingerprint


def test_a_smaller_share_is_part_of_a_larger_one_and_the_same_for_tokenizers_and_denoisers(features):
    whole, held_out = feature_sources(open_caches([features]))
    shares = {share: feature_sources(open_caches([features]), share) for share in (0.05, 0.1, 0.5, 1.0)}
    crops = {share: {tuple(place) for place in train.places.tolist()} for share, (train, _) in shares.items()}
    assert [len(found) for found in crops.values()] == [2, 4, 22, 45]  # of 45
    assert crops[0.05] < crops[0.1] < crops[0.5] < crops[1.0]
    assert shares[1.0][0].fingerprint == whole.fingerprint != shares[0.5][0].fingerprint
    for share, (train, other) in shares.items():
        poses, others = pose_sources([features], share)
        assert torch.equal(poses.records["joints_mm"], train.joints_mm)
        assert torch.equal(others.records["joints_mm"], other.joints_mm)
        assert other.fingerprint == held_out.fingerprint
    some = shares[0.5][0]
    np.testing.assert_allclose(some.batch(np.arange(22))["features"][..., :3], some.joints_mm / 1000, atol=1e-3)
    for bad in (0.0, 1.5):
        with pytest.raises(InputError, match="--share must lie above 0"):
            feature_sources(open_caches([features]), bad)


def test_caches_with_and_without_the_second_observer_are_learned_from_together(features, figures, tmp_path):
    observed = write_cache(Observed(figures), tmp_path / "observed")
    for folders in ([features, observed], [observed, features]):
        train, held_out = feature_sources(open_caches(folders))
        assert train.layout == held_out.layout == MORE
        assert fullest(train.caches).header["encoder"] == "none+movenet"
        batch = train.batch(np.arange(len(train)))
        missing = batch["features"][:, 17:, WIDTH:].isnan().all(-1).all(-1)
        assert missing.sum() == len(train) // 2
        assert batch["features"][:, :17].isfinite().all()
        there, wanted = batch["features"][~missing][:, 17:, WIDTH:], batch["joints_mm"][~missing][..., :2] / 1000
        torch.testing.assert_close(there, wanted, atol=1e-3, rtol=0)

    class Other(Crops):
        layout = FeatureLayout((TokenBlock("tokens", 17, WIDTH, 0), TokenBlock("more", 17, WIDTH, 0)))

        def cache_parts(self, crops):
            parts = super().cache_parts(crops)
            return parts | {"more": parts["tokens"]}

    with pytest.raises(InputError, match="differ in kind"):
        feature_sources(open_caches([features, write_cache(Other(figures), tmp_path / "other")]))


def test_data_on_another_skeleton_is_converted_to_the_models_by_name(features, tmp_path):
    """With feet: a model of the 17 learns from it; a model with feet refuses data without them."""
    joints = stick_figures(8, generator_of(0, "feet"), H36M_21).numpy()

    class Feet(Crops):
        def crop(self, i):
            pixels, labels, text = super().crop(i)
            return pixels, labels | {"visibility": np.arange(21, dtype=np.int8) % 4}, text

        def cache_parts(self, crops):
            return {"tokens": np.zeros((len(crops), 17, WIDTH), np.float16)}

    write_features(Feet(joints), Feet(joints), tmp_path / "cache", {"skeleton": "h36m_21"})
    folder = write_set(tmp_path / "set", (Sample(f"f{i}", pose) for i, pose in enumerate(joints)), skeleton=H36M_21)
    for target in (H36M_17, H36M_21):
        batch = feature_sources(open_caches([tmp_path / "cache"]), 1.0, target)[0].batch(np.arange(6))
        wanted = joints[[1, 2, 3, 5, 6, 7], : target.count]
        assert np.array_equal(batch["joints_mm"], wanted)
        assert batch["visibility"][0].tolist() == [joint % 4 for joint in range(target.count)]
        assert np.array_equal(read_poses(Dataset(folder), target)[0], joints[:, : target.count])
    with pytest.raises(InputError, match="has the joints of h36m_17: h36m_21 needs left_heel, left_toe, right_heel"):
        feature_sources(open_caches([features]), 1.0, H36M_21)

    words = ("--features", str(tmp_path / "cache"), "--iterations", "1", "--batch", "4", "--threads", "1")
    for kind in ("regression", "gaussian"):
        assert main(["train", "model", kind, *words, "--set", "skeleton=h36m_21", "--out", str(tmp_path / kind)]) == 0
        assert load_model(tmp_path / kind).skeleton == H36M_21
    tiny = ("--recipe", "tiny", *words[2:])
    data = ("--data", str(tmp_path / "cache"), "--set", "tokenizer.skeleton=h36m_21")
    assert main(["train", "tokenizer", *data, *tiny, "--out", str(tmp_path / "t")]) == 0
    coder = ("--tokenizer", str(tmp_path / "t"))
    assert main(["train", "denoiser", *coder, *words[:2], *tiny, "--out", str(tmp_path / "d")]) == 0
    assert main(["train", "model", "pct", *coder, *words, "--out", str(tmp_path / "pct")]) == 0
    for run in ("d", "pct"):
        assert load_model(tmp_path / run).skeleton == H36M_21


def test_a_run_from_before_a_field_existed_goes_on(tmp_path):
    config = to_json(recipes.tiny())
    before = json.loads(json.dumps(config))
    del before["tokenizer"]["skeleton"], before["denoiser"]["joints"], before["denoiser"]["architecture"]
    check_identity(tmp_path, {"config": before}, {"config": config})
    with pytest.raises(InputError, match=r"config.tokenizer.skeleton was None, is h36m_21"):
        check_identity(tmp_path, {"config": before}, {"config": {**config, "tokenizer": {
            **config["tokenizer"], "skeleton": "h36m_21"}}})  # fmt: skip


def sizes(tokens, width):
    return DenoiserConfig(
        tokens=16, codes=125, steps=20, feature_width=width, width=64, layers=2, heads=4, adapter_layers=1,
        adapter_width=32, adapter_channels=4, adapter_tokens=3, feature_tokens=tokens,
    )  # fmt: skip


def network(tokens, width):
    torch.manual_seed(0)
    return Di2PoseNetwork(replace(recipes.tiny(), denoiser=sizes(tokens, width)))


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
    large = save_model(new, tmp_path / "large")
    with pytest.raises(InputError, match=r"mean has shape \(34, 8\), expected \(17, 6\)"):  # fewer are refused
        load_adapter(Adapter(sizes(17, WIDTH)), large)
