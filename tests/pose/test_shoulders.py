import numpy as np

from di2pose.pose.bones import LEAST_SHOULDERS, even, open_shoulders, rebuild
from di2pose.pose.skeleton import H36M_17, bone_lengths

THORAX, LEFT, RIGHT = H36M_17.indices("thorax", "left_shoulder", "right_shoulder")


def poses(count=40):
    joints = np.random.default_rng(0).normal(scale=300, size=(count, 17, 3))
    joints[: count // 2, RIGHT] = 2 * joints[: count // 2, THORAX] - joints[: count // 2, LEFT] + 40
    return rebuild(joints, even(bone_lengths(joints, H36M_17)))


def width(joints):
    """Over the sum of both collar bones."""
    apart = np.linalg.norm(joints[:, LEFT] - joints[:, RIGHT], axis=-1)
    return apart / (2 * np.linalg.norm(joints[:, LEFT] - joints[:, THORAX], axis=-1))


def test_narrow_shoulders_are_opened_as_far_as_it_needs_and_others_stay():
    before = poses()
    after, narrow = open_shoulders(before), width(before) < LEAST_SHOULDERS
    assert 5 < narrow.sum() < 35
    np.testing.assert_allclose(width(after), np.maximum(width(before), LEAST_SHOULDERS))
    np.testing.assert_array_equal(after[~narrow], before[~narrow])


def test_opened_shoulders_keep_all_bones_and_the_directions_of_the_arms():
    before = poses()
    after = open_shoulders(before)
    np.testing.assert_allclose(bone_lengths(after, H36M_17), bone_lengths(before, H36M_17))
    for child, parent in H36M_17.bones:
        if child not in (LEFT, RIGHT):
            ways = [each[:, child] - each[:, parent] for each in (before, after)]
            np.testing.assert_allclose(*ways, atol=1e-9)
    middle = [(each[:, LEFT] + each[:, RIGHT]) / 2 - each[:, THORAX] for each in (before, after)]
    assert (np.einsum("na,na->n", *middle) >= 0).all()
