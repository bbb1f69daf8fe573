"""The skeleton is a value: a person of 19 joints goes through every format and is read back."""

import csv
import json
import re

import numpy as np
import pytest
from output.people import H36M_19, SIZE, person, pose, result, video
from output.test_bvh import error, wanted
from output.test_motion import c3d_by_c3d
from PIL import Image

from di2pose.data.bvh import Bvh
from di2pose.data.pose2sim import read_trc
from di2pose.pose.bones import stature_mm
from di2pose.pose.skeleton import H36M_17
from di2pose.result import WRITERS, Motion, Result
from di2pose.video.body import one_body
from di2pose.video.smooth import smooth


@pytest.fixture(scope="module")
def someone():
    return person(3, skeleton=H36M_19)


@pytest.fixture(scope="module")
def saved(someone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    shown = result([someone], picture=Image.new("RGB", SIZE))
    for ending in WRITERS:
        shown.save(folder / f"a{ending}")
    return folder


def test_tables_hold_every_joint(saved, someone):
    back = Result.load(saved / "a.json").people[0]
    assert back.skeleton == H36M_19
    np.testing.assert_allclose(back["left_toe"].xyz_mm, someone["left_toe"].xyz_mm, atol=0.001)
    with (saved / "a.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert float(row["left_heel_x_mm"]) == pytest.approx(someone["left_heel"].xyz_mm[0], abs=0.001)
    with np.load(saved / "a.npz") as arrays:
        assert arrays["joints"].tolist() == list(H36M_19.joints)
        np.testing.assert_array_equal(arrays["joints_mm"][0], someone.joints_mm)
    long = pytest.importorskip("pandas").read_parquet(saved / "a.parquet")
    assert long.joint.tolist() == list(H36M_19.joints)


def test_motion_files_hold_every_joint(saved, someone):
    names, world = read_trc(saved / "a.trc")
    assert names == list(H36M_19.joints)
    np.testing.assert_allclose(world[0], wanted(someone)[:, [2, 0, 1]], atol=0.001)
    np.testing.assert_allclose(c3d_by_c3d(saved / "a.c3d")[0][0], wanted(someone), atol=0.001)
    assert error(saved / "a.bvh", wanted(someone)[None], H36M_19) < 0.05
    bvh = Bvh.read(saved / "a.bvh", unit_mm=1.0)
    assert {"left_ankle_to_left_heel", "left_ankle_to_left_toe"} <= set(bvh.joints)


def test_the_page_holds_every_joint(saved):
    data = json.loads(re.search(r'id="data">(.*?)</script>', (saved / "a.html").read_text(), re.DOTALL)[1])
    assert (data["joints"], data["parents"]) == (list(H36M_19.joints), list(H36M_19.parents))
    assert len(data["frames"][0]["people"][0]["joints"]) == 19


def test_angles_are_found_by_name_and_a_video_is_smoothed_gets_one_body_and_is_saved(someone, tmp_path):
    assert repr(dict(someone.angles)) == repr(dict(someone.convert(H36M_17).angles))
    rng = np.random.default_rng(0)
    rest = pose(rng, 0.1, H36M_19)
    people = [person(k, 0, joints_mm=rest + rng.normal(0, 5, (19, 3)), skeleton=H36M_19) for k in range(6)]
    frames = one_body(list(smooth(video(people))), height_m=1.8)
    assert stature_mm(frames[0].people[0].joints_mm, H36M_19) == pytest.approx(1800)
    [path] = Motion(frames, 30.0).save(tmp_path / "v.bvh")
    assert path.read_text().count("Xposition") == 1
