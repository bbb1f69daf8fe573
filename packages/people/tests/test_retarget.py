"""Motion on our bodies: segments point where they point in the motion, sides mirror, noise stays within limits."""

from dataclasses import replace

import numpy as np
import pytest
from di2pose_people.body import Shape, model
from di2pose_people.motion import CLASSES, NODES, PARENTS, classify, library
from di2pose_people.retarget import AXES, BENDS, MOST_BENT, Rig, node_turns, perturb
from scipy.spatial.transform import Rotation

from di2pose.data.bvh import Bvh, standing_by_subject
from di2pose.pose.skeleton import H36M_21

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
    standing = standing_by_subject(sorted(motion.rglob("*.bvh")))
    for index in range(0, len(poses.rotations), 40):
        if poses.subjects[poses.clip[index]] == "060":
            continue
        clip = poses.clips[poses.clip[index]]
        bvh = Bvh.read(next(motion.rglob(f"{clip}.bvh")))
        bvh = replace(bvh, standing=standing[poses.subjects[poses.clip[index]]])
        places = bvh.positions([int(poses.frame[index])])[0]
        joints = rig.pose(node_turns(poses.rotations[index])).joints
        for ours, theirs in SEGMENTS.items():
            a, b = joints[list(H36M_21.indices(*ours))]
            c, d = places[bvh.nodes(*theirs)] @ AXES.T
            cosine = (b - a) @ (d - c) / np.linalg.norm(b - a) / np.linalg.norm(d - c)
            # The upper half of a thigh or arm takes half of the turn about it, which bends it by up to 1.5 degrees.
            assert np.degrees(np.arccos(min(cosine, 1.0))) < (0.1 if "ankle" in ours[1] else 2), (clip, ours)


def test_left_is_left_and_a_mirrored_pose_has_mirrored_joints(rig, poses):
    joints = rig.pose(np.tile(np.eye(3), (20, 1, 1))).joints
    for left, right in H36M_21.pairs:
        assert joints[left, 0] > 0.05 > -0.05 > joints[right, 0]  # x is the body's left
    assert joints[H36M_21.index("head"), 2] == joints[:, 2].max()
    plain, mirrored = (rig.pose(node_turns(poses.rotations[30], mirrored=each)).joints for each in (False, True))
    assert np.abs(mirrored[list(H36M_21.mirror_order)] * (-1, 1, 1) - plain).max() < 0.004


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


def test_poses_are_classed_by_their_geometry(rig):
    standing = np.tile(np.eye(3), (20, 1, 1))
    for side, sign in (("Left", 1), ("Right", -1)):
        for node in ("Arm", "ForeArm", "Hand"):
            standing[NODES.index(side + node)] = Rotation.from_euler("z", -sign * 1.4).as_matrix()
    seated = standing.copy()
    seated[[NODES.index("LeftUpLeg"), NODES.index("RightUpLeg")]] = Rotation.from_euler("x", -1.5).as_matrix()
    lying = Rotation.from_euler("x", -1.5).as_matrix() @ standing
    poses = np.stack([rig.pose(turns).joints for turns in (standing, seated, lying)])
    assert [CLASSES[i] for i in classify(poses, up=2)] == ["upright", "seated", "lying"]
