"""The measurements of issue N: observer noise, bodies, states, feet."""

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from output.people import CAMERA, person, rotation, standing
from PIL import Image

from di2pose import Di2Pose
from di2pose.data.demo_footage import walker
from di2pose.data.feature_cache import write_features
from di2pose.data.sample import Sample, Writer
from di2pose.errors import InputError
from di2pose.evaluation.predictors import Predictions
from di2pose.evaluation.records import CachedRecords
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.occlusion.patches import Rectangle
from di2pose.pose.skeleton import COCO_17, H36M_17, H36M_21, LIMB_12

EXPERIMENTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    torch.set_num_threads(1)


def module(name):
    return import_module(name)


@pytest.fixture
def frame():
    joints = standing()
    root = np.array([0.0, 0.0, 4000.0])
    points = CAMERA.project(joints + root).astype(np.float32)
    sample = Sample("r0", joints.astype(np.float32), root, points, camera=CAMERA)
    x, y = points[H36M_17.index("left_wrist")].tolist()
    return module("measuring").Frame(
        sample, Image.new("RGB", (640, 480)), Rectangle(x - 5, y - 5, x + 5, y + 5), H36M_17
    )


def test_given_keypoints_are_the_true_joints_in_sight_with_noise_of_the_bodys_size(frame):
    measuring = module("measuring")
    exact, some, more = (measuring.noisy_keypoints(frame, noise, 3) for noise in (0.0, 0.01, 0.02))
    assert set(COCO_17.joints[k] for k in np.flatnonzero(np.isfinite(exact[:, 0]))) == set(LIMB_12) - {"left_wrist"}
    ankle = COCO_17.index("right_ankle")
    np.testing.assert_allclose(exact[ankle, :2], frame.sample.joints_2d[H36M_17.index("right_ankle")], atol=1e-4)
    np.testing.assert_allclose(more - exact, 2 * (some - exact), atol=1e-4)
    extent = np.ptp(frame.limbs_2d, axis=0).max()
    assert 0.3 < np.nanstd((some - exact)[:, :2]) / (0.01 * extent) < 2
    assert not np.allclose(some, measuring.noisy_keypoints(frame, 0.01, 4), equal_nan=True)


def bent(joints_mm, degrees):
    """Both shins swung backwards at the knees."""
    found = joints_mm.copy()
    for side in ("left", "right"):
        knee, ankle = H36M_17.indices(f"{side}_knee", f"{side}_ankle")
        turn = rotation(np.array([np.radians(degrees), 0.0, 0.0]))
        found[ankle] = found[knee] + turn @ (found[ankle] - found[knee])
    return found


def test_bias_names_bent_knees_depths_and_short_arms():
    body = module("body_bias")
    truth = np.stack([standing(), bent(standing(), 60)])
    truth[:, H36M_17.index("spine")] = np.nan  # as in footage without it
    found = np.stack([bent(standing(), 20), bent(standing(), 50)])
    ankles = list(H36M_17.indices("left_ankle", "right_ankle"))
    for side in ("left", "right"):
        elbow, wrist = H36M_17.indices(f"{side}_elbow", f"{side}_wrist")
        found[:, wrist] = found[:, elbow] + 0.8 * (found[:, wrist] - found[:, elbow])
    table = body.bias(found, truth)
    assert table["knees straighter than 15 degrees: too bent by, degrees"] == (pytest.approx(20, abs=1e-3), 2)
    assert table["knees bent above 40: too bent by, degrees"] == (pytest.approx(-10, abs=1e-3), 2)
    depth = (found - truth)[:, ankles, 2].mean()
    assert abs(depth) > 10
    assert table["ankles: too deep by, mm"] == (pytest.approx(depth), 4)
    assert table["forearms: length over the true one"] == (pytest.approx(0.8), 4)
    assert table["shins: length over the true one"] == (pytest.approx(1.0), 4)


def test_balls_hold_the_errors_within_their_radius(frame):
    body = module("body_bias")
    off = frame.truth_mm + 0.0
    off[H36M_17.index("right_ankle")] += (0, 0, 100.0)
    states = np.full((1, 17), "seen", dtype="U12")
    states[0, H36M_17.index("left_wrist")] = "occluded"
    found = Predictions(off[None, None], fitted_mm=off[None], states=states, r90_mm=np.full((1, 17), 50.0))
    table = body.measure_footage(frame.truth_mm[None], frame.behind[None], [found])
    assert table["in r90: all limb joints, %"] == (pytest.approx(1100 / 12), 12)
    assert table["in r90: called visible, %"] == (pytest.approx(1000 / 11), 11)
    assert table["in r90: behind the patch, %"] == (100.0, 1)


def test_photos_count_standing_legs_of_both_sides():
    body, measuring = module("body_bias"), module("measuring")
    legs = {"straight": standing(), "sits": bent(standing(), 80)}
    people = {name: person(joints_mm=joints) for name, joints in legs.items()}
    stands, cut = (measuring.LabelledPerson((0.0, 0.0, 9.0, 9.0), label, None) for label in ("standing", "cut"))
    pairs = [(stands, people["straight"]), (stands, people["sits"]), (stands, None), (cut, people["sits"])]
    figures = body.measure_photos(pairs)
    assert (figures["standing"]["people"], figures["standing"]["found"]) == (3, 2)
    assert figures["standing"]["median knee"] == pytest.approx(40, abs=2)
    assert (figures["standing"]["given standing legs"], figures["cut"]["given standing legs"]) == (1, 0)
    assert body.measure_photos([(cut, None)])["cut"]["median knee"] is None


def test_wrong_states_are_counted_both_ways_and_by_joint():
    true = np.array([["visible", "visible", "occluded", ""], ["visible", "out_of_frame", "occluded", "visible"]])
    said = np.array([["occluded", "visible", "visible", "occluded"], ["visible", "visible", "occluded", "visible"]])
    table = module("states").wrong_states(true, said, ("left_hip", "right_hip", "left_wrist", "head"))
    assert [*table["all"].values()] == [4, 0.25, 3, pytest.approx(2 / 3), 2, 0.5]
    assert [*table["hip"].values()] == [3, pytest.approx(1 / 3), 1, 1.0, 0, None]
    assert table["wrist"]["called hidden"] is None
    assert table["limbs"]["visible"] == 3


class Feet:
    """A source and an encoder in one: bodies of H36M_21 whose left foot is hidden."""

    name, layout = "none", FeatureLayout((TokenBlock("tokens", 1, 3, 0),))

    def __init__(self):
        random = np.random.default_rng(0)
        self.joints_mm = random.normal(0, 300, (4, 21, 3))
        self.joints_mm[:, 0] = 0
        self.visibility = np.zeros(21, np.int8)
        self.visibility[list(H36M_21.indices("left_heel", "left_toe"))] = 2

    def __len__(self):
        return len(self.joints_mm)

    def crop(self, i):
        text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence", "split")}
        values = {"joints_mm": self.joints_mm[i].astype(np.float32), "visibility": self.visibility}
        return np.full((2, 2, 3), i, np.uint8), values, text

    def cache_parts(self, crops):
        return {"tokens": np.zeros((len(crops), 1, 3), np.float16)}


def test_feet_are_measured_beside_ankles_by_visibility(tmp_path):
    feet, source = module("feet"), Feet()
    write_features(source, source, tmp_path / "feet", {"skeleton": "h36m_21", "source": "feet"})
    records = CachedRecords(tmp_path / "feet")
    found = records.joints_mm.astype(np.float64)
    found[:, list(H36M_21.indices("left_toe", "right_toe"))] += (0, 0, 30.0)
    r90 = np.full(found.shape[:2], 20.0)
    joints, angles = feet.measure(records, H36M_21, Predictions(found[:, None], fitted_mm=found, r90_mm=r90))
    assert joints["toes, all"] == pytest.approx({"joints": 8, "error, mm": 30, "PA, mm": 30, "in r90, %": 0}, abs=1e-3)
    assert joints["ankles, all"] == pytest.approx(
        {"joints": 8, "error, mm": 0, "PA, mm": 0, "in r90, %": 100}, abs=1e-3
    )
    assert (joints["heels, visible"]["joints"], joints["heels, hidden"]["joints"]) == (4, 4)
    assert "ankles, hidden" not in joints
    wanted = feet.ankle_angles(found) - feet.ankle_angles(source.joints_mm)
    assert angles["all"]["mean"] == pytest.approx(np.abs(wanted).mean(), abs=1e-2)
    assert (angles["visible"]["feet"], angles["hidden"]["feet"]) == (4, 4)
    uncalibrated, _ = feet.measure(records, H36M_21, Predictions(found[:, None], fitted_mm=found))
    assert uncalibrated["toes, all"]["in r90, %"] is None
    with pytest.raises(InputError, match="the model has no left_heel"):
        feet.measure(records, H36M_17, Predictions(found[:, None, :17], fitted_mm=found[:, :17]))


def test_the_angle_of_a_standing_foot_is_ninety_degrees():
    body = np.concatenate([standing(), np.zeros((4, 3))])
    for side in ("left", "right"):
        ankle, heel, toe = H36M_21.indices(*(f"{side}_{name}" for name in ("ankle", "heel", "toe")))
        body[[heel, toe]] = body[ankle] + ((0, 60, 40), (0, 60, -180))
    assert module("feet").ankle_angles(body[None]) == pytest.approx(90.0)


def test_labels_are_whole():
    measuring = module("measuring")
    known = {entry["sha256"]: entry for entry in json.loads(measuring.PHOTOS.read_text())}
    entries = json.loads(measuring.LABELS.read_text())
    people = [who for entry in entries for who in entry["people"]]
    count = {label: sum(who["label"] == label for who in people) for label in ("standing", "cut", "other")}
    assert sum(count.values()) == len(people)
    assert count["standing"] >= 20
    assert count["cut"] >= 10
    assert sum("occluded" in who for who in people) >= 30
    for entry in entries:
        described = known.get(entry.get("sha256"), {}) | entry
        assert {"asset", "member", "frame"} <= entry.keys() or {"package", "member", "licence"} <= described.keys()
        for who in entry["people"]:
            measuring._labelled_person(who)
            x0, y0, x1, y1 = who["box"]
            assert x0 < x1
            assert y0 < y1


@pytest.fixture(scope="module")
def footage(tmp_path_factory):
    """One record: the walker, whose truth is what the model finds."""
    folder, picture = tmp_path_factory.mktemp("footage"), walker()
    (found,) = Di2Pose.from_pretrained()(picture, camera=camera_of(picture)).people[:1]
    (folder / "images").mkdir()
    picture.save(folder / "images" / "walker.png")
    x, y = found.joints_2d.T
    box = (x.min() - 20, y.min() - 20, x.max() + 20, y.max() + 20)
    sample = Sample(
        "walker", found.joints_mm[:17].astype(np.float32), found.root_mm, found.joints_2d[:17].astype(np.float32),
        box=box, camera=camera_of(picture), image="walker.png", subject="w", action="w", sequence="w", split="test",
    )  # fmt: skip
    writer = Writer(folder / "data", "walker", H36M_17, image_root=str(folder / "images"))
    writer.write("all", [sample])
    writer.finish()
    return folder / "data"


def camera_of(picture):
    from di2pose.image.crop import assumed_camera

    return assumed_camera(picture.size)


def test_the_curve_of_observer_noise_and_the_bias_of_bodies_run_on_footage(footage, tmp_path, capsys):
    out = tmp_path / "noise.json"
    module("observer_noise").main("small", footage, noise="0,0.1", protocol="limb-12,occ-80", seeds="0", out=out)
    rows = {(row["protocol"], row["observer"]): row for row in json.loads(out.read_text())["table"]}
    assert len(rows) == 6
    clean, noisy, own = (rows["limb-12", name]["MPJPE"][0] for name in ("true + 0.0%", "true + 10.0%", "MoveNet"))
    assert max(own, clean) < 40 < noisy
    assert "limb-12, MPJPE over noise: monotone" in capsys.readouterr().out
    module("body_bias").main("small", footage, out=out)
    figures = json.loads(out.read_text())["limb-12"]
    assert figures["thighs: length over the true one"] == [pytest.approx(1, abs=0.05), 2]
    assert figures["in r90: all limb joints, %"] == [100.0, 12]
