"""What several hypotheses are worth: closed forms, and predictors whose spread is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose.data.sample import OCCLUDED, SEEN
from di2pose.evaluation.compare import compare_reports, read_report
from di2pose.evaluation.ensemble import ball_level, calibrated_hits, energy_score
from di2pose.evaluation.evaluate import evaluate_dataset
from di2pose.evaluation.predictor import Predictions
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.report_hypotheses import calibration_table


def drawn(spread, records=400, hypotheses=8, joints=5, seed=0):
    """Truths that vary by 50 mm along each axis round 0, and hypotheses that vary by `spread` about the same place."""
    rng = np.random.default_rng(seed)
    truth = torch.from_numpy(rng.normal(0, 50, (records, joints, 3)))
    poses = torch.from_numpy(rng.normal(0, 1, (records, hypotheses, joints, 3)) * spread)
    return poses, truth, torch.ones(records, joints, dtype=torch.bool)


def test_energy_of_two_hypotheses_by_hand():
    """30 and 50 mm off on opposite sides: mean error 40, apart 80, so 40 - 80 / 2 = 0; on the same side 40 - 10."""
    truth, mask = torch.zeros(1, 2, 3, dtype=torch.double), torch.tensor([[True, True]])
    poses = torch.tensor([[[[30.0, 0, 0], [0, 30.0, 0]], [[-50.0, 0, 0], [0, 50.0, 0]]]], dtype=torch.double)
    assert energy_score(poses, truth, mask)[0].tolist() == pytest.approx([0, 30])
    assert energy_score(poses, truth, torch.tensor([[False, True]]))[0].isnan().tolist() == [True, False]


def test_energy_of_one_pose_repeated_is_its_error():
    poses, truth, mask = drawn(20, records=3)
    same = poses[:, :1].expand(-1, 6, -1, -1)
    assert torch.allclose(energy_score(same, truth, mask), (same[:, 0] - truth).norm(dim=-1))


def test_energy_is_least_for_the_spread_that_the_truth_has():
    energies = {spread: float(energy_score(*drawn(spread)).mean()) for spread in (5, 25, 50, 100, 200)}
    assert min(energies, key=energies.get) == 50


def test_energy_does_not_depend_on_the_number_of_hypotheses():
    few, many = (float(energy_score(*drawn(50, 3000, count)).mean()) for count in (2, 32))
    assert few == pytest.approx(many, rel=0.03)


@pytest.mark.parametrize("hypotheses", [2, 3, 8, 50])
def test_nine_of_ten_truths_lie_inside_the_balls_of_a_true_spread(hypotheses):
    level = ball_level(*drawn(50, 2000, hypotheses))
    assert (level <= 0.9).mean() == pytest.approx(0.9, abs=0.015)
    assert (level <= 0.5).mean() == pytest.approx(0.5, abs=0.02)


def test_too_narrow_a_spread_covers_too_little_and_too_wide_a_one_too_much():
    assert (ball_level(*drawn(20)) <= 0.9).mean() < 0.4
    assert (ball_level(*drawn(120)) <= 0.9).mean() > 0.99


def test_the_root_does_not_count_and_agreed_errors_are_not_covered():
    truth, mask = torch.zeros(1, 2, 3, dtype=torch.double), torch.ones(1, 2, dtype=torch.bool)
    poses = torch.tensor([0.0, 40.0], dtype=torch.double)[None, None, :, None].expand(1, 4, 2, 3)
    level = ball_level(poses, truth, mask)[0]
    assert np.isnan(level[0])
    assert level[1] == 1


def test_calibrated_balls_hold_what_lies_inside():
    truth, mask = torch.zeros(1, 3, 3, dtype=torch.double), torch.ones(1, 3, dtype=torch.bool)
    pose = torch.tensor([[[0.0, 0, 0], [30, 0, 0], [0, 30, 0]]], dtype=torch.double)
    hits = calibrated_hits(pose, np.array([[0.0, 29.0, 31.0]]), truth, mask)[0]
    assert np.isnan(hits[0])
    assert hits[1:].tolist() == [0, 1]


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
    first, *others = make_samples(30, visibility=state)
    dataset = write_dataset([replace(first, valid=np.isin(np.arange(17), (0, 1, 2, 4, 5))), *others])

    def evaluated(name, predictor, protocols="limb-12", hypotheses=(1, 8), **more):
        chosen = parse_protocols(protocols)
        return evaluate_dataset(
            predictor, dataset, chosen, tmp_path / name, name=name, hypotheses=hypotheses, worst=0, **more
        )

    return evaluated


def test_the_report_tells_energy_and_coverage_of_seen_and_hidden_joints(evaluated, tmp_path):
    report = evaluated("wide", Spread(40.0), more_seeds=(1,))
    figures = report["calibration"]["limb-12"]
    assert list(figures) == ["8"]  # one hypothesis has no spread
    assert figures["8"]["all"]["joints"] == 2 * (29 * 12 + 4)
    assert figures["8"]["all"]["joints"] == figures["8"]["seen"]["joints"] + figures["8"]["hidden"]["joints"]
    for group in ("all", "seen", "hidden"):
        f = figures["8"][group]
        for part in ("energy_mm", "coverage_90"):
            low, high = f[f"{part}_interval"]
            assert low < f[part] < high
        assert f["calibrated_90"] is None
        assert 0.75 < f["coverage_90"] < 0.98  # a guess that is off as far as its hypotheses vary
    of_records = report["records"]["limb-12"]
    assert np.mean(of_records["values"]["8/hypotheses/energy"]) == pytest.approx(figures["8"]["all"]["energy_mm"])
    assert np.mean(of_records["coverage_90"]["8"]) == pytest.approx(figures["8"]["all"]["coverage_90"])
    assert read_report(tmp_path / "wide") == report
    for file in ("report.md", "report.tex"):
        text = (tmp_path / "wide" / file).read_text()
        assert f"{figures['8']['hidden']['energy_mm']:.1f} (" in text
        assert "coverage of 90" in text


def test_a_too_narrow_model_covers_less_and_compare_says_which_energy_is_lower(evaluated):
    wide, narrow = evaluated("wide", Spread(40.0)), evaluated("narrow", Spread(4.0))
    first, second = (report["calibration"]["limb-12"]["8"]["all"] for report in (wide, narrow))
    assert second["coverage_90"] < 0.2 < first["coverage_90"]
    assert first["energy_mm"] < second["energy_mm"]
    (line,) = [line for line in compare_reports(wide, narrow) if line.key == "8/hypotheses/energy"]
    assert line.difference == pytest.approx(second["energy_mm"] - first["energy_mm"])
    assert line.wins_b < 0.5


def test_hypotheses_that_all_agree_have_no_coverage_and_their_energy_is_the_error(evaluated):
    report = evaluated("same", Spread(0.0))
    figures = report["calibration"]["limb-12"]["8"]["all"]
    (error,) = [n["value"] for n in report["numbers"] if (n["estimate"], n["metric"]) == ("p-agg", "mpjpe")]
    assert figures["energy_mm"] == pytest.approx(error, abs=0.01)
    assert figures["coverage_90"] is None
    assert "coverage_90" not in report["records"]["limb-12"]
    assert calibration_table({"": report})[1][0][-2:] == ["-", "-"]


def test_calibrated_radii_are_checked_where_the_protocol_is_aligned_as_they_are(evaluated):
    report = evaluated("calibrated", Spread(20.0, r90_mm=1000.0), "limb-12,all-17", hypotheses=(2, 8))
    table = report["calibration"]
    assert table["all-17"]["8"]["all"]["calibrated_90"] == 1
    assert table["all-17"]["2"]["all"]["calibrated_90"] is None  # the radii are of all hypotheses
    assert table["limb-12"]["8"]["all"]["calibrated_90"] is None
    none = evaluated("wrong", Spread(20.0, r90_mm=0.5), "all-17")
    assert none["calibration"]["all-17"]["8"]["hidden"]["calibrated_90"] == 0
