"""Poses fitted to 2D joints with their bones kept, and roots placed by 2D joints and a box."""

import numpy as np
import pytest
from output.people import pose

from di2pose.errors import InputError
from di2pose.pose.bones import impossible
from di2pose.pose.camera import Camera, fit_root
from di2pose.pose.fit import LEAST_DEPTH_MM, Evidence, fit_poses, place, place_by_box, shrunken_precision
from di2pose.pose.skeleton import H36M_17, bone_lengths

ROOT = np.array([200.0, -100.0, 3500.0])
ONE_ARM_OUT = {
    "pelvis": (0, 0, 0), "right_hip": (-110, 0, 0), "right_knee": (-120, 430, 20), "right_ankle": (-120, 850, 60),
    "left_hip": (110, 0, 0), "left_knee": (130, 430, -20), "left_ankle": (130, 850, 40),
    "spine": (0, -230, 10), "thorax": (0, -470, 0), "nose": (0, -590, -30), "head": (0, -700, 0),
    "left_shoulder": (150, -450, 0), "left_elbow": (400, -430, -60), "left_wrist": (630, -420, -120),
    "right_shoulder": (-150, -450, 0), "right_elbow": (-200, -180, 30), "right_wrist": (-190, 60, -60),
}  # fmt: skip
TRUE_MM = np.array([ONE_ARM_OUT[name] for name in H36M_17.joints], dtype=np.float64)
LENGTHS = bone_lengths(TRUE_MM, H36M_17)
WRIST, ELBOW, LEFT, RIGHT = H36M_17.indices("left_wrist", "left_elbow", "left_shoulder", "right_shoulder")


def drawn(true_mm, spread, count=8, seed=0):
    noise = np.random.default_rng(seed).normal(scale=spread, size=(count, 17, 3))
    noise[:, 0] = 0
    return true_mm + noise


def evidence(true_mm=TRUE_MM, noise=0.002, seen=range(17)):
    at = true_mm + ROOT
    rays = np.full((17, 2), np.nan)
    rays[list(seen)] = (at[:, :2] / at[:, 2:])[list(seen)]
    return Evidence(rays, np.full(17, noise), ROOT[2] * 1.1, 0.25)


def fitted(samples, observed, **more):
    precision = shrunken_precision(samples, np.full(17, 1e4))
    return fit_poses(samples.mean(0)[None], precision, LENGTHS, observed, ROOT * 1.1, **more)[0]


def off_mm(joints_mm):
    return np.linalg.norm(joints_mm - TRUE_MM, axis=-1)


def test_2d_joints_bring_pose_and_root_nearer_to_the_truth_and_bones_keep_their_lengths():
    samples = drawn(TRUE_MM, 80)
    found = fitted(samples, evidence())
    np.testing.assert_allclose(bone_lengths(found.joints_mm, H36M_17), LENGTHS, atol=1e-6)
    assert off_mm(found.joints_mm).mean() < 0.7 * off_mm(samples.mean(0)).mean()
    assert np.abs(found.root_mm - ROOT).max() < 100
    at = found.joints_mm + found.root_mm
    assert np.abs(at[:, :2] / at[:, 2:] - evidence().rays).max() < 0.004
    assert np.nanmax(found.miss) < 2


def test_a_wrong_2d_joint_does_not_tear_the_body():
    observed = evidence()
    observed.rays[WRIST] += 0.4  # 1.4 m off
    found = fitted(drawn(TRUE_MM, 40), observed)
    others = [j for j in range(17) if not H36M_17.joints[j].startswith("left_")]
    assert off_mm(found.joints_mm)[others].mean() < 40
    assert found.miss[WRIST] > 50


def test_without_2d_joints_the_root_stays_and_its_deviation_says_so():
    found = fitted(drawn(TRUE_MM, 40), evidence(seen=()))
    assert np.abs(found.root_mm / (ROOT * 1.1) - 1).max() < 0.02
    assert np.sqrt(found.root_covariance_mm2[2, 2]) == pytest.approx(0.25 * found.root_mm[2], rel=0.05)
    assert off_mm(found.joints_mm).mean() < 60


@pytest.mark.parametrize("seen", [(), range(17)])
def test_pinned_joints_are_at_their_pins_and_their_neighbours_follow(seen):
    samples, which = drawn(TRUE_MM, 40), np.arange(17) == WRIST
    pins = np.where(which[:, None], TRUE_MM + np.array([0, -250, -100]), 0.0)
    observed = evidence(seen=[j for j in seen if j not in (WRIST, ELBOW)])
    found = fitted(samples, observed, pins=(pins, which))
    np.testing.assert_allclose(found.joints_mm[WRIST], pins[WRIST])
    length = np.linalg.norm(found.joints_mm[WRIST] - found.joints_mm[ELBOW])
    assert length == pytest.approx(np.linalg.norm(TRUE_MM[WRIST] - TRUE_MM[ELBOW]), rel=0.03)
    assert found.joints_mm[ELBOW][1] < samples.mean(0)[ELBOW][1]


@pytest.mark.parametrize("pinned", [False, True])
def test_collapsed_shoulders_are_opened_along_the_view(pinned):
    """Seen from the side with both shoulders in nearly one place, as hypotheses of a half hidden person may have it."""
    side = TRUE_MM[:, [2, 1, 0]] * (1, 1, -1)
    collapsed = side.copy()
    for joint in (LEFT, RIGHT):
        collapsed[joint] += 0.93 * (side[H36M_17.index("thorax")] + (0, 25, 0) - side[joint])
    samples = drawn(collapsed, 8)
    which = np.arange(17) == H36M_17.index("right_ankle")
    pins = (np.where(which[:, None], side, 0.0), which) if pinned else None
    precision = shrunken_precision(samples, np.full(17, 1e4))
    found = fit_poses(samples, precision, LENGTHS, evidence(side), ROOT * 1.1, pins)
    apart = np.linalg.norm(found.joints_mm[:, LEFT] - found.joints_mm[:, RIGHT], axis=-1)
    assert (apart > 0.84 * np.linalg.norm(TRUE_MM[LEFT] - TRUE_MM[RIGHT])).all()
    assert not impossible(found.joints_mm, LENGTHS).any()
    np.testing.assert_allclose(bone_lengths(found.joints_mm, H36M_17), LENGTHS[None].repeat(8, 0), atol=0.1)
    assert np.nanmedian(found.miss) < 2


def test_one_hypothesis_has_the_given_variance():
    precision = shrunken_precision(TRUE_MM[None], np.full(17, 900.0))
    np.testing.assert_allclose(np.linalg.inv(precision), np.eye(48) * (900 + 20**2))


@pytest.mark.parametrize("pins", [None, (TRUE_MM, np.arange(17) == 13)])
def test_several_means_are_fitted_as_each_alone(pins):
    samples = drawn(TRUE_MM, 60)
    prior = shrunken_precision(samples, np.full(17, 1e4)), LENGTHS, evidence(seen=range(3, 15)), ROOT * 1.1
    every = fit_poses(samples[:3], *prior, pins)
    for row, mean in enumerate(samples[:3]):
        alone = fit_poses(mean[None], *prior, pins)[0]
        np.testing.assert_allclose(every[row].joints_mm, alone.joints_mm, atol=1e-6)
        np.testing.assert_allclose(every[row].root_mm, alone.root_mm, atol=1e-6)


CAMERA = Camera((900.0, 900.0), (640.0, 360.0), (1280, 720))
LENS = Camera((520.0, 540.0), (300.0, 260.0), (640, 480), distortion=(-0.2, 0.05, 0.001, -0.001))


def box_round(points, margin=0.08):
    low, high = points.min(0), points.max(0)
    pad = margin * (high - low).max()
    return (*(low - pad).tolist(), *(high + pad).tolist())


def somebody(seed, root=(200.0, 0.0, 3500.0)):
    """A pose, its root, pixels and box."""
    joints, root = pose(np.random.default_rng(seed)), np.array(root)
    points = CAMERA.project(joints + root)
    return joints, root, points, box_round(points)


@pytest.mark.parametrize("camera", [CAMERA, LENS])
@pytest.mark.parametrize("root", [(0.0, 0.0, 3000.0), (-900.0, 300.0, 4200.0), (500.0, -200.0, 12_000.0)])
def test_exact_2d_joints_give_the_root_back_from_a_wrong_box(camera, root):
    rng = np.random.default_rng(1)
    for _ in range(5):
        joints = pose(rng)
        points = camera.project(joints + root)
        x0, y0, x1, y1 = box_round(points)
        wrong = (x0 - 0.4 * (x1 - x0), y0, x1, y1 + 0.3 * (y1 - y0))
        np.testing.assert_allclose(place(joints, points, np.ones(17), wrong, camera), root, atol=0.05)


def test_unknown_2d_joints_are_left_out_and_without_any_the_box_decides():
    joints, root, points, box = somebody(2)
    points[[0, 7, 8, 9, 10]] = np.nan
    np.testing.assert_allclose(place(joints, points, np.ones(17), box, CAMERA), root, atol=0.05)
    joints, root, points, box = somebody(6, (300.0, 100.0, 5000.0))
    found = place(joints, np.full((17, 2), np.nan), np.zeros(17), box, CAMERA)
    assert np.array_equal(found, place_by_box(joints, box, CAMERA))
    np.testing.assert_allclose(found, root, atol=0.12 * 5000)


def test_an_outlier_moves_the_root_little_and_one_of_weight_0_not_at_all():
    joints, root, points, box = somebody(3)
    noisy = points + np.random.default_rng(4).normal(0, 2, points.shape)
    clean, weights = place(joints, noisy, np.ones(17), box, CAMERA), np.ones(17)
    noisy[16] += 300
    assert np.linalg.norm(place(joints, noisy, weights, box, CAMERA) - clean) < 0.03 * root[2]
    weights[16] = 0
    before = place(joints, noisy, weights, box, CAMERA)
    noisy[16] += 1000
    assert np.array_equal(place(joints, noisy, weights, box, CAMERA), before)


def test_where_2d_joints_contradict_the_pose_the_box_holds_the_depth():
    """Shuffled landmarks: alone they give a depth that is wildly off, with the box they do not."""
    rng, alone, held = np.random.default_rng(5), [], []
    for _ in range(10):
        joints = pose(rng)
        points = CAMERA.project(joints + np.array([0.0, 0.0, 3000.0]))
        shuffled, box = points[rng.permutation(17)], box_round(points)
        alone.append(fit_root(joints, shuffled, CAMERA)[2])
        held.append(place(joints, shuffled, np.ones(17), box, CAMERA)[2])
    assert np.abs(np.array(alone) / 3000 - 1).max() > 0.9
    assert np.abs(np.array(held) / 3000 - 1).max() < 0.5


def test_everything_stays_in_front_of_the_camera():
    """A person twenty times as large as the picture, and mirrored 2D joints, which ask for z < 0."""
    for seed in range(10):
        joints, _, points, _ = somebody(seed, (0.0, 0.0, 2000.0))
        points = 2 * np.array(CAMERA.centre) - points
        for box in ((-12_000.0, -12_000.0, 13_000.0, 13_000.0), box_round(points)):
            root = place(joints, points, np.ones(17), box, CAMERA)
            assert (joints[:, 2] + root[2]).min() >= LEAST_DEPTH_MM - 1e-9
            assert np.isfinite(CAMERA.project(joints + root)).all()


def test_a_box_that_the_lens_cannot_reach_is_refused():
    fold = Camera((500.0, 500.0), (320.0, 240.0), (640, 480), distortion=(-0.4, 0.0, 0.0, 0.0))
    with pytest.raises(InputError, match="cannot reach the box"):
        place_by_box(pose(np.random.default_rng(0)), (-5000.0, 0.0, 5000.0, 400.0), fold)
