from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.protocol import PROTOCOLS
from di2pose.evaluation.scoring import Scorer, confusion, joint_groups, spread_figures, true_states
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import LIMB_12
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import COCO_17, H36M_17, LSP_14, SMPL_24, convert


def scored(protocol, samples, poses, truth=H36M_17, prediction=H36M_17, hypotheses=1):
    scorer = Scorer(PROTOCOLS[protocol], truth, prediction)
    target, mask = (torch.stack(parts) for parts in zip(*map(scorer.truth, samples), strict=True))
    return scorer.score(scorer.prediction(poses), target, mask, hypotheses)


@pytest.fixture
def case(make_samples):
    samples = make_samples(6)
    truth = np.stack([s.joints_mm for s in samples])
    noise = np.random.default_rng(1).normal(0, 60, (6, 4, 17, 3))
    return samples, torch.from_numpy(truth).double(), truth[:, None] + noise


def test_human36m_numbers_are_the_metrics_of_17_joints_at_the_pelvis(case):
    samples, truth, poses = case
    first = torch.from_numpy(poses[:, 0])
    p1, p2 = (
        scored(name, samples, poses)[f"1/single/{m}"] for name, m in (("h36m-p1", "mpjpe"), ("h36m-p2", "pa_mpjpe"))
    )
    assert torch.allclose(p1, mpjpe(first, truth, root=0), rtol=0, atol=1e-9)
    assert torch.allclose(p2, pa_mpjpe(first, truth), rtol=0, atol=1e-9)


def test_limb_12_counts_the_limbs_at_the_middle_of_the_hips(case):
    samples, truth, poses = case
    columns = list(H36M_17.indices(*LIMB_12))
    first = torch.from_numpy(poses[:, 0])
    expected = mpjpe(first[:, columns], truth[:, columns], root=(0, 3))
    assert LIMB_12[0] == "right_hip"
    assert LIMB_12[3] == "left_hip"
    assert torch.allclose(scored("limb-12", samples, poses)["1/single/mpjpe"], expected, rtol=0, atol=1e-9)


def test_the_14_joints_are_those_of_the_native_human36m_order_at_the_pelvis(case):
    samples, truth, poses = case
    native = [3, 2, 1, 4, 5, 6, 16, 15, 14, 11, 12, 13, 8, 10]  # native H36M order -> LSP 14
    first = torch.from_numpy(poses[:, 0] - poses[:, 0, :1])
    expected = mpjpe(first[:, native], truth[:, native])
    assert torch.allclose(scored("3dpw-14", samples, poses)["1/single/mpjpe"], expected, rtol=0, atol=1e-9)


def test_predictions_without_a_pelvis_stand_at_their_own_origin(case):
    samples, _, poses = case
    poses = poses - poses[:, :, :1]
    lsp, _ = convert(poses, H36M_17, LSP_14)
    same = scored("3dpw-14", samples, poses)["1/single/mpjpe"]
    assert torch.allclose(scored("3dpw-14", samples, lsp, prediction=LSP_14)["1/single/mpjpe"], same, rtol=0, atol=1e-9)


def test_several_hypotheses_give_the_mean_and_labelled_oracles(case):
    samples, truth, poses = case
    values = scored("h36m-p1", samples, poses, hypotheses=4)
    moved = torch.from_numpy(poses - poses[:, :, :1])
    each = torch.stack([mpjpe(moved[:, h], truth) for h in range(4)])
    joints = torch.linalg.vector_norm(moved - truth[:, None], dim=-1)
    assert set(values) == {f"4/{name}/mpjpe" for name in ("p-agg", "sample", "p-best", "j-best")}
    assert torch.allclose(values["4/sample/mpjpe"], each.mean(0))
    assert torch.allclose(values["4/p-agg/mpjpe"], mpjpe(moved.mean(1), truth))
    assert torch.allclose(values["4/p-best/mpjpe"], each.amin(0))
    assert torch.allclose(values["4/j-best/mpjpe"], joints.amin(1).mean(-1))


def test_fewer_hypotheses_are_the_first_ones(case):
    samples, _, poses = case
    few, many = scored("limb-12", samples, poses[:, :2], hypotheses=2), scored("limb-12", samples, poses, hypotheses=2)
    assert all(torch.equal(few[key], many[key]) for key in few)


def test_joints_that_are_not_annotated_do_not_count(make_samples, case):
    _, truth, poses = case
    valid = np.ones(17, bool)
    valid[[3, 16]] = False
    partly = make_samples(6, valid=valid)
    first = torch.from_numpy(poses[:, 0])
    expected = mpjpe(first, truth, torch.from_numpy(valid).expand(6, 17), root=0)
    assert torch.allclose(scored("h36m-p1", partly, poses)["1/single/mpjpe"], expected, rtol=0, atol=1e-9)


def test_a_record_whose_root_is_not_annotated_is_refused(make_samples):
    valid = np.ones(17, bool)
    valid[1] = False
    (sample,) = make_samples(1, valid=valid)
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
    wrong = sample.joints_mm + np.where(np.arange(17)[:, None] == 13, 300, 0)
    far = sample.joints_mm + np.where(np.arange(17)[:, None] == 3, 300, 0)
    scorer = Scorer(PROTOCOLS["h36m-p1"], H36M_17, H36M_17)
    truth, mask = scorer.truth(sample)
    poses = scorer.prediction(np.stack([wrong, far])[None].astype(float))
    values = scorer.score(poses, truth[None], mask[None], 2, sample=sample)
    mean = scorer.score(poses, truth[None], mask[None], 2)["2/p-agg/mpjpe"]
    assert values["2/j-agg/mpjpe"] < 0.2 * float(mean)


WRIST = LIMB_12.index("left_wrist")


def test_a_displaced_wrist_is_the_only_error_and_a_shift_is_none(make_samples):
    (sample,) = make_samples(1)
    poses = sample.joints_mm[None, None] + np.float32([40, -30, 20])
    poses[0, 0, H36M_17.index("left_wrist"), 0] += 120
    scorer = Scorer(PROTOCOLS["limb-12"], H36M_17, H36M_17)
    truth, mask = scorer.truth(sample)
    only = {"wrist": np.arange(12) == WRIST, "rest": np.arange(12) != WRIST}
    values = scorer.score(scorer.prediction(poses), truth[None], mask[None], 1, only)
    assert float(values["1/single/mpjpe"]) == pytest.approx(10, rel=1e-4)
    assert float(values["1/single/mpjpe_wrist"]) == pytest.approx(120, rel=1e-4)
    assert float(values["1/single/mpjpe_rest"]) == pytest.approx(0, abs=1e-3)


def test_groups_share_the_alignment_of_all_joints_and_the_hypothesis_that_is_best_for_all(case):
    samples, _, poses = case
    half = np.arange(17) < 8
    groups = {"lower": half, "upper": ~half}
    scorer = Scorer(PROTOCOLS["all-17"], H36M_17, H36M_17)
    target, mask = (torch.stack(parts) for parts in zip(*map(scorer.truth, samples), strict=True))
    values = scorer.score(scorer.prediction(poses), target, mask, 4, groups)
    for estimate in ("p-agg", "sample", "p-best", "j-best"):
        for metric in ("mpjpe", "pa_mpjpe"):
            lower, upper = (values[f"4/{estimate}/{metric}_{name}"] for name in groups)
            assert torch.allclose((8 * lower + 9 * upper) / 17, values[f"4/{estimate}/{metric}"])


def test_one_sample_the_mean_and_the_best_of_opposite_errors(make_samples):
    samples = make_samples(4)
    poses = np.stack([s.joints_mm for s in samples]).astype(float)[:, None].repeat(3, axis=1)
    poses[:, :, H36M_17.index("left_wrist"), 2] += [60, -90, 30]
    values = scored("limb-12", samples, poses, hypotheses=3)
    for estimate, expected in (("sample", 60.0), ("p-agg", 0.0), ("p-best", 30.0), ("j-best", 30.0)):
        np.testing.assert_allclose(values[f"3/{estimate}/mpjpe"], expected / 12, atol=1e-6)


def test_mpi_inf_3dhp_counts_joints_nearer_than_150_mm(make_samples):
    (sample,) = make_samples(1)
    pose = sample.joints_mm.astype(float)
    pose[H36M_17.indices("left_wrist", "right_wrist"), 0] += [149, 151]
    values = scored("mpi-inf-3dhp", [sample], pose[None, None])
    assert float(values["1/single/pck"]) == pytest.approx(100 * 15 / 16)
    # 14 joints are below 30 of the 31 thresholds, one below the last (150) alone, one below none.
    assert float(values["1/single/auc"]) == pytest.approx(100 * (14 * 30 + 1) / 31 / 16)
    assert float(values["1/single/mpjpe"]) == pytest.approx(300 / 16)


def test_a_joint_under_the_patch_or_built_of_a_hidden_one_is_hidden(make_samples):
    (sample,) = make_samples(1)
    x, y = sample.joints_2d[H36M_17.index("left_wrist")].tolist()
    patch = Rectangle(x - 1, y - 1, x + 1, y + 1)
    state = Scorer(PROTOCOLS["limb-12"], H36M_17, H36M_17).visibility(sample, patch)
    assert state.tolist() == [OCCLUDED if j == WRIST else UNKNOWN for j in range(12)]
    hidden_hip = np.zeros(17, np.int8)
    hidden_hip[H36M_17.index("left_hip")] = OUT_OF_FRAME
    state = Scorer(PROTOCOLS["3dpw-14"], H36M_17, H36M_17).visibility(replace(sample, visibility=hidden_hip))
    assert dict(zip(LSP_14.joints, state.tolist(), strict=True)) == {
        name: OCCLUDED if name == "left_hip" else SEEN for name in LSP_14.joints
    }


def test_groups_by_visibility():
    groups = joint_groups(np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]]))
    assert {name: int(mask.sum()) for name, mask in groups.items()} == {
        "seen": 1, "hidden": 3, "self_occluded": 1, "occluded": 1, "out_of_frame": 1,
    }  # fmt: skip


def test_footage_that_labels_only_the_patch_counts_the_rest_as_seen_and_none_without_a_patch():
    groups = joint_groups(np.array([[UNKNOWN, OCCLUDED, UNKNOWN]]), rest_seen=True)
    assert groups["seen"].tolist() == [[True, False, True]]
    assert joint_groups(np.full((1, 3), UNKNOWN)) == {}


def ranked(a, b):
    a, b = (np.array([x], dtype=float) for x in (a, b))
    return spread_figures(a, b, {"all": np.ones(a.shape, bool)})["all"]["rank_correlation"]


def test_rank_correlation_of_small_lists():
    assert ranked([1, 2, 3, 4, 5], [1, 8, 27, 64, 125]) == pytest.approx(1)
    assert ranked([1, 2, 3, 4, 5], [-1, -2, -3, -4, -5]) == pytest.approx(-1)
    # Differences of rank 1, 1, 0, 1, 1: 1 - 6 * 4 / (5 * 24).
    assert ranked([1, 2, 3, 4, 5], [20, 10, 30, 50, 40]) == pytest.approx(0.8)
    # Equal values share their rank: 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert ranked([1, 7, 7, 9], [0, 1, 2, 3]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert ranked([1, 1, 1, 1], [0, 1, 2, 3]) is None


def test_spread_ratio_against_error_ratio():
    seen = np.array([[True, True, False, False]])
    spread, error = np.array([[10.0, 20.0, 30.0, 60.0]]), np.array([[20.0, 40.0, 120.0, 60.0]])
    found = spread_figures(spread, error, {"seen": seen, "hidden": ~seen, "alone": np.array([[True] + [False] * 3])})
    assert set(found) == {"seen", "hidden", "hidden_over_seen"}  # one joint has no correlation
    assert found["hidden"] == {"joints": 2, "spread_mm": 45, "error_mm": 90, "rank_correlation": pytest.approx(-1)}
    assert found["hidden_over_seen"] == {"spread": 3.0, "error": 3.0, "spread_over_error": 1.0}
    assert set(spread_figures(spread, error, {"seen": seen})) == {"seen"}


def test_states_and_their_confusion():
    true = true_states(np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]]))
    assert true.tolist() == [["seen", "occluded", "occluded", "out_of_frame", ""]]
    head = confusion(true, np.array([["seen", "seen", "occluded", "out_of_frame", "seen"]]))
    assert head.counts == ((1, 0, 0), (1, 1, 0), (0, 0, 1))
    assert head.accuracy == 0.75
    assert head.balanced_accuracy == pytest.approx((1 + 0.5 + 1) / 3)
    with pytest.raises(InputError, match="a known one"):
        confusion(np.array([[""]]), np.array([["seen"]]))
