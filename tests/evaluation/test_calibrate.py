"""Calibration: fits on drawn numbers, and the command on a tiny model with a small cache."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from di2pose.baselines.regression import Regression
from di2pose.calibration import Calibration, PersonFit
from di2pose.errors import InputError
from di2pose.evaluation.calibrate import (
    AIM,
    NOMINAL,
    Answers,
    calibrate,
    coverage_report,
    fit_calibration,
    fit_error,
    seen_threshold,
)
from di2pose.evaluation.run import evaluate
from di2pose.model import save_model
from di2pose.pose.skeleton import H36M_17

HEAD = H36M_17.index("head")


def test_floor_and_gains_come_back_from_errors_drawn_with_them():
    rng = np.random.default_rng(0)
    trace = rng.gamma(2.0, 2000.0, 40_000)
    apart = rng.gamma(1.0, 60.0, 40_000)
    expected = 900 + 2.5 * trace + 0.8 * apart**2
    squared = np.square(rng.normal(0, np.sqrt(expected / 3)[:, None], (40_000, 3))).sum(-1)
    fit = fit_error(trace, apart, squared)
    assert fit.floor_mm2 == pytest.approx(900, rel=0.1)
    assert fit.gain == pytest.approx(2.5, rel=0.03)
    assert fit.apart_gain == pytest.approx(0.8, rel=0.03)
    assert fit.radius_factor == pytest.approx((chi2.ppf(AIM, df=3) / 3) ** 0.5, rel=0.01)  # a Gaussian's own
    assert fit.trace_mm2 == pytest.approx(trace.mean())


def test_floor_and_gain_are_never_negative_and_the_radius_holds_nine_of_ten():
    trace = np.linspace(0, 1000, 50)
    falling, steep = (
        fit_error(trace, 0 * trace, squared) for squared in (2000 - trace, np.maximum(3 * trace - 500, 0))
    )
    assert (falling.gain, falling.floor_mm2) == (0, pytest.approx(1500))
    assert steep.floor_mm2 == 0 < steep.gain
    silent = fit_error(np.zeros(50), np.zeros(50), np.full(50, 400.0))
    assert (silent.floor_mm2, silent.gain, silent.radius_factor) == (pytest.approx(400), 0, pytest.approx(1))
    # And a tenth is to come: the ninth must be inside.
    nine = fit_error(np.zeros(9), np.zeros(9), np.square(np.arange(1.0, 10.0)))
    assert nine.radius_factor * nine.floor_mm2**0.5 == pytest.approx(9)
    with pytest.raises(InputError, match="got none"):
        fit_error(np.zeros(0), np.zeros(0), np.zeros(0))


def test_as_many_joints_are_predicted_seen_as_are():
    probability = np.array([0.1, 0.2, 0.6, 0.7, 0.9])
    threshold = seen_threshold(probability, np.array([False, True, False, True, True]))
    assert (probability >= threshold).sum() == 3
    assert seen_threshold(probability, np.ones(5, bool)) == 0.5


def answers(count, seed, hidden_share=0.4, right=0.9):
    """Joints whose spread tells a part of their error; hidden ones are worse, and mostly predicted hidden."""
    rng = np.random.default_rng(seed)
    hidden = rng.random((count, 17)) < hidden_share
    said = np.where(rng.random(hidden.shape) < right, hidden, ~hidden)
    scale = rng.uniform(10, 40, hidden.shape) * np.where(hidden, 3, 1)
    truth = rng.normal(0, 300, (count, 17, 3))
    centre = truth + rng.standard_t(4, truth.shape) * (15 + scale)[..., None]
    samples = centre[:, None] + rng.normal(size=(count, 8, 17, 3)) * scale[:, None, :, None]
    samples[:, :, 0] = truth[:, 0] = 0
    seen_probability = np.where(said, 0.2, 0.8) + rng.uniform(-0.1, 0.1, hidden.shape)
    visibility = np.stack([seen_probability, *(share * (1 - seen_probability) for share in (0.6, 0.3, 0.1))], -1)
    unclear = np.zeros(hidden.shape, bool)
    state, apart = np.where(hidden, "occluded", "visible"), np.zeros(hidden.shape)
    return Answers(samples, visibility, truth, state, samples.mean(1), unclear, apart)


def test_the_balls_hold_nine_of_ten_of_other_people_seen_and_occluded_separately():
    calibration, others = fit_calibration(answers(1500, 1), "drawn"), answers(1500, 2)
    report = coverage_report(others, calibration)
    groups = report["groups"]
    assert groups["all"]["joints"] == 1500 * 16  # not the pelvis
    for group in ("said visible", "said occluded"):
        assert groups[group]["covered"] == pytest.approx(0.91, abs=0.01)
    for group in ("true visible", "true occluded"):
        assert 0.85 < groups[group]["covered"] < 0.95
    assert groups["true occluded"]["mean_r90_mm"] > 1.5 * groups["true visible"]["mean_r90_mm"]
    nominal_90 = NOMINAL.index(0.9)
    assert groups["all"]["raw_curve"][nominal_90] < 0.75
    assert groups["all"]["curve"][nominal_90] == pytest.approx(0.9, abs=0.04)
    assert report["states"]["accuracy"] == pytest.approx(0.9, abs=0.02)
    # Unknown states leave the confusion out, but not the balls.
    report = coverage_report(replace(others, true_state=np.full((1500, 17), "")), calibration)
    assert report["states"] is None
    assert set(report["groups"]) == {"all", "said visible", "said occluded"}


def test_a_joint_with_few_samples_takes_the_fit_of_its_class_and_a_class_without_any_that_of_all():
    some = answers(400, 3)
    truth = some.truth_mm.copy()
    truth[50:, HEAD] = np.nan
    fitted = fit_calibration(replace(some, truth_mm=truth), "drawn")
    others = [j for j in range(1, 17) if j != HEAD]
    for row in fitted.gain:
        assert len({row[j] for j in others}) == len(others)
        assert min(row[j] for j in others) <= row[HEAD] <= max(row[j] for j in others)
    only_seen = replace(some, visibility=np.broadcast_to([1.0, 0.0, 0.0, 0.0], some.visibility.shape))
    one_class = fit_calibration(replace(only_seen, true_state=np.full((400, 17), "visible")), "drawn")
    assert len(set(one_class.gain[1][1:])) == 1


@pytest.fixture
def cached(write_cache, standing):
    def cached(folder, visibility):
        """A cache of 20 poses whose features are their joints."""
        columns = {"joints_mm": standing(20), "visibility": visibility.astype(np.int8)}
        return write_cache(folder, columns, standing(20) / 1000)

    return cached


def test_the_command_writes_a_calibration_that_the_model_loads(cached, tiny_model, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rendered = cached(tmp_path / "rendered", rng.integers(0, 4, (20, 17)))
    real = cached(tmp_path / "real", np.full((20, 17), -1))
    model = save_model(tiny_model(3), tmp_path / "run" / "model")
    score = PersonFit(1.0, (0.1, 0.2, 0.3, 0.4), 0.5)
    replace(Calibration.neutral(), person=score).write(model)
    calibrate(str(tmp_path / "run"), (rendered,), check=(real,), hypotheses=2, steps=1, out=tmp_path / "out")
    text = capsys.readouterr().out
    assert "rendered: 10 crops, 1 steps" in text
    assert "90 % balls, real" in text
    fitted = Calibration.read(model)
    assert fitted.person == score  # it is fitted by itself, and stays
    assert fitted.hypotheses == 2
    assert fitted.floor_mm2[0][1] > 0  # an untrained model errs, whatever its spread says
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["rendered, the other half"]["groups"]["all"]["joints"] == 10 * 16
    assert report["real"]["states"] is None
    assert report["format_version"] == 2
    assert (tmp_path / "out" / "calibration.md").read_text().strip() in text
    options = {"protocol": "all-17", "hypotheses": "2", "steps": "1", "worst": 0}
    evaluate((str(model),), data=real, out=tmp_path / "evaluated", **options)
    evaluated = json.loads((tmp_path / "evaluated" / "report.json").read_text())["calibration"]["all-17"]["2"]["all"]
    assert evaluated["coverage_90"] == pytest.approx(report["real"]["groups"]["all"]["raw_curve"][NOMINAL.index(0.9)])
    assert evaluated["calibrated_90"] == pytest.approx(report["real"]["groups"]["all"]["covered"])


def test_models_without_a_visibility_head_or_a_spread_are_calibrated_by_the_same_command(
    cached, tiny_model, tmp_path, capsys
):
    rendered = cached(tmp_path / "rendered", np.random.default_rng(0).integers(0, 4, (20, 17)))
    model = save_model(tiny_model(3, adapter_layers=0), tmp_path / "model")
    calibrate(str(model), (rendered,), hypotheses=2, steps=1)
    assert "said visible" in capsys.readouterr().out  # all joints are taken for seen
    torch.manual_seed(0)
    folder = save_model(Regression(Regression.recipe("none", 17, 3)), tmp_path / "regression")
    calibrate(str(folder), (rendered,), hypotheses=2)
    fitted = Calibration.read(folder)
    assert fitted.gain[0][1] == 0 < fitted.floor_mm2[0][1]  # its hypotheses agree: all of its error is the floor
