"""The Pose2Sim demo: real footage, fetched by package name."""

import json

import numpy as np
import pytest

from di2pose.assets import extract
from di2pose.data.check import CheckReport
from di2pose.data.pose2sim import CALIBRATION, FROM_MARKERS, MARKERS, fetch, read_camera, read_trc
from di2pose.data.prepare import prepare
from di2pose.data.sample import Dataset, Sources
from di2pose.errors import InputError
from di2pose.pose.skeleton import BODY_25B, H36M_17

DETECTIONS = "Pose2Sim/Demo/pose/"


def test_there_are_400_frames_with_box_camera_and_3d(footage):
    assert len(footage) == 400
    assert [len(footage.select(sequence=f"cam0{k}")) for k in (1, 2, 3, 4)] == [100] * 4
    assert len(footage.cameras) == 4
    assert not footage.header["skipped"]
    known = {name for name, valid in zip(H36M_17.joints, footage.valid.all(0), strict=True) if valid}
    assert known == set(FROM_MARKERS)
    assert len(known) == 14
    report = CheckReport(footage)
    assert not report.problems
    assert not report.warnings
    for sample in footage[::40]:
        x0, y0, x1, y1 = sample.box
        inside = sample.joints_2d[sample.valid]
        assert ((inside > [x0, y0]) & (inside < [x1, y1])).all()
        assert 2500 < sample.root_mm[2] < 4500


def test_the_skeleton_lies_on_the_body_in_every_view(footage):
    """Against OpenPose's own detections in each single view, which the camera model and the frame number must hit. The
    3D is triangulated from them, with errors of up to 2 % of the man's height in the views that fit worst."""
    detections = extract("pose2sim-demo", DETECTIONS) / DETECTIONS
    names = {name: "upper_neck" if name == "thorax" else name for name in FROM_MARKERS if name != "pelvis"}
    ours, theirs = H36M_17.indices(*names), BODY_25B.indices(*names.values())
    errors: dict[str, list[float]] = {}
    for sample in footage[::20]:
        file = detections / f"cam{sample.sequence[-1]}_json" / f"{sample.sequence}.{sample.frame:04d}.json"
        people = [np.array(p["pose_keypoints_2d"]).reshape(25, 3) for p in json.loads(file.read_text())["people"]]
        found = []
        for person in people:
            scale = sample.camera.size[0] / 1088
            points = person[list(theirs), :2] * scale + [0, 960 * (1 - scale)]
            sure = person[list(theirs), 2] > 0.3
            if sure.sum() > 6:
                found.append(np.median(np.linalg.norm(points - sample.joints_2d[list(ours)], axis=1)[sure]))
        errors.setdefault(sample.sequence, []).append(min(found))
    medians = {view: float(np.median(values)) for view, values in errors.items()}
    assert max(medians["cam02"], medians["cam04"]) < 10, medians
    assert max(medians["cam01"], medians["cam03"]) < 25, medians


def test_frames_of_the_real_videos_do_not_depend_on_the_order_of_reading(footage):
    rows = [100, 101, 103]  # the view whose codec has frames that are not shown
    images = {row: np.asarray(footage.read_image(footage[row])) for row in rows}
    again = Dataset(footage.folder)
    for row in reversed(rows):
        sample = again[row]
        picture = again.read_image(sample)
        assert picture.size == sample.camera.size
        np.testing.assert_array_equal(np.asarray(picture), images[row])


def test_a_narrower_video_is_shrunk_evenly_between_black_bars(footage):
    path = extract("pose2sim-demo", CALIBRATION, MARKERS) / CALIBRATION
    point = np.array([[300.0, -200.0, 3000.0]])
    whole = read_camera(path, "cam_01", (1088, 1920)).project(point)[0]
    narrow = read_camera(path, "cam_01", (1080, 1920)).project(point)[0]
    shrink = 1080 / 1088
    np.testing.assert_allclose(narrow, [whole[0] * shrink, 960 + (whole[1] - 960) * shrink], atol=1e-9)
    picture = np.asarray(footage.read_image(footage[0])).mean((1, 2))
    bar = round(960 * (1 - shrink))
    assert picture[: bar - 1].max() < 20 < picture[bar + 1 : -bar - 2].min() > picture[-bar + 2 :].max()


def test_damaged_or_missing_files_are_named(tmp_path):
    whole = (extract("pose2sim-demo", CALIBRATION, MARKERS) / MARKERS).read_text()
    (tmp_path / "half.trc").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"half\.trc is not a whole TRC file"):
        read_trc(tmp_path / "half.trc")
    (tmp_path / "cameras.toml").write_text('[cam_01]\nname = "cam_01"\n')
    with pytest.raises(InputError, match=r"camera \[cam_01\] lacks distortions, matrix"):
        read_camera(tmp_path / "cameras.toml", "cam_01", (1080, 1920))
    with pytest.raises(InputError, match=r"no cam01\.mp4"):
        prepare("pose2sim", tmp_path / "out", src=tmp_path)
    assert Sources("pose2sim", fetch()).image_root.joinpath("cam04.mp4").is_file()
