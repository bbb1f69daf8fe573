"""Motion on our bodies: segments point where they point in the motion, sides mirror, noise stays within limits."""

import numpy as np
import pytest
from di2pose_people.body import Shape, model
from di2pose_people.motion import CLASSES, NODES, PARENTS, classify, library
from di2pose_people.retarget import AXES, BENDS, MOST_BENT, Rig, lay_down, node_turns, perturb, sit
from di2pose_people.rotation import from_to, part, twist
from scipy.spatial.transform import Rotation

from di2pose.data.bvh import Bvh
from di2pose.pose.skeleton import H36M_17

SEGMENTS = {
    ("left_hip", "left_knee"): ("LeftUpLeg", "LeftLeg"),
    ("left_knee", "left_ankle"): ("LeftLeg", "LeftFoot"),
    ("right_hip", "right_knee"): ("RightUpLeg", "RightLeg"),
    ("left_shoulder", "left_elbow"): ("LeftArm", "LeftForeArm"),
    ("right_shoulder", "right_elbow"): ("RightArm", "RightForeArm"),
    ("right_elbow", "right_wrist"): ("RightForeArm", "RightHand"),
}


@pytest.fixture(scope="module")
def rig():
    shape = Shape((0.4, 0.75, 0.5, 0.5, 0.52, 0.5, 0.5, 0.5), (0.4, 0.3, 0.3), 1.72)
    return Rig(model().body(shape))


@pytest.fixture(scope="module")
def poses(motion):
    return library(motion, "train")


def test_limbs_point_as_in_the_motion(rig, poses, motion):
    for index in range(0, len(poses.rotations), 40):
        if poses.subjects[poses.clip[index]] == "060":
            continue
        clip = poses.clips[poses.clip[index]]
        bvh = Bvh.read(next(motion.rglob(f"{clip}.bvh")))
        places = bvh.positions([int(poses.frame[index])])[0]
        joints = rig.pose(node_turns(poses.rotations[index])).joints
        for ours, theirs in SEGMENTS.items():
            a, b = joints[list(H36M_17.indices(*ours))]
            c, d = places[bvh.nodes(*theirs)] @ AXES.T
            cosine = (b - a) @ (d - c) / np.linalg.norm(b - a) / np.linalg.norm(d - c)
            # The upper half of a thigh or arm takes half of the turn about it, which bends it by up to 1.5 degrees.
            assert np.degrees(np.arccos(min(cosine, 1.0))) < (0.1 if "ankle" in ours[1] else 2), (clip, ours)


def test_left_is_left(rig):
    joints = rig.pose(np.tile(np.eye(3), (20, 1, 1))).joints
    for left, right in H36M_17.pairs:
        assert joints[left, 0] > 0.05 > -0.05 > joints[right, 0]  # x is the body's left
    assert joints[H36M_17.index("head"), 2] == joints[:, 2].max()


def test_a_mirrored_pose_has_mirrored_joints(rig, poses):
    plain = rig.pose(node_turns(poses.rotations[30])).joints
    mirrored = rig.pose(node_turns(poses.rotations[30], mirrored=True)).joints
    assert np.abs(mirrored[list(H36M_17.mirror_order)] * (-1, 1, 1) - plain).max() < 0.004


def test_noise_moves_joints_a_little_and_never_turns_a_knee_round(rig, poses):
    generator = np.random.default_rng(0)
    for index in range(0, len(poses.rotations), 60):
        before = node_turns(poses.rotations[index])
        after = perturb(before, generator)
        change = rig.pose(after).joints - rig.pose(before).joints
        assert 0.001 < np.linalg.norm(change, axis=1).max() < 0.6
        for node in (NODES.index(name) for name in BENDS):
            old, new = (Rotation.from_matrix(t[PARENTS[node]].T @ t[node]).as_rotvec() for t in (before, after))
            assert old @ new >= -1e-9  # the same axis, the same side
            assert np.linalg.norm(np.cross(old, new)) < 1e-9
            assert np.linalg.norm(new) <= MOST_BENT + 1e-6


def test_sitting_and_lying_are_classed_as_such(rig):
    generator = np.random.default_rng(1)
    standing = np.tile(np.eye(3), (20, 1, 1))
    for side, sign in (("Left", 1), ("Right", -1)):
        for node in ("Arm", "ForeArm", "Hand"):
            standing[NODES.index(side + node)] = Rotation.from_euler("z", -sign * 1.4).as_matrix()
    seated = np.stack([rig.pose(sit(standing, generator)).joints for _ in range(20)])
    lying = np.stack([rig.pose(lay_down(standing, generator)).joints for _ in range(20)])
    assert np.mean(classify(seated, up=2) == CLASSES.index("seated")) > 0.9
    assert np.mean(classify(lying, up=2) == CLASSES.index("lying")) > 0.9
    assert classify(rig.pose(standing).joints[None], up=2)[0] == CLASSES.index("upright")


def test_rotations_agree_with_each_other():
    generator = np.random.default_rng(2)
    for _ in range(50):
        axis, angle = generator.normal(size=(1, 3)), generator.uniform(-3, 3)
        about_axis = Rotation.from_rotvec(angle * axis / np.linalg.norm(axis))
        across = Rotation.from_rotvec(0.3 * np.cross(axis, [0.0, 0, 1]))
        assert np.allclose(
            part(about_axis, 0.5).as_matrix() @ part(about_axis, 0.5).as_matrix(), about_axis.as_matrix()
        )
        assert np.allclose(twist(about_axis, axis), about_axis.as_rotvec())
        assert np.allclose(twist(across * about_axis, axis), about_axis.as_rotvec())  # the swing has no part about it
        assert np.allclose(
            part(about_axis[0], np.array([0.0, 1.0])).as_rotvec(), [[0, 0, 0], about_axis.as_rotvec()[0]]
        )
        a, b = generator.normal(size=(2, 3))
        assert np.allclose(np.cross(from_to(a, b) @ a, b), 0, atol=1e-9)
        assert (from_to(a, b) @ a) @ b > 0
    assert np.allclose(from_to(np.array([0.0, 0, 2]), np.array([0.0, 0, -1])) @ [0, 0, 1], [0, 0, -1])


def test_a_120_hz_file_is_thinned_to_the_same_rate(motion, tmp_path):
    text = next(motion.rglob("01_05.bvh")).read_text()
    head, _, rows = text.partition("Frame Time:")
    (tmp_path / "001").mkdir()
    (tmp_path / "001" / "01_05.bvh").write_text(f"{head}Frame Time: 0.0083333\n" + rows.split("\n", 1)[1])
    fast, slow = library(tmp_path, "train"), library(motion, "train")
    frames = slow.frame[slow.clip == slow.clips.index("01_05")]
    assert list(fast.frame) == list(frames[::20])


def test_test_subjects_are_not_in_the_training_library(motion):
    train, test = library(motion, "train"), library(motion, "test")
    subjects = [
        {lib.subjects[lib.clip[i]] for frames, _ in lib.members.values() for i in frames} for lib in (train, test)
    ]
    assert subjects == [{"001", "002", "023"}, {"060"}]
