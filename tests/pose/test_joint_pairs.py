"""Distances of joints: which ones a body can have, and poses that are brought to them."""

import numpy as np
import pytest
from output.people import OFFSETS, pose

from di2pose.pose.bones import adult_range, even, rebuild
from di2pose.pose.joint_pairs import PAIRS, PATHS, SHARES, distances_mm, impossible, make_possible
from di2pose.pose.skeleton import H36M_17, bone_lengths, mirror

SHOULDERS = H36M_17.indices("left_shoulder", "right_shoulder")


def standing():
    joints = np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        joints[child] = joints[parent] + OFFSETS[child]
    return joints


def test_every_pair_of_joints_is_a_bone_or_has_limits():
    assert len({*map(tuple, PAIRS.tolist()), *((b, a) for a, b in H36M_17.bones)}) == 17 * 16 / 2
    assert ((SHARES[:, 0] > 0) & (SHARES[:, 0] < SHARES[:, 1]) & (SHARES[:, 1] <= 1)).all()
    named = {tuple(pair): k for k, pair in enumerate(PAIRS.tolist())}
    for (a, b), k in named.items():
        twin = named[tuple(sorted((H36M_17.mirror_order[a], H36M_17.mirror_order[b])))]
        np.testing.assert_array_equal(SHARES[k], SHARES[twin])
    joints = np.random.default_rng(0).normal(scale=300, size=(50, 17, 3))
    assert (distances_mm(joints) <= bone_lengths(joints, H36M_17) @ PATHS.T + 1e-9).all()
    hips = PATHS[named[H36M_17.indices("right_hip", "left_hip")]]
    assert [H36M_17.joints[H36M_17.bones[bone][0]] for bone in np.flatnonzero(hips)] == ["right_hip", "left_hip"]


@pytest.mark.parametrize("seed", range(20))
def test_bodies_of_any_adults_bones_can_stand(seed):
    lengths = even(np.random.default_rng(seed).uniform(*adult_range().T))
    upright = rebuild(standing(), lengths)
    found = make_possible(upright, lengths)
    assert not impossible(found[None], lengths).any()
    assert np.linalg.norm(found - upright, axis=-1).max() < 30


@pytest.mark.parametrize("bend", [0.6, 1.5, None])
def test_any_pose_is_brought_to_distances_that_a_body_can_have(bend):
    random, low_high = np.random.default_rng(1), adult_range().T
    for _ in range(60):
        wild = random.normal(scale=300, size=(17, 3)) if bend is None else pose(random, bend)
        wild = wild - wild[0]
        lengths = np.clip(even(bone_lengths(wild, H36M_17)), *low_high)
        assert impossible(wild[None], lengths).all()
        found = make_possible(wild, lengths)
        assert not impossible(found[None], lengths).any()
        np.testing.assert_allclose(bone_lengths(found, H36M_17), lengths)
        np.testing.assert_array_equal(found[0], wild[0])


def test_shoulders_in_one_place_are_parted_and_the_rest_hardly_moves():
    joints, lengths = standing(), bone_lengths(standing(), H36M_17)
    for joint in H36M_17.indices("right_shoulder", "right_elbow", "right_wrist"):
        joints[joint] = joints[H36M_17.mirror_order[joint]]
    found = make_possible(joints, lengths)
    assert not impossible(found[None], lengths).any()
    assert np.linalg.norm(found[SHOULDERS[0]] - found[SHOULDERS[1]]) > 0.84 * 2 * lengths[10]
    assert np.linalg.norm(found - joints, axis=-1)[:8].max() < 20


def test_fixed_joints_stay():
    joints, lengths = standing(), bone_lengths(standing(), H36M_17)
    held = np.arange(17) == H36M_17.index("left_wrist")
    joints[held] = joints[H36M_17.index("right_wrist")] + (5.0, 0.0, 0.0)
    found = make_possible(joints, lengths, held)
    np.testing.assert_array_equal(found[held], joints[held])
    assert not impossible(found[None], lengths).any()


def test_a_mirrored_pose_is_as_possible():
    joints = np.stack([pose(np.random.default_rng(seed), 0.1) for seed in range(60)])
    lengths = even(bone_lengths(joints[0], H36M_17))
    joints = rebuild(joints, lengths)
    told = impossible(joints, lengths)
    assert 0 < told.sum() < 60
    np.testing.assert_array_equal(impossible(mirror(joints, H36M_17), lengths), told)
