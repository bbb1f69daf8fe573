"""BVH read back by the reader of the datasets, which is tested with real files."""

import numpy as np
import pytest
from data.cmu_files import joints_world, real_clips
from output.people import H36M_19, OFFSETS, person, pose, result, rotation, video

from di2pose.data.bvh import Bvh
from di2pose.errors import InputError
from di2pose.output.bvh import MIXAMO
from di2pose.pose.skeleton import H36M_17, H36M_21

FLIP = np.array([1.0, -1.0, -1.0])


def wanted(someone):
    return (someone.joints_mm + someone.root_mm) * FLIP


def error(path, truth, skeleton=H36M_17):
    """Largest distance of any joint of any frame, mm."""
    bvh = Bvh.read(path, unit_mm=1.0)
    read = bvh.positions()[:, bvh.nodes(*skeleton.joints)]
    assert read.shape == truth.shape
    return np.linalg.norm(read - truth, axis=-1).max()


def stretching(path):
    """The joints, other than the root, that have position channels."""
    bvh = Bvh.read(path, unit_mm=1.0)
    return {name for name, kinds in zip(bvh.joints[1:], bvh.channels[1:], strict=True) if "Xposition" in kinds}


def varied(rng, change):
    """A pose with bones of `change(length)` times their length."""
    joints, out = pose(rng), np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        bone = joints[child] - joints[parent]
        out[child] = out[parent] + bone * change(np.linalg.norm(bone))
    return out


def rest_pose():
    """The T-pose of the file's own axes, in camera axes."""
    joints = np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        name, length = H36M_17.joints[child], np.linalg.norm(OFFSETS[child])
        sign = 1.0 if "left" in name else -1.0
        away = {part: (sign, 0, 0) for part in ("hip", "shoulder", "elbow", "wrist")}
        away |= {"knee": (0, 1, 0), "ankle": (0, 1, 0)}
        joints[child] = joints[parent] + length * np.array(away.get(name.split("_")[-1], (0, -1, 0)))
    return joints


@pytest.mark.parametrize(
    ("seed", "change", "limit_mm", "some_stretch"),
    [
        (0, lambda rng, length: 1.0, 0.05, False),
        (6, lambda rng, length: 1 + rng.uniform(-0.5, 0.5) / length, 1, False),  # constant to a millimetre
        (1, lambda rng, length: 1 + rng.uniform(-0.005, 0.005), 10, False),
        (1, lambda rng, length: 1 + rng.uniform(-0.1, 0.1), 10, True),
    ],
)
def test_a_video_comes_back_and_only_bones_that_vary_get_positions(tmp_path, seed, change, limit_mm, some_stretch):
    rng = np.random.default_rng(seed)
    people = [
        person(k, 0, joints_mm=varied(rng, lambda length: change(rng, length)), root_mm=(10.0 * k, 0.0, 3000.0 + k))
        for k in range(12)
    ]
    video(people, 25.0).save(tmp_path / "v.bvh")
    assert error(tmp_path / "v.bvh", np.stack([wanted(p) for p in people])) < limit_mm
    assert bool(stretching(tmp_path / "v.bvh")) is some_stretch
    assert Bvh.read(tmp_path / "v.bvh", unit_mm=1.0).frame_time == pytest.approx(0.04)


def test_real_motion_comes_back_within_10_mm(tmp_path):
    clips = sorted(real_clips().rglob("*.bvh"))[::400]
    assert clips
    for clip in clips:
        joints = joints_world(clip)[:40]
        own = [((j - j[0]) * FLIP, tuple(j[0] * FLIP)) for j in joints]
        frames = [person(0, track=0, joints_mm=j, root_mm=root, skeleton=H36M_21) for j, root in own]
        video(frames, 6.0).save(tmp_path / "c.bvh")
        assert error(tmp_path / "c.bvh", joints, H36M_21) < 10, clip.name


@pytest.mark.parametrize("turn", ["none", "any", "folded", "down", "one_point"])
def test_a_photo_comes_back_also_where_there_is_no_best_turn(tmp_path, turn):
    joints, skeleton = rest_pose(), H36M_17
    wrist, elbow, shoulder = H36M_17.indices("left_wrist", "left_elbow", "left_shoulder")
    if turn == "any":
        skeleton = H36M_19
        joints = pose(np.random.default_rng(4), 0.7, skeleton)
    elif turn == "folded":  # the forearm back along the upper arm: the half turn has no axis
        joints[wrist] = joints[elbow] - 0.8 * (joints[elbow] - joints[shoulder])
    elif turn == "down":  # x = 90 degrees, where two angles of the three are one
        joints = joints[:, [0, 2, 1]] * np.array([1.0, -1.0, 1.0])
    elif turn == "one_point":
        joints = np.zeros((17, 3))
    someone = person(joints_mm=joints, skeleton=skeleton)
    result([someone]).save(tmp_path / "x.bvh")
    assert error(tmp_path / "x.bvh", wanted(someone)[None], skeleton) < 0.05
    if turn == "any":
        nodes = Bvh.read(tmp_path / "x.bvh", unit_mm=1.0).joints
        assert {"left_ankle_to_left_heel", "left_ankle_to_left_toe"} <= set(nodes)
    if turn == "none":  # the file's own T-pose
        np.testing.assert_allclose(Bvh.read(tmp_path / "x.bvh", unit_mm=1.0).motion[0, 3:], 0, atol=1e-4)


def test_a_foot_turns_at_the_ankle_and_rests_flat_and_forwards(tmp_path):
    base, frames, ankle = pose(np.random.default_rng(2), skeleton=H36M_21), [], H36M_21.index("left_ankle")
    heel, toe = H36M_21.indices("left_heel", "left_toe")
    base[[heel, toe]] = base[ankle] + [(0, 60, 40), (0, 70, -180)]
    for degrees in np.linspace(0, 40, 5):
        joints, turn = base.copy(), rotation(np.radians(degrees) * np.array([0.6, 0.0, 0.8]))
        joints[[heel, toe]] = (base[[heel, toe]] - base[ankle]) @ turn.T + base[ankle]
        frames.append(person(0, track=0, joints_mm=joints, skeleton=H36M_21))
    video(frames).save(tmp_path / "f.bvh")
    assert error(tmp_path / "f.bvh", np.stack([wanted(p) for p in frames]), H36M_21) < 0.05
    bvh = Bvh.read(tmp_path / "f.bvh", unit_mm=1.0)
    offsets = bvh.offsets[bvh.nodes("left_heel", "left_toe")]
    np.testing.assert_allclose(offsets[:, 0], 0, atol=1e-3)
    assert offsets[0, 1] == pytest.approx(offsets[1, 1], abs=1e-3)  # flat: heel and toe below the ankle
    assert -75 < offsets[0, 1] < -55
    assert offsets[0, 2] < -30
    assert offsets[1, 2] > 170
    columns = np.array([name for name, kinds in zip(bvh.joints, bvh.channels, strict=True) for _ in kinds])
    assert set(columns[np.ptp(bvh.motion, axis=0) > 0.01]) == {"left_ankle"}
    assert np.abs(bvh.motion[:, np.char.startswith(columns, "left_ankle_to_")]).max() < 0.01


def test_angles_do_not_jump_while_someone_turns_round(tmp_path):
    base, frames = pose(np.random.default_rng(3)), []
    for angle in np.linspace(0, 4 * np.pi, 40):
        c, s = np.cos(angle), np.sin(angle)
        frames.append(person(0, track=0, joints_mm=base @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]).T))
    video(frames).save(tmp_path / "turn.bvh")
    motion = Bvh.read(tmp_path / "turn.bvh", unit_mm=1.0).motion
    assert np.abs(np.diff(motion[:, 3:], axis=0)).max() < 45
    assert np.ptp(motion[:, 5]) > 600  # two whole turns of the root about y


def test_missing_frames_are_interpolated_with_bones_of_constant_length(tmp_path):
    base = pose(np.random.default_rng(4))
    people = [person(0, track=0, joints_mm=base, root_mm=(100.0 * k, 0.0, 3000.0)) for k in range(5)]
    video([people[k] if k in (1, 4) else None for k in range(5)]).save(tmp_path / "same.bvh")
    assert error(tmp_path / "same.bvh", np.stack([wanted(p) for p in people[1:]])) < 0.05
    rng, seen = np.random.default_rng(5), [0, 1, 4, 8]
    people = [person(k, track=0, joints_mm=pose(rng), root_mm=(40.0 * k, 0.0, 3000.0)) for k in range(9)]
    video([people[k] if k in seen else None for k in range(9)]).save(tmp_path / "gap.bvh")
    assert stretching(tmp_path / "gap.bvh") == set()
    bvh = Bvh.read(tmp_path / "gap.bvh", unit_mm=1.0)
    joints = bvh.positions()[:, bvh.nodes(*H36M_17.joints)]
    np.testing.assert_allclose(joints[seen], np.stack([wanted(people[k]) for k in seen]), atol=0.1)
    for child, parent in H36M_17.bones:
        lengths = np.linalg.norm(joints[:, child] - joints[:, parent], axis=-1)
        np.testing.assert_allclose(lengths, np.linalg.norm(OFFSETS[child]), atol=0.1)


def test_mixamos_names_move_nothing(tmp_path):
    joints = [pose(np.random.default_rng(seed), 0.4, H36M_21) for seed in (1, 2)]
    frames = [person(track=0, joints_mm=each, skeleton=H36M_21) for each in joints]
    video(frames).save(tmp_path / "m.mixamo.bvh")
    video(frames).save(tmp_path / "m.bvh")
    ours, theirs = (Bvh.read(tmp_path / name, unit_mm=1.0) for name in ("m.bvh", "m.mixamo.bvh"))
    assert np.array_equal(ours.motion, theirs.motion)
    assert np.array_equal(ours.offsets, theirs.offsets)
    renamed = [" ".join([MIXAMO[first], *rest]) for first, *rest in map(str.split, ours.joints)]  # "head end"
    assert list(theirs.joints) == renamed
    limbs = ["UpLeg", "Leg", "Foot", "ToeBase", "Shoulder", "Arm", "ForeArm", "Hand"]
    standard = {"Hips", "Spine", "Spine1", "Spine2", "Neck", "Head"}
    standard |= {side + limb for side in ("Left", "Right") for limb in limbs}
    assert standard <= set(theirs.joints)
    above = dict(zip(theirs.joints, theirs.parents, strict=True))
    chain, name = [], "LeftHand"
    while name != "Hips":
        chain.append(name)
        name = theirs.joints[above[name]]
    assert chain == ["LeftHand", "LeftForeArm", "LeftArm", "LeftShoulder", "Spine2", "Spine1", "Spine"]


def test_a_converted_person_has_no_bvh(tmp_path):
    with pytest.raises(InputError, match="before they are converted"):
        result([person().convert("coco17")]).save(tmp_path / "c.bvh")
