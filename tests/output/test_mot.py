"""MOT: the numbers of the table of angles, and what became of the gaps."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from output.people import person, pose, result, video

from di2pose.errors import InputError
from di2pose.pose.angles import ALL, DIFFERENCES, NAMES
from di2pose.pose.skeleton import H36M_21
from di2pose.result import Motion
from di2pose.video.smooth import smooth

RATE = 20.0


def read(content):
    """Header lines, column names and numbers."""
    head, _, table = content.decode().partition("endheader\n")
    names, *rows = (line.split("\t") for line in table.splitlines())
    return head.splitlines(), names, np.array(rows, float)


def walk(missing=(), frames=12, skeleton=H36M_21, change=lambda k, joints: joints):
    first, last = (pose(np.random.default_rng(seed), 0.3, skeleton) for seed in (1, 2))
    people = [person(k, 0, joints_mm=change(k, first * (1 - k / frames) + last * k / frames), skeleton=skeleton)
              for k in range(frames)]  # fmt: skip
    return video([None if k in missing else each for k, each in enumerate(people)], RATE)


def test_the_numbers_are_those_of_the_table(tmp_path):
    motion = walk(missing=(0,))
    head, names, numbers = read(motion.to_files("w.mot")["w.mot"])
    assert head[:5] == ["Coordinates", "version=1", "nRows=11", f"nColumns={len(ALL) + 1}", "inDegrees=yes"]
    assert head[6:] == [
        "Angles as in the CSV of angles of di2pose", "smoothing: none",
        "gaps: interpolated up to 0.25 s, rows in longer ones left out",
    ]  # fmt: skip
    assert names == ["time", *ALL]
    rows = list(csv.DictReader(motion.to_files("w.angles.csv")["w.angles.csv"].decode().splitlines()))
    np.testing.assert_allclose(numbers[:, 0], [float(row["time_s"]) for row in rows], atol=1e-6)
    table = np.array([[float(row[f"{name}_deg"]) for name in ALL] for row in rows])
    np.testing.assert_allclose(numbers[:, 1:], table, atol=0.0501)
    photo = result([motion[1].people[0].convert("coco17")]).to_files("p.mot")["p.mot"]
    head, names, numbers = read(photo)
    assert names == ["time", *(name for name in (*NAMES, *DIFFERENCES) if name != "neck_flexion")]
    assert "angles left out, open in most frames: neck_flexion" in head
    assert numbers.shape == (1, len(names))


def test_short_gaps_are_interpolated_and_rows_of_long_ones_left_out():
    whole, gaps = (read(walk(missing).to_files("w.mot")["w.mot"]) for missing in ((), (2, 3, 5, 6, 7, 8, 9)))
    head, _, numbers = gaps
    assert head[-2:] == [
        "interpolated: 0.100000 to 0.150000 s, of all angles", "rows left out: 0.250000 to 0.450000 s, of all angles"
    ]  # fmt: skip
    kept = [0, 1, 2, 3, 4, 10, 11]
    assert head[2] == "nRows=7"
    np.testing.assert_allclose(numbers[:, 0], np.array(kept) / RATE, atol=1e-6)
    known = [0, 1, 4, 5, 6]
    np.testing.assert_allclose(numbers[known], whole[2][[0, 1, 4, 10, 11]], atol=1e-9)
    line = numbers[1] + (numbers[4] - numbers[1]) * [[1 / 3], [2 / 3]]
    signed = np.abs(numbers[4] - numbers[1]) > 180
    np.testing.assert_allclose(numbers[2:4][:, ~signed], line[:, ~signed], atol=1e-3)


def test_a_gap_across_180_degrees_goes_the_short_way():
    def change(k, joints):  # the left thigh turns backwards past the trunk: flexion from 170 to -170 degrees
        out = joints.copy()
        hip, knee, right, pelvis, thorax = H36M_21.indices("left_hip", "left_knee", "right_hip", "pelvis", "thorax")
        across = out[hip] - out[right]
        trunk = out[thorax] - out[pelvis]
        up = trunk - across * (trunk @ across) / (across @ across)
        front = np.cross(across, up)
        turn = np.radians(170 + 20 * k / 3)
        up, front = (each / np.linalg.norm(each) for each in (up, front))
        out[knee] = out[hip] + 450 * (np.sin(turn) * front - np.cos(turn) * up)
        return out

    def same(k, joints):
        return change(k, pose(np.random.default_rng(1), 0.3, H36M_21))

    column = 1 + ALL.index("left_hip_flexion")
    flexion = read(walk((1, 2), frames=4, change=same).to_files("w.mot")["w.mot"])[2][:, column]
    np.testing.assert_allclose(flexion, [170, 176.6667, -176.6667, -170], atol=1e-3)


def test_one_open_angle_is_named_and_its_rows_are_left_out():
    def change(k, joints):
        out = joints.copy()
        hip, knee, right = H36M_21.indices("left_hip", "left_knee", "right_hip")
        if 3 <= k < 9:  # the thigh along the axis of the hips
            out[knee] = out[hip] + 450 * (out[hip] - out[right]) / np.linalg.norm(out[hip] - out[right])
        return out

    head, names, numbers = read(walk(change=change).to_files("w.mot")["w.mot"])
    assert head[-1] == "rows left out: 0.150000 to 0.400000 s, of left_hip_flexion hip_flexion_difference"
    assert numbers.shape == (6, len(names))
    assert len(names) == 1 + len(ALL)
    ends = video([each.people[0] for each in walk(frames=2)], RATE).results
    nowhere = replace(ends[0].people[0], joints_mm=np.zeros((21, 3)))
    with pytest.raises(InputError, match=r"no frame has all angles: write them as \.angles\.csv"):
        Motion([replace(each, people=[nowhere]) for each in ends], RATE).to_files("w.mot")


def test_the_smoothing_is_named_also_after_json(tmp_path):
    smoothed = Motion(list(smooth(walk())), RATE)
    smoothed.save(tmp_path / "w.json")
    for motion in (smoothed, Motion.load(tmp_path / "w.json")):
        head = read(motion.to_files("w.mot")["w.mot"])[0]
        assert "smoothing: cubic spline weighted by certainty, over 0.25 s to either side" in head


def test_people_have_a_file_each():
    files = video([[person(k, 0), person(k + 9, 4)] for k in range(3)], RATE).to_files("w.mot")
    assert list(files) == ["w_p0.mot", "w_p4.mot"]
    assert all(read(content)[2].shape[0] == 3 for content in files.values())
