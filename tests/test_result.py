"""Results: joints by name, uncertainty, conversion, JSON round trip, tracks, notebooks, pandas."""

import base64
import dataclasses
import io
import sys
import webbrowser

import numpy as np
import pytest
from output.people import CAMERA, person, result, video
from PIL import Image

from di2pose.errors import InputError, MissingExtra
from di2pose.pose.skeleton import H36M_17
from di2pose.result import WRITERS, Motion, Person, Result

ARRAYS = ("joints_mm", "samples_mm", "covariance_mm2", "r90_mm", "joints_2d", "root_mm")


def same(a: Person, b: Person, tolerance: float):
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=tolerance, err_msg=name)
    assert a.state.tolist() == b.state.tolist()
    np.testing.assert_allclose(a.box, b.box, atol=tolerance)
    assert (a.track, a.skeleton) == (b.track, b.skeleton)
    assert a.score == pytest.approx(b.score, abs=tolerance)


def test_a_joint_is_had_by_its_name():
    someone = person()
    joint = someone["right_ankle"]
    at = H36M_17.index("right_ankle")
    assert joint.name == "right_ankle"
    np.testing.assert_array_equal(joint.xyz_mm, someone.joints_mm[at])
    assert joint.std_mm == pytest.approx(np.sqrt(np.trace(someone.covariance_mm2[at]) / 3))
    assert (joint.r90_mm, joint.state) == (someone.r90_mm[at], "occluded")
    assert someone["head"].state == "visible"
    assert someone.frame == "camera"
    with pytest.raises(InputError, match="no joint 'left_toe'; its joints are pelvis"):
        someone["left_toe"]


def test_a_person_cannot_be_changed_by_accident():
    someone = person()
    with pytest.raises(ValueError, match="read-only"):
        someone.joints_mm[3] = 0
    older = dataclasses.replace(someone, state=np.full(17, "seen"))  # the word of earlier versions
    assert set(older.state) == {"visible"}
    with pytest.raises(ValueError, match="read-only"):
        older.state[3] = "occluded"
    with pytest.raises(dataclasses.FrozenInstanceError):
        someone.score = 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joints_mm": np.zeros((16, 3))}, r"h36m_17 needs joints_mm of shape \(17, 3\), got \(16, 3\)"),
        ({"samples_mm": np.zeros((17, 3))}, r"needs samples_mm of shape"),
        ({"covariance_mm2": np.zeros((17, 3))}, r"needs covariance_mm2 of shape \(17, 3, 3\)"),
        ({"state": np.array(["shown"] * 17)}, "one of pinned, visible, occluded, out_of_frame, unknown, got 'shown'"),
        ({"r90_mm": np.full(17, np.nan)}, "r90_mm of a person must be finite"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_a_wrong_person_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(person(), **change)


def test_converted_joints_are_copies_with_their_spread_and_the_rest_is_unknown():
    someone = person()
    coco = someone.convert("coco17")
    for name in ("left_knee", "right_wrist", "left_shoulder"):
        for part in ("xyz_mm", "std_mm", "r90_mm"):
            np.testing.assert_allclose(getattr(coco[name], part), getattr(someone[name], part), err_msg=name)
        assert coco[name].state == someone[name].state
    assert coco["left_eye"].state == "unknown"
    assert np.isnan(coco["left_eye"].xyz_mm).all()
    assert np.isnan(coco["left_eye"].std_mm)
    known = coco.state != "unknown"
    np.testing.assert_allclose(CAMERA.project(coco.joints_mm + coco.root_mm)[known], coco.joints_2d[known])
    assert coco.samples_mm.shape == (4, 17, 3)


def test_a_built_joint_is_the_mean_and_as_unsure_as_its_worst_part():
    state = np.array(["visible"] * 17, dtype="U12")
    state[H36M_17.index("left_hip")] = "out_of_frame"
    someone = person(state=state)
    back = someone.convert("coco17").convert("h36m_17")
    left, right = H36M_17.indices("left_hip", "right_hip")
    np.testing.assert_allclose(back["pelvis"].xyz_mm, someone.joints_mm[[left, right]].mean(0))
    np.testing.assert_allclose(back.covariance_mm2[0], someone.covariance_mm2[[left, right]].mean(0))
    assert back["pelvis"].state == "out_of_frame"
    assert back["head"].state == "unknown"


def test_json_gives_the_result_back(tmp_path):
    before = result([person(1), person(2)], image="photos/a.jpg")
    assert before.save(tmp_path / "out.json") == [tmp_path / "out.json"]
    after = Result.load(tmp_path / "out.json")
    assert len(after.people) == 2
    for a, b in zip(after.people, before.people, strict=True):
        same(a, b, 0.00051)
    for name in ("image", "size", "camera", "seed", "steps", "hypotheses", "model", "version", "frame_index", "time_s"):
        assert getattr(after, name) == getattr(before, name), name
    after.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "out.json").read_bytes()
    coco = person().convert("coco17")  # another skeleton, unknown joints
    result([coco]).save(tmp_path / "coco.json")
    same(Result.load(tmp_path / "coco.json").people[0], coco, 0.00051)


def test_json_gives_a_video_back_with_its_tracks(tmp_path):
    motion = video([*(person(k, track=3) for k in range(3)), None], fps=25.0)
    motion.save(tmp_path / "v.json")
    back = Motion.load(tmp_path / "v.json")
    assert (len(back), back.fps, back.tracks, back[2].time_s) == (4, 25.0, (3,), 0.08)
    assert [p is None for p in back.track(3)] == [False, False, False, True]
    same(back[1].people[0], motion[1].people[0], 0.00051)
    with pytest.raises(InputError, match="no track 5; there are 3"):
        back.track(5)
    with pytest.raises(InputError, match=r"holds 4 frames of a video: read it with Motion\.load"):
        Result.load(tmp_path / "v.json")
    motion[0].save(tmp_path / "one.json")
    with pytest.raises(InputError, match=r"holds a photo: read it with Result\.load"):
        Motion.load(tmp_path / "one.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", 'must be "di2pose.result"'),
        ('{"format": "di2pose.result", "format_version": 99}', "format version 99, this program reads 1"),
        ('{"format": "di2pose.result", "format_version": 1}', "not what it should be \\(KeyError: 'skeleton'"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=message):
        Result.load(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot read"):
        Result.load(tmp_path / "none.json")


def test_the_ending_says_what_is_written(tmp_path):
    known = ".json .csv .angles.csv .npz .parquet .trc .c3d .bvh .mixamo.bvh .glb .mot .html .png .jpg"
    with pytest.raises(InputError, match=f"'out.xls' must end in one of {known}"):
        result([person()]).save(tmp_path / "out.xls")
    assert list(WRITERS) == known.split()


def test_people_need_one_skeleton_and_in_a_video_a_track_of_their_own():
    with pytest.raises(InputError, match="the same skeleton"):
        result([person(1), person(2).convert("coco17")])
    for people in ([person(1)], [person(1, track=0), person(2, track=0)]):
        with pytest.raises(InputError, match="frame 0 of a motion: every person needs a track"):
            Motion([result(people)], fps=30.0)
    with pytest.raises(InputError, match="fps above 0"):
        Motion([result([])], fps=0.0)


def test_show_opens_the_page_in_the_browser(monkeypatch):
    opened = []

    class Recorder(webbrowser.BaseBrowser):
        def open(self, url, new=0, autoraise=True):
            opened.append(url)
            return True

    monkeypatch.setattr(webbrowser, "_tryorder", ["recorder"])
    monkeypatch.setitem(webbrowser._browsers, "recorder", [None, Recorder()])
    path = result([person()]).show()
    assert opened == [path.as_uri()]
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_repr_is_one_short_line():
    someone = person()
    assert repr(someone) == "Person(17 joints, 3 hidden, score 0.88)"
    assert repr(person(track=4)) == "Person(17 joints, 3 hidden, score 0.88, track 4)"
    assert repr(result([someone, someone], image="a/photo.jpg")) == "Result(photo.jpg, 640x480, 2 people)"
    assert repr(result([someone])) == "Result(640x480, 1 person)"
    frames = [result([person(k, track=k)], image="walk.mp4", frame_index=k) for k in range(3)]
    assert repr(frames[1]) == "Result(walk.mp4, frame 1, 640x480, 1 person)"
    assert repr(Motion(frames, fps=29.97)) == "Motion(walk.mp4, 3 frames, 29.97 a second, 3 people)"


def test_a_notebook_shows_the_overlay(tmp_path):
    photo = Image.new("RGB", (640, 480), (128, 128, 128))
    page = result([person(1), person(2)], picture=photo, image="<b>.png")._repr_html_()
    drawn = Image.open(io.BytesIO(base64.b64decode(page.split("data:image/jpeg;base64,")[1].split('"')[0])))
    assert drawn.size == (640, 480)
    assert np.asarray(drawn).std() > 5  # people are drawn on it
    assert "&lt;b&gt;" in page
    assert "<img" in video([None, *(person(k, track=7) for k in range(3))], picture=photo)._repr_html_()
    stored = result([person(1)], image=str(tmp_path / "photo.png"))
    for save in (lambda path: None, Image.new("RGB", (64, 64)).save, lambda path: path.write_bytes(b"no picture")):
        save(tmp_path / "photo.png")  # it is gone, another, or none
        assert "cannot be read" in stored._repr_html_()
    assert "<img" not in result([person().convert("coco17")])._repr_html_()


def test_pandas_has_the_same_numbers_as_the_csv_and_a_missing_pandas_is_explained(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas", reason="the extra pandas is not installed")
    motion = video([person(k, track=3) for k in range(2)], fps=25.0)
    motion.save(tmp_path / "v.csv")
    wide, long = pandas.read_csv(tmp_path / "v.csv"), motion.to_pandas()
    assert len(long) == 34
    knee = long[long.joint == "left_knee"].reset_index()
    for column in ("x_mm", "z_mm", "r90_mm", "std_mm", "u_px", "v_px"):
        np.testing.assert_allclose(knee[column], wide[f"left_knee_{column}"], atol=0.001)
    assert knee.frame.tolist() == [0, 1]
    assert result([]).to_pandas().columns.tolist() == long.columns.tolist()
    assert result([person().convert("coco17")]).to_pandas().x_mm.isna().any()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'di2pose\[pandas\]'"):
        result([person()]).to_pandas()
