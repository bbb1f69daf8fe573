"""The labelled photos of benchmarks/people_found.py, and how found people are matched to them."""

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from di2pose.image.crop import roi_from_keypoints
from di2pose.image.detect import Detection

FILE = Path(__file__).parents[2] / "benchmarks" / "people_found.py"
KINDS = {"whole", "cut", "portrait", "seated", "back"}


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("people_found", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["people_found"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["people_found"]


@pytest.fixture(scope="module")
def entries(bench):
    return json.loads(bench.LABELS.read_text())


@pytest.fixture(scope="module")
def photo(bench):
    """A picture of 400 x 300 with two people side by side and a far one who need not be found."""
    blank = bench.read_labels()[0]
    people = ((50.0, 50.0, 150.0, 250.0), (160.0, 50.0, 260.0, 250.0))
    return replace(blank, size=(400, 300), people=people, kinds=("whole", "whole"), ignore=((350, 10, 380, 50),))


def person(bench, box, score=0.9, torso=None):
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    return bench.Found(box, middle if torso is None else torso, score)


def test_there_are_enough_photos_with_and_without_people_in_both_splits(entries):
    splits = Counter((entry["split"], bool(entry["people"])) for entry in entries)
    assert splits["tune", True] + splits["test", True] >= 25
    assert splits["tune", False] + splits["test", False] >= 15
    assert min(splits.values()) >= 5


def test_every_photo_is_named_by_package_version_and_sha256(entries):
    assert len({entry["sha256"] for entry in entries}) == len(entries)
    for entry in entries:
        assert entry["client"] in ("pip", "npm")
        assert all(entry[key] for key in ("package", "version", "member", "licence", "bytes"))
        assert len(entry["sha256"]) == 64
        assert entry["split"] == ("test" if int(entry["sha256"][-1], 16) % 2 else "tune")


def test_every_box_lies_in_its_picture_and_says_what_kind_of_view_it_is(entries):
    for entry in entries:
        width, height = entry["size"]
        for x0, y0, x1, y1 in [who["box"] for who in entry["people"]] + entry["ignore"]:
            assert 0 <= x0 < x1 <= width, entry["member"]
            assert 0 <= y0 < y1 <= height, entry["member"]
        for who in entry["people"]:
            x0, y0, x1, y1 = who["box"]
            assert min(x1 - x0, y1 - y0) >= 40, entry["member"]
            assert who["kind"] in KINDS


def test_people_in_their_labels_are_found_and_nobody_is_a_ghost(bench, photo):
    found = [person(bench, (155, 45, 265, 255)), person(bench, (45, 55, 150, 250))]
    assert bench.match(found, photo) == bench.Match((1, 0), ())


def test_a_label_is_found_once_and_the_surer_one_has_it(bench, photo):
    found = [person(bench, (52, 52, 150, 250), 0.6), person(bench, (50, 60, 150, 250), 0.8)]
    assert bench.match(found, photo) == bench.Match((None, 0), (0,))


def test_a_square_round_the_body_matches_by_the_centre_of_the_torso(bench, photo):
    square, far_too_large = (-80.0, 20.0, 180.0, 280.0), (-400.0, -400.0, 900.0, 900.0)
    torso = (100.0, 130.0)
    small = replace(photo, people=((80.0, 60.0, 120.0, 240.0),), kinds=("whole",))
    assert bench.match([person(bench, square, torso=torso)], small).owners == (0,)
    assert bench.match([person(bench, square, torso=(20.0, 130.0))], small).ghosts == (0,)
    tiny = replace(photo, people=((90.0, 100.0, 110.0, 150.0),), kinds=("whole",))
    assert bench.match([person(bench, far_too_large, torso=torso)], tiny).ghosts == (0,)


def test_the_body_of_a_portrait_may_go_on_below_the_picture(bench, photo):
    portrait = replace(photo, people=((100.0, 20.0, 300.0, 300.0),), kinds=("portrait",))
    assert bench.match([person(bench, (-100, 0, 500, 900), torso=(200.0, 500.0))], portrait).owners == (0,)


def test_who_need_not_be_found_is_no_ghost(bench, photo):
    assert bench.match([person(bench, (348, 8, 382, 52))], photo) == bench.Match((None,), ())
    assert bench.match([person(bench, (300, 100, 390, 290))], photo).ghosts == (0,)


def test_without_people_everybody_is_a_ghost(bench, photo):
    empty = replace(photo, people=(), kinds=(), ignore=())
    assert bench.match([person(bench, (10, 10, 90, 200)), person(bench, (100, 10, 190, 200))], empty).ghosts == (0, 1)
    assert bench.Count(1, 0, 0, 2).cells() == ["0", "0", "0", "2", "-", "2.00"]


def test_a_detection_without_a_pose_has_its_torso_above_the_hip(bench):
    region = roi_from_keypoints((100, 200), (100, 100))
    found = bench.of_detection(Detection((0, 100, 200, 300), 0.7, region, (100, 200)))
    assert found.torso == pytest.approx((100, 175))
    assert bench.of_detection(Detection((0, 100, 200, 300), 0.7, region)).torso == (100, 200)


def test_the_patch_hides_the_middle_of_the_person_and_nothing_else(bench, photo):
    one = replace(photo, people=((100.0, 50.0, 200.0, 250.0),), kinds=("whole",))
    grey = Image.new("RGB", one.size, (1, 2, 3))
    hidden = (np.array(bench.hide(grey, one, 80)) != (1, 2, 3)).any(-1)
    rows, columns = hidden.any(1).nonzero()[0], hidden.any(0).nonzero()[0]
    side = bench.roi_from_box(one.people[0]).side * 80 / 256
    assert (rows.max() - rows.min() + 1, columns.max() - columns.min() + 1) == pytest.approx((side, side), abs=2)
    assert (rows.mean(), columns.mean()) == pytest.approx((149.5, 149.5), abs=2)
    assert np.array_equal(bench.hide(grey, one, 80), bench.hide(grey, one, 80))
