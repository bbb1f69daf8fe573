import copy
import json

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.evaluation.compare import compare, compare_reports, read_report
from di2pose.evaluation.report import FORMAT_VERSION


def report(shift, scale):
    """40 records in 20 sequences, with errors of about `shift`."""
    errors = np.random.default_rng(5).uniform(-5, 5, 40) * scale + shift
    values = {"1/single/mpjpe": errors.tolist(), "1/single/pa_mpjpe": (errors / 2).tolist()}
    records = {"ids": [f"r{i}" for i in range(40)], "sequences": [f"s{i // 2}" for i in range(40)], "values": values}
    protocol = {"id": "3dpw-14", "root": ["pelvis"], "occlusion": None, "truth": "ab12"}
    run = {"predictor": "mine", "dataset": "3dpw", "seed": 0, "textures": "t", "occ_roi": "given"}
    run["protocols"] = [protocol]
    return {"format_version": FORMAT_VERSION, "run": run, "numbers": [], "records": {"3dpw-14": records}}


A, B = report(30.0, 1), report(40.0, 3)
"""B's errors are A's plus about 10 mm."""


def test_a_known_shift_is_found_inside_of_its_interval():
    line = compare_reports(A, B).query("metric == 'mpjpe'").iloc[0]
    first, second = (np.array(each["records"]["3dpw-14"]["values"]["1/single/mpjpe"]) for each in (A, B))
    difference = second - first
    assert (line["protocol"], line["hypotheses"], line["estimate"], line["count"]) == ("3dpw-14", 1, "single", 40)
    assert line.difference == pytest.approx(difference.mean())
    assert line.low < line.difference < line.high
    assert line.low < 10 < line.high
    normal = 1.96 * difference.std(ddof=1) / np.sqrt(40)  # the central limit theorem's interval
    assert (line.high - line.low) / 2 == pytest.approx(normal, rel=0.15)
    assert line.wins_b == (difference < 0).mean()
    back = compare_reports(B, A).iloc[0]
    assert back.difference == pytest.approx(-line.difference)
    assert (back.low, back.high) == pytest.approx((-line.high, -line.low), rel=0.05)
    assert back.wins_b == 1 - line.wins_b


def test_equal_runs_differ_by_nothing_and_the_bootstrap_is_seeded():
    for line in compare_reports(A, A).itertuples():
        assert (line.difference, line.low, line.high, line.wins_b) == (0, 0, 0, 0.5)
    one, again, other = (compare_reports(A, B, seed=seed) for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def changed(report, path, value):
    other = copy.deepcopy(report)
    at = other
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return other


OCC = changed(A, ("run", "protocols", 0, "occlusion"), {"kind": "occ", "size": 40})


@pytest.mark.parametrize(
    ("first", "path", "value", "message"),
    [
        (A, ("run", "protocols", 0, "truth"), "0123", "not run alike: the records or their true poses differ"),
        (A, ("run", "protocols", 0, "root"), ["left_hip"], "3dpw-14 was not run alike: root differ"),
        (A, ("run", "protocols", 0, "id"), "limb-12", "no protocol in common: 3dpw-14 against limb-12"),
        (A, ("records", "3dpw-14", "ids"), ["x"] * 40, "no record in common"),
        (A, ("records", "3dpw-14", "values"), {"8/p-agg/mpjpe": [1.0] * 40}, "share protocols but no number"),
        (A, ("records", "3dpw-14", "values"), {"8/mpjpe": [1.0] * 40}, "one of the two reports is damaged"),
        (OCC, ("run", "seed"), 9, "3dpw-14 was not run alike: seed differ"),
    ],
)
def test_reports_that_cannot_be_compared_are_refused(first, path, value, message):
    with pytest.raises(InputError, match=message):
        compare_reports(first, changed(first, path, value))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (A | {"format_version": 99}, "of format version 99, this program reads up to"),
        ([1], "is not a report.json"),
        (None, "cannot read"),
    ],
)
def test_newer_and_other_files_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "report.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_report(tmp_path / "report.json")


def test_the_command_prints_a_table_of_two_folders(tmp_path, capsys):
    for name, content in (("a", A | {"format_version": 2}), ("b", B)):  # older ones are read
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(content))
    assert compare(tmp_path / "a", tmp_path / "b" / "report.json", by="sequence") == 0
    text = capsys.readouterr().out
    assert "95 % interval (by sequence)" in text
    assert "3dpw-14 1/single PA-MPJPE 40" in " ".join(text.split())
