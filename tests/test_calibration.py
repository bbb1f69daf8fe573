"""The calibration that comes with a model: its file, and what it makes of hypotheses."""

import json

import numpy as np
import pytest
from scipy.stats import chi2

from di2pose import Di2Pose, recipes
from di2pose.calibration import FILE, GAUSSIAN_R90, Calibration, sample_covariance
from di2pose.config import from_json, to_json
from di2pose.errors import InputError


def table(seen, hidden):
    return ((float(seen),) * 17, (float(hidden),) * 17)


@pytest.fixture
def fitted():
    return Calibration(
        floor_mm2=table(300, 1200),
        gain=table(0.5, 2),
        radius_factor=table(1.4, 1.6),
        trace_mm2=table(900, 3600),
        seen_threshold=0.6,
        hypotheses=8,
        fitted_on="a test",
    )


def drawn(hypotheses, deviation=(30.0, 20.0, 10.0), people=()):
    rng = np.random.default_rng(0)
    return rng.normal(size=(*people, hypotheses, 17, 3)) * deviation


def uncertain(*hidden):
    return np.isin(np.arange(17), hidden)


def test_the_file_gives_it_back(fitted, tmp_path):
    assert Calibration.read(tmp_path) is None
    assert fitted.write(tmp_path) == tmp_path / FILE
    assert Calibration.read(tmp_path) == fitted
    older = {name: value for name, value in to_json(fitted).items() if name != "apart_gain"}
    assert from_json(Calibration, older) == fitted
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_model_takes_it_along(fitted, tmp_path):
    model = Di2Pose(recipes.tiny())
    assert Di2Pose.from_pretrained(model.save(tmp_path / "raw")).calibration is None
    model.calibration = fitted
    assert Di2Pose.from_pretrained(str(model.save(tmp_path / "model"))).calibration == fitted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record | {"format_version": 2}, "format version 1"),
        (lambda record: {k: v for k, v in record.items() if k != "gain"}, "lacks gain"),
        (lambda record: record | {"more": 1}, "does not know more"),
        (lambda record: record | {"gain": [[1.0] * 17]}, "gain needs 2 rows of 17"),
        (lambda record: record | {"floor_mm2": [[-1.0] * 17] * 2}, "floor_mm2 must hold finite numbers of 0 or above"),
        (lambda record: record | {"seen_threshold": "half"}, "seen_threshold must be of type float"),
        (lambda record: record | {"seen_threshold": 2.0}, r"seen_threshold must lie in \[0, 1\]"),
        (lambda record: record | {"hypotheses": 1}, "hypotheses be 2 or more"),
        (lambda record: [record], "format version 1"),
    ],
)
def test_a_file_that_is_not_one_is_refused(fitted, tmp_path, change, message):
    path = fitted.write(tmp_path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=message):
        Calibration.read(tmp_path)
    path.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        Calibration.read(tmp_path)


def test_a_state_is_seen_from_the_threshold_on_else_the_likelier_way_not_to_be_seen(fitted):
    visibility = np.zeros((17, 4))
    visibility[:] = (0.59, 0.2, 0.2, 0.01)
    visibility[1] = (0.61, 0.3, 0.09, 0.0)
    visibility[2] = (0.2, 0.25, 0.2, 0.35)
    visibility[3] = (0.1, 0.2, 0.2, 0.5)
    state = fitted.state(visibility)
    assert state[:4].tolist() == ["occluded", "visible", "occluded", "out_of_frame"]
    assert fitted.state(np.stack([visibility, visibility])).shape == (2, 17)


def test_covariance_and_radius_are_the_stated_model(fitted):
    samples, hidden = drawn(8), uncertain(3, 5)
    spread = sample_covariance(samples)
    np.testing.assert_allclose(spread[4], np.cov(samples[:, 4].T))
    covariance = fitted.covariance_mm2(samples, hidden)
    np.testing.assert_allclose(covariance[4], 0.5 * spread[4] + 100 * np.eye(3))
    np.testing.assert_allclose(covariance[5], 2 * spread[5] + 400 * np.eye(3))
    radius = fitted.r90_mm(covariance, hidden)
    assert radius[4] == pytest.approx(1.4 * np.sqrt(np.trace(covariance[4])))
    assert radius[3] == pytest.approx(1.6 * np.sqrt(np.trace(covariance[3])))


def test_fewer_hypotheses_say_less():
    """The mean of H draws of a true sampler is off by trace * (1 + 1/H): calibrated at 8, right at 2 and at 1."""
    rng = np.random.default_rng(1)
    sigma, people = 20.0, 4000
    true = Calibration(
        floor_mm2=table(0, 0),
        gain=table(1 + 1 / 8, 1 + 1 / 8),
        radius_factor=table(GAUSSIAN_R90, GAUSSIAN_R90),
        trace_mm2=table(3 * sigma**2, 3 * sigma**2),
        seen_threshold=0.5,
        hypotheses=8,
    )
    truth = rng.normal(size=(people, 17, 3)) * sigma
    for hypotheses in (8, 2, 1):
        samples = rng.normal(size=(people, hypotheses, 17, 3)) * sigma
        error = np.square(samples.mean(1) - truth).sum(-1).mean()
        covariance = true.covariance_mm2(samples, np.zeros((people, 17), bool))
        assert np.trace(covariance, axis1=-2, axis2=-1).mean() == pytest.approx(error, rel=0.03)


def test_the_neutral_one_is_the_raw_spread_read_as_a_gaussian():
    neutral = Calibration.neutral()
    samples = drawn(8, deviation=(25.0, 25.0, 25.0))
    covariance = neutral.covariance_mm2(samples, uncertain(2))
    np.testing.assert_allclose(covariance, sample_covariance(samples))
    sigma = np.sqrt(np.trace(covariance, axis1=-2, axis2=-1) / 3)
    np.testing.assert_allclose(neutral.r90_mm(covariance, uncertain(2)), sigma * chi2.ppf(0.9, df=3) ** 0.5, rtol=1e-6)
    single = neutral.covariance_mm2(samples[:1], uncertain())
    assert np.trace(single[1]) == pytest.approx(100**2 * (2 - 1 / 8))
    assert (single[0] == 0).all()
