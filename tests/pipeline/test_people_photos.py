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

from di2pose.image.crop import roi_from_box, roi_from_keypoints
from di2pose.image.detect import Detection

FILE = Path(__file__).parents[2] / "benchmarks" / "people_found.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("people_found", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["people_found"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["people_found"]


def photo(bench, people, kind="whole", ignore=()):
    """Of 400 x 300 pixels."""
    kinds = (kind,) * len(people)
    return replace(bench.read_labels()[0], size=(400, 300), people=tuple(people), kinds=kinds, ignore=tuple(ignore))


def test_labels_are_whole_and_lie_in_their_pictures(bench):
    entries = json.loads(bench.LABELS.read_text())
    splits = Counter((entry["split"], bool(entry["people"])) for entry in entries)
    assert splits["tune", True] + splits["test", True] >= 25
    assert splits["tune", False] + splits["test", False] >= 15
    assert len({entry["sha256"] for entry in entries}) == len(entries)
    for entry in entries:
        assert all(entry[key] for key in ("client", "package", "version", "member", "licence", "bytes"))
        width, height = entry["size"]
        for x0, y0, x1, y1 in [who["box"] for who in entry["people"]] + entry["ignore"]:
            assert 0 <= x0 < x1 <= width, entry["member"]
            assert 0 <= y0 < y1 <= height, entry["member"]
        assert {who["kind"] for who in entry["people"]} <= {"whole", "cut", "portrait", "seated", "back"}


TWO = ((50.0, 50.0, 150.0, 250.0), (160.0, 50.0, 260.0, 250.0))
SQUARE = (-80.0, 20.0, 180.0, 280.0)


@pytest.mark.parametrize(
    ("people", "kind", "found", "owners", "ghosts"),
    [
        (TWO, "whole", [((155, 45, 265, 255), 0.9, None), ((45, 55, 150, 250), 0.9, None)], (1, 0), ()),
        (TWO, "whole", [((52, 52, 150, 250), 0.6, None), ((50, 60, 150, 250), 0.8, None)], (None, 0), (0,)),
        (((80.0, 60.0, 120.0, 240.0),), "whole", [(SQUARE, 0.9, (100.0, 130.0))], (0,), ()),
        (((80.0, 60.0, 120.0, 240.0),), "whole", [(SQUARE, 0.9, (20.0, 130.0))], (None,), (0,)),
        (((100.0, 20.0, 300.0, 300.0),), "portrait", [((-100, 0, 500, 900), 0.9, (200.0, 500.0))], (0,), ()),
        (TWO, "whole", [((348, 8, 382, 52), 0.9, None)], (None,), ()),  # need not be found
        (TWO, "whole", [((300, 100, 390, 290), 0.9, None)], (None,), (0,)),
        ((), "whole", [((10, 10, 90, 200), 0.9, None)], (None,), (0,)),
    ],
)
def test_each_label_is_found_once_and_what_fits_none_is_a_ghost(bench, people, kind, found, owners, ghosts):
    made = [
        bench.Found(box, ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) if torso is None else torso, score)
        for box, score, torso in found
    ]
    match = bench.match(made, photo(bench, people, kind, ignore=[(350, 10, 380, 50)]))
    assert match == bench.Match(owners, ghosts)


def test_a_detection_without_a_pose_has_its_torso_above_the_hip(bench):
    region = roi_from_keypoints((100, 200), (100, 100))
    found = bench.of_detection(Detection((0, 100, 200, 300), 0.7, region, (100, 200)))
    assert found.torso == pytest.approx((100, 175))


def test_the_patch_hides_the_middle_of_the_person(bench):
    one = photo(bench, [(100.0, 50.0, 200.0, 250.0)])
    hidden = (np.array(bench.hide(Image.new("RGB", one.size, (1, 2, 3)), one, 80)) != (1, 2, 3)).any(-1)
    rows, columns = hidden.any(1).nonzero()[0], hidden.any(0).nonzero()[0]
    side = roi_from_box(one.people[0]).side * 80 / 256
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == pytest.approx((side, side), abs=2)
    assert (rows.mean(), columns.mean()) == pytest.approx((149.5, 149.5), abs=2)
