"""3DPW-AdvOcc with a predictor whose worst placement is known beforehand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.occlusion.protocols import advocc_placements, advocc_visible, person_crop
from di2pose.pose.skeleton import H36M_17

SPOTS = ((101.3, 71.1), (60.2, 200.7))


@pytest.fixture
def dataset(make_samples, write_dataset):
    return write_dataset(make_samples(2, extra=lambda i: {"weak_spot": SPOTS[i]}), name="3dpw")


def nearest(size, spot, box):
    """The placement whose painted pixels have their middle nearest to the weak spot."""
    distances = []
    for placement in advocc_placements(size):
        patch = placement.patch(person_crop(box))
        middle = [(np.ceil(a - 0.5) + np.ceil(b - 0.5)) / 2 for a, b in ((patch.x0, patch.x1), (patch.y0, patch.y1))]
        distances.append(np.hypot(*np.subtract(middle, spot)))
    return int(np.argmin(distances)), min(distances)


@pytest.mark.parametrize(("size", "count"), [(40, 391), (80, 247)])
def test_the_worst_placement_found_is_the_true_one(dataset, patch_seer, tmp_path, size, count):
    predictor = patch_seer()
    protocols, records = parse_protocols(f"advocc-{size}", every=1), 1 if size == 40 else 2
    options = {"hypotheses": (1, 2), "batch": 50, "limit": records, "heatmaps": 0, "worst": 0}
    report = evaluate_dataset(predictor, dataset, protocols, tmp_path / "out", **options)
    assert predictor.calls == records * (count + 1)
    found = report["records"][f"advocc-{size}"]
    values = {key.removeprefix("1/single/"): numbers for key, numbers in found["values"].items()}
    for i, spot in enumerate(SPOTS[:records]):
        place, distance = nearest(size, spot, dataset[i].box)
        assert found["worst_placement"][i] == {"1": place, "2": place}
        factor = np.random.default_rng([0, i, 0]).uniform(0.9, 1.1)
        clean, added = 30 * factor, 300 * np.exp(-distance / 50) * factor
        expected = {"clean_mpjpe": clean, "degradation_mpjpe": added, "mpjpe": clean + added}
        assert {metric: values[metric][i] for metric in expected} == pytest.approx(expected, rel=1e-5)
        assert values["pa_mpjpe_worst"][i] >= values["pa_mpjpe"][i] > 0


class ErrsUnderThePatch:
    """Right wherever one can see, 1 m off for every joint that lies a pixel or more inside of the patch."""

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


def test_hidden_joints_do_not_count(dataset, tmp_path):
    clean = np.asarray(dataset.read_image(dataset[0]))
    report = evaluate_dataset(
        ErrsUnderThePatch(clean), dataset, parse_protocols("advocc-80", every=1), tmp_path / "out"
    )
    errors = [
        line["results"]["advocc-80"]["placement_errors_mm"]
        for line in map(json.loads, (tmp_path / "out/records/advocc-80.rank0000.jsonl").read_text().splitlines())
    ]
    assert np.array(errors, float).max() == 0 == report["numbers"][0]["value"]
    occ = evaluate_dataset(ErrsUnderThePatch(clean), dataset, parse_protocols("occ-80"), tmp_path / "occ")
    numbers = {number["metric"]: number["value"] for number in occ["numbers"]}
    assert numbers["mpjpe_hidden"] > 1000  # in `occ` all joints count, and hidden ones are told apart
    assert numbers["mpjpe_seen"] < numbers["mpjpe"] < numbers["mpjpe_hidden"]


def test_the_search_is_the_same_twice_and_when_two_ranks_split_it(dataset, patch_seer, tmp_path):
    def run(out):
        evaluate_dataset(patch_seer(), dataset, parse_protocols("advocc-80", every=1), out, hypotheses=(1, 2), batch=64)
        return (out / "report.json").read_bytes(), (out / "worst.html").read_bytes()

    one, again, split = run(tmp_path / "one"), run(tmp_path / "again"), tmp_path / "split"
    script = str(Path(__file__).with_name("patch_seer.py"))
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(dataset.folder), str(split), "advocc-80"],
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]
    assert [rank.wait() for rank in ranks] == [0, 0]
    assert one == again
    assert len(list((split / "records").glob("advocc-80.rank*.jsonl"))) == 2
    assert ((split / "report.json").read_bytes(), (split / "worst.html").read_bytes()) == one


class InSteps:
    """Moves the left ankle by 200 mm and the other joints by 10; under a patch all by 40 more, and by 1 mm more the
    farther left it lies. Drawn in fewer than 100 steps it errs by twice as much."""

    steps = 100

    def __init__(self):
        self.asked = []

    def predict(self, images, samples, hypotheses, steps, seed):
        self.asked += [steps] * len(samples)
        poses = []
        for image, sample in zip(images, samples, strict=True):
            _, columns = np.nonzero(np.asarray(image)[..., 0] != 128)
            added = 40 + (1 - columns.min() / image.width) if len(columns) else 0
            error = np.full(17, 10.0 + added)
            error[H36M_17.index("left_ankle")] += 190
            error[0] = 0
            moved = sample.joints_mm.copy()
            moved[:, 0] += error * (1 if steps == 100 else 2)
            poses.append(moved)
        return np.stack(poses)[:, None].repeat(hypotheses, axis=1)


def test_the_search_takes_few_steps_and_the_worst_placements_all(dataset, tmp_path):
    predictor = InSteps()
    protocols = parse_protocols("advocc-80", every=1)
    report = evaluate_dataset(predictor, dataset, protocols, tmp_path / "out", hypotheses=(1, 2))
    assert predictor.asked.count(10) == 2 * (247 + 1)
    assert 2 * 2 <= predictor.asked.count(100) <= 2 * (3 + 1)  # the clean picture and the worst of each kind
    assert report["run"]["search_steps"] == 10
    whole = InSteps()
    once = evaluate_dataset(whole, dataset, protocols, tmp_path / "whole", hypotheses=(1, 2), search_steps=100)
    assert set(whole.asked) == {100}
    assert "search_steps" not in once["run"]
    # This search errs by a factor, so that it finds the same places but for PA-MPJPE.
    for quick, slow in zip(*(each["records"]["advocc-80"]["worst_placements"] for each in (report, once)), strict=True):
        assert {count: (places[0], places[2]) for count, places in quick.items()} == {
            count: (places[0], places[2]) for count, places in slow.items()
        }
    quick, slow = (each["records"]["advocc-80"]["values"] for each in (report, once))
    assert {key: value for key, value in quick.items() if "pa_mpjpe_worst" not in key} == {
        key: value for key, value in slow.items() if "pa_mpjpe_worst" not in key
    }
    with pytest.raises(InputError, match="--search-steps must be 1 or more"):
        evaluate_dataset(InSteps(), dataset, protocols, tmp_path / "none", search_steps=0)


def test_the_relative_worst_placement_hides_what_is_bad_without_a_patch(dataset, tmp_path):
    report = evaluate_dataset(InSteps(), dataset, parse_protocols("advocc-80", every=1), tmp_path / "out")
    records, placements = report["records"]["advocc-80"], advocc_placements(80)
    for i in range(2):
        sample = dataset[i]
        crop, ankle = person_crop(sample.box), H36M_17.index("left_ankle")
        absolute, _, relative = (placements[k] for k in records["worst_placements"][i]["1"])
        seen = [advocc_visible(sample.joints_2d, crop, place)[ankle] for place in (absolute, relative)]
        assert seen == [True, False]
        values = {key.split("/")[2]: value[i] for key, value in records["values"].items()}
        assert values["mpjpe"] > values["mpjpe_relative"]
        assert values["clean_mpjpe_relative"] == pytest.approx(10)
        assert values["mpjpe_relative"] / 10 > values["mpjpe"] / values["clean_mpjpe"]
