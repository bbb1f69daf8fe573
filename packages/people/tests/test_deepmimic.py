"""The default motion: DeepMimic's clips out of the real wheel, against forward kinematics of the wheel's own body."""

import json
import os
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from data.cmu_files import joints_world
from di2pose_people.deepmimic import AXES, CLIPS, motion_folder
from di2pose_people.motion import CLASSES, library

from di2pose.assets import extract
from di2pose.data.bvh import TWINS, Bvh, h36m_joints, split_of
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17

ROW = {
    "root": 4, "chest": 8, "neck": 12,
    "right_hip": 16, "right_knee": 20, "right_ankle": 21, "right_shoulder": 25, "right_elbow": 29,
    "left_hip": 30, "left_knee": 34, "left_ankle": 35, "left_shoulder": 39, "left_elbow": 43,
}  # fmt: skip
"""Joint -> where its numbers begin in a row, counted by hand from DeepMimic's description of the format."""
SAME = {"thorax": "neck", "spine": "chest", "pelvis": "root"} | {
    f"{side}_{joint}": f"{side}_{joint}"
    for side in ("left", "right")
    for joint in ("hip", "knee", "ankle", "shoulder", "elbow", "wrist")
}
"""Human3.6M's joint -> DeepMimic's. The two on the head are not in DeepMimic's body."""


@pytest.fixture(scope="module")
def wheel():
    return extract("pybullet-motion", "pybullet_data/data/motions/", "pybullet_data/humanoid/humanoid.urdf")


@pytest.fixture(scope="module")
def clips():
    """Clip -> its BVH file."""
    folder = motion_folder(None)
    return {clip: next(folder.glob(f"{number}_*.bvh")) for clip, number in CLIPS.items()}


def rows_of(wheel, clip):
    return np.array(json.loads((wheel / "pybullet_data/data/motions" / f"{clip}.txt").read_text())["Frames"])


def turn(q, v):
    """Vector v turned by the quaternion (w, x, y, z) of any length."""
    w, axis = q[0] / np.linalg.norm(q), q[1:] / np.linalg.norm(q)
    return v + 2 * w * np.cross(axis, v) + 2 * np.cross(axis, np.cross(axis, v))


def times(a, b):
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])


def kinematics(wheel, row):
    """Joint -> place in mm in DeepMimic's own axes, link by link as humanoid.urdf chains them, by quaternions alone."""
    text = (wheel / "pybullet_data/humanoid/humanoid.urdf").read_text()
    urdf = ElementTree.fromstring(text.rstrip("\0 \n"))  # the wheel's file ends in a zero byte
    turns, places = {"base": np.array([1.0, 0, 0, 0])}, {"base": row[1:4] * 1000}
    for joint in urdf.iter("joint"):
        name, parent = joint.find("child").get("link"), joint.find("parent").get("link")
        step = np.array([float(word) for word in joint.find("origin").get("xyz").split()]) * 250
        places[name] = places[parent] + turn(turns[parent], step)
        local = np.array([1.0, 0, 0, 0])
        if joint.get("type") == "revolute":
            axis = np.array([float(word) for word in joint.find("axis").get("xyz").split()])
            angle = row[ROW[name]]
            local = np.array([np.cos(angle / 2), *(np.sin(angle / 2) * axis)])
        elif name in ROW:
            local = row[ROW[name] : ROW[name] + 4]
        turns[name] = times(turns[parent], local)
    return places


@pytest.mark.parametrize("clip", CLIPS)
def test_every_clip_has_the_joints_of_deepmimics_own_body(wheel, clips, clip):
    rows = rows_of(wheel, clip)
    joints = joints_world(clips[clip])
    step = 2 if np.median(rows[:, 0]) < 0.02 else 1
    assert len(joints) == len(rows[::step])
    for frame in range(0, len(joints), 7):
        places = kinematics(wheel, rows[frame * step])
        theirs = np.stack([AXES @ places[SAME[name]] for name in SAME])
        ours = joints[frame, H36M_17.indices(*SAME)]
        assert np.abs(ours - theirs).max() < 0.2  # mm: the files are written to 0.0001 degrees


def test_clips_are_at_most_at_30_hz_and_as_long_as_the_originals(wheel, clips):
    for clip, path in clips.items():
        bvh, rows = Bvh.read(path), rows_of(wheel, clip)
        assert bvh.frame_time > 1 / 30.1
        assert bvh.leading_t_poses == 0
        assert bvh.frames * bvh.frame_time == pytest.approx(len(rows) * np.median(rows[:, 0]), abs=0.04)


def test_nodes_are_cmus(clips, motion):
    cmu = Bvh.read(next(motion.rglob("*.bvh")))
    for path in clips.values():
        ours = Bvh.read(path)
        assert (ours.joints, ours.parents, ours.channels) == (cmu.joints, cmu.parents, cmu.channels)


@pytest.mark.parametrize("clip", ["humanoid3d_walk", "walker/0walk_forward", "humanoid3d_run"])
def test_walkers_go_forwards_and_bend_knees_and_elbows_the_right_way(clips, clip):
    bvh = Bvh.read(clips[clip])
    joints = {name: h36m_joints(bvh)[:, i] for i, name in enumerate(H36M_17.joints)}
    forwards = joints["pelvis"][-1] - joints["pelvis"][0]
    forwards /= np.linalg.norm(forwards)
    left = np.cross([0, 1, 0], forwards)
    toes = bvh.positions()[:, bvh.nodes("LeftToeBase")[0]]
    assert ((toes - joints["left_ankle"]) @ forwards).mean() > 30
    assert ((joints["head"] - joints["pelvis"])[:, 1]).min() > 500
    for a, b in H36M_17.pairs:
        name, other = H36M_17.joints[a], H36M_17.joints[b]
        assert ((joints[name] - joints[other]) @ left).mean() > 100
    for side in ("left", "right"):
        hip, knee, ankle = (joints[f"{side}_{joint}"] for joint in ("hip", "knee", "ankle"))
        assert ((knee - (hip + ankle) / 2) @ forwards).mean() > 20  # the knee is in front of the line hip to ankle
        shoulder, elbow, wrist = (joints[f"{side}_{joint}"] for joint in ("shoulder", "elbow", "wrist"))
        assert ((elbow - (shoulder + wrist) / 2) @ forwards).mean() < -15


def test_both_splits_have_motion_of_many_kinds_and_no_clip_in_common():
    folder = motion_folder(None)
    kinds = {}
    for split in ("train", "test"):
        poses = library(folder, split)
        frames = np.concatenate([frames for frames, _ in poses.members.values()])
        kinds[split] = {poses.clips[i] for i in poses.clip[frames]}
        assert len(poses.members) >= 6, poses.members.keys()
        assert set(poses.members) <= set(CLASSES)
    assert kinds["train"] | kinds["test"] == {path.stem for path in folder.glob("*.bvh")}
    assert not kinds["train"] & kinds["test"]
    assert len(kinds["test"]) >= 2
    assert {split_of(str(number)) for number in CLIPS.values()} == {"train", "test"}
    assert not {str(number) for number in CLIPS.values()} & (TWINS.keys() | TWINS.values())


def test_people_are_rendered_without_a_motion_folder(tmp_path):
    from di2pose_people.render import make_plan, render_people
    from di2pose_people.store import People

    assert render_people(make_plan(None, "train", 1, None), tmp_path, 2) == 2
    assert {int(subject) for subject in People(tmp_path).column("subject")} <= set(CLIPS.values())


def test_a_given_folder_is_taken_and_nothing_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "cache"))
    assert motion_folder(tmp_path) == tmp_path.resolve()
    assert not (tmp_path / "cache").exists()


def test_offline_the_message_names_the_flag_and_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match=r"no --motion DIR.*pybullet==3\.2\.7.*check the network"):
        motion_folder(None)
    assert not list(tmp_path.glob("deepmimic*"))
