"""Poses turned as crops are: what augmentation keeps and how far it goes."""

import numpy as np
import pytest
import torch
from stick_figures import write_set

from di2pose.data.poses import BODY_SCALE, BONE_SCALE, ROLL, TILT, augment, crop_turns, dataset_poses, rotations
from di2pose.data.sample import Dataset, Sample
from di2pose.errors import InputError
from di2pose.noise import training_generators
from di2pose.pose.metrics import pa_mpjpe
from di2pose.pose.skeleton import BODY_25B, H36M_17, Skeleton, bone_lengths, convert, mirror

POSE = torch.tensor(
    [
        [0, 0, 0], [-130, 10, 0], [-140, 450, 20], [-140, 880, 60], [130, 10, 0], [140, 450, -20], [140, 880, 60],
        [0, -240, 10], [0, -490, 20], [0, -580, -40], [0, -690, 0], [160, -450, 20], [380, -300, 0], [560, -180, -100],
        [-160, -450, 20], [-380, -300, 0], [-530, -180, -300],
    ]
)  # fmt: skip
POSES = POSE.float().expand(2000, 17, 3)
FEET_21 = Skeleton(
    "feet_21",
    (*H36M_17.joints, "left_heel", "right_heel", "left_big_toe", "right_big_toe"),
    (*H36M_17.parents, *H36M_17.indices("left_ankle", "right_ankle", "left_ankle", "right_ankle")),
)


def test_half_are_mirrored_and_the_rest_are_not():
    turned = augment(POSES, torch.Generator())
    as_is, flipped = pa_mpjpe(turned, POSES), pa_mpjpe(turned, mirror(POSES, H36M_17))
    assert float((as_is < flipped).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert torch.minimum(as_is, flipped).max() < 30  # the scales of single bones


def test_each_sample_is_augmented_by_its_own_generator():
    whole = augment(POSES[:6], training_generators(0, 5, 0, 6))
    part = augment(POSES[:2], training_generators(0, 5, 4, 2))
    torch.testing.assert_close(whole[4:], part, rtol=1e-5, atol=1e-2)
    assert not torch.allclose(whole, augment(POSES[:6], training_generators(0, 6, 0, 6)))
    assert (whole[:, 0] == 0).all()


def test_rolls_are_even_and_people_who_lie_are_sometimes_brought_upright():
    def lean(joints):
        torso = joints[:, H36M_17.index("thorax")]
        return torch.atan2(torso[:, 0], -torso[:, 1]).abs().rad2deg()

    standing = lean(augment(POSES, torch.Generator()))
    assert float(standing.median()) == pytest.approx(55 / 2, abs=3)
    assert 50 < float(standing.quantile(0.995)) < 85  # the tilts turn a little, too
    lying = POSES @ rotations(torch.full((2000,), torch.pi / 2), torch.zeros(2000), torch.zeros(2000)).mT
    assert float(lean(lying).mean()) == pytest.approx(90, abs=0.1)
    risen = (lean(augment(lying, torch.Generator())) < 30).float().mean()
    assert float(risen) == pytest.approx(0.3 * 30 / 55, abs=0.04)


def test_turns_are_rotations_and_reach_their_limits():
    turns = crop_turns(2000, torch.Generator())
    torch.testing.assert_close(turns @ turns.mT, torch.eye(3).expand(2000, 3, 3), atol=1e-5, rtol=0)
    assert torch.linalg.det(turns).min() > 0.99
    # R = Rz Rx Ry keeps the tilt about x and y in its last row and the roll in its middle column.
    about_x, about_y = turns[:, 2, 1].asin(), torch.atan2(-turns[:, 2, 0], turns[:, 2, 2])
    roll = torch.atan2(-turns[:, 0, 1], turns[:, 1, 1])
    for angles, limit in ((about_x, TILT), (about_y, TILT), (roll, ROLL)):
        assert 0.98 * limit < float(angles.abs().max()) < 1.001 * limit
        assert float(angles.mean()) == pytest.approx(0, abs=0.05 * limit)
    up = torch.tensor([0.0, -1.0, 0.0])
    assert (rotations(torch.tensor([0.1]), torch.zeros(1), torch.zeros(1))[0] @ up)[0] > 0  # clockwise


def test_other_skeletons_are_converted_and_incomplete_records_left_out(tmp_path):
    rng = np.random.default_rng(0)
    joints = rng.normal(0, 300, (4, 25, 3)).astype(np.float32)
    valid = np.ones((4, 25), bool)
    joints[2, 9], valid[2, 9] = np.nan, False
    samples = [Sample(f"r{i}", joints[i], valid=valid[i], split="ab"[i % 2]) for i in range(4)]
    found, splits, ids = dataset_poses(Dataset(write_set(tmp_path / "set", samples, skeleton=BODY_25B)))
    wanted = convert(joints[[0, 1, 3]], BODY_25B, H36M_17)[0]
    np.testing.assert_allclose(found, wanted - wanted[:, :1], atol=1e-3)
    assert (splits.tolist(), ids.tolist()) == (["a", "b", "b"], ["r0", "r1", "r3"])

    partly = write_set(tmp_path / "none", [Sample("x", joints[0, :17], valid=np.arange(17) != 3)])
    with pytest.raises(InputError, match="has all 17 joints of h36m_17"):
        dataset_poses(Dataset(partly))


HANDS_5 = Skeleton("hands_5", ("left_hand", "right_hand", "hip", "left_shoulder", "right_shoulder"), (3, 4, -1, 2, 2))
HANDS = torch.tensor([[300.0, -300, 0], [-300, -300, 0], [0, 0, 0], [150, -450, 0], [-150, -450, 0]])
FEET = torch.tensor([[0.0, 40, 60], [0, 40, 60], [0, 60, -150], [0, 60, -150]])


@pytest.mark.parametrize(
    ("skeleton", "poses", "end"),
    [
        (H36M_17, POSES, "knee"),
        (FEET_21, torch.cat([POSES, POSES[:, [6, 3, 6, 3]] + FEET], 1), "heel"),
        (HANDS_5, HANDS.expand(2000, 5, 3), "hand"),  # parents do not come first
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_bodies_of_any_skeleton_stay_within_their_scales_and_both_sides_alike(skeleton, poses, end):
    turned = augment(poses, torch.Generator(), skeleton)
    ratio = bone_lengths(turned, skeleton) / bone_lengths(poses, skeleton)
    names = [skeleton.joints[child] for child, _ in skeleton.bones]
    left, right = (ratio[:, names.index(f"{side}_{end}")] for side in ("left", "right"))
    torch.testing.assert_close(left, right, rtol=2e-3, atol=0)
    assert (1 - BODY_SCALE) * (1 - BONE_SCALE) - 1e-3 <= left.min() < 0.86
    assert 1.16 < left.max() <= (1 + BODY_SCALE) * (1 + BONE_SCALE) + 1e-3
    assert not torch.allclose(left, ratio[:, 2], rtol=1e-2)  # bones vary one by one
    assert (turned[:, skeleton.root] == 0).all()


def test_another_skeleton_may_be_the_target(tmp_path):
    joints = np.random.default_rng(0).normal(0, 300, (3, 25, 3)).astype(np.float32)
    dataset = Dataset(write_set(tmp_path / "set", [Sample(f"r{i}", joints[i]) for i in range(3)], skeleton=BODY_25B))
    found, _, ids = dataset_poses(dataset, FEET_21)
    assert (found.shape, ids.tolist()) == ((3, 21, 3), ["r0", "r1", "r2"])
    pelvis = convert(joints, BODY_25B, H36M_17)[0][:, 0]
    heels = joints[:, BODY_25B.index("left_heel")] - pelvis
    np.testing.assert_allclose(found[:, FEET_21.index("left_heel")], heels, atol=1e-3)
