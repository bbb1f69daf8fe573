"""TRC and C3D, read back by other readers."""

import struct
import warnings
from dataclasses import replace

import numpy as np
import pytest
from output.people import H36M_19, person, result, standing, video
from video.films import striped, write_film

from di2pose.data.pose2sim import read_trc
from di2pose.output.media import OverlayVideo
from di2pose.output.motion import c3d_bytes, evenly
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion
from di2pose.video.stream import Stream


def y_up(someone):
    """Camera axes with y down and z away -> y up, z towards the camera."""
    x, y, z = (someone.joints_mm + someone.root_mm).T
    return np.stack([x, -y, -z], axis=1)


@pytest.fixture
def motion():
    """Track 2, of 19 joints, is there in frames 1, 2 and 4 of 6."""
    return video([person(k, track=2, skeleton=H36M_19) if k in (1, 2, 4) else None for k in range(6)], fps=60.0)


def test_trc_is_what_opensim_expects(tmp_path, motion):
    assert motion.save(tmp_path / "walk.trc") == [tmp_path / "walk.trc"]
    lines = [line.split("\t") for line in (tmp_path / "walk.trc").read_text().splitlines()]
    assert lines[0] == ["PathFileType", "4", "(X/Y/Z)", "walk.trc"]
    assert dict(zip(lines[1], lines[2], strict=True)) == {
        "DataRate": "60", "CameraRate": "60", "NumFrames": "4", "NumMarkers": "19", "Units": "mm",
        "OrigDataRate": "60", "OrigDataStartFrame": "2", "OrigNumFrames": "4",
    }  # fmt: skip
    assert lines[3][:6] == ["Frame#", "Time", "pelvis", "", "", "right_hip"]
    assert (lines[4][:5], lines[4][-1], lines[5]) == (["", "", "X1", "Y1", "Z1"], "Z19", [""])
    rows = lines[6:]
    assert [row[0] for row in rows] == ["2", "3", "4", "5"]
    np.testing.assert_allclose([float(row[1]) for row in rows], np.arange(1, 5) / 60, atol=1e-6)
    assert rows[2][2:] == ["NaN"] * 57
    for row, k in ((rows[0], 1), (rows[1], 2), (rows[3], 4)):
        np.testing.assert_allclose(np.reshape(row[2:], (19, 3)).astype(float), y_up(motion[k].people[0]), atol=0.001)


def test_trc_with_a_strange_name_is_read_by_the_pose2sim_reader(tmp_path):
    someone, path = person(), tmp_path / "a\tb\nc.trc"
    result([someone]).save(path)
    assert path.read_text().splitlines()[0] == "PathFileType\t4\t(X/Y/Z)\ta\\tb\\nc.trc"
    names, world = read_trc(path)
    assert names == list(H36M_17.joints)
    np.testing.assert_allclose(world[0], y_up(someone)[:, [2, 0, 1]], atol=0.001)


def test_someone_who_faces_the_camera_stands_upright_and_faces_z(tmp_path):
    result([person(joints_mm=standing())]).save(tmp_path / "one.trc")
    row = (tmp_path / "one.trc").read_text().splitlines()[6].split("\t")
    at = dict(zip(H36M_17.joints, np.reshape(row[2:], (17, 3)).astype(float), strict=True))
    assert at["head"][1] > at["pelvis"][1] > at["left_ankle"][1]
    assert at["nose"][2] > at["thorax"][2]
    assert at["left_hip"][0] > at["right_hip"][0]


def c3d_by_ezc3d(path):
    ezc3d = pytest.importorskip("ezc3d", reason="a reader of C3D: pip install ezc3d")
    file = ezc3d.c3d(str(path))
    return file["data"]["points"][:3].T, file["data"]["meta_points"]["residuals"][0].T


def c3d_by_c3d(path):
    c3d = pytest.importorskip("c3d", reason="another reader of C3D: pip install c3d")
    with warnings.catch_warnings(), path.open("rb") as file:
        warnings.simplefilter("ignore")  # it misses analog data
        frames = np.stack([points for _, points, _ in c3d.Reader(file).read_frames()])
    return frames[..., :3], frames[..., 3]


@pytest.mark.parametrize("reader", [c3d_by_ezc3d, c3d_by_c3d])
@pytest.mark.parametrize("wider", [1, 1000])
def test_c3d_points_and_residuals_are_read_back(tmp_path, motion, reader, wider):
    """Spreads of 10 to 80 mm and of metres: none is cut off, each is good to 1 in 254 of the largest."""
    wide = [
        result([replace(p, covariance_mm2=p.covariance_mm2 * wider**2) for p in each.people], time_s=each.time_s)
        for each in motion
    ]
    Motion(wide, fps=60.0).save(tmp_path / "walk.c3d")
    points, residuals = reader(tmp_path / "walk.c3d")
    assert (points.shape, residuals.shape) == ((4, 19, 3), (4, 19))
    largest = max(wide[frame].people[0].std_mm.max() for frame in (1, 2, 4))
    for k, frame in ((0, 1), (1, 2), (3, 4)):
        someone = wide[frame].people[0]
        np.testing.assert_allclose(points[k], y_up(someone), atol=0.001)
        np.testing.assert_allclose(residuals[k], someone.std_mm, atol=max(largest, 127 * 5 / 32) / 253)
    assert (residuals[2] == -1).all()


def test_c3d_holds_labels_rate_units_and_the_first_frame(tmp_path, motion):
    ezc3d = pytest.importorskip("ezc3d", reason="a reader of C3D: pip install ezc3d")
    motion.save(tmp_path / "walk.c3d")
    file = ezc3d.c3d(str(tmp_path / "walk.c3d"))
    parameters, header = file["parameters"]["POINT"], file["header"]["points"]
    assert parameters["UNITS"]["value"] == ["mm"]
    assert parameters["LABELS"]["value"] == list(H36M_19.joints)
    assert parameters["RATE"]["value"][0] == header["frame_rate"] == 60.0
    assert (parameters["X_SCREEN"]["value"], parameters["Y_SCREEN"]["value"]) == (["+X"], ["+Y"])
    assert (header["first_frame"], header["last_frame"]) == (1, 4)  # ezc3d counts from 0
    assert np.isnan(file["data"]["points"][:3, :, 2]).all()


def test_c3d_of_more_frames_than_16_bits_says_so_in_trial():
    content = c3d_bytes(["pelvis"], np.full((70_000, 1, 3), 100.0), np.ones((70_000, 1)), 30.0, 1)
    assert struct.unpack_from("<HH", content, 6) == (1, 65_535)
    place = content.index(b"ACTUAL_END_FIELD") + len("ACTUAL_END_FIELD") + 5
    assert struct.unpack_from("<HH", content, place) == (70_000 - 65_536, 1)


@pytest.mark.parametrize("suffix", [".trc", ".c3d", ".bvh", ".mixamo.bvh", ".glb", ".mot"])
def test_several_people_get_a_file_each(tmp_path, suffix):
    paths = result([person(1), person(2)]).save(tmp_path / f"x{suffix}")
    assert [path.name for path in paths] == [f"x_p0{suffix}", f"x_p1{suffix}"]
    assert all(path.is_file() for path in paths)
    tracks = video([[person(1, track=3), person(2, track=7)]])
    assert [path.name for path in tracks.save(tmp_path / f"y{suffix}")] == [f"y_p3{suffix}", f"y_p7{suffix}"]


def test_unknown_joints_of_a_converted_person_are_missing(tmp_path):
    coco = result([person().convert("coco17")])
    coco.save(tmp_path / "c.trc")
    lines = (tmp_path / "c.trc").read_text().splitlines()
    assert lines[3].split("\t")[2:6] == ["nose", "", "", "left_eye"]
    assert lines[6].split("\t")[5:8] == ["NaN"] * 3
    coco.save(tmp_path / "c.c3d")
    assert c3d_by_c3d(tmp_path / "c.c3d")[1][0, 1] == -1


TIMES_MS = [0, 90, 180, 270, 300, 330, 620, 700, 780, 940, 1000]


@pytest.fixture
def uneven(tmp_path):
    """Of a real file whose frames come unevenly: somebody moves right by a metre a second."""
    stream = Stream(write_film(tmp_path / "phone.mp4", [striped(k) for k in range(11)], times_ms=TIMES_MS))
    people = [person(3, track=0, root_mm=(1000 * frame.time_s, 0.0, 4000.0)) for frame in stream]
    return Motion([result([one], time_s=frame.time_s, frame_index=frame.index, picture=frame.picture)
                   for one, frame in zip(people, stream, strict=True)], stream.fps)  # fmt: skip


def test_motion_files_of_uneven_frames_are_of_a_fixed_rate_and_play_at_the_true_speed(uneven, tmp_path):
    for name in ("a.trc", "a.c3d", "a.bvh"):
        uneven.save(tmp_path / name)
    rows = [line.split("\t") for line in (tmp_path / "a.trc").read_text().splitlines()]
    rate, bvh = float(rows[2][0]), (tmp_path / "a.bvh").read_text()
    assert rate == pytest.approx(uneven.fps, rel=1e-4)
    even_s = np.arange(round(rate) + 1) / rate  # the video lasts a second
    assert f"Frames: {len(even_s)}\nFrame Time: {1 / uneven.fps:.8f}\n" in bvh
    assert bvh.count("Xposition") == 1  # bones are as long as before
    np.testing.assert_allclose(np.array([row[1] for row in rows[6:]], float), even_s, atol=1e-4)
    motion = [line.split()[0] for line in bvh.splitlines()[-len(even_s) :]]
    places = {"trc": [row[2] for row in rows[6:]], "bvh": motion, "c3d": c3d_by_c3d(tmp_path / "a.c3d")[0][:, 0, 0]}
    for found in places.values():
        np.testing.assert_allclose(np.array(found, float), 1000 * np.minimum(even_s, 1.0), atol=0.2)


def test_tables_keep_the_frames_and_a_film_has_their_times(uneven, tmp_path):
    uneven.save(tmp_path / "a.csv")
    assert [float(row.split(",")[2]) for row in (tmp_path / "a.csv").read_text().splitlines()[1:]] == pytest.approx(
        [time / 1000 for time in TIMES_MS], abs=1e-5
    )
    film = OverlayVideo(tmp_path / "a.mp4", uneven.fps)
    for each in uneven:
        film.add(each, each.picture)
    times = [frame.time_s for frame in Stream(film.finish(tmp_path / "a.mp4")[0])]
    np.testing.assert_allclose(times, np.array(TIMES_MS) / 1000, atol=0.5 / (16 * uneven.fps) + 1e-6)


def test_even_frames_stay_and_a_wrong_rate_of_the_file_is_replaced():
    frames = [result([person(1, track=0)], time_s=5 + k / 30, frame_index=k) for k in range(6)]
    assert evenly(frames, 30.0) == (frames, 30.0)
    assert evenly(frames, 29.0) == (frames, 29.0)  # less than half a frame off
    same, rate = evenly(frames, 1000.0)
    assert (same, round(rate, 3)) == (frames, 30.0)
    photo = [result([person(1)])]
    assert evenly(photo, None) == (photo, None)
