import numpy as np

from di2pose.pose.bones import adult_range, even, mirrored, outward, rebuild
from di2pose.pose.skeleton import BODY_25B, H36M_17, bone_lengths


def poses(count=5):
    return np.random.default_rng(0).normal(scale=300, size=(count, 17, 3))


def test_a_rebuilt_pose_has_the_lengths_and_keeps_root_and_directions():
    joints = poses()
    lengths = np.random.default_rng(1).uniform(100, 400, (5, 16))
    built = rebuild(joints, lengths)
    np.testing.assert_allclose(bone_lengths(built, H36M_17), lengths)
    np.testing.assert_allclose(built[:, 0], joints[:, 0])
    for child, parent in H36M_17.bones:
        before, after = joints[:, child] - joints[:, parent], built[:, child] - built[:, parent]
        cosine = (before * after).sum(-1) / np.linalg.norm(before, axis=-1) / np.linalg.norm(after, axis=-1)
        np.testing.assert_allclose(cosine, 1)


def test_its_own_lengths_give_the_pose_back():
    joints = poses()
    np.testing.assert_allclose(rebuild(joints, bone_lengths(joints, H36M_17)), joints)


def test_bones_are_made_even_and_the_sum_stays():
    lengths = bone_lengths(poses(), H36M_17)
    level = even(lengths)
    column = {H36M_17.joints[child]: k for k, (child, _) in enumerate(H36M_17.bones)}
    np.testing.assert_allclose(level[:, column["left_knee"]], level[:, column["right_knee"]])
    np.testing.assert_allclose(level[:, column["spine"]], lengths[:, column["spine"]])
    np.testing.assert_allclose(level.sum(-1), lengths.sum(-1))


def test_bones_go_outward_even_where_a_parent_comes_later_in_the_list():
    reached = {BODY_25B.root}
    for bone in outward(BODY_25B):
        child, parent = BODY_25B.bones[bone]
        assert parent in reached
        reached.add(child)
    assert len(reached) == BODY_25B.count


def test_every_bone_has_an_adult_range():
    low, high = adult_range().T
    assert (low > 0).all()
    assert (low < high).all()


def test_what_is_mirrored_twice_is_as_before_and_the_trunk_stays():
    lengths = bone_lengths(poses(), H36M_17)
    column = {H36M_17.joints[child]: k for k, (child, _) in enumerate(H36M_17.bones)}
    swapped = mirrored(lengths)
    np.testing.assert_array_equal(mirrored(swapped), lengths)
    np.testing.assert_array_equal(swapped[:, column["left_wrist"]], lengths[:, column["right_wrist"]])
    np.testing.assert_array_equal(swapped[:, column["thorax"]], lengths[:, column["thorax"]])
