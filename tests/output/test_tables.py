"""JSON, CSV and NPZ read back by the standard readers, and files that cannot be written."""

import csv
import dataclasses
import json
import os
import resource

import numpy as np
import pytest
from output.people import person, result

from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17
from di2pose.result import WRITERS, Motion, Result


@pytest.fixture
def motion():
    """Two people; the second is lost in the middle frame."""
    frames = []
    for k in range(3):
        people = [person(k, track=0)] + ([person(10 + k, track=4)] if k != 1 else [])
        frames.append(result(people, image="v.mp4", frame_index=10 + k, time_s=(10 + k) / 50))
    return Motion(frames, fps=50.0)


def test_json_says_its_units_axes_and_joints(tmp_path, motion):
    motion.save(tmp_path / "v.json")
    record = json.loads((tmp_path / "v.json").read_text())
    assert (record["format"], record["format_version"], record["fps"]) == ("di2pose.result", 1, 50.0)
    assert record["units"]["mm"] == "millimetres"
    assert "x right, y down, z away" in record["axes"]
    assert record["skeleton"]["joints"] == list(H36M_17.joints)
    assert record["model"] == {"name": "tiny", "version": "0.1"}
    assert [len(frame["people"]) for frame in record["frames"]] == [2, 1, 2]
    knee = record["frames"][2]["people"][1]["joints"]["left_knee"]
    truth = motion[2].people[1]["left_knee"]
    np.testing.assert_allclose(knee["xyz_mm"], truth.xyz_mm, atol=0.001)
    assert knee["std_mm"] == pytest.approx(truth.std_mm, abs=0.001)
    assert knee["r90_mm"] == pytest.approx(truth.r90_mm, abs=0.001)
    assert knee["state"] == truth.state


def test_json_says_where_the_camera_is_from_and_older_files_are_read(tmp_path):
    told = dataclasses.replace(result(people=[person()]), camera_source="EXIF focal length (26 mm equivalent)")
    told.save(tmp_path / "a.json")
    assert Result.load(tmp_path / "a.json").camera_source == "EXIF focal length (26 mm equivalent)"
    older = json.loads((tmp_path / "a.json").read_text())
    del older["frames"][0]["camera_source"]
    (tmp_path / "older.json").write_text(json.dumps(older))
    assert Result.load(tmp_path / "older.json").camera_source == ""


def test_json_writes_null_for_what_is_not_there(tmp_path):
    result([person().convert("coco17")]).save(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    eye = json.loads(text)["frames"][0]["people"][0]["joints"]["left_eye"]
    assert eye["xyz_mm"] == [None] * 3
    assert eye["state"] == "unknown"
    assert "NaN" not in text


def test_csv_has_a_row_for_each_frame_and_person_with_units_in_the_names(tmp_path, motion):
    motion.save(tmp_path / "v.csv")
    with (tmp_path / "v.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["frame"], row["person"]) for row in rows] == [
        ("10", "0"),
        ("10", "4"),
        ("11", "0"),
        ("12", "0"),
        ("12", "4"),
    ]
    assert float(rows[2]["time_s"]) == pytest.approx(0.22)
    someone = motion[2].people[1]
    row = rows[4]
    for j, name in enumerate(H36M_17.joints):
        xyz = [float(row[f"{name}_{axis}_mm"]) for axis in "xyz"]
        np.testing.assert_allclose(xyz, someone.joints_mm[j], atol=0.001)
        assert float(row[f"{name}_std_mm"]) == pytest.approx(someone.std_mm[j], abs=0.001)
        assert float(row[f"{name}_r90_mm"]) == pytest.approx(someone.r90_mm[j], abs=0.001)
        assert row[f"{name}_state"] == someone.state[j]
        np.testing.assert_allclose([float(row[f"{name}_{c}_px"]) for c in "uv"], someone.joints_2d[j], atol=0.001)
    np.testing.assert_allclose([float(row[f"root_{axis}_mm"]) for axis in "xyz"], someone.root_mm)
    box = [float(row[f"box_{side}_px"]) for side in ("x0", "y0", "x1", "y1")]
    np.testing.assert_allclose(box, someone.box, atol=0.001)


def test_csv_leaves_unknown_cells_empty(tmp_path):
    result([person().convert("coco17")]).save(tmp_path / "c.csv")
    with (tmp_path / "c.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["left_eye_x_mm"], row["left_eye_std_mm"], row["left_eye_state"]) == ("", "", "unknown")


def test_npz_keeps_every_bit_and_needs_no_pickle(tmp_path, motion):
    motion.save(tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz", allow_pickle=False) as arrays:
        people = [p for frame in motion for p in frame.people]
        assert arrays["frame"].tolist() == [10, 10, 11, 12, 12]
        assert arrays["person"].tolist() == [0, 4, 0, 0, 4]
        for name in ("joints_mm", "samples_mm", "covariance_mm2", "std_mm", "r90_mm", "joints_2d", "root_mm", "state"):
            np.testing.assert_array_equal(arrays[name], np.stack([getattr(p, name) for p in people]), err_msg=name)
        assert tuple(arrays["joints"]) == H36M_17.joints
        meta = json.loads(str(arrays["meta"]))
    assert (meta["fps"], meta["model"], meta["camera"]["focal"]) == (50.0, "tiny", [600.0, 600.0])


def test_nobody_gives_empty_tables(tmp_path):
    empty = result([])
    empty.save(tmp_path / "e.csv")
    assert len((tmp_path / "e.csv").read_text().splitlines()) == 1
    empty.save(tmp_path / "e.npz")
    with np.load(tmp_path / "e.npz") as arrays:
        assert arrays["joints_mm"].shape == (0, 17, 3)
    for suffix in (".trc", ".c3d", ".bvh"):
        with pytest.raises(InputError, match="nobody was found"):
            empty.save(tmp_path / f"e{suffix}")


SUFFIXES = [suffix for suffix in WRITERS if suffix != ".jpg"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_is_reported_and_leaves_the_old_file_and_nothing_else(tmp_path, suffix):
    """A limit on the size of files stands in for the full disk: the system refuses the write half way."""
    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, limits[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write .*; make room, or choose another folder"):
            result([person()]).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_that_cannot_be_written_is_reported(tmp_path, suffix):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=r"cannot write .*; choose a folder that you may write to"):
        result([person()]).save(tmp_path / "file" / f"out{suffix}")


def test_a_read_only_folder_is_reported(tmp_path):
    someone = result([person()])
    someone.save(tmp_path / "first.json")
    tmp_path.chmod(0o555)
    root = os.geteuid() == 0
    if root:  # who may write everywhere
        os.seteuid(65534)
    try:
        with pytest.raises(InputError, match="Permission denied; choose a folder"):
            someone.save(tmp_path / "out.json")
    finally:
        if root:
            os.seteuid(0)
        tmp_path.chmod(0o755)
    assert os.listdir(tmp_path) == ["first.json"]


def test_missing_folders_are_made_and_others_may_read_the_file(tmp_path):
    path = tmp_path / "a" / "b" / "out.json"
    result([person()]).save(path)
    assert path.stat().st_mode & 0o777 == 0o644
