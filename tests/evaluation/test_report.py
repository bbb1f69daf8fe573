"""Numbers, intervals and tables of a report, of predictors whose errors and spread are known."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose.data.human36m import ACTIONS
from di2pose.data.sample import OCCLUDED, SEEN
from di2pose.errors import InputError, MissingExtra
from di2pose.evaluation.compare import read_report
from di2pose.evaluation.paper import ACTION_HEADINGS, PAPER_ACTIONS, PAPER_METHODS, paper_number
from di2pose.evaluation.predictors import PredictionFile, Predictions
from di2pose.evaluation.protocol import PROTOCOLS, parse_protocols
from di2pose.evaluation.report import bootstrap_interval, drawn_groups, tables
from di2pose.evaluation.run import evaluate_dataset
from di2pose.pose.metrics import mpjpe, pa_mpjpe


def numbers(report, **wanted):
    return [n for n in report["numbers"] if all(n[key] == value for key, value in wanted.items())]


@pytest.fixture
def run(make_samples, write_dataset, write_predictions, tmp_path):
    def run(protocols="h36m-p1,h36m-p2", hypotheses=(1, 2), records=6, name="h36m", change=0.0, **fields):
        """A file of two noisy hypotheses; `change` is added to every fourth record."""
        samples = make_samples(records, **fields)
        truth = np.stack([s.joints_mm for s in samples])
        noise = np.random.default_rng(0).normal(0, 40, (records, 2, 17, 3)).astype(np.float32)
        poses = truth[:, None] + noise
        poses[::4] += np.float32(change) * (np.arange(17) > 0)[:, None]
        file, dataset = PredictionFile(write_predictions(samples, poses)), write_dataset(samples, name=name)
        chosen, out = parse_protocols(protocols, every=1), tmp_path / "out"
        report = evaluate_dataset(file, dataset, chosen, out, hypotheses=hypotheses, name="m_1", seed=4, worst=0)
        return report, out, truth, poses

    return run


def test_human36m_averages_are_means_of_action_means_of_the_metrics(run):
    report, _, truth, poses = run(records=20, action=lambda i: ACTIONS[min(i, 14)], frame=lambda i: 5 * i)
    truth = torch.from_numpy(truth).double()
    single, mean = (torch.from_numpy(p).double() for p in (poses[:, 0], poses.astype(np.float64).mean(1)))
    for name, metric, count, estimate, errors in (
        ("h36m-p1", "mpjpe", 1, "single", mpjpe(single, truth, root=0)),
        ("h36m-p1", "mpjpe", 2, "p-agg", mpjpe(mean, truth, root=0)),
        ("h36m-p2", "pa_mpjpe", 1, "single", pa_mpjpe(single, truth)),
    ):
        by_action = [float(errors[i]) for i in range(14)] + [float(errors[14:].mean())]
        (number,) = numbers(report, protocol=name, metric=metric, hypotheses=count, estimate=estimate)
        assert (number["value"], number["count"]) == (pytest.approx(np.mean(by_action), abs=1e-9), 20)
        key, table = f"{count}/{estimate}/{metric}", report["actions"][name]
        assert table["mean_mm"][key] == pytest.approx(by_action, abs=1e-9)
        assert (table["names"], table["counts"]) == (list(ACTIONS), [1] * 14 + [6])
        assert report["records"][name]["values"][key] == pytest.approx(errors.tolist(), abs=1e-9)


def test_tables_have_the_papers_columns_and_numbers_and_label_oracles(run):
    report, out, *_ = run("h36m-p1,limb-12", action=lambda i: ["Walking", "Photo"][i % 2])
    for number in report["numbers"]:
        assert {"protocol", "joints", "root", "every", "hypotheses", "estimate", "oracle", "count"} <= number.keys()
        assert number["seed"] == 4
    own = numbers(report, protocol="h36m-p1", oracle=False)
    assert {(n["paper"], n["paper_source"]) for n in own} == {(49.2, "tab:h36m")}
    assert {n["estimate"] for n in numbers(report, oracle=True)} == {"p-best", "j-best", "j-agg"}
    assert {n["paper"] for n in numbers(report, oracle=True) + numbers(report, protocol="limb-12")} == {None}
    assert paper_number("h36m-p1", "mpjpe", "mine") is None  # only beside its own dataset

    text, latex = (out / "report.md").read_text(), (out / "report.tex").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert ["", *ACTION_HEADINGS, "Avg"] in rows
    assert ["h36m-p1, paper (tab:h36m)", "41.9", "47.8"] in [row[:3] for row in rows]
    assert "13 of the 15 actions have no record" in text
    table = report["actions"]["h36m-p1"]
    assert [i for i, count in enumerate(table["counts"]) if count] == [5, 13]
    means = table["mean_mm"]["1/single/mpjpe"]
    assert report["numbers"][0]["value"] == pytest.approx((means[5] + means[13]) / 2)
    for shown in (text, latex):
        assert all(f"{number['value']:.1f}" in shown for number in report["numbers"])
        assert "best of 2 (p-best, oracle)" in shown
        assert "limb-12: 12 limb joints, mid-hip aligned; 12 joints (h36m_17), root left_hip + right_hip" in shown
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == len(tables({"": report}))
    body = [line for line in latex.splitlines() if not line.startswith("%")]
    assert not any("_" in line.replace(r"\_", "") for line in body)
    # A metric that the first records do not have comes last, behind other estimates: still one row each.
    shuffled = {**report, "numbers": [*report["numbers"][1::2], *report["numbers"][::2]]}
    rows, before = (tables({"": each})[""].to_numpy().tolist() for each in (shuffled, report))
    assert len({tuple(row[:2]) for row in rows}) == len(rows) == len(before)


def test_actions_that_human36m_does_not_have_are_refused(run):
    with pytest.raises(InputError, match="'Dancing' is not one of the 15 actions"):
        run("h36m-p1", records=2, action="Dancing")


def test_without_pandas_the_message_says_how_to_get_it(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'di2pose\[pandas\]'"):
        run("limb-12", records=2)


def test_the_papers_table_agrees_with_itself_where_the_paper_does():
    assert {name for name, _ in PAPER_METHODS} <= PROTOCOLS.keys()
    assert [len(row) for row in PAPER_ACTIONS.values()] == [15, 15]
    assert round(float(np.mean(PAPER_ACTIONS["h36m-p1"])), 1) == PAPER_METHODS["h36m-p1", "mpjpe"]["di2pose"]
    # The paper prints 39.0 for its PA row; its 15 values have another mean, and we print what it prints.
    assert round(float(np.mean(PAPER_ACTIONS["h36m-p2"])), 1) == 39.2


def test_an_interval_is_seeded_holds_the_mean_and_shrinks_with_more_records():
    values = np.random.default_rng(0).normal(80, 20, 1600)
    few, many = (bootstrap_interval(values[:n], np.arange(n), 0) for n in (100, 1600))
    assert few == bootstrap_interval(values[:100], np.arange(100), 0)
    assert few != bootstrap_interval(values[:100], np.arange(100), 1)
    assert few[0] < values[:100].mean() < few[1]
    assert (many[1] - many[0]) / (few[1] - few[0]) == pytest.approx(1 / 4, rel=0.25)
    # Two kinds of records, of which the heavier counts nine times: the interval lies round 90, not round 50.
    values, weights = np.tile([0.0, 100.0], 200), np.tile([1.0, 9.0], 200)
    low, high = bootstrap_interval(values, np.arange(400), 0, weights=weights)
    assert 85 < low < 90 < high < 95


def test_an_interval_covers_the_true_mean_as_often_as_it_says():
    rng, groups = np.random.default_rng(0), np.arange(60)
    intervals = [bootstrap_interval(rng.normal(3, 10, 60), groups, seed, resamples=200) for seed in range(200)]
    assert 0.88 < np.mean([low < 3 < high for low, high in intervals]) < 0.99


def test_sequences_are_drawn_whole_where_there_are_more_than_five():
    five, six = (np.repeat([f"s{k}" for k in range(count)], 10) for count in (5, 6))
    assert (drawn_groups(five)[0], drawn_groups(six)[0]) == ("record", "sequence")
    values = np.random.default_rng(0).normal(0, 10, 6).repeat(10)  # frames of a sequence are alike
    alone, whole = (bootstrap_interval(values, groups, 0) for groups in (np.arange(60), drawn_groups(six)[1]))
    assert whole[1] - whole[0] > 2 * (alone[1] - alone[0])


@pytest.mark.parametrize(("records", "by"), [(8, "record"), (14, "sequence")])  # two records make a sequence
def test_the_main_numbers_of_a_report_have_an_interval(run, records, by):
    actions = ["Walking", "Photo", "Photo", "Photo"]  # walking is worse
    report, out, *_ = run("h36m-p1,limb-12", (2,), records, change=60.0, action=lambda i: actions[i % 4])
    assert report["records"]["limb-12"]["interval_by"] == by
    for number in report["numbers"]:
        low, high = number["interval"]
        assert low < number["value"] < high, number  # also of h36m-p1, where every action counts alike
        assert number["interval_by"] == by
    table = tables({"": report})["95 % intervals (mm)"]
    assert table.iloc[:, :2].to_numpy().tolist() == [[name, "mean of 2 (p-agg)"] for name in ("h36m-p1", "limb-12")]
    first = numbers(report, estimate="p-agg")[0]
    assert table.iloc[0, 2] == f"{first['value']:.1f} ({first['interval'][0]:.1f} to {first['interval'][1]:.1f})"
    assert table.iloc[0, 2] in (out / "report.md").read_text()


class Spread:
    """Hypotheses round a guess that is 40 mm off along each axis, and that vary by `mm`; the same for each record."""

    def __init__(self, mm, r90_mm=None):
        self.mm, self.r90_mm = mm, r90_mm

    def predict(self, images, samples, hypotheses, steps, seed):
        poses = []
        for sample in samples:
            rng = np.random.default_rng([seed, int(sample.id.removeprefix("r"))])
            guess = np.nan_to_num(sample.joints_mm) + rng.normal(0, 40, sample.joints_mm.shape)
            each = guess + rng.normal(0, self.mm, (hypotheses, *guess.shape))
            poses.append(each - each[:, :1])
        radius = None if self.r90_mm is None else np.full((len(samples), 17), self.r90_mm)
        return Predictions(np.stack(poses), r90_mm=radius)


@pytest.fixture
def evaluated(make_samples, write_dataset, tmp_path):
    """Of one of the records only the hips and knees are annotated."""
    state = np.where(np.arange(17) < 8, SEEN, OCCLUDED).astype(np.int8)
    first, *others = make_samples(12, visibility=state, image=None, joints_2d=None)
    dataset = write_dataset([replace(first, valid=np.isin(np.arange(17), (0, 1, 2, 4, 5))), *others])

    def evaluated(name, predictor, protocols="limb-12", hypotheses=(1, 8), **more):
        options = {"name": name, "hypotheses": hypotheses, "worst": 0, **more}
        return evaluate_dataset(predictor, dataset, parse_protocols(protocols), tmp_path / name, **options)

    return evaluated


def test_energy_spread_and_coverage_of_seen_and_hidden_joints(evaluated, tmp_path):
    report = evaluated("wide", Spread(40.0), more_seeds=(1,))
    assert list(report["calibration"]["limb-12"]) == ["8"]  # one hypothesis has no spread
    figures = report["calibration"]["limb-12"]["8"]
    joints = {group: f["joints"] for group, f in figures.items()}
    assert joints["all"] == 2 * (11 * 12 + 4) == joints["seen"] + joints["hidden"]
    for group in ("all", "seen", "hidden"):
        f, spread = figures[group], report["spread"]["limb-12"][group]
        for part in ("energy_mm", "coverage_90"):
            low, high = f[f"{part}_interval"]
            assert low < f[part] < high
        assert f["calibrated_90"] is None
        assert 0.75 < f["coverage_90"] < 0.98  # a guess that is off as far as its hypotheses vary
        assert spread["joints"] == f["joints"]
        assert -1 < spread["rank_correlation"] < 1
    energies = report["records"]["limb-12"]["values"]["8/hypotheses/energy"]
    assert np.mean(energies) == pytest.approx(figures["all"]["energy_mm"])
    assert read_report(tmp_path / "wide") == report
    for file in ("report.md", "report.tex"):
        text = (tmp_path / "wide" / file).read_text()
        assert f"{figures['hidden']['energy_mm']:.1f} (" in text
        assert "coverage of 90" in text
    narrow = evaluated("narrow", Spread(4.0))["calibration"]["limb-12"]["8"]["all"]
    assert narrow["coverage_90"] < 0.2
    assert narrow["energy_mm"] > figures["all"]["energy_mm"]


def test_hypotheses_that_all_agree_have_no_coverage_and_their_energy_is_the_error(evaluated):
    report = evaluated("same", Spread(0.0))
    figures = report["calibration"]["limb-12"]["8"]["all"]
    (error,) = [n["value"] for n in numbers(report, estimate="p-agg", metric="mpjpe")]
    assert figures["energy_mm"] == pytest.approx(error, abs=0.01)
    assert figures["coverage_90"] is None
    assert report["spread"]["limb-12"]["all"]["rank_correlation"] is None  # nothing varies
    table = tables({"": report})["Calibration: the hypotheses as a whole"]
    assert table.loc[0, ["coverage of 90 % balls", "calibrated"]].tolist() == ["-", "-"]


def test_calibrated_radii_are_checked_where_the_protocol_is_aligned_as_they_are(evaluated):
    table = evaluated("calibrated", Spread(20.0, r90_mm=1000.0), "limb-12,all-17", hypotheses=(2, 3))["calibration"]
    assert table["all-17"]["3"]["all"]["calibrated_90"] == 1
    assert table["all-17"]["2"]["all"]["calibrated_90"] is None  # the radii are of all hypotheses
    assert table["limb-12"]["3"]["all"]["calibrated_90"] is None
    none = evaluated("wrong", Spread(20.0, r90_mm=0.5), "all-17", hypotheses=(2,))
    assert none["calibration"]["all-17"]["2"]["hidden"]["calibrated_90"] == 0
