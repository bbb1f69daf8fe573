import numpy as np
import pytest
import scipy.stats

from di2pose.errors import InputError
from di2pose.evaluation.calibration import (
    LEVELS,
    ball_coverage,
    ball_level,
    ball_radius,
    coverage,
    expected_calibration_error,
    fit_scale,
    gaussian_level,
    reliability,
)

N = 40_000  # a share of 0.5 then has a standard error of 0.0025


def gaussians(factor: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, covariances that differ from joint to joint, and truths drawn with `factor` times that spread."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(N, 3)) * 300
    root = rng.normal(size=(N, 3, 3)) * rng.uniform(5, 80, size=(N, 1, 1))
    truth = mean + factor * (root @ rng.normal(size=(N, 3, 1)))[..., 0]
    return mean, root @ root.transpose(0, 2, 1), truth


def balls(factor: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mean, sigma = rng.normal(size=(N, 3)) * 300, rng.uniform(5, 80, N)
    return mean, sigma, mean + factor * sigma[:, None] * rng.normal(size=(N, 3))


def test_a_true_spread_covers_what_it_says():
    for level in (gaussian_level(*gaussians()), ball_level(*balls())):
        np.testing.assert_allclose(coverage(level), LEVELS, atol=0.01)
        assert expected_calibration_error(level) < 0.005


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_false_spread_covers_what_the_chi_squared_distribution_says(factor):
    expected = scipy.stats.chi2.cdf(scipy.stats.chi2.ppf(LEVELS, 3) / factor**2, 3)
    np.testing.assert_allclose(coverage(gaussian_level(*gaussians(factor))), expected, atol=0.01)
    np.testing.assert_allclose(coverage(ball_level(*balls(factor))), expected, atol=0.01)
    grid = np.arange(1, 20) / 20
    gap = np.abs(scipy.stats.chi2.cdf(scipy.stats.chi2.ppf(grid, 3) / factor**2, 3) - grid).mean()
    assert expected_calibration_error(ball_level(*balls(factor))) == pytest.approx(gap, abs=0.01)


def test_the_level_is_the_chi_squared_probability():
    distance = np.array([0.0, 0.1, 1.0, 3.0, 6.0])
    mean, truth = np.zeros((5, 3)), np.stack([distance * 10, 0 * distance, 0 * distance], axis=-1)
    expected = scipy.stats.chi2.cdf(distance**2, 3)
    np.testing.assert_allclose(ball_level(mean, np.full(5, 10.0), truth), expected, atol=1e-12)
    np.testing.assert_allclose(gaussian_level(mean, np.tile(100 * np.eye(3), (5, 1, 1)), truth), expected, atol=1e-12)


@pytest.mark.parametrize("level", LEVELS)
def test_balls_of_the_stated_radius_hold_the_stated_share(level):
    mean, sigma, truth = balls()
    radius = ball_radius(sigma, level)
    np.testing.assert_allclose(radius, sigma * np.sqrt(scipy.stats.chi2.ppf(level, 3)), rtol=1e-9)
    assert ball_coverage(mean, radius, truth) == pytest.approx(level, abs=0.01)
    assert ball_coverage(mean, radius, mean + 3 * (truth - mean)) < level - 0.2


def test_a_fitted_scale_undoes_a_different_error_in_each_group():
    mean, covariance, truth = gaussians()
    group = np.where(np.arange(N) % 2 == 0, "seen", "occluded")
    factor = np.where(group == "seen", 0.7, 3.0)
    truth = mean + factor[:, None] * (truth - mean)
    scale = fit_scale(mean, covariance, truth, group.tolist())
    assert scale == {"seen": pytest.approx(0.7, rel=0.02), "occluded": pytest.approx(3.0, rel=0.02)}
    mended = covariance * np.array([scale[name] for name in group])[:, None, None] ** 2
    assert expected_calibration_error(gaussian_level(mean, covariance, truth)) > 0.05
    assert expected_calibration_error(gaussian_level(mean, mended, truth)) < 0.005


def test_the_reliability_curve_is_below_the_diagonal_for_an_overconfident_spread():
    nominal, observed = reliability(ball_level(*balls(2.0)), points=9)
    np.testing.assert_allclose(nominal, np.arange(0.1, 0.95, 0.1))
    assert (observed < nominal).all()
    assert (np.diff(observed) >= 0).all()


def test_the_worst_error_is_a_half():
    assert expected_calibration_error(np.ones(10)) == pytest.approx(0.5)
    assert expected_calibration_error(np.zeros(10)) == pytest.approx(0.5)


def test_what_cannot_be_measured_is_refused():
    mean, covariance, truth = (array[:4].copy() for array in gaussians())
    with pytest.raises(InputError, match="at least one joint"):
        coverage(np.zeros(0))
    with pytest.raises(InputError, match="positive definite"):
        gaussian_level(mean, np.zeros((4, 3, 3)), truth)
    with pytest.raises(InputError, match="sigma must be above 0"):
        ball_level(mean, np.zeros(4), truth)
    with pytest.raises(InputError, match="between 0 and 1"):
        ball_radius(np.ones(4), 1.0)
    with pytest.raises(InputError, match="one group name per joint"):
        fit_scale(mean, covariance, truth, ["a"])
    truth[0, 0] = np.nan
    with pytest.raises(InputError, match="must be finite"):
        gaussian_level(mean, covariance, truth)
