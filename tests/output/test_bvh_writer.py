"""BVH read back: by the reader of the data room, and by forward kinematics written here from the format alone."""

import numpy as np
import pytest
from data.cmu_files import joints_world, real_clips
from output.people import OFFSETS, person, pose, result

from di2pose.data.bvh import Bvh
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion

FLIP = np.array([1.0, -1.0, -1.0])


def wanted(someone):
    return (someone.joints_mm + someone.root_mm) * FLIP


def by_hand(path):
    """Joint name -> (F, 3), from 4x4 matrices and a stack, one frame at a time."""
    head, tail = path.read_text().split("MOTION")
    rows = [list(map(float, line.split())) for line in tail.strip().splitlines()[2:]]
    places = {}
    for row in rows:
        values, stack = iter(row), [np.eye(4)]
        name = None
        for line in head.splitlines()[1:]:
            words = line.split()
            if words[0] in ("ROOT", "JOINT"):
                name = words[1]
            elif words[0] == "End":
                name = None
            elif words[0] == "{":
                stack.append(stack[-1])
            elif words[0] == "}":
                stack.pop()
            elif words[0] == "OFFSET":
                at = np.eye(4)
                at[:3, 3] = list(map(float, words[1:]))
            elif words[0] == "CHANNELS":
                for kind in words[2:]:  # positions come first, and in place of the offset
                    value = next(values)
                    if kind.endswith("position"):
                        at["XYZ".index(kind[0]), 3] = value
                    else:
                        c, s = np.cos(np.radians(value)), np.sin(np.radians(value))
                        i, j = {"X": (1, 2), "Y": (2, 0), "Z": (0, 1)}[kind[0]]
                        step = np.eye(4)
                        step[i, i], step[i, j], step[j, i], step[j, j] = c, -s, s, c
                        at = at @ step
                stack[-1] = stack[-1] @ at
                places.setdefault(name, []).append(stack[-1][:3, 3])
        assert next(values, None) is None
    return {name: np.array(path) for name, path in places.items()}


def error(path, truth):
    """Largest distance of any joint of any frame, mm, the worse of the two readers."""
    hand = by_hand(path)
    first = np.stack([hand[name] for name in H36M_17.joints], axis=1)
    bvh = Bvh.read(path, unit_mm=1.0)
    second = bvh.positions()[:, bvh.nodes(*H36M_17.joints)]
    assert first.shape == second.shape == truth.shape
    return max(np.linalg.norm(read - truth, axis=-1).max() for read in (first, second))


@pytest.mark.parametrize("seed", range(12))
def test_a_photo_comes_back_to_a_hundredth_of_a_millimetre(tmp_path, seed):
    rng = np.random.default_rng(seed)
    someone = person(seed, joints_mm=pose(rng, bend=0.3 + 0.1 * seed))
    result([someone]).save(tmp_path / "p.bvh")
    assert error(tmp_path / "p.bvh", wanted(someone)[None]) < 0.05


def test_a_video_of_constant_bones_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    people = [person(k, track=0, joints_mm=pose(rng), root_mm=(10.0 * k, 0.0, 3000.0 + k)) for k in range(25)]
    Motion([result([p]) for p in people], fps=25.0).save(tmp_path / "v.bvh")
    assert error(tmp_path / "v.bvh", np.stack([wanted(p) for p in people])) < 0.05
    assert stretching(tmp_path / "v.bvh") == set()
    assert Bvh.read(tmp_path / "v.bvh", unit_mm=1.0).frame_time == pytest.approx(0.04)


def stretching(path):
    """The joints, other than the root, that have position channels."""
    bvh = Bvh.read(path, unit_mm=1.0)
    return {name for name, kinds in zip(bvh.joints[1:], bvh.channels[1:], strict=True) if "Xposition" in kinds}


@pytest.mark.parametrize(("vary", "some_stretch"), [(0.0, False), (0.005, False), (0.1, True)])
def test_a_video_whose_bones_vary_comes_back_within_10_mm(tmp_path, vary, some_stretch):
    """Bones are of one length as long as they can be; the ones that cannot get position channels."""
    rng = np.random.default_rng(1)
    people = []
    for k in range(25):
        joints, varied = pose(rng), np.zeros((17, 3))
        for child, parent in H36M_17.bones:
            varied[child] = varied[parent] + (joints[child] - joints[parent]) * (1 + rng.uniform(-vary, vary))
        people.append(person(k, track=0, joints_mm=varied))
    Motion([result([p]) for p in people], fps=25.0).save(tmp_path / "v.bvh")
    assert error(tmp_path / "v.bvh", np.stack([wanted(p) for p in people])) < 10
    assert bool(stretching(tmp_path / "v.bvh")) is some_stretch


def test_real_motion_comes_back_within_10_mm(tmp_path):
    clips = sorted(real_clips().rglob("*.bvh"))[::400]
    assert clips
    for clip in clips:
        joints = joints_world(clip)[:40]
        frames = [person(0, track=0, joints_mm=(j - j[0]) * FLIP, root_mm=tuple(j[0] * FLIP)) for j in joints]
        Motion([result([p]) for p in frames], fps=6.0).save(tmp_path / "c.bvh")
        assert error(tmp_path / "c.bvh", joints) < 10, clip.name


def rest_pose():
    """The T-pose of the file's own axes, in camera axes."""
    joints = np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        name, length = H36M_17.joints[child], np.linalg.norm(OFFSETS[child])
        sign = 1.0 if "left" in name else -1.0
        away = {"hip": (sign, 0, 0), "shoulder": (sign, 0, 0), "elbow": (sign, 0, 0), "wrist": (sign, 0, 0)}
        away |= {"knee": (0, 1, 0), "ankle": (0, 1, 0)}
        joints[child] = joints[parent] + length * np.array(away.get(name.split("_")[-1], (0, -1, 0)))
    return joints


def test_a_t_pose_before_the_camera_needs_no_rotation(tmp_path):
    result([person(joints_mm=rest_pose())]).save(tmp_path / "t.bvh")
    motion = Bvh.read(tmp_path / "t.bvh", unit_mm=1.0).motion
    np.testing.assert_allclose(motion[0, 3:], 0, atol=1e-4)


@pytest.mark.parametrize("turn", ["folded", "down", "one_point"])
def test_poses_without_a_best_turn_come_back_too(tmp_path, turn):
    joints = rest_pose()
    wrist, elbow, shoulder = H36M_17.indices("left_wrist", "left_elbow", "left_shoulder")
    if turn == "folded":  # the forearm straight back along the upper arm: the half turn has no axis
        joints[wrist] = joints[elbow] - 0.8 * (joints[elbow] - joints[shoulder])
    elif turn == "down":  # x = 90 degrees, where two angles of the three are one
        joints = joints[:, [0, 2, 1]] * np.array([1.0, -1.0, 1.0])
    else:  # all joints in one place
        joints = np.zeros((17, 3))
    someone = person(joints_mm=joints)
    result([someone]).save(tmp_path / "x.bvh")
    assert error(tmp_path / "x.bvh", wanted(someone)[None]) < 0.05


def test_angles_do_not_jump_while_someone_turns_round(tmp_path):
    base, frames = pose(np.random.default_rng(3)), []
    for angle in np.linspace(0, 4 * np.pi, 60):
        c, s = np.cos(angle), np.sin(angle)
        frames.append(result([person(0, track=0, joints_mm=base @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]).T)]))
    Motion(frames, fps=30.0).save(tmp_path / "turn.bvh")
    motion = Bvh.read(tmp_path / "turn.bvh", unit_mm=1.0).motion
    assert np.abs(np.diff(motion[:, 3:], axis=0)).max() < 45
    assert np.ptp(motion[:, 5]) > 600  # two whole turns of the root about y


def test_lost_frames_lie_between_their_neighbours(tmp_path):
    base = pose(np.random.default_rng(4))
    people = [person(0, track=0, joints_mm=base, root_mm=(100.0 * k, 0.0, 3000.0)) for k in range(5)]
    frames = [result([people[k]] if k in (1, 4) else []) for k in range(5)]
    Motion(frames, fps=30.0).save(tmp_path / "gap.bvh")
    assert error(tmp_path / "gap.bvh", np.stack([wanted(p) for p in people[1:]])) < 0.05


def test_one_body_has_position_channels_at_the_root_alone_also_where_it_was_lost(tmp_path):
    """Poses far apart round a gap: the straight line between them would shorten the bones."""
    rng = np.random.default_rng(5)
    people = [person(k, track=0, joints_mm=pose(rng), root_mm=(40.0 * k, 0.0, 3000.0)) for k in range(9)]
    seen = [0, 1, 4, 8]
    Motion([result([people[k]] if k in seen else []) for k in range(9)], fps=30.0).save(tmp_path / "gap.bvh")
    assert stretching(tmp_path / "gap.bvh") == set()
    bvh = Bvh.read(tmp_path / "gap.bvh", unit_mm=1.0)
    joints = bvh.positions()[:, bvh.nodes(*H36M_17.joints)]
    np.testing.assert_allclose(joints[seen], np.stack([wanted(people[k]) for k in seen]), atol=0.1)
    for child, parent in H36M_17.bones:
        lengths = np.linalg.norm(joints[:, child] - joints[:, parent], axis=-1)
        np.testing.assert_allclose(lengths, np.linalg.norm(OFFSETS[child]), atol=0.1)


def test_bones_that_are_constant_to_a_millimetre_come_back_to_a_millimetre_by_the_root_alone(tmp_path):
    rng = np.random.default_rng(6)
    people = []
    for k in range(25):
        joints, varied = pose(rng), np.zeros((17, 3))
        for child, parent in H36M_17.bones:
            bone = joints[child] - joints[parent]
            varied[child] = varied[parent] + bone * (1 + rng.uniform(-0.5, 0.5) / np.linalg.norm(bone))
        people.append(person(k, track=0, joints_mm=varied))
    Motion([result([p]) for p in people], fps=25.0).save(tmp_path / "v.bvh")
    assert stretching(tmp_path / "v.bvh") == set()
    assert error(tmp_path / "v.bvh", np.stack([wanted(p) for p in people])) < 1


def test_a_photo_has_position_channels_at_the_root_alone(tmp_path):
    result([person(1)]).save(tmp_path / "p.bvh")
    assert stretching(tmp_path / "p.bvh") == set()


def test_a_converted_person_has_no_bvh(tmp_path):
    with pytest.raises(InputError, match="before they are converted"):
        result([person().convert("coco17")]).save(tmp_path / "c.bvh")
