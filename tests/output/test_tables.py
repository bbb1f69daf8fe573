"""JSON, CSV, NPZ and Parquet of 19 joints read back by the standard readers, and main people."""

import csv
import json
from dataclasses import replace

import numpy as np
import pandas
import pytest
from output.people import H36M_19, person, result, video

from di2pose.errors import InputError
from di2pose.output.tables import main_people
from di2pose.output.viewer import page_data
from di2pose.result import Motion

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def motion():
    """Two people; the second is missing in the middle frame."""
    seeds = {0: [0, 10], 1: [1], 2: [2, 12]}
    people = [[person(k, track=4 if k > 9 else 0, skeleton=H36M_19) for k in each] for each in seeds.values()]
    return video(people, fps=50.0, image="v.mp4")


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_json_says_its_units_axes_and_joints(tmp_path, motion):
    motion.save(tmp_path / "v.json")
    record = json.loads((tmp_path / "v.json").read_text())
    assert (record["format"], record["format_version"], record["fps"]) == ("di2pose.result", 1, 50.0)
    assert record["units"]["mm"] == "millimetres"
    assert "x right, y down, z away" in record["axes"]
    assert record["skeleton"]["joints"] == list(H36M_19.joints)
    back = Motion.load(tmp_path / "v.json")[2].people[1]
    assert back.skeleton == H36M_19
    np.testing.assert_allclose(back.joints_mm, motion[2].people[1].joints_mm, atol=0.001)
    assert record["model"] == {"name": "tiny", "version": "0.1"}
    assert [len(frame["people"]) for frame in record["frames"]] == [2, 1, 2]
    knee, truth = record["frames"][2]["people"][1]["joints"]["left_knee"], motion[2].people[1]["left_knee"]
    np.testing.assert_allclose(knee["xyz_mm"], truth.xyz_mm, atol=0.001)
    assert (knee["std_mm"], knee["r90_mm"]) == pytest.approx((truth.std_mm, truth.r90_mm), abs=0.001)
    assert knee["state"] == truth.state
    for frame in record["frames"]:  # older files have none of them
        del frame["camera_source"], frame["smoothing"]
        for each in frame["people"]:
            del each["root_std_mm"]
    (tmp_path / "older.json").write_text(json.dumps(record))
    older = Motion.load(tmp_path / "older.json")[0]
    assert (older.camera_source, older.smoothing) == ("", "")


def test_unknown_joints_are_null_in_json_and_empty_in_csv(tmp_path):
    coco = result([person().convert("coco17")])
    coco.save(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    eye = json.loads(text)["frames"][0]["people"][0]["joints"]["left_eye"]
    assert (eye["xyz_mm"], eye["state"]) == ([None] * 3, "unknown")
    assert "NaN" not in text
    coco.save(tmp_path / "c.csv")
    [row] = rows_of(tmp_path / "c.csv")
    assert (row["left_eye_x_mm"], row["left_eye_std_mm"], row["left_eye_state"]) == ("", "", "unknown")


def test_csv_has_a_row_for_each_frame_and_person_with_units_in_the_names(tmp_path, motion):
    motion.save(tmp_path / "v.csv")
    rows = rows_of(tmp_path / "v.csv")
    assert [row["frame"] + row["person"] for row in rows] == ["00", "04", "10", "20", "24"]
    assert float(rows[2]["time_s"]) == pytest.approx(0.02)
    someone, row = motion[2].people[1], rows[4]
    for j, name in enumerate(H36M_19.joints):
        numbers = [
            float(row[f"{name}_{part}"]) for part in ("x_mm", "y_mm", "z_mm", "std_mm", "r90_mm", "u_px", "v_px")
        ]
        truth = [*someone.joints_mm[j], someone.std_mm[j], someone.r90_mm[j], *someone.joints_2d[j]]
        np.testing.assert_allclose(numbers, truth, atol=0.001)
        assert row[f"{name}_state"] == someone.state[j]
    names = ("root_x_mm", "root_y_mm", "root_z_mm", "box_x0_px", "box_y0_px", "box_x1_px", "box_y1_px")
    np.testing.assert_allclose([float(row[name]) for name in names], [*someone.root_mm, *someone.box], atol=0.001)


def test_npz_keeps_every_bit_and_needs_no_pickle(tmp_path, motion):
    motion.save(tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz", allow_pickle=False) as arrays:
        people = [p for frame in motion for p in frame.people]
        assert arrays["frame"].tolist() == [0, 0, 1, 2, 2]
        assert arrays["person"].tolist() == [0, 4, 0, 0, 4]
        for name in ("joints_mm", "samples_mm", "covariance_mm2", "std_mm", "r90_mm", "joints_2d", "root_mm", "state"):
            np.testing.assert_array_equal(arrays[name], np.stack([getattr(p, name) for p in people]), err_msg=name)
        assert tuple(arrays["joints"]) == H36M_19.joints
        meta = json.loads(str(arrays["meta"]))
    assert (meta["fps"], meta["model"], meta["camera"]["focal"]) == (50.0, "tiny", [600.0, 600.0])


def test_nobody_gives_empty_tables(tmp_path):
    empty = result([])
    empty.save(tmp_path / "e.csv")
    assert len((tmp_path / "e.csv").read_text().splitlines()) == 1
    empty.save(tmp_path / "e.npz")
    with np.load(tmp_path / "e.npz") as arrays:
        assert arrays["joints_mm"].shape == (0, 17, 3)
    for suffix in (".trc", ".c3d", ".bvh", ".mixamo.bvh", ".glb", ".mot"):
        with pytest.raises(InputError, match="nobody was found"):
            empty.save(tmp_path / f"e{suffix}")


def test_parquet_holds_the_rows_of_to_pandas(tmp_path):
    found = result([person(0, skeleton=H36M_19), person(1, skeleton=H36M_19)])
    assert found.save(tmp_path / "a.parquet") == [tmp_path / "a.parquet"]
    read, expected = pandas.read_parquet(tmp_path / "a.parquet"), found.to_pandas()
    assert read.joint.tolist() == 2 * list(H36M_19.joints)
    pandas.testing.assert_frame_equal(read, expected, check_exact=True, check_dtype=False)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column("root_std_x_mm").null_count == 38  # not NaN
    kinds = [str(table.column(name).type) for name in ("root_std_x_mm", "frame", "state")]
    assert kinds == ["double", "int64", "string"]
    result([]).save(tmp_path / "empty.parquet")
    empty = parquet.read_table(tmp_path / "empty.parquet")
    assert empty.num_rows == 0
    assert empty.schema.equals(table.schema)


def test_parquet_of_a_video_has_its_frames_and_notes(tmp_path):
    video([person(0, track=3)] * 2).save(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert (table["frame"][0], table["frame"][-1], set(table["person"])) == (0, 1, {3})
    notes = json.loads(parquet.read_schema(tmp_path / "a.parquet").metadata[b"di2pose"])
    assert (notes["format"], notes["fps"], notes["seed"]) == ("di2pose.result", 30.0, 7)


def somebody(width, height, away_mm):
    return replace(person(), box=(100.0, 50.0, 100.0 + width, 50.0 + height), root_mm=np.array([0.0, 0.0, away_mm]))


@pytest.mark.parametrize(
    ("other", "main"),
    [
        (somebody(54, 72, 12000.0), False),  # a spectator
        (somebody(54, 72, 4500.0), True),  # mostly hidden, but near
        (somebody(200, 300, 12000.0), True),  # far, but large
        (somebody(300, 60, 5000.0), True),  # lying
    ],
)
def test_small_and_far_people_are_not_main(other, main):
    player = somebody(250, 400, 3000.0)
    assert main_people([other, player]) == [main, True]
    assert main_people([player, other]) == [True, main]
    assert (main_people([]), main_people([other])) == ([], [True])
    picture = result([other, player])
    record = json.loads(picture.to_files("x.json")["x.json"])
    for (frame,) in (page_data([picture], None)["frames"], record["frames"]):
        assert [each["main"] for each in frame["people"]] == [main, True]


def test_missing_folders_are_made_and_others_may_read_the_file(tmp_path):
    path = tmp_path / "a" / "b" / "out.json"
    result([person()]).save(path)
    assert path.stat().st_mode & 0o777 == 0o644
