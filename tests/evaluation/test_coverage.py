"""Confidence levels and coverage of balls, against the chi-squared distribution."""

import numpy as np
import pytest
from scipy.stats import chi2

from di2pose.errors import InputError
from di2pose.evaluation.coverage import NOMINAL, ball_level, coverage

N = 40_000  # a share of 0.5 then has a standard error of 0.0025


def levels(factor: float) -> np.ndarray:
    """Of truths drawn with `factor` times the spread that is stated."""
    rng = np.random.default_rng(0)
    sigma = rng.uniform(5, 80, N)
    error = np.linalg.norm(factor * sigma[:, None] * rng.normal(size=(N, 3)), axis=-1)
    return ball_level(error, np.square(sigma)[:, None, None] * np.eye(3))


def test_a_true_spread_covers_what_it_says():
    np.testing.assert_allclose(coverage(levels(1.0)), NOMINAL, atol=0.01)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_false_spread_covers_what_the_chi_squared_distribution_says(factor):
    expected = chi2.cdf(chi2.ppf(NOMINAL, 3) / factor**2, 3)
    np.testing.assert_allclose(coverage(levels(factor)), expected, atol=0.01)


def test_hypotheses_that_agree_have_the_level_1_wherever_the_truth_lies():
    assert ball_level(np.array([1.0, 50.0]), np.zeros((2, 3, 3))) == pytest.approx([1, 1])
    with pytest.raises(InputError, match="at least one joint"):
        coverage(np.zeros(0))
