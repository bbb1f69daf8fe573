"""Bones, stature, and the distances of joints that a body can have."""

import numpy as np
import pytest
from output.people import pose, standing

from di2pose.pose.bones import (
    adult_range,
    even,
    impossible,
    joint_pairs,
    make_possible,
    mirrored,
    rebuild,
    stature_mm,
)
from di2pose.pose.skeleton import BODY_25B, H36M_17, H36M_21, Skeleton, bone_lengths, mirror

COLUMN = {H36M_17.joints[child]: k for k, (child, _) in enumerate(H36M_17.bones)}
LENGTHS = bone_lengths(standing(), H36M_17)


def poses(count=5):
    return np.random.default_rng(0).normal(scale=300, size=(count, 17, 3))


def test_a_rebuilt_pose_has_the_lengths_and_keeps_root_and_directions():
    joints, lengths = poses(), np.random.default_rng(1).uniform(100, 400, (5, 16))
    built = rebuild(joints, lengths)
    np.testing.assert_allclose(bone_lengths(built, H36M_17), lengths)
    np.testing.assert_allclose(built[:, 0], joints[:, 0])
    for child, parent in H36M_17.bones:
        before, after = joints[:, child] - joints[:, parent], built[:, child] - built[:, parent]
        cosine = (before * after).sum(-1) / np.linalg.norm(before, axis=-1) / np.linalg.norm(after, axis=-1)
        np.testing.assert_allclose(cosine, 1)
    np.testing.assert_allclose(rebuild(joints, bone_lengths(joints, H36M_17)), joints)


def test_bones_go_outward_even_where_a_parent_comes_later_in_the_list():
    reached = {BODY_25B.root}
    for bone in BODY_25B.outward:
        child, parent = BODY_25B.bones[bone]
        assert parent in reached
        reached.add(child)
    assert len(reached) == BODY_25B.count


def test_left_and_right_are_exchanged_and_made_even():
    lengths = bone_lengths(poses(), H36M_17)
    level, swapped = even(lengths), mirrored(lengths)
    np.testing.assert_allclose(level[:, COLUMN["left_knee"]], level[:, COLUMN["right_knee"]])
    np.testing.assert_allclose(level[:, COLUMN["spine"]], lengths[:, COLUMN["spine"]])
    np.testing.assert_allclose(level.sum(-1), lengths.sum(-1))
    np.testing.assert_array_equal(mirrored(swapped), lengths)
    np.testing.assert_array_equal(swapped[:, COLUMN["left_wrist"]], lengths[:, COLUMN["right_wrist"]])
    np.testing.assert_array_equal(swapped[:, COLUMN["thorax"]], lengths[:, COLUMN["thorax"]])


def test_stature_adds_up_the_bones_and_scales_with_the_body():
    joints = pose(np.random.default_rng(8))  # its bones: thigh 450, shank 440, back 235 + 255, neck and head 124 + 117
    expected = (450 + 440 + 235 + 255 + np.hypot(120, 30) + np.hypot(115, 20)) / (1 - 0.039)
    np.testing.assert_allclose(stature_mm(np.stack([joints, 1.1 * joints])), [expected, 1.1 * expected])


def test_every_pair_of_joints_is_a_bone_or_has_limits():
    pairs, paths, shares = joint_pairs()
    assert len({*map(tuple, pairs.tolist()), *((b, a) for a, b in H36M_17.bones)}) == 17 * 16 / 2
    assert ((shares[:, 0] > 0) & (shares[:, 0] < shares[:, 1]) & (shares[:, 1] <= 1)).all()
    named = {tuple(pair): k for k, pair in enumerate(pairs.tolist())}
    for (a, b), k in named.items():
        twin = named[tuple(sorted((H36M_17.mirror_order[a], H36M_17.mirror_order[b])))]
        np.testing.assert_array_equal(shares[k], shares[twin])
    joints = poses(50)
    apart = np.linalg.norm(joints[:, pairs[:, 0]] - joints[:, pairs[:, 1]], axis=-1)
    assert (apart <= bone_lengths(joints, H36M_17) @ paths.T + 1e-9).all()
    hips = paths[named[H36M_17.indices("right_hip", "left_hip")]]
    assert [H36M_17.joints[H36M_17.bones[bone][0]] for bone in np.flatnonzero(hips)] == ["right_hip", "left_hip"]


def test_limits_go_by_name_and_a_foot_is_nearly_rigid():
    ours, theirs = joint_pairs(H36M_21), joint_pairs()
    np.testing.assert_array_equal(ours.joints[:120], theirs.joints)
    np.testing.assert_array_equal(ours.shares[:120], theirs.shares)
    np.testing.assert_array_equal(ours.paths[:120, :16], theirs.paths)
    feet = [sorted((H36M_21.joints[a], H36M_21.joints[b])) for a, b in ours.joints[120:]]
    assert feet == [[f"{s}_{a}", f"{s}_{b}"] for s in ("left", "right") for a, b in (("heel", "toe"), ("heel", "knee"),
                                                                                      ("knee", "toe"))]  # fmt: skip
    shin = np.array([350.0, 430.0, 500.0])  # of adults; heel and toe as in Anny's bodies
    for (low, high), share in zip(adult_range(H36M_21)[16:18], (0.18, 0.503), strict=True):
        assert ((low < share * shin) & (share * shin < high)).all()
    np.testing.assert_array_equal(adult_range(H36M_21)[16:18], adult_range(H36M_21)[18:])
    stranger = Skeleton("tail", (*H36M_17.joints, "tail"), (*H36M_17.parents, 0))
    assert (adult_range(stranger)[16:] == (0, np.inf)).all()
    assert len(joint_pairs(stranger).joints) == 120
    joints = np.concatenate([pose(np.random.default_rng(3), 1.0), np.full((4, 3), 100.0)])
    lengths = even(bone_lengths(joints, H36M_21), H36M_21)
    assert impossible(joints[None], lengths, H36M_21).all()
    found = make_possible(joints, lengths, skeleton=H36M_21)
    assert not impossible(found[None], lengths, H36M_21).any()
    np.testing.assert_allclose(bone_lengths(found, H36M_21), lengths)


def test_bodies_of_any_adults_bones_can_stand():
    low, high = adult_range().T
    assert ((low > 0) & (low < high)).all()
    for seed in range(5):
        lengths = even(np.random.default_rng(seed).uniform(low, high))
        upright = rebuild(standing(), lengths)
        found = make_possible(upright, lengths)
        assert not impossible(found[None], lengths).any()
        assert np.linalg.norm(found - upright, axis=-1).max() < 30


@pytest.mark.parametrize("bend", [0.6, 1.5, None])
def test_any_pose_is_brought_to_possible_distances(bend):
    random, low_high = np.random.default_rng(1), adult_range().T
    for _ in range(12):
        wild = random.normal(scale=300, size=(17, 3)) if bend is None else pose(random, bend)
        wild = wild - wild[0]
        lengths = np.clip(even(bone_lengths(wild, H36M_17)), *low_high)
        assert impossible(wild[None], lengths).all()
        found = make_possible(wild, lengths)
        assert not impossible(found[None], lengths).any()
        np.testing.assert_allclose(bone_lengths(found, H36M_17), lengths)
        np.testing.assert_array_equal(found[0], wild[0])


def test_shoulders_in_one_place_are_parted_and_the_rest_hardly_moves():
    joints = standing()
    for joint in H36M_17.indices("right_shoulder", "right_elbow", "right_wrist"):
        joints[joint] = joints[H36M_17.mirror_order[joint]]
    found = make_possible(joints, LENGTHS)
    left, right = H36M_17.indices("left_shoulder", "right_shoulder")
    assert not impossible(found[None], LENGTHS).any()
    assert np.linalg.norm(found[left] - found[right]) > 0.84 * 2 * LENGTHS[10]
    assert np.linalg.norm(found - joints, axis=-1)[:8].max() < 20


def test_fixed_joints_stay():
    joints, held = standing(), np.arange(17) == H36M_17.index("left_wrist")
    joints[held] = joints[H36M_17.index("right_wrist")] + (5.0, 0.0, 0.0)
    found = make_possible(joints, LENGTHS, held)
    np.testing.assert_array_equal(found[held], joints[held])
    assert not impossible(found[None], LENGTHS).any()


def test_a_mirrored_pose_is_as_possible():
    joints = np.stack([pose(np.random.default_rng(seed), 0.1) for seed in range(60)])
    lengths = even(bone_lengths(joints[0], H36M_17))
    joints = rebuild(joints, lengths)
    wrong = impossible(joints, lengths)
    assert 0 < wrong.sum() < 60
    np.testing.assert_array_equal(impossible(mirror(joints, H36M_17), lengths), wrong)
