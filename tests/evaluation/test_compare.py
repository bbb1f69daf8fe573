import copy
import json

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.evaluation.bootstrap import bootstrap_interval
from di2pose.evaluation.compare import compare, compare_reports, read_report
from di2pose.evaluation.evaluate import evaluate_dataset
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.protocol import parse_protocols

KEY = "1/single/mpjpe"


@pytest.fixture
def reports(make_samples, write_dataset, write_predictions, tmp_path):
    """Two prediction files of 40 records; B's errors are A's plus about 10 mm."""
    samples = make_samples(40)
    dataset = write_dataset(samples)
    truth = np.stack([s.joints_mm for s in samples])
    found = []
    for name, shift in (("a", 30.0), ("b", 40.0)):
        offsets = np.random.default_rng(5).uniform(-5, 5, 40) * (1 if name == "a" else 3) + shift
        poses = truth + np.float32([1, 0, 0]) * offsets[:, None, None].astype(np.float32) * (np.arange(17) > 0)[:, None]
        file = PredictionFile(write_predictions(samples, poses, file=f"{name}.npz"))
        found.append(evaluate_dataset(file, dataset, parse_protocols("3dpw-14"), tmp_path / name, name=name))
    return found


def test_a_known_shift_is_found_inside_of_its_interval(reports):
    a, b = reports
    (line,) = [line for line in compare_reports(a, b) if line.key == KEY]
    first, second = (np.array(r["records"]["3dpw-14"]["values"][KEY]) for r in reports)
    difference = second - first
    assert line.count == 40
    assert line.difference == pytest.approx(difference.mean())
    assert line.low < line.difference < line.high
    assert line.low < 10 < line.high
    normal = 1.96 * difference.std(ddof=1) / np.sqrt(40)  # the central limit theorem's interval
    assert (line.high - line.low) / 2 == pytest.approx(normal, rel=0.15)
    assert line.wins_b == (difference < 0).mean()


def test_the_other_way_round_is_the_mirror_image(reports):
    a, b = reports
    forth, back = compare_reports(a, b)[0], compare_reports(b, a)[0]
    assert back.difference == pytest.approx(-forth.difference)
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low), rel=0.05)
    assert back.wins_b == 1 - forth.wins_b


def test_equal_runs_differ_by_nothing_and_win_half_of_the_time(reports):
    for line in compare_reports(reports[0], reports[0]):
        assert (line.difference, line.low, line.high, line.wins_b) == (0, 0, 0, 0.5)


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    groups = np.arange(60)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.normal(3, 10, 60), groups, rng, resamples=400)
        hits += low < 3 < high
    assert 0.88 < hits / 200 < 0.99


def test_drawing_whole_sequences_widens_the_interval_of_repeated_frames():
    rng = np.random.default_rng(0)
    per_sequence = rng.normal(0, 10, 20).repeat(30)
    low, high = bootstrap_interval(per_sequence, np.arange(600), np.random.default_rng(1))
    wide_low, wide_high = bootstrap_interval(per_sequence, np.arange(20).repeat(30), np.random.default_rng(1))
    assert (wide_high - wide_low) > 4 * (high - low)


def test_the_bootstrap_is_seeded(reports):
    assert compare_reports(*reports, seed=1) == compare_reports(*reports, seed=1)
    assert compare_reports(*reports, seed=1) != compare_reports(*reports, seed=2)


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
    ],
)
def test_what_cannot_be_compared_is_refused(reports, path, value, message):
    with pytest.raises(InputError, match=message):
        compare_reports(reports[0], changed(reports[1], path, value))


def test_different_patches_are_refused(reports):
    first = changed(reports[0], ("run", "protocols", 0, "occlusion"), {"kind": "occ", "size": 40})
    second = changed(first, ("run", "seed"), 9)
    with pytest.raises(InputError, match="the patches differ, because seed is 0 in one run and 9 in the other"):
        compare_reports(first, second)


def of_version_2(report):
    """As reports were before they had intervals and calibration."""
    old = copy.deepcopy(report) | {"format_version": 2}
    del old["calibration"]
    for number in old["numbers"]:
        del number["interval"], number["interval_by"]
    for records in old["records"].values():
        del records["interval_by"]
    return old


def test_reports_of_before_are_read_and_compared_and_those_to_come_refused(reports, tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(of_version_2(reports[0])))
    old = read_report(tmp_path / "old.json")
    assert compare_reports(old, reports[1]) == compare_reports(*reports)
    (tmp_path / "new.json").write_text(json.dumps(reports[0] | {"format_version": 99}))
    with pytest.raises(InputError, match="of format version 99, this program reads up to"):
        read_report(tmp_path / "new.json")


def test_the_command_prints_a_table_of_two_folders(reports, tmp_path, capsys):
    assert compare(tmp_path / "a", tmp_path / "b" / "report.json", by="sequence") == 0
    text = capsys.readouterr().out
    assert "95 % interval (by sequence)" in text
    assert "3dpw-14 1/single PA-MPJPE 40" in " ".join(text.split())


def test_other_files_are_not_taken_for_reports(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps([1]))
    with pytest.raises(InputError, match=r"x.json is not a report.json"):
        read_report(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot read the evaluation"):
        read_report(tmp_path / "y.json")
