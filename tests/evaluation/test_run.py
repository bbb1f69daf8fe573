"""Runs: what they measure, how they go on, share records among ranks and refuse; the command on prediction files."""

import json

import numpy as np
import pytest

from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.image.crop import Roi
from di2pose.model import save_model


class Counting:
    """The truth, 20 mm aside; keeps the ids it was called with, and can be interrupted."""

    def __init__(self, dies_after=None):
        self.asked, self.dies_after = [], dies_after

    def predict(self, images, samples, hypotheses, steps, seed):
        if self.dies_after is not None and len(self.asked) >= self.dies_after:
            raise KeyboardInterrupt
        self.asked += [sample.id for sample in samples]
        poses = np.stack([sample.joints_mm for sample in samples])
        poses[:, 1:] += 20
        return poses[:, None].repeat(hypotheses, axis=1)


@pytest.fixture
def evaluated(make_samples, write_dataset, tmp_path):
    """A run on a few records of one dataset."""
    dataset = None

    def evaluated(predictor, protocols, out="out", records=4, fields=None, **options):
        nonlocal dataset
        dataset = dataset or write_dataset(make_samples(records, **(fields or {})))
        return evaluate_dataset(predictor, dataset, parse_protocols(protocols, every=1), tmp_path / out, **options)

    return evaluated


def test_a_stopped_run_goes_on_where_it_stopped_and_ends_the_same(evaluated, tmp_path):
    options = {"protocols": "limb-12,occ-40", "records": 7, "batch": 2, "worst": 0}
    whole = evaluated(Counting(), out="whole", **options)
    with pytest.raises(KeyboardInterrupt):
        evaluated(Counting(dies_after=4), out="cut", **options)
    shard = tmp_path / "cut" / "records" / "clean.rank0000.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    shard.write_bytes(b"".join(lines[:3]) + lines[3][:40])  # killed in the middle of a line
    rest = Counting()
    assert evaluated(rest, out="cut", **options) == whole
    assert rest.asked[:4] == ["r3", "r4", "r5", "r6"]  # then the 7 of occ-40
    assert len(rest.asked) == 4 + 7
    assert (tmp_path / "cut/report.json").read_bytes() == (tmp_path / "whole/report.json").read_bytes()
    assert evaluated(Counting(dies_after=0), out="cut", **options) == whole
    with pytest.raises(InputError, match=r"other settings \(seed differ\)"):
        evaluated(Counting(), out="cut", seed=1, **options)
    shard.write_bytes(b"{nonsense\n" + shard.read_bytes())
    with pytest.raises(InputError, match="line 1 is damaged"):
        evaluated(Counting(), out="cut", **options)


def test_ranks_share_the_records_and_the_last_one_writes_the_report(evaluated, monkeypatch):
    alone, found = evaluated(Counting(), "limb-12,occ-80", "alone", 5), []
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in (1, 2, 0):
        monkeypatch.setenv("RANK", str(rank))
        predictor = Counting()
        found.append(evaluated(predictor, "limb-12,occ-80", "ranks"))
        assert predictor.asked == [f"r{i}" for i in range(rank, 5, 3)] * 2
    assert found == [None, None, alone]


def test_a_rank_that_is_overtaken_between_two_passes_still_writes_the_report(evaluated, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")

    def run(rank, predictor):
        monkeypatch.setenv("RANK", str(rank))
        return evaluated(predictor, "limb-12,occ-80", "ranks")

    class Slow(Counting):
        """Rank 0. Rank 1 does all of its work while this one is at its first picture with a patch."""

        def predict(self, images, samples, hypotheses, steps, seed):
            if len(self.asked) == 2:
                assert run(1, Counting()) is None
            return super().predict(images, samples, hypotheses, steps, seed)

    report = run(0, Slow())
    assert {number["count"] for number in report["numbers"] if number["metric"] == "mpjpe"} == {4}


def test_records_that_cannot_be_read_are_listed_and_left_out(make_samples, write_dataset, tmp_path):
    points = [sample.joints_2d for sample in make_samples(4)]
    dataset = write_dataset(make_samples(4, joints_2d=lambda i: None if i == 2 else points[i]))
    (dataset.folder / "images" / "r1.png").write_bytes(b"not a picture")
    (dataset.folder / "images" / "r3.png").unlink()
    report = evaluate_dataset(Counting(), dataset, parse_protocols("limb-12,occ-40"), tmp_path / "out")
    assert [skip["id"] for skip in report["skipped"]["limb-12"]] == ["r1", "r3"]
    assert [skip["id"] for skip in report["skipped"]["occ-40"]] == ["r1", "r2", "r3"]
    counts = {(n["protocol"], n["count"]) for n in report["numbers"] if n["metric"] == "mpjpe"}
    assert counts == {("limb-12", 2), ("occ-40", 1)}
    assert "2 records left out" in (tmp_path / "out" / "report.md").read_text()
    (dataset.folder / "images" / "r0.png").unlink()
    with pytest.raises(InputError, match="occ-40: all 4 records were left out: "):
        evaluate_dataset(Counting(), dataset, parse_protocols("occ-40"), tmp_path / "none")


def test_a_broken_predictor_stops_the_run(evaluated):
    class Broken:
        def predict(self, images, samples, hypotheses, steps, seed):
            return self.poses

    predictor = Broken()
    for predictor.poses, message in (
        (np.zeros((2, 1, 14, 3)), r"gave poses of shape \(2, 1, 14, 3\), expected \(2, 1, 17, 3\)"),
        (np.full((2, 1, 17, 3), np.nan), "NaN or infinite joints for record r0"),
    ):
        with pytest.raises(InputError, match=message):
            evaluated(predictor, "limb-12", records=2)


def test_the_region_of_a_detector_sets_the_patch_that_the_predictor_sees(evaluated):
    sizes = []

    class Measuring(Counting):
        def predict(self, images, samples, hypotheses, steps, seed):
            sizes.extend(int((np.asarray(image)[..., 0] != 128).any(0).sum()) for image in images)
            return super().predict(images, samples, hypotheses, steps, seed)

    report = evaluated(Measuring(), "occ-80", records=2, roi_of=lambda sample, image: Roi((0.0, 0.0), 64.0), worst=0)
    assert sizes == [20] * 2
    assert report["run"]["occ_roi"] == "given"


@pytest.fixture
def files(make_samples, write_dataset, write_predictions, tmp_path):
    samples = make_samples(4)
    return write_dataset(samples).folder, write_predictions(samples), tmp_path / "out"


def run(*words):
    return main(["evaluate", *map(str, words)])


def test_a_prediction_file_is_evaluated_from_the_command_line(files, capsys):
    data, poses, out = files
    words = ("--predictions", poses, "--data", data, "--out", out, "--protocol", "h36m-p1,limb-12", "--every", 1)
    assert run(*words) == 0
    assert "| limb-12 | 1 sample | 0.0 | 0.0 |" in " ".join(capsys.readouterr().out.split())
    report = json.loads((out / "report.json").read_text())
    assert [n["value"] for n in report["numbers"] if n["metric"] == "mpjpe"] == pytest.approx([0, 0], abs=1e-9)
    written = {"report.json", "report.md", "report.tex", "worst.html", "run.json", "records"}
    assert {path.name for path in out.iterdir()} == written
    assert main(["compare", str(out), str(out)]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--protocol", "limb-12"), "give either a MODEL (checkpoint folder, run, name) or --predictions"),
        (("--predictions", "POSES", "--protocol", "nope"), "no protocol is called nope"),
        (("--predictions", "POSES", "--hypotheses", "1;8"), "--hypotheses takes counts with commas"),
        (("--predictions", "POSES", "--hypotheses", "8"), "holds 1 hypotheses per record, 8 were asked for"),
        (("--predictions", "POSES", "--hypotheses", "0"), "must be 1 or more, got 0, 16"),
        (("--predictions", "POSES", "--seeds", "1,1"), "every seed counts once, got (1, 1)"),
        (("--predictions", "POSES", "--plain"), "plain people are known only in feature caches"),
        (("--predictions", "POSES", "--protocol", "limb-12,advocc-40"), "advocc-40 put patches on the pictures"),
        (("--predictions", "none.npz"), "none.npz is no readable npz file"),
        (("nowhere",), "no checkpoint at nowhere"),
        (("BLIND",), "cannot look at pictures"),
    ],
)
def test_mistakes_end_with_one_line_and_status_2(files, tiny_model, capsys, words, message):
    data, poses, out = files
    if words == ("BLIND",):  # a checkpoint without an image encoder
        words = (save_model(tiny_model(3), out.parent / "model"),)
    assert run(*(poses if word == "POSES" else word for word in words), "--data", data, "--out", out) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
