"""3DPW-AdvOcc with predictors whose worst placement is known beforehand."""

import json

import numpy as np
import pytest

from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.occlusion.protocols import advocc_placements, advocc_visible, person_crop
from di2pose.pose.skeleton import H36M_17

SPOT = (60.2, 200.7)
GREY, CLEAN_MM, PEAK_MM = 128, 30.0, 300.0
PROTOCOLS = parse_protocols("advocc-80", every=1)


class Patched:
    """The truth, all joints but the pelvis moved along x: by 30 mm, and by up to 300 mm more the nearer the patch on
    the grey picture lies to SPOT; 10 % more for every further hypothesis."""

    calls = 0

    def predict(self, images, samples, hypotheses, steps, seed):
        self.calls += len(images)
        poses = np.stack([sample.joints_mm for sample in samples])[:, None].repeat(hypotheses, axis=1)
        for pose, image in zip(poses, images, strict=True):
            rows, columns = np.nonzero(np.asarray(image)[..., 0] != GREY)
            error = CLEAN_MM
            if len(rows):
                centre = (columns.min() + columns.max() + 1) / 2, (rows.min() + rows.max() + 1) / 2
                error += PEAK_MM * np.exp(-np.hypot(*np.subtract(centre, SPOT)) / 50)
            pose[:, 1:, 0] += error * (1 + 0.1 * np.arange(hypotheses))[:, None]
        return poses


@pytest.fixture
def dataset(make_samples, write_dataset):
    return write_dataset(make_samples(1), name="3dpw")


def test_the_worst_placement_is_found(dataset, tmp_path):
    predictor, distances = Patched(), []
    report = evaluate_dataset(predictor, dataset, PROTOCOLS, tmp_path, hypotheses=(1, 2), batch=50, worst=1)
    assert predictor.calls == 247 + 1
    for placement in advocc_placements(80):  # to the middle of the painted pixels
        patch = placement.patch(person_crop(dataset[0].box))
        middle = [(np.ceil(a - 0.5) + np.ceil(b - 0.5)) / 2 for a, b in ((patch.x0, patch.x1), (patch.y0, patch.y1))]
        distances.append(np.hypot(*np.subtract(middle, SPOT)))
    found = report["records"]["advocc-80"]
    assert [worst[0] for worst in found["worst_placements"][0].values()] == [np.argmin(distances)] * 2
    values = {key.removeprefix("1/single/"): value for key, (value,) in found["values"].items()}
    added = PEAK_MM * np.exp(-min(distances) / 50)
    expected = {"clean_mpjpe": CLEAN_MM, "degradation_mpjpe": added, "mpjpe": CLEAN_MM + added}
    assert {metric: values[metric] for metric in expected} == pytest.approx(expected, rel=1e-5)
    assert values["pa_mpjpe_worst"] >= values["pa_mpjpe"] > 0
    assert "<img" in (tmp_path / "worst.html").read_text()


class ErrsUnderThePatch:
    """Right where the picture is as in `clean`, 1 m off for every joint that lies a pixel or more inside a patch."""

    def __init__(self, clean):
        self.clean = clean

    def predict(self, images, samples, hypotheses, steps, seed):
        poses = np.stack([sample.joints_mm for sample in samples])
        for pose, image, sample in zip(poses, images, samples, strict=True):
            changed = (np.asarray(image) != self.clean).any(-1)
            for joint, (x, y) in enumerate(sample.joints_2d.astype(int)):
                if joint and changed[y - 1 : y + 2, x - 1 : x + 2].all():
                    pose[joint] += 1000
        return poses[:, None].repeat(hypotheses, axis=1)


def test_hidden_joints_do_not_count_but_in_occ_they_do(dataset, tmp_path):
    predictor = ErrsUnderThePatch(np.asarray(dataset.read_image(dataset[0])))
    (forty,) = parse_protocols("advocc-40", every=1)
    report = evaluate_dataset(predictor, dataset, [forty], tmp_path / "out", worst=0)
    line = json.loads((tmp_path / "out/records/advocc-40.rank0000.jsonl").read_text())
    errors = line["results"]["advocc-40"]["placement_errors_mm"]
    assert len(errors) == 391
    assert max(errors) == 0 == report["numbers"][0]["value"]
    occ = evaluate_dataset(predictor, dataset, parse_protocols("occ-80"), tmp_path / "occ", worst=0)
    numbers = {number["metric"]: number["value"] for number in occ["numbers"]}
    assert numbers["mpjpe_hidden"] > 1000
    assert numbers["mpjpe_seen"] < numbers["mpjpe"] < numbers["mpjpe_hidden"]


class InSteps:
    """Moves the left ankle by 200 mm and the other joints by 10; under a patch all by 40 more, and by 1 mm more the
    farther left it lies. Drawn in fewer than 100 steps it errs by twice as much."""

    steps = 100

    def __init__(self):
        self.asked = []

    def predict(self, images, samples, hypotheses, steps, seed):
        self.asked += [steps] * len(samples)
        poses = np.stack([sample.joints_mm for sample in samples])
        for pose, image in zip(poses, images, strict=True):
            _, columns = np.nonzero(np.asarray(image)[..., 0] != GREY)
            error = np.full(17, 10.0 + (40 + (1 - columns.min() / image.width) if len(columns) else 0))
            error[H36M_17.index("left_ankle")] += 190
            error[0] = 0
            pose[:, 0] += error * (1 if steps == 100 else 2)
        return poses[:, None].repeat(hypotheses, axis=1)


def test_the_search_takes_few_steps_and_the_worst_placements_all(dataset, tmp_path):
    predictor, whole = InSteps(), InSteps()
    quick = evaluate_dataset(predictor, dataset, PROTOCOLS, tmp_path / "quick", worst=0)
    slow = evaluate_dataset(whole, dataset, PROTOCOLS, tmp_path / "whole", search_steps=100, worst=0)
    assert predictor.asked.count(10) == 247 + 1
    assert 2 <= predictor.asked.count(100) <= 3 + 1  # the clean picture and the worst of each kind
    assert quick["run"]["search_steps"] == 10
    assert set(whole.asked) == {100}
    assert "search_steps" not in slow["run"]
    # This search errs by a factor, so that it finds the same places but for PA-MPJPE.
    first, second = (each["records"]["advocc-80"] for each in (quick, slow))
    placements = [each["worst_placements"][0]["1"] for each in (first, second)]
    assert placements[0][::2] == placements[1][::2]
    kept = [key for key in first["values"] if "pa_mpjpe_worst" not in key]
    assert {key: first["values"][key] for key in kept} == {key: second["values"][key] for key in kept}
    # The relative worst placement hides what is bad without a patch.
    sample, ankle = dataset[0], H36M_17.index("left_ankle")
    absolute, _, relative = (advocc_placements(80)[k] for k in placements[1])
    crop = person_crop(sample.box)
    assert [advocc_visible(sample.joints_2d, crop, place)[ankle] for place in (absolute, relative)] == [True, False]
    values = {key.split("/")[2]: value[0] for key, value in second["values"].items()}
    assert values["mpjpe"] > values["mpjpe_relative"]
    assert values["clean_mpjpe_relative"] == pytest.approx(10)
    assert values["mpjpe_relative"] / 10 > values["mpjpe"] / values["clean_mpjpe"]
