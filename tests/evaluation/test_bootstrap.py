"""Intervals of the numbers in a report."""

import numpy as np
import pytest

from di2pose.evaluation.bootstrap import bootstrap_interval, drawn_groups, mean_interval
from di2pose.evaluation.evaluate import evaluate_dataset
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.report_text import interval_table


def test_it_is_seeded_holds_the_mean_and_shrinks_with_more_records():
    values = np.random.default_rng(0).normal(80, 20, 1600)
    few, many = (mean_interval(values[:n], np.arange(n), 0) for n in (100, 1600))
    assert few == mean_interval(values[:100], np.arange(100), 0)
    assert few != mean_interval(values[:100], np.arange(100), 1)
    assert few[0] < values[:100].mean() < few[1]
    assert (many[1] - many[0]) / (few[1] - few[0]) == pytest.approx(1 / 4, rel=0.25)


def test_weights_are_those_of_the_mean():
    """Two kinds of records, of which the heavier counts nine times: the interval lies round 90, not round 50."""
    values, weights = np.tile([0.0, 100.0], 200), np.tile([1.0, 9.0], 200)
    low, high = bootstrap_interval(values, np.arange(400), np.random.default_rng(0), weights=weights)
    assert 85 < low < 90 < high < 95


def test_sequences_are_drawn_whole_where_there_are_more_than_five():
    five, six = (np.repeat([f"s{k}" for k in range(count)], 10) for count in (5, 6))
    assert drawn_groups(five)[0] == "record"
    assert drawn_groups(six)[0] == "sequence"
    values = np.random.default_rng(0).normal(0, 10, 6).repeat(10)  # frames of a sequence are alike
    alone, whole = (mean_interval(values, groups, 0) for groups in (np.arange(60), drawn_groups(six)[1]))
    assert whole[1] - whole[0] > 2 * (alone[1] - alone[0])


def test_one_record_has_no_interval():
    assert mean_interval(np.array([5.0]), np.array([0]), 0) is None


@pytest.mark.parametrize(("records", "by"), [(8, "record"), (30, "sequence")])  # two records make a sequence
def test_the_main_numbers_of_a_report_have_one(make_samples, write_dataset, write_predictions, tmp_path, records, by):
    actions = ["Walking", "Photo", "Photo", "Photo"]
    samples = make_samples(records, action=lambda i: actions[i % 4])
    truth = np.stack([s.joints_mm for s in samples])
    poses = truth[:, None] + np.random.default_rng(0).normal(0, 40, (records, 2, 17, 3)).astype(np.float32)
    poses[::4] += np.float32(60) * (np.arange(17) > 0)[:, None]  # walking is worse
    file = PredictionFile(write_predictions(samples, poses))
    protocols = parse_protocols("h36m-p1,limb-12", every=1)
    report = evaluate_dataset(file, write_dataset(samples), protocols, tmp_path / "out", hypotheses=(2,), worst=0)
    assert report["records"]["limb-12"]["interval_by"] == by
    for number in report["numbers"]:
        low, high = number["interval"]
        assert low < number["value"] < high, number  # also of h36m-p1, where every action counts alike
        assert number["interval_by"] == by
    head, rows = interval_table({"": report})
    assert head[-1] == "drawn by"
    assert [row[:2] for row in rows] == [["h36m-p1", "mean of 2 (p-agg)"], ["limb-12", "mean of 2 (p-agg)"]]
    first = next(n for n in report["numbers"] if n["estimate"] == "p-agg")
    assert rows[0][2] == f"{first['value']:.1f} ({first['interval'][0]:.1f} to {first['interval'][1]:.1f})"
    assert rows[0][2] in (tmp_path / "out/report.md").read_text()
