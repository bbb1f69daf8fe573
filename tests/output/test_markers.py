"""TRC and C3D, read back by other readers than the writers."""

import ezc3d
import numpy as np
import pytest
from output.people import person, result

from di2pose.data.pose2sim import read_trc
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion


def y_up(someone):
    """The stated conversion, written out: camera axes with y down and z away -> y up, z towards the camera."""
    x, y, z = (someone.joints_mm + someone.root_mm).T
    return np.stack([x, -y, -z], axis=1)


@pytest.fixture
def motion():
    """Track 2 is there in frames 1, 2 and 4 of 6."""
    frames = [result([person(k, track=2)] if k in (1, 2, 4) else [], time_s=k / 60) for k in range(6)]
    return Motion(frames, fps=60.0)


def test_trc_is_what_opensim_expects(tmp_path, motion):
    assert motion.save(tmp_path / "walk.trc") == [tmp_path / "walk.trc"]
    lines = [line.split("\t") for line in (tmp_path / "walk.trc").read_text().splitlines()]
    assert lines[0] == ["PathFileType", "4", "(X/Y/Z)", "walk.trc"]
    header = dict(zip(lines[1], lines[2], strict=True))
    assert header == {
        "DataRate": "60", "CameraRate": "60", "NumFrames": "4", "NumMarkers": "17", "Units": "mm",
        "OrigDataRate": "60", "OrigDataStartFrame": "2", "OrigNumFrames": "4",
    }  # fmt: skip
    assert lines[3][:6] == ["Frame#", "Time", "pelvis", "", "", "right_hip"]
    assert lines[4][:5] == ["", "", "X1", "Y1", "Z1"]
    assert lines[4][-1] == "Z17"
    assert lines[5] == [""]
    rows = lines[6:]
    assert [row[0] for row in rows] == ["2", "3", "4", "5"]
    np.testing.assert_allclose([float(row[1]) for row in rows], np.arange(1, 5) / 60, atol=1e-6)
    assert rows[2][2:] == [""] * 51
    for row, k in ((rows[0], 1), (rows[1], 2), (rows[3], 4)):
        np.testing.assert_allclose(np.reshape(row[2:], (17, 3)).astype(float), y_up(motion[k].people[0]), atol=0.001)


def test_trc_is_read_by_the_reader_of_the_pose2sim_data(tmp_path):
    someone = person()
    result([someone]).save(tmp_path / "one.trc")
    names, world = read_trc(tmp_path / "one.trc")
    assert names == list(H36M_17.joints)
    np.testing.assert_allclose(world[0], y_up(someone)[:, [2, 0, 1]], atol=0.001)


def test_someone_who_stands_before_the_camera_stands_upright_and_looks_along_z(tmp_path):
    from output.people import OFFSETS

    joints = np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        joints[child] = joints[parent] + OFFSETS[child]  # faces the camera
    result([person(joints_mm=joints)]).save(tmp_path / "one.trc")
    row = (tmp_path / "one.trc").read_text().splitlines()[6].split("\t")
    at = dict(zip(H36M_17.joints, np.reshape(row[2:], (17, 3)).astype(float), strict=True))
    assert at["head"][1] > at["pelvis"][1] > at["left_ankle"][1]
    assert at["nose"][2] > at["thorax"][2]
    assert at["left_hip"][0] > at["right_hip"][0]


def test_c3d_holds_points_labels_rate_units_and_the_spread_as_residual(tmp_path, motion):
    motion.save(tmp_path / "walk.c3d")
    file = ezc3d.c3d(str(tmp_path / "walk.c3d"))
    parameters = file["parameters"]["POINT"]
    assert parameters["UNITS"]["value"] == ["mm"]
    assert parameters["LABELS"]["value"] == list(H36M_17.joints)
    assert parameters["RATE"]["value"][0] == 60.0
    assert (parameters["X_SCREEN"]["value"], parameters["Y_SCREEN"]["value"]) == (["+X"], ["+Y"])
    points, residuals = file["data"]["points"], file["data"]["meta_points"]["residuals"]
    assert points.shape == (4, 17, 4)
    for k, frame in ((0, 1), (1, 2), (3, 4)):
        someone = motion[frame].people[0]
        np.testing.assert_allclose(points[:3, :, k].T, y_up(someone), atol=0.001)
        np.testing.assert_array_equal(residuals[0, :, k], np.round(someone.std_mm))
    assert np.isnan(points[:3, :, 2]).all()
    assert (residuals[0, :, 2] == -1).all()


def test_c3d_keeps_a_residual_that_does_not_fit_at_its_largest(tmp_path):
    someone = person()
    wide = type(someone)(**{**vars(someone), "covariance_mm2": someone.covariance_mm2 * 1e4})
    result([wide]).save(tmp_path / "w.c3d")
    residuals = ezc3d.c3d(str(tmp_path / "w.c3d"))["data"]["meta_points"]["residuals"]
    assert wide.std_mm.min() > 255
    assert (residuals == 255).all()


@pytest.mark.parametrize("suffix", [".trc", ".c3d", ".bvh"])
def test_several_people_get_a_file_each(tmp_path, suffix):
    both = result([person(1), person(2)])
    names = [path.name for path in both.save(tmp_path / f"x{suffix}")]
    assert names == [f"x_p0{suffix}", f"x_p1{suffix}"]
    tracks = Motion([result([person(1, track=3), person(2, track=7)])], fps=30.0)
    assert [path.name for path in tracks.save(tmp_path / f"y{suffix}")] == [f"y_p3{suffix}", f"y_p7{suffix}"]
    assert all((tmp_path / name).is_file() for name in names)


def test_unknown_joints_of_a_converted_person_are_empty(tmp_path):
    result([person().convert("coco17")]).save(tmp_path / "c.trc")
    lines = (tmp_path / "c.trc").read_text().splitlines()
    assert lines[3].split("\t")[2:6] == ["nose", "", "", "left_eye"]
    assert lines[6].split("\t")[5:8] == ["", "", ""]
    result([person().convert("coco17")]).save(tmp_path / "c.c3d")
    residuals = ezc3d.c3d(str(tmp_path / "c.c3d"))["data"]["meta_points"]["residuals"]
    assert residuals[0, 1, 0] == -1
