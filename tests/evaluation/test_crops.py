"""`evaluate crops`: each statistic on small numbers, and the command on a tiny model with a small cache."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation import crop_errors
from di2pose.evaluation.crop_errors import ALL, LIMBS, joint_groups, sample_errors, summarise
from di2pose.evaluation.crops import evaluate_crops
from di2pose.evaluation.estimates import Truth, load_model, plain_rows, read_truth
from di2pose.evaluation.spread import ratio_gap, spearman, spread_figures
from di2pose.evaluation.visibility import confusion, true_states
from di2pose.image.blazepose import PEER_JOINTS, Block, Layout
from di2pose.occlusion.protocols import LIMB_12
from di2pose.pipeline import Di2Pose
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, mirror
from di2pose.randomness import generator_of, hypothesis_generators
from di2pose.recipes import tiny
from di2pose.training.demo import stick_figures
from di2pose.training.feature_cache import BothWays, FeatureCache, write_features

WRIST = H36M_17.index("left_wrist")
POSES = 24


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def truth_of(joints_mm, visibility=None):
    seen = torch.zeros(joints_mm.shape[:2], dtype=torch.int64) if visibility is None else visibility
    return Truth(joints_mm, seen, None)


def figures(count=POSES):
    return stick_figures(count, generator_of(0, "crops"))


# Errors


def test_the_limbs_are_the_peers_joints_in_the_same_order():
    assert PEER_JOINTS == LIMB_12
    assert LIMBS.joints == H36M_17.indices(*PEER_JOINTS)


def test_a_displaced_wrist_is_the_only_error_and_a_shift_is_none():
    truth = truth_of(figures(3))
    poses = truth.joints_mm + torch.tensor([40.0, -30.0, 20.0])
    poses[:, WRIST, 0] += 120
    errors = LIMBS.errors(poses[:, LIMBS.joints], truth)["mpjpe"]
    expected = np.zeros((3, 12))
    expected[:, LIMBS.joints.index(WRIST)] = 120
    np.testing.assert_allclose(errors, expected, atol=1e-2)


def test_a_turned_and_scaled_pose_has_no_pa_error_but_an_error():
    truth = truth_of(figures(2))
    turned = 1.3 * truth.joints_mm @ torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    errors = ALL.errors(turned, truth)
    assert errors["pa_mpjpe"].max() < 0.1
    assert errors["mpjpe"].mean() > 100


def test_a_joint_that_is_not_annotated_has_no_error_and_moves_no_alignment():
    joints = figures(2)
    poses = joints + torch.randn(joints.shape, generator=generator_of(1)) * 30
    spine = H36M_17.index("spine")
    joints[:, spine] = torch.nan
    errors = ALL.errors(poses, truth_of(joints))
    rest = [j for j in range(17) if j != spine]
    assert np.isnan(errors["pa_mpjpe"][:, spine]).all()
    expected = pa_mpjpe(poses[:, rest], joints[:, rest]).numpy()
    np.testing.assert_allclose(errors["pa_mpjpe"][:, rest].mean(1), expected, rtol=1e-4)


def test_one_sample_the_mean_and_the_best_of_opposite_errors():
    truth = truth_of(figures(4))
    samples = truth.joints_mm[:, None].repeat(1, 3, 1, 1)
    samples[:, 0, WRIST, 2] += 60
    samples[:, 1, WRIST, 2] -= 90
    samples[:, 2, WRIST, 2] += 30
    found = sample_errors(LIMBS, truth, samples)
    place = LIMBS.joints.index(WRIST)
    for name, expected in ((crop_errors.SINGLE, 60.0), (crop_errors.MEAN, 0.0), (crop_errors.BEST, 30.0)):
        np.testing.assert_allclose(found[name]["mpjpe"][:, place], expected, atol=0.01)
        np.testing.assert_allclose(np.delete(found[name]["mpjpe"], place, 1), 0, atol=0.01)


def test_groups_by_visibility():
    states = np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN, SEEN]])
    known = np.array([[True, True, True, True, True, False]])
    groups = joint_groups(states, known)
    assert {name: int(mask.sum()) for name, mask in groups.items()} == {
        "all": 5, "seen": 1, "hidden": 3, "self_occluded": 1, "occluded": 1, "out_of_frame": 1,
    }  # fmt: skip


def test_footage_that_labels_only_the_patch_counts_the_rest_as_seen_and_none_without_a_patch():
    patched = np.array([[UNKNOWN, OCCLUDED, UNKNOWN]])
    groups = joint_groups(patched, np.ones((1, 3), bool))
    assert groups["seen"].tolist() == [[True, False, True]]
    assert set(joint_groups(np.full((1, 3), UNKNOWN), np.ones((1, 3), bool))) == {"all"}


def test_means_are_over_joints_ratios_to_the_peer_and_deviation_over_seeds():
    def errors(value):
        return {metric: np.array([[value, value], [value, 4 * value]]) for metric in ("mpjpe", "pa_mpjpe")}

    groups = {"all": np.ones((2, 2), bool), "hidden": np.array([[False, True], [False, True]])}
    found = summarise({"peer": [errors(10.0)], "mean of samples": [errors(4.0), errors(6.0)]}, groups)
    mean = found["mean of samples"]["hidden"]["pa_mpjpe"]
    assert (mean.mm, mean.ratio, mean.joints) == (12.5, 0.5, 2)
    assert mean.deviation_mm == pytest.approx(5 / 2**0.5)
    assert found["peer"]["all"]["mpjpe"].mm == pytest.approx(17.5)
    assert found["peer"]["all"]["mpjpe"].deviation_mm is None


# Spread and states


def test_rank_correlation_of_small_lists():
    rising = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert spearman(rising, rising**3) == pytest.approx(1)
    assert spearman(rising, -rising) == pytest.approx(-1)
    # Differences of rank 1, 1, 0, 1, 1: 1 - 6 * 4 / (5 * 24).
    assert spearman(rising, np.array([20.0, 10.0, 30.0, 50.0, 40.0])) == pytest.approx(0.8)


def test_equal_values_share_their_mean_rank():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert spearman(np.array([1.0, 7.0, 7.0, 9.0]), np.arange(4.0)) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    with pytest.raises(InputError, match="2 or more"):
        spearman(np.ones(1), np.ones(1))


def test_spread_ratio_against_error_ratio():
    seen = np.array([[True, True, False, False]])
    spread, error = np.array([[10.0, 20.0, 30.0, 60.0]]), np.array([[20.0, 40.0, 120.0, 60.0]])
    found = spread_figures(spread, error, {"seen": seen, "hidden": ~seen})
    hidden = found["hidden"]
    assert (hidden.joints, hidden.spread_mm, hidden.error_mm) == (2, 45, 90)
    assert hidden.rank_correlation == pytest.approx(-1)
    assert ratio_gap(found) == {"spread": 3.0, "error": 3.0, "spread_over_error": 1.0}
    assert ratio_gap({"seen": found["seen"]}) == {}


def test_states_and_their_confusion():
    visibility = np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]])
    true = true_states(visibility)
    assert true.tolist() == [["seen", "occluded", "occluded", "out_of_frame", ""]]
    head = confusion(true, np.array([["seen", "seen", "occluded", "out_of_frame", "seen"]]))
    assert head.counts == ((1, 0, 0), (1, 1, 0), (0, 0, 1))
    assert head.accuracy == 0.75
    assert head.balanced_accuracy == pytest.approx((1 + 0.5 + 1) / 3)


# The command


class Crops:
    """A source and an encoder in one: the picture of figure i holds i on its left side, its features are the figure's
    joints; in the mirror i is on the right, and the joints are mirrored."""

    EDGE = 200

    def __init__(self, joints_mm):
        self.joints_mm = joints_mm
        self.visibility = np.random.default_rng(0).integers(0, 4, joints_mm.shape[:2]).astype(np.int8)

    def __len__(self):
        return len(self.joints_mm)

    def crop(self, i):
        text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence")} | {"split": "test"}
        labels = {"joints_mm": self.joints_mm[i], "visibility": self.visibility[i]}
        labels |= {"occlusion": np.array(i % 3, np.int8), "truncated": np.array(i % 2, np.int8)}
        labels |= {"pose_class": np.array(i % 2, np.int8)}
        return np.tile(np.array([[i], [self.EDGE]], np.uint8), (2, 1, 3)), labels, text

    def encode_batch(self, crops):
        left, right = crops[:, 0, 0, 0], crops[:, 0, 1, 0]
        swapped = mirror(self.joints_mm[np.minimum(right, len(self) - 1)], H36M_17)
        joints = np.where((left == self.EDGE)[:, None, None], swapped, self.joints_mm[np.minimum(left, len(self) - 1)])
        world = np.zeros((len(joints), BLAZEPOSE_33.count, 3), np.float32)
        world[:, BLAZEPOSE_33.indices(*PEER_JOINTS)] = 1.1 * joints[:, H36M_17.indices(*PEER_JOINTS)]
        return {"tokens": np.concatenate([joints, joints**2], -1).astype(np.float32) / 1000, "world_mm": world}


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder, crops = tmp_path_factory.mktemp("features") / "crops", Crops(figures().numpy())
    about = {"skeleton": "h36m_17", "occlusion": "occ-80", "people": {"pose_class": ["upright", "seated", "flying"]}}
    write_features(crops, crops, folder, Layout((Block("tokens", 17, 6, 0),)), about, rows=16)
    return folder


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory):
    folder, crops = tmp_path_factory.mktemp("features") / "both", Crops(figures().numpy())
    write_features(crops, BothWays(crops), folder, Layout((Block("tokens", 17, 6, 0),)), {"skeleton": "h36m_17"})
    return folder


def model_config():
    config = tiny(6)
    adapter = {"adapter_layers": 1, "adapter_width": 32, "adapter_channels": 4, "adapter_tokens": 5}
    return replace(config, denoiser=replace(config.denoiser, feature_tokens=17, **adapter))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run")
    Di2Pose(model_config()).save(folder / "model")
    return folder


def test_the_command_measures_every_estimate(run, features, tmp_path, capsys):
    out = tmp_path / "figures.json"
    evaluate_crops(str(run), features, hypotheses=3, steps=(2, 20), seeds=(0, 5), limit=20, out=out)
    text, report = capsys.readouterr().out, json.loads(out.read_text())
    for words in ("20 crops", "protocol occ-80", "mean of 3", "best of 3 (oracle)", "(peer)", "| 2 |", "rank corr"):
        assert words in text
    assert report["steps"] == 20  # the model's own

    model, cache = load_model(str(run)), FeatureCache(features)
    rows = np.arange(20)
    truth, y = read_truth(cache, rows), cache.features(rows)
    limbs = report[LIMBS.title]
    hips = H36M_17.indices("left_hip", "right_hip")
    at_hips = truth.joints_mm - truth.joints_mm[:, hips].mean(1, keepdim=True)
    expected = 0.1 * at_hips[:, LIMBS.joints].norm(dim=-1).mean()
    assert limbs["peer"]["all"]["mpjpe"]["mm"] == pytest.approx(float(expected), rel=1e-4)
    assert limbs["peer"]["all"]["pa_mpjpe"]["mm"] < 0.1
    regression = mpjpe(model.regress_joints(y), truth.joints_mm).mean()
    assert report[ALL.title]["regression"]["all"]["mpjpe"]["mm"] == pytest.approx(float(regression), rel=1e-4)
    found = report["error_against_steps"]["2"]["mean of samples"]["all"]["mpjpe"]
    limb_errors = []
    for seed in (0, 5):
        samples = model.predict_joints(y, 3, 2, hypothesis_generators(seed, [f"id{i}" for i in rows], 3)).mean(1)
        limb_errors.append(float(LIMBS.errors(samples[:, LIMBS.joints], truth)["mpjpe"].mean()))
    assert found["mm"] == pytest.approx(np.mean(limb_errors), rel=1e-4)
    assert found["ratio"] == pytest.approx(found["mm"] / limbs["peer"]["all"]["mpjpe"]["mm"])
    assert limbs["best of samples"]["oracle"] is True
    assert np.array(report["visibility"]["counts"]).sum() == 20 * 17
    by_pose = report["error_by_pose"]["regression"]
    assert "upright" in by_pose
    assert "flying" not in by_pose
    seated = LIMBS.errors(model.regress_joints(y)[1::2, LIMBS.joints], read_truth(cache, rows[1::2]))["mpjpe"]
    assert by_pose["seated"]["mpjpe"]["mm"] == pytest.approx(float(seated.mean()), rel=1e-4)
    assert "| seated | 10 |" in text


def test_the_same_command_gives_the_same_figures_and_other_seeds_others(run, features, tmp_path):
    for name, seeds in (("a", (0,)), ("b", (0,)), ("c", (1,))):
        evaluate_crops(str(run), features, hypotheses=2, steps=(1,), seeds=seeds, limit=5, out=tmp_path / name)
    a, b, c = (json.loads((tmp_path / name).read_text())[LIMBS.title] for name in "abc")
    assert a == b
    assert a["mean of samples"] != c["mean of samples"]
    assert a["soft decode"] == c["soft decode"]


def test_with_the_mirror_images_estimates_are_of_both_ways(run, both_ways, tmp_path, capsys):
    out = tmp_path / "both.json"
    evaluate_crops(str(run), both_ways, hypotheses=4, steps=(2,), seeds=(0,), limit=6, out=out)
    report, cache, rows = json.loads(out.read_text()), FeatureCache(both_ways), np.arange(6)
    assert "6 crops and their mirror images" in capsys.readouterr().out
    truth, model = read_truth(cache, rows), load_model(str(run))
    torch.testing.assert_close(truth.peer_both_mm, truth.peer_mm)  # this peer is not led astray by mirrors
    assert "peer, both ways" in report[LIMBS.title]
    y, there = cache.features(rows), cache.features(rows, mirrored=True)
    assert (y - there).abs().max() > 0.01
    regression = (model.regress_joints(y) + mirror(model.regress_joints(there), H36M_17)) / 2
    found = report[ALL.title]["regression"]["all"]["mpjpe"]["mm"]
    assert found == pytest.approx(float(mpjpe(regression, truth.joints_mm).mean()), rel=1e-4)
    noise = hypothesis_generators(0, [f"id{i}" for i in rows], 4)
    first = model.predict_joints(y, 2, 2, [noise[4 * i + h] for i in rows for h in (0, 1)])
    noise = hypothesis_generators(0, [f"id{i}" for i in rows], 4)
    second = model.predict_joints(there, 2, 2, [noise[4 * i + h] for i in rows for h in (2, 3)])
    mean = torch.cat([first, mirror(second, H36M_17)], 1).mean(1)
    found = report[ALL.title]["mean of samples"]["all"]["mpjpe"]["mm"]
    assert found == pytest.approx(float(mpjpe(mean, truth.joints_mm).mean()), rel=1e-4)


def test_plain_crops_have_nothing_before_them_and_nothing_outside(run, features, tmp_path):
    assert plain_rows(FeatureCache(features))[:4].tolist() == [0, 6, 12, 18]
    out = tmp_path / "plain.json"
    evaluate_crops(str(run), features, hypotheses=2, steps=(1,), seeds=(0,), limit=3, plain=True, out=out)
    report, cache = json.loads(out.read_text()), FeatureCache(features)
    assert (report["crops"], report["plain"]) == (3, True)
    rows = np.array([0, 6, 12])
    regression = mpjpe(load_model(str(run)).regress_joints(cache.features(rows)), read_truth(cache, rows).joints_mm)
    assert report[ALL.title]["regression"]["all"]["mpjpe"]["mm"] == pytest.approx(float(regression.mean()), rel=1e-4)


def test_bad_counts_are_named(run, features):
    with pytest.raises(InputError, match="2 hypotheses or more"):
        evaluate_crops(str(run), features, hypotheses=1)
