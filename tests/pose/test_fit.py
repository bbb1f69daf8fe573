"""A pose out of hypotheses: bones kept, fitted to what was seen, pins held."""

import numpy as np
import pytest

from di2pose.pose.fit import Evidence, fit_pose, fit_poses, shrunken_precision
from di2pose.pose.joint_pairs import impossible
from di2pose.pose.skeleton import H36M_17, bone_lengths

ROOT = np.array([200.0, -100.0, 3500.0])


@pytest.fixture
def true_mm():
    """Somebody standing, one arm out."""
    pose = np.zeros((17, 3))
    places = {
        "right_hip": (-110, 0, 0), "right_knee": (-120, 430, 20), "right_ankle": (-120, 850, 60),
        "left_hip": (110, 0, 0), "left_knee": (130, 430, -20), "left_ankle": (130, 850, 40),
        "spine": (0, -230, 10), "thorax": (0, -470, 0), "nose": (0, -590, -30), "head": (0, -700, 0),
        "left_shoulder": (150, -450, 0), "left_elbow": (400, -430, -60), "left_wrist": (630, -420, -120),
        "right_shoulder": (-150, -450, 0), "right_elbow": (-200, -180, 30), "right_wrist": (-190, 60, -60),
    }  # fmt: skip
    for name, place in places.items():
        pose[H36M_17.index(name)] = place
    return pose


def drawn(true_mm, spread, count=8, seed=0):
    noise = np.random.default_rng(seed).normal(scale=spread, size=(count, 17, 3))
    noise[:, 0] = 0
    return true_mm + noise


def evidence(true_mm, noise=0.002, seen=range(17)):
    at = true_mm + ROOT
    rays = np.full((17, 2), np.nan)
    rays[list(seen)] = (at[:, :2] / at[:, 2:])[list(seen)]
    return Evidence(rays, np.full(17, noise), ROOT[2] * 1.1, 0.25)


def fitted(samples, true_mm, told, **more):
    mean = samples.mean(0)
    precision = shrunken_precision(samples, np.full(17, 1e4))
    return fit_pose(mean, precision, bone_lengths(true_mm, H36M_17), told, ROOT * 1.1, **more)


def test_bones_have_their_lengths(true_mm):
    found = fitted(drawn(true_mm, 80), true_mm, evidence(true_mm))
    np.testing.assert_allclose(bone_lengths(found.joints_mm, H36M_17), bone_lengths(true_mm, H36M_17), atol=1e-6)


def test_what_was_seen_brings_the_pose_and_the_root_nearer_to_the_truth(true_mm):
    samples = drawn(true_mm, 80)
    found = fitted(samples, true_mm, evidence(true_mm))
    before = np.linalg.norm(samples.mean(0) - true_mm, axis=-1).mean()
    assert np.linalg.norm(found.joints_mm - true_mm, axis=-1).mean() < 0.7 * before
    assert np.abs(found.root_mm - ROOT).max() < 100
    at = found.joints_mm + found.root_mm
    assert np.abs(at[:, :2] / at[:, 2:] - evidence(true_mm).rays).max() < 0.004
    assert np.nanmax(found.miss) < 2


def test_a_joint_that_was_seen_elsewhere_by_mistake_does_not_tear_the_body(true_mm):
    samples, told = drawn(true_mm, 40), evidence(true_mm)
    told.rays[H36M_17.index("left_wrist")] += 0.4  # 1.4 m off
    found = fitted(samples, true_mm, told)
    others = [j for j in range(17) if not H36M_17.joints[j].startswith("left_")]
    assert np.linalg.norm(found.joints_mm - true_mm, axis=-1)[others].mean() < 40
    assert found.miss[H36M_17.index("left_wrist")] > 50


def test_without_anything_seen_the_root_is_where_it_began_and_its_deviation_says_so(true_mm):
    samples = drawn(true_mm, 40)
    found = fitted(samples, true_mm, evidence(true_mm, seen=()))
    assert np.abs(found.root_mm / (ROOT * 1.1) - 1).max() < 0.02
    assert np.sqrt(found.root_covariance_mm2[2, 2]) == pytest.approx(0.25 * found.root_mm[2], rel=0.05)
    assert np.linalg.norm(found.joints_mm - true_mm, axis=-1).mean() < 60


@pytest.mark.parametrize("seen", [(), range(17)])
def test_pinned_joints_are_at_their_pins_and_their_neighbours_follow(true_mm, seen):
    samples = drawn(true_mm, 40)
    wrist, elbow = H36M_17.indices("left_wrist", "left_elbow")
    which = np.arange(17) == wrist
    pins = np.where(which[:, None], true_mm + np.array([0, -250, -100]), 0.0)
    found = fitted(samples, true_mm, evidence(true_mm, seen=[j for j in seen if j not in (wrist, elbow)]),
                   pins=(pins, which))  # fmt: skip
    np.testing.assert_allclose(found.joints_mm[wrist], pins[wrist])
    length = np.linalg.norm(found.joints_mm[wrist] - found.joints_mm[elbow])
    assert length == pytest.approx(np.linalg.norm(true_mm[wrist] - true_mm[elbow]), rel=0.03)
    assert found.joints_mm[elbow][1] < samples.mean(0)[elbow][1]


def collapsed(true_mm):
    """Seen from the side, and both shoulders in nearly one place, as hypotheses of a half hidden person may have it."""
    side = true_mm[:, [2, 1, 0]] * (1, 1, -1)
    for joint in H36M_17.indices("left_shoulder", "right_shoulder"):
        side[joint] += 0.93 * (side[H36M_17.index("thorax")] + (0, 25, 0) - side[joint])
    return side


@pytest.mark.parametrize("pinned", [False, True])
def test_shoulders_that_collapse_are_opened_along_the_view_and_stay_on_what_was_seen(true_mm, pinned):
    side, lengths = true_mm[:, [2, 1, 0]] * (1, 1, -1), bone_lengths(true_mm, H36M_17)
    samples = drawn(collapsed(true_mm), 8)
    which = np.arange(17) == H36M_17.index("right_ankle")
    precision, told = shrunken_precision(samples, np.full(17, 1e4)), evidence(side)
    pins = (np.where(which[:, None], side, 0.0), which) if pinned else None
    found = fit_poses(samples, precision, lengths, told, ROOT * 1.1, pins)
    left, right = H36M_17.indices("left_shoulder", "right_shoulder")
    apart = np.linalg.norm(found.joints_mm[:, left] - found.joints_mm[:, right], axis=-1)
    assert (apart > 0.84 * np.linalg.norm(true_mm[left] - true_mm[right])).all()
    assert not impossible(found.joints_mm, lengths).any()
    np.testing.assert_allclose(bone_lengths(found.joints_mm, H36M_17), lengths[None].repeat(8, 0), atol=0.1)
    assert np.nanmedian(found.miss) < 2


def test_one_hypothesis_has_the_spread_that_is_given(true_mm):
    precision = shrunken_precision(true_mm[None], np.full(17, 900.0))
    np.testing.assert_allclose(np.linalg.inv(precision), np.eye(48) * (900 + 20**2))


def test_several_means_at_once_are_fitted_as_each_alone(true_mm):
    samples, told = drawn(true_mm, 60), evidence(true_mm, seen=range(3, 15))
    prior = shrunken_precision(samples, np.full(17, 1e4)), bone_lengths(true_mm, H36M_17), told, ROOT * 1.1
    pins = (true_mm, np.arange(17) == 13)
    for held in (None, pins):
        every = fit_poses(samples[:3], *prior, held)
        for row, mean in enumerate(samples[:3]):
            alone = fit_pose(mean, *prior, held)
            np.testing.assert_allclose(every[row].joints_mm, alone.joints_mm, atol=1e-6)
            np.testing.assert_allclose(every[row].root_mm, alone.root_mm, atol=1e-6)
