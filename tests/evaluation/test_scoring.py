"""Errors, groups of joints, energy score, coverage and states: closed forms and plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.calibrate import NOMINAL, coverage
from di2pose.evaluation.protocol import PROTOCOLS
from di2pose.evaluation.scoring import (
    Scorer,
    ball_level,
    calibrated_hits,
    confusion,
    energy_score,
    hypothesis_levels,
    joint_groups,
    true_states,
)
from di2pose.occlusion.patches import Rectangle
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import COCO_17, H36M_17, LIMB_12, LSP_14, SMPL_24, convert

WRIST = LIMB_12.index("left_wrist")
NATIVE_14 = [3, 2, 1, 4, 5, 6, 16, 15, 14, 11, 12, 13, 8, 10]  # native H36M order -> LSP 14


def scored(protocol, samples, poses, prediction=H36M_17, hypotheses=1):
    scorer = Scorer(PROTOCOLS[protocol], H36M_17, prediction)
    target, mask = (torch.stack(parts) for parts in zip(*map(scorer.truth, samples), strict=True))
    found = scorer.score(scorer.aligned(poses)[:, :hypotheses], target, mask)
    return {key: joints.nanmean(-1) for key, joints in found.items() if key[1] != "hypotheses"}


@pytest.fixture
def case(make_samples):
    samples = make_samples(6)
    truth = np.stack([s.joints_mm for s in samples])
    noise = np.random.default_rng(1).normal(0, 60, (6, 4, 17, 3))
    return samples, torch.from_numpy(truth).double(), truth[:, None] + noise


@pytest.mark.parametrize(
    ("protocol", "metric", "error"),
    [
        ("h36m-p1", "mpjpe", lambda pose, truth: mpjpe(pose, truth, root=0)),
        ("h36m-p2", "pa_mpjpe", pa_mpjpe),
        (
            "limb-12",
            "mpjpe",
            lambda pose, truth: mpjpe(*(p[:, list(H36M_17.indices(*LIMB_12))] for p in (pose, truth)), root=(0, 3)),
        ),
        ("3dpw-14", "mpjpe", lambda pose, truth: mpjpe((pose - pose[:, :1])[:, NATIVE_14], truth[:, NATIVE_14])),
    ],
)
def test_a_protocol_is_a_metric_of_its_joints_at_its_root(case, protocol, metric, error):
    samples, truth, poses = case
    expected = error(torch.from_numpy(poses[:, 0]), truth)
    assert torch.allclose(scored(protocol, samples, poses)[1, "single", metric], expected, rtol=0, atol=1e-9)


def test_predictions_without_a_pelvis_stand_at_their_own_origin(case):
    samples, _, poses = case
    poses = poses - poses[:, :, :1]
    lsp, _ = convert(poses, H36M_17, LSP_14)
    same, other = scored("3dpw-14", samples, poses), scored("3dpw-14", samples, lsp, LSP_14)
    assert torch.allclose(other[1, "single", "mpjpe"], same[1, "single", "mpjpe"], rtol=0, atol=1e-9)


def test_several_hypotheses_give_the_mean_and_oracles(case):
    samples, truth, poses = case
    values = scored("h36m-p1", samples, poses, hypotheses=4)
    moved = torch.from_numpy(poses - poses[:, :, :1])
    each = torch.stack([mpjpe(moved[:, h], truth) for h in range(4)])
    joints = torch.linalg.vector_norm(moved - truth[:, None], dim=-1)
    expected = {"p-agg": mpjpe(moved.mean(1), truth), "sample": each.mean(0)}
    expected |= {"p-best": each.amin(0), "j-best": joints.amin(1).mean(-1)}
    assert set(values) == {(4, name, "mpjpe") for name in expected}
    assert all(torch.allclose(values[4, name, "mpjpe"], error) for name, error in expected.items())
    few, many = (scored("limb-12", samples, some, hypotheses=2) for some in (poses[:, :2], poses))
    assert all(torch.equal(few[key], many[key]) for key in few)  # the first ones


def test_joints_that_are_not_annotated_do_not_count(make_samples, case):
    _, truth, poses = case
    valid = ~np.isin(np.arange(17), (3, 16))
    expected = mpjpe(torch.from_numpy(poses[:, 0]), truth, torch.from_numpy(valid).expand(6, 17), root=0)
    found = scored("h36m-p1", make_samples(6, valid=valid), poses)[1, "single", "mpjpe"]
    assert torch.allclose(found, expected, rtol=0, atol=1e-9)
    (sample,) = make_samples(1, valid=np.arange(17) != 1)
    with pytest.raises(InputError, match="not its root"):
        Scorer(PROTOCOLS["limb-12"], H36M_17, H36M_17).truth(sample)


def test_a_skeleton_without_the_protocols_joints_is_refused_with_the_name_of_another_protocol():
    with pytest.raises(
        InputError, match=r"3dpw-14 needs head_top, which the dataset \(smpl_24\) lacks.*3dpw-14-smpl14"
    ):
        Scorer(PROTOCOLS["3dpw-14"], SMPL_24, H36M_17)
    with pytest.raises(InputError, match=r"the prediction \(coco_17\) lacks.*limb-12"):
        Scorer(PROTOCOLS["h36m-p1"], H36M_17, COCO_17)
    assert Scorer(PROTOCOLS["3dpw-14-smpl14"], SMPL_24, H36M_17)


def test_j_agg_takes_the_hypothesis_that_projects_nearest(make_samples):
    (sample,) = make_samples(1)
    wrong, far = (sample.joints_mm + np.where(np.arange(17)[:, None] == joint, 300, 0) for joint in (13, 3))
    scorer = Scorer(PROTOCOLS["h36m-p1"], H36M_17, H36M_17)
    truth, mask = scorer.truth(sample)
    poses = scorer.aligned(np.stack([wrong, far])[None].astype(float))
    values = scorer.score(poses, truth[None], mask[None], sample)
    assert values[2, "j-agg", "mpjpe"].mean() < 0.2 * values[2, "p-agg", "mpjpe"].mean()


def test_mpi_inf_3dhp_counts_joints_nearer_than_150_mm(make_samples):
    (sample,) = make_samples(1)
    pose = sample.joints_mm.astype(float)
    pose[H36M_17.indices("left_wrist", "right_wrist"), 0] += [149, 151]
    values = scored("mpi-inf-3dhp", [sample], pose[None, None])
    # 14 joints are below 30 of the 31 thresholds, one below the last (150) alone, one below none.
    expected = {"pck": 100 * 15 / 16, "auc": 100 * (14 * 30 + 1) / 31 / 16, "mpjpe": 300 / 16}
    assert {metric: float(value) for (_, _, metric), value in values.items()} == pytest.approx(expected)


def test_a_joint_under_the_patch_or_built_of_a_hidden_one_is_hidden(make_samples):
    (sample,) = make_samples(1)
    x, y = sample.joints_2d[H36M_17.index("left_wrist")].tolist()
    patch = Rectangle(x - 1, y - 1, x + 1, y + 1)
    state = Scorer(PROTOCOLS["limb-12"], H36M_17, H36M_17).visibility(sample, patch)
    assert state.tolist() == [OCCLUDED if j == WRIST else UNKNOWN for j in range(12)]
    hidden_hip = np.zeros(17, np.int8)
    hidden_hip[H36M_17.index("left_hip")] = OUT_OF_FRAME
    state = Scorer(PROTOCOLS["3dpw-14"], H36M_17, H36M_17).visibility(replace(sample, visibility=hidden_hip))
    assert state.tolist() == [OCCLUDED if name == "left_hip" else SEEN for name in LSP_14.joints]


def test_groups_by_visibility():
    groups = joint_groups(np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]]))
    assert {name: int(mask.sum()) for name, mask in groups.items()} == {"seen": 1, "hidden": 3}
    groups = joint_groups(np.array([UNKNOWN, OCCLUDED, UNKNOWN]), rest_seen=True)
    assert groups["seen"].tolist() == [True, False, True]
    assert joint_groups(np.full((1, 3), UNKNOWN)) == {}


def test_states_and_their_confusion():
    true = true_states(np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]]))
    assert true.tolist() == [["visible", "occluded", "occluded", "out_of_frame", ""]]
    table = confusion(true, np.array([["visible", "visible", "occluded", "out_of_frame", "visible"]]))
    assert table["counts"] == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert (table["accuracy"], table["balanced_accuracy"]) == (0.75, pytest.approx((1 + 0.5 + 1) / 3))
    with pytest.raises(InputError, match="whose state is known"):
        confusion(np.array([[""]]), np.array([["visible"]]))


def drawn(spread, records=400, hypotheses=8, joints=5, seed=0):
    """Truths that vary by 50 mm along each axis round 0, and hypotheses that vary by `spread` about the same place."""
    rng = np.random.default_rng(seed)
    truth = torch.from_numpy(rng.normal(0, 50, (records, joints, 3)))
    poses = torch.from_numpy(rng.normal(0, 1, (records, hypotheses, joints, 3)) * spread)
    return poses, truth, torch.ones(records, joints, dtype=torch.bool)


def test_energy_of_two_hypotheses_by_hand_and_of_one_pose_repeated():
    """30 and 50 mm off on opposite sides: mean error 40, apart 80, so 40 - 80 / 2 = 0; on the same side 40 - 10."""
    truth, mask = torch.zeros(1, 2, 3, dtype=torch.double), torch.tensor([[True, True]])
    poses = torch.tensor([[[[30.0, 0, 0], [0, 30.0, 0]], [[-50.0, 0, 0], [0, 50.0, 0]]]], dtype=torch.double)
    assert energy_score(poses, truth, mask)[0].tolist() == pytest.approx([0, 30])
    assert energy_score(poses, truth, torch.tensor([[False, True]]))[0].isnan().tolist() == [True, False]
    poses, truth, mask = drawn(20, records=3)
    same = poses[:, :1].expand(-1, 6, -1, -1)
    assert torch.allclose(energy_score(same, truth, mask), (same[:, 0] - truth).norm(dim=-1))


def test_energy_is_least_for_the_true_spread_whatever_the_number_of_hypotheses():
    energies = {spread: float(energy_score(*drawn(spread)).mean()) for spread in (25, 50, 100)}
    assert min(energies, key=energies.get) == 50
    few, many = (float(energy_score(*drawn(50, 1000, count)).mean()) for count in (2, 16))
    assert few == pytest.approx(many, rel=0.03)


@pytest.mark.parametrize("hypotheses", [2, 8])
def test_balls_of_few_hypotheses_hold_what_they_say(hypotheses):
    level = hypothesis_levels(*drawn(50, 2000, hypotheses)).numpy()
    assert (level <= 0.9).mean() == pytest.approx(0.9, abs=0.015)
    assert (level <= 0.5).mean() == pytest.approx(0.5, abs=0.02)
    assert (hypothesis_levels(*drawn(10, 200, hypotheses)).numpy() <= 0.9).mean() < 0.7  # too narrow a spread


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_stated_spread_covers_what_the_chi_squared_distribution_says(factor):
    """Of truths drawn with `factor` times the spread that is stated; a share of 0.5 has a standard error of 0.0025."""
    rng = np.random.default_rng(0)
    sigma = rng.uniform(5, 80, 40_000)
    error = np.linalg.norm(factor * sigma[:, None] * rng.normal(size=(40_000, 3)), axis=-1)
    expected = chi2.cdf(chi2.ppf(NOMINAL, 3) / factor**2, 3)
    np.testing.assert_allclose(coverage(ball_level(error, np.square(sigma))), expected, atol=0.01)
    many = ball_level(error, np.square(sigma), 100_000)
    np.testing.assert_allclose(many, ball_level(error, np.square(sigma)), atol=1e-4)  # the limit of F


def test_the_root_does_not_count_and_agreed_errors_are_not_covered():
    truth, mask = torch.zeros(1, 2, 3, dtype=torch.double), torch.ones(1, 2, dtype=torch.bool)
    poses = torch.tensor([0.0, 40.0], dtype=torch.double)[None, None, :, None].expand(1, 4, 2, 3).clone()
    assert hypothesis_levels(poses, truth, mask)[0].isnan().all()  # one pose, repeated, has no spread
    poses[0, 0, 1] += 1e-6
    assert hypothesis_levels(poses, truth, mask)[0].tolist() == pytest.approx([np.nan, 1], nan_ok=True)
    assert ball_level(np.array([1.0, 50.0]), np.zeros(2)) == pytest.approx([1, 1])
    truth, mask = torch.zeros(1, 3, 3, dtype=torch.double), torch.ones(1, 3, dtype=torch.bool)
    pose = torch.tensor([[[0.0, 0, 0], [30, 0, 0], [0, 30, 0]]], dtype=torch.double)
    hits = calibrated_hits(pose, np.array([[0.0, 29.0, 31.0]]), truth, mask)[0]
    assert hits.tolist() == pytest.approx([np.nan, 0, 1], nan_ok=True)
