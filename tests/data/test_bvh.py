"""BVH: kinematics by hand, damage, left and right, the virtual camera, and real CMU clips."""

import dataclasses

import numpy as np
import pytest
from data.cmu_files import CHANNELS, column, joints_world, real_clips, t_pose, walk, write_cmu

from di2pose.data.bvh import (
    FOREARM,
    LEGS,
    PITCH_DEGREES,
    TWINS,
    Bvh,
    h36m_joints,
    read,
    split_of,
    standing_by_subject,
    virtual_camera,
)  # fmt: skip
from di2pose.data.sample import Sources
from di2pose.data.standing import STRAIGHT, leg_angles
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_21, bone_lengths

ARM = """HIERARCHY
ROOT A
{
  OFFSET 9 9 9
  CHANNELS 6 Xposition Yposition Zposition Zrotation Yrotation Xrotation
  JOINT B
  {
    OFFSET 2 0 0
    CHANNELS 3 %s
    End Site
    {
      OFFSET 0 3 0
    }
  }
}
MOTION
Frames: 2
Frame Time: 0.01
1 2 3 90 0 0 90 90 0
0 0 0 0 0 90 0 0 0
"""


def test_forward_kinematics_equals_the_hand_computed(tmp_path):
    path = tmp_path / "arm.bvh"
    path.write_text(ARM % "Xrotation Yrotation Zrotation")
    bvh = Bvh.read(path, unit_mm=10)
    assert bvh.joints == ("A", "B", "B end")
    assert bvh.parents == (-1, 0, 1)
    np.testing.assert_allclose(bvh.offsets[1], [20, 0, 0])
    # Frame 0: A at (10, 20, 30), turned by Z 90: B lies 20 along world y. B turns by X 90, then Y 90 in its own axes:
    # Rx Ry (0, 1, 0) = Rx (0, 1, 0) = (0, 0, 1); A's Z 90 leaves z: the end lies 30 along world z.
    # Frame 1: X 90 turns B's own y, the direction of the end, to z; B's x stays.
    expected = [[[10, 20, 30], [10, 40, 30], [10, 40, 60]], [[0, 0, 0], [20, 0, 0], [20, 0, 30]]]
    np.testing.assert_allclose(bvh.positions(), expected, atol=1e-12)
    np.testing.assert_allclose(bvh.positions([1]), expected[1:], atol=1e-12)
    np.testing.assert_allclose(bvh.rotations()[0, 0], [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)
    path.write_text(ARM % "Yrotation Xrotation Zrotation")  # the order of the channels is the file's
    # Now Y 90 first, then X 90: Ry Rx (0, 1, 0) = Ry (0, 0, 1) = (1, 0, 0); A's Z 90 makes it world y.
    np.testing.assert_allclose(Bvh.read(path, unit_mm=10).positions([0])[0, 2], [10, 70, 30], atol=1e-12)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-30], "the file has"),
        (lambda text: text[: len(text) // 4], "not a whole BVH"),
        (lambda text: text.replace("}\nMOTION", "MOTION"), "hierarchy is damaged"),
        (lambda text: text.replace("OFFSET 0 -7.5 0", "OFFSET 0 up 0"), "damaged after node LeftLeg"),
        (lambda text: text.replace("Zrotation Yrotation", "Zrotation Wrotation"), "hierarchy is damaged"),
        (lambda text: text.replace("Frames: 5", "Frames: many"), "invalid literal for int"),
        (lambda text: text.replace(" 17 ", " 1x7 ", 1), "could not convert string to float"),
        (lambda text: text.replace("LeftForeArm", "LForearm"), "no node called LeftForeArm"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_reason(tmp_path, damage, message):
    path = write_cmu(tmp_path / "01_01.bvh", walk(5))
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=message):
        joints_world(path)


def test_t_pose_has_left_on_its_left(tmp_path):
    """Fails if left and right are swapped, or if an axis points the wrong way."""
    motion = np.zeros((2, CHANNELS))
    motion[:, column("LeftLeg", "X")] = motion[:, column("RightLeg", "X")] = 4  # too bent to be a converter's T-pose
    write_cmu(tmp_path / "01_01.bvh", motion)
    (part,) = read(Sources("bvh", tmp_path, seed=5))
    for sample in part.samples():
        np.testing.assert_allclose(sample.extra["rotation"], virtual_camera(5, sample.id), atol=1e-7)
        world = sample.joints_mm @ np.array(sample.extra["rotation"])  # back to y up, facing +z
        at = dict(zip(H36M_21.joints, world, strict=True))
        for left, right in H36M_21.pairs:
            assert world[left, 0] > (50 if left < 17 else 40)  # toes point inwards
            np.testing.assert_allclose(world[right], world[left] * [-1, 1, 1], atol=1e-2)
        assert at["left_ankle"][1] < at["left_knee"][1] < at["pelvis"][1] < at["spine"][1] < at["thorax"][1]
        assert at["thorax"][1] < at["nose"][1] < at["head"][1]
        np.testing.assert_allclose(at["pelvis"], 0, atol=1e-3)
        np.testing.assert_allclose(
            at["left_wrist"], np.array([8.6 + 3.6 * FOREARM, 7.1, -0.6]) * 25.4 / 0.45, atol=0.01
        )


@pytest.mark.parametrize("first", [t_pose(), np.zeros((1, CHANNELS))], ids=["release of 2010", "release of 2008"])
def test_the_t_pose_that_the_conversion_adds_is_dropped_and_every_counts_from_there(tmp_path, first):
    clip = write_cmu(tmp_path / "clips/01_01.bvh", np.concatenate([first, walk(9)]))
    assert len(joints_world(clip)) == 9
    (part,) = read(Sources("bvh", tmp_path / "clips", every=4))
    assert [sample.frame for sample in part.samples()] == [1, 5, 9]


def test_a_recorded_t_pose_is_kept_and_a_clip_of_nothing_but_the_added_one_is_refused(tmp_path):
    motion = np.zeros((3, CHANNELS))
    motion[0, column("LeftForeArm", "Y")] = motion[2, column("RightArm", "Z")] = 6  # not straight to a few degrees
    motion[1, column("Hips", "Y")] = 20  # or not facing +z
    assert len(joints_world(write_cmu(tmp_path / "01_01.bvh", motion))) == 3
    write_cmu(tmp_path / "01_01.bvh", np.repeat(t_pose(), 3, axis=0), frame_time=0.0083333)
    (part,) = read(Sources("bvh", tmp_path))
    with pytest.raises(InputError, match="no frame of motion but the T-pose"):
        list(part.samples())


def test_real_clips_have_rigid_adult_bones_and_no_recorded_frame_is_taken_for_an_added_t_pose():
    paths = sorted(real_clips().rglob("*.bvh"))[::200]
    assert len(paths) >= 5
    names = [H36M_21.joints[child] for child, _ in H36M_21.bones]
    rigid = ("hip", "knee", "ankle", "heel", "toe", "elbow", "wrist")
    limbs = [k for k, name in enumerate(names) if name.endswith(rigid)]
    for path in paths:
        bvh = Bvh.read(path)
        lengths = bone_lengths(h36m_joints(bvh), H36M_21)
        np.testing.assert_allclose(lengths[:, limbs], np.broadcast_to(lengths[0, limbs], (bvh.frames, 14)), atol=1e-6)
        assert 320 < lengths[0, names.index("left_knee")] < 470
        assert bvh.frame_time == pytest.approx(1 / 6, abs=1e-3)
        zeros = int((np.abs(bvh.motion).max(axis=1) > 0).argmax())  # a few recordings begin with lost frames
        assert bvh.leading_t_poses == zeros, path
        added = np.zeros((1, bvh.motion.shape[1]))
        added[0, :3] = bvh.motion[zeros, :3]
        columns = [f"{name} {kind[0]}" for name, kinds in zip(bvh.joints, bvh.channels, strict=True) for kind in kinds]
        added[0, columns.index("LeftUpLeg Z")], added[0, columns.index("RightUpLeg Z")] = -21, 21
        longer = dataclasses.replace(bvh, motion=np.concatenate([added, bvh.motion[zeros:]]))
        assert longer.leading_t_poses == 1, path


def test_a_subject_that_stands_with_bent_knees_stands_straight_and_deep_bends_stay(tmp_path):
    motion = np.zeros((60, CHANNELS))
    motion[:, 1] = 17
    motion[:, column("LeftLeg", "X")], motion[:, column("RightLeg", "X")] = 25, 31
    motion[50:, column("LeftUpLeg", "X")], motion[50:, column("LeftLeg", "X")] = -100, 120
    clip = Bvh.read(write_cmu(tmp_path / "01_01.bvh", motion))
    standing = standing_by_subject([tmp_path / "01_01.bvh"])["001"]
    np.testing.assert_allclose(standing[0], [25, 31], atol=0.1)
    straight = dataclasses.replace(clip, standing=standing)
    nodes = straight.positions()[:, clip.nodes(*LEGS)].reshape(-1, 2, 3, 3)
    knee, leg = leg_angles(nodes).swapaxes(0, 1)
    np.testing.assert_allclose(knee[:50], STRAIGHT[0, 0], atol=0.1)
    np.testing.assert_allclose(leg[:50], STRAIGHT[1, 0], atol=0.1)  # from 13 and 16 degrees behind
    np.testing.assert_allclose(knee[50:, 0], 120, atol=0.1)
    before = clip.legs()
    for first, second in ((0, 1), (1, 2)):
        lengths = [np.linalg.norm(each[:, :, second] - each[:, :, first], axis=-1) for each in (before, nodes)]
        np.testing.assert_allclose(*lengths, rtol=1e-9)
    feet = clip.nodes("LeftFoot", "RightFoot")
    np.testing.assert_allclose(straight.rotations()[:, feet], clip.rotations()[:, feet], atol=1e-12)
    assert clip.leading_t_poses == straight.leading_t_poses == 0


def test_a_single_file_capital_endings_and_a_byte_order_mark_are_read(tmp_path):
    path = write_cmu(tmp_path / "01_01.BVH", walk(3))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    for source in (path, tmp_path):
        (part,) = read(Sources("bvh", source))
        assert part.key == "01_01.BVH"
        assert [sample.id for sample in part.samples()] == ["01_01_000000", "01_01_000001", "01_01_000002"]
    write_cmu(tmp_path / "a/01_01.bvh", walk(2))  # another clip of that name has ids of its own
    ids = [sample.id for part in read(Sources("bvh", tmp_path)) for sample in part.samples()]
    assert len(set(ids)) == 5


def test_the_virtual_camera_depends_on_seed_and_record_alone():
    turns = np.stack([virtual_camera(3, f"01_01_{k:06d}") for k in range(2000)])
    np.testing.assert_array_equal(virtual_camera(3, "01_01_000005"), turns[5])
    assert not np.allclose(virtual_camera(4, "01_01_000005"), turns[5])
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), np.broadcast_to(np.eye(3), turns.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(turns), 1)
    up = turns[:, :, 1]
    assert (up[:, 1] < -0.7).all()  # y down
    np.testing.assert_allclose(up[:, 0], 0, atol=1e-12)  # no roll
    pitch = np.degrees(np.arcsin(-up[:, 2]))  # from above, the head is nearer than the feet
    assert PITCH_DEGREES[0] <= pitch.min() < PITCH_DEGREES[0] + 1
    assert PITCH_DEGREES[1] - 1 < pitch.max() <= PITCH_DEGREES[1]
    yaw = np.degrees(np.arctan2(turns[:, 0, 2], turns[:, 0, 0]))
    assert (np.histogram(yaw, bins=12, range=(-180, 180))[0] > 100).all()


def test_twins_are_never_split():
    assert all(split_of(subject) == split_of(twin) for subject, twin in TWINS.items())
    assert {split_of("010"), split_of("011")} == {"test", "train"}
