import json

import numpy as np
import pytest
import torch

from di2pose.data.human36m import ACTIONS
from di2pose.errors import InputError
from di2pose.evaluation.evaluate import evaluate_dataset
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.protocol import parse_protocols
from di2pose.pose.metrics import mpjpe, pa_mpjpe


def numbers(report, **wanted):
    return [n for n in report["numbers"] if all(n[key] == value for key, value in wanted.items())]


@pytest.fixture
def noisy(make_samples, write_dataset, write_predictions):
    """20 records of unequally many per action, and a prediction file with 3 hypotheses."""
    samples = make_samples(20, action=lambda i: ACTIONS[min(i, 14)], frame=lambda i: 5 * i)
    truth = np.stack([s.joints_mm for s in samples])
    poses = truth[:, None] + np.random.default_rng(7).normal(0, 50, (20, 3, 17, 3)).astype(np.float32)
    return samples, write_dataset(samples), poses, PredictionFile(write_predictions(samples, poses))


def test_human36m_averages_are_means_of_action_means_of_the_metrics(noisy, tmp_path):
    samples, dataset, poses, file = noisy
    report = evaluate_dataset(file, dataset, parse_protocols("h36m-p1,h36m-p2"), tmp_path / "out", hypotheses=(1, 3))
    truth = torch.from_numpy(np.stack([s.joints_mm for s in samples])).double()
    single, mean = (torch.from_numpy(p).double() for p in (poses[:, 0], poses.astype(np.float64).mean(1)))
    for name, metric, count, estimate, errors in (
        ("h36m-p1", "mpjpe", 1, "single", mpjpe(single, truth, root=0)),
        ("h36m-p1", "mpjpe", 3, "p-agg", mpjpe(mean, truth, root=0)),
        ("h36m-p2", "pa_mpjpe", 1, "single", pa_mpjpe(single, truth)),
    ):
        by_action = [float(errors[i]) for i in range(14)] + [float(errors[14:].mean())]
        (number,) = numbers(report, protocol=name, metric=metric, hypotheses=count, estimate=estimate)
        assert number["value"] == pytest.approx(np.mean(by_action), abs=1e-9)
        assert number["count"] == 20
        assert not number["oracle"]
        key = f"{count}/{estimate}/{metric}"
        table = report["actions"][name]
        assert table["mean_mm"][key] == pytest.approx(by_action, abs=1e-9)
        assert (table["names"], table["counts"]) == (list(ACTIONS), [1] * 14 + [6])
        assert report["records"][name]["values"][key] == pytest.approx(errors.tolist(), abs=1e-9)


def test_every_number_stands_with_its_protocol_and_the_papers_number(noisy, tmp_path):
    _, dataset, _, file = noisy
    report = evaluate_dataset(
        file, dataset, parse_protocols("h36m-p1,limb-12"), tmp_path / "out", hypotheses=(3,), seed=4
    )
    for number in report["numbers"]:
        assert {"protocol", "joints", "root", "every", "hypotheses", "estimate", "oracle", "count"} <= number.keys()
        assert number["seed"] == 4
    assert {n["paper"] for n in numbers(report, protocol="h36m-p1", oracle=False)} == {49.2}
    assert {n["paper_source"] for n in numbers(report, protocol="h36m-p1", oracle=False)} == {"tab:h36m"}
    assert {n["paper"] for n in numbers(report, oracle=True)} == {None}
    assert {n["estimate"] for n in numbers(report, oracle=True)} == {"p-best", "j-best", "j-agg"}
    assert {n["paper"] for n in numbers(report, protocol="limb-12")} == {None}


def test_the_papers_number_stands_only_beside_its_own_dataset(make_samples, write_dataset, write_predictions, tmp_path):
    samples = make_samples(2)
    dataset = write_dataset(samples, name="mine")
    file = PredictionFile(write_predictions(samples))
    report = evaluate_dataset(file, dataset, parse_protocols("h36m-p1,3dpw-14"), tmp_path / "out")
    assert {number["paper"] for number in report["numbers"]} == {None}


class Counting:
    """The truth, 20 mm aside; says how often it was asked, and can be made to die."""

    def __init__(self, dies_after=None):
        self.asked, self.dies_after = [], dies_after

    def predict(self, images, samples, hypotheses, steps, seed):
        if self.dies_after is not None and len(self.asked) >= self.dies_after:
            raise KeyboardInterrupt
        self.asked += [sample.id for sample in samples]
        poses = np.stack([sample.joints_mm for sample in samples])
        poses[:, 1:] += 20
        return poses[:, None].repeat(hypotheses, axis=1)


def test_a_stopped_run_goes_on_where_it_stopped_and_ends_the_same(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(7))
    protocols = parse_protocols("h36m-p1,limb-12,occ-40", every=1)
    whole = evaluate_dataset(Counting(), dataset, protocols, tmp_path / "whole", batch=2)
    with pytest.raises(KeyboardInterrupt):
        evaluate_dataset(Counting(dies_after=4), dataset, protocols, tmp_path / "cut", batch=2)
    shard = tmp_path / "cut" / "records" / "clean.rank0000.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    shard.write_bytes(b"".join(lines[:3]) + lines[3][:40])  # killed in the middle of a line

    rest = Counting()
    resumed = evaluate_dataset(rest, dataset, protocols, tmp_path / "cut", batch=2)
    assert rest.asked[:4] == ["r3", "r4", "r5", "r6"]  # then the 7 of occ-40
    assert len(rest.asked) == 4 + 7
    assert resumed == whole
    assert (tmp_path / "cut/report.json").read_bytes() == (tmp_path / "whole/report.json").read_bytes()

    finished = Counting(dies_after=0)
    assert evaluate_dataset(finished, dataset, protocols, tmp_path / "cut", batch=2) == whole


def test_ranks_share_the_records_and_the_last_one_writes_the_report(make_samples, write_dataset, tmp_path, monkeypatch):
    dataset = write_dataset(make_samples(5))
    protocols = parse_protocols("limb-12,occ-80")
    alone = evaluate_dataset(Counting(), dataset, protocols, tmp_path / "alone")
    found = []
    for rank in (1, 2, 0):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        predictor = Counting()
        found.append(evaluate_dataset(predictor, dataset, protocols, tmp_path / "ranks"))
        assert predictor.asked == [f"r{i}" for i in range(rank, 5, 3)] * 2
    assert found == [None, None, alone]


def test_a_rank_that_is_overtaken_between_two_passes_still_writes_the_report(
    make_samples, write_dataset, tmp_path, monkeypatch
):
    dataset = write_dataset(make_samples(4))
    protocols = parse_protocols("limb-12,occ-80")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def run(rank, predictor):
        monkeypatch.setenv("RANK", str(rank))
        return evaluate_dataset(predictor, dataset, protocols, tmp_path / "ranks")

    class Slow(Counting):
        """Rank 0. Rank 1 does all of its work while this one is at its first picture with a patch."""

        def predict(self, images, samples, hypotheses, steps, seed):
            if len(self.asked) == 2:
                assert run(1, Counting()) is None
            return super().predict(images, samples, hypotheses, steps, seed)

    report = run(0, Slow())
    assert report is not None
    assert {number["count"] for number in report["numbers"] if number["metric"] == "mpjpe"} == {4}


def test_a_damaged_line_in_the_middle_is_an_error(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(3))
    evaluate_dataset(Counting(), dataset, parse_protocols("limb-12"), tmp_path / "out")
    shard = tmp_path / "out" / "records" / "clean.rank0000.jsonl"
    shard.write_bytes(b"{nonsense\n" + shard.read_bytes())
    with pytest.raises(InputError, match="line 1 is damaged"):
        evaluate_dataset(Counting(), dataset, parse_protocols("limb-12"), tmp_path / "out")


def test_a_folder_of_another_run_is_not_mixed_with_this_one(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(3))
    evaluate_dataset(Counting(), dataset, parse_protocols("limb-12"), tmp_path / "out", seed=0)
    with pytest.raises(InputError, match=r"other settings \(seed differ\)"):
        evaluate_dataset(Counting(), dataset, parse_protocols("limb-12"), tmp_path / "out", seed=1)


def test_records_that_cannot_be_read_are_listed_and_left_out(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(4, joints_2d=lambda i: None if i == 2 else make_samples(4)[i].joints_2d))
    (dataset.folder / "images" / "r1.png").write_bytes(b"not a picture")
    (dataset.folder / "images" / "r3.png").unlink()
    report = evaluate_dataset(Counting(), dataset, parse_protocols("limb-12,occ-40"), tmp_path / "out")
    assert [skip["id"] for skip in report["skipped"]["limb-12"]] == ["r1", "r3"]
    assert [skip["id"] for skip in report["skipped"]["occ-40"]] == ["r1", "r2", "r3"]
    assert {number["count"] for number in numbers(report, protocol="occ-40", metric="mpjpe")} == {1}
    assert "2 records left out" in (tmp_path / "out" / "report.md").read_text()


def test_a_run_in_which_every_record_fails_is_an_error(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(2, image=None))
    with pytest.raises(InputError, match=r"occ-40: all 2 records were left out: .*no picture"):
        evaluate_dataset(Counting(), dataset, parse_protocols("occ-40"), tmp_path / "out")


@pytest.mark.parametrize(
    ("poses", "message"),
    [
        (lambda n: np.zeros((n, 1, 14, 3)), r"gave poses of shape \(2, 1, 14, 3\), expected \(2, 1, 17, 3\)"),
        (lambda n: np.full((n, 1, 17, 3), np.nan), "NaN or infinite joints for record r0"),
    ],
)
def test_a_broken_predictor_stops_the_run(make_samples, write_dataset, tmp_path, poses, message):
    class Broken:
        def predict(self, images, samples, hypotheses, steps, seed):
            return poses(len(samples))

    with pytest.raises(InputError, match=message):
        evaluate_dataset(Broken(), write_dataset(make_samples(2)), parse_protocols("limb-12"), tmp_path / "out")


def test_finished_poses_cannot_meet_a_patch_nor_grow_hypotheses(noisy, tmp_path):
    _, dataset, _, file = noisy
    with pytest.raises(InputError, match="advocc-40 put patches on the pictures"):
        evaluate_dataset(file, dataset, parse_protocols("limb-12,advocc-40"), tmp_path / "out")
    with pytest.raises(InputError, match="holds 3 hypotheses per record, 8 were asked for"):
        evaluate_dataset(file, dataset, parse_protocols("limb-12"), tmp_path / "out", hypotheses=(8,))


def test_hidden_and_seen_joints_are_told_apart_where_the_dataset_knows(make_samples, write_dataset, tmp_path):
    visibility = np.zeros(17, np.int8)
    visibility[[13, 16]] = 2, 1

    class WristsOff:
        def predict(self, images, samples, hypotheses, steps, seed):
            poses = np.stack([sample.joints_mm for sample in samples])
            poses[:, [13, 16], 0] += 120
            return poses[:, None]

    dataset = write_dataset(make_samples(3, visibility=visibility))
    report = evaluate_dataset(WristsOff(), dataset, parse_protocols("limb-12"), tmp_path / "out")
    values = {number["metric"]: number["value"] for number in report["numbers"]}
    assert values["mpjpe"] == pytest.approx(20, rel=1e-5)
    assert values["mpjpe_hidden"] == pytest.approx(120, rel=1e-5)
    assert values["mpjpe_seen"] == pytest.approx(0, abs=1e-4)


def test_pictures_reach_the_predictor_and_the_region_of_a_detector_sets_the_patch(
    make_samples, write_dataset, tmp_path
):
    from di2pose.image.crop import Roi

    sizes = []

    class Looks(Counting):
        def predict(self, images, samples, hypotheses, steps, seed):
            sizes.extend(int((np.asarray(image)[..., 0] != 128).any(0).sum()) for image in images)
            return super().predict(images, samples, hypotheses, steps, seed)

    dataset = write_dataset(make_samples(4))
    report = evaluate_dataset(
        Looks(),
        dataset,
        parse_protocols("occ-80"),
        tmp_path / "out",
        roi_of=lambda sample, image: Roi((0.0, 0.0), 64.0),
    )
    assert sizes == [20] * 4
    assert report["run"]["occ_roi"] == "given"
    line = json.loads((tmp_path / "out/records/occ-80.rank0000.jsonl").read_text().splitlines()[0])
    x0, _, x1, _ = line["results"]["occ-80"]["patch"]
    assert x1 - x0 == pytest.approx(20)
