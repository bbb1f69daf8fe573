import copy
import json

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.evaluation.compare import compare, compare_reports, read_report
from di2pose.evaluation.predictors import PredictionFile
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset


@pytest.fixture(scope="module")
def folder(make_samples, dataset_in, predictions_in, tmp_path_factory):
    """Reports a and b of two prediction files of 40 records; B's errors are A's plus about 10 mm."""
    folder, samples = tmp_path_factory.mktemp("compared"), make_samples(40, image=None)
    dataset = dataset_in(folder / "data", samples)
    truth = np.stack([s.joints_mm for s in samples])
    for name, shift, scale in (("a", 30.0, 1), ("b", 40.0, 3)):
        offsets = np.float32(np.random.default_rng(5).uniform(-5, 5, 40) * scale + shift)
        poses = truth + np.float32([1, 0, 0]) * offsets[:, None, None] * (np.arange(17) > 0)[:, None]
        file = PredictionFile(predictions_in(folder, samples, poses.astype(np.float32), file=f"{name}.npz"))
        evaluate_dataset(file, dataset, parse_protocols("3dpw-14"), folder / name, name=name, worst=0)
    return folder


@pytest.fixture(scope="module")
def reports(folder):
    return [read_report(folder / name) for name in "ab"]


def test_a_known_shift_is_found_inside_of_its_interval(reports):
    line = compare_reports(*reports).query("metric == 'mpjpe'").iloc[0]
    first, second = (np.array(r["records"]["3dpw-14"]["values"]["1/single/mpjpe"]) for r in reports)
    difference = second - first
    assert (line["protocol"], line["hypotheses"], line["estimate"], line["count"]) == ("3dpw-14", 1, "single", 40)
    assert line.difference == pytest.approx(difference.mean())
    assert line.low < line.difference < line.high
    assert line.low < 10 < line.high
    normal = 1.96 * difference.std(ddof=1) / np.sqrt(40)  # the central limit theorem's interval
    assert (line.high - line.low) / 2 == pytest.approx(normal, rel=0.15)
    assert line.wins_b == (difference < 0).mean()
    back = compare_reports(*reversed(reports)).iloc[0]
    assert back.difference == pytest.approx(-line.difference)
    assert (back.low, back.high) == pytest.approx((-line.high, -line.low), rel=0.05)
    assert back.wins_b == 1 - line.wins_b


def test_equal_runs_differ_by_nothing_and_the_bootstrap_is_seeded(reports):
    for line in compare_reports(reports[0], reports[0]).itertuples():
        assert (line.difference, line.low, line.high, line.wins_b) == (0, 0, 0, 0.5)
    one, again, other = (compare_reports(*reports, seed=seed) for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def changed(report, path, value):
    other = copy.deepcopy(report)
    at = other
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return other


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("run", "protocols", 0, "truth"), "0123", "3dpw-14 was not run alike: the records or their true poses differ"),
        (("run", "protocols", 0, "root"), ["left_hip"], "3dpw-14 was not run alike: root differ"),
        (("run", "protocols", 0, "id"), "limb-12", "no protocol in common: 3dpw-14 against limb-12"),
        (("records", "3dpw-14", "ids"), ["x"] * 40, "no record in common"),
        (("records", "3dpw-14", "values"), {"8/p-agg/mpjpe": [1.0] * 40}, "share protocols but no number"),
        (("records", "3dpw-14", "values"), {"8/mpjpe": [1.0] * 40}, "one of the two reports is damaged"),
    ],
)
def test_reports_that_cannot_be_compared_are_refused(reports, path, value, message):
    with pytest.raises(InputError, match=message):
        compare_reports(reports[0], changed(reports[1], path, value))


def test_different_patches_are_refused(reports):
    first = changed(reports[0], ("run", "protocols", 0, "occlusion"), {"kind": "occ", "size": 40})
    with pytest.raises(InputError, match="3dpw-14 was not run alike: seed differ"):
        compare_reports(first, changed(first, ("run", "seed"), 9))


def test_older_reports_are_read_and_compared_and_newer_ones_refused(reports, tmp_path):
    old = copy.deepcopy(reports[0]) | {"format_version": 2}  # before intervals and calibration
    del old["calibration"]
    for part in (*old["numbers"], *old["records"].values()):
        part.pop("interval", None)
        del part["interval_by"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert compare_reports(read_report(tmp_path / "old.json"), reports[1]).equals(compare_reports(*reports))
    (tmp_path / "new.json").write_text(json.dumps(reports[0] | {"format_version": 99}))
    with pytest.raises(InputError, match="of format version 99, this program reads up to"):
        read_report(tmp_path / "new.json")
    (tmp_path / "x.json").write_text(json.dumps([1]))
    with pytest.raises(InputError, match=r"x.json is not a report.json"):
        read_report(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot read"):
        read_report(tmp_path / "y.json")


def test_the_command_prints_a_table_of_two_folders(folder, capsys):
    assert compare(folder / "a", folder / "b" / "report.json", by="sequence") == 0
    text = capsys.readouterr().out
    assert "95 % interval (by sequence)" in text
    assert "3dpw-14 1/single PA-MPJPE 40" in " ".join(text.split())
