"""Is the spread that comes with a pose true? Coverage, expected calibration error, and the scale that mends it.

A joint's spread is read as a 3D Gaussian round the predicted point. Its confidence level is the probability inside the
smallest ball (or ellipsoid) that holds the truth; for a true spread the levels are uniform on [0, 1], and a share q of
the truths lies inside the region of level q. Everything here follows from those levels.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from di2pose.errors import InputError

LEVELS = (0.5, 0.8, 0.9, 0.95)


def ball_level(
    mean_mm: Float[np.ndarray, "N 3"], sigma_mm: Float[np.ndarray, " N"], truth_mm: Float[np.ndarray, "N 3"]
) -> Float[np.ndarray, " N"]:
    """Level of the ball that just holds the truth; `sigma_mm` is the standard deviation along each axis."""
    if not (np.asarray(sigma_mm) > 0).all():
        raise InputError("every sigma must be above 0 mm; a spread of one hypothesis, or of equal ones, has no level")
    return _chi2_cdf(np.square((truth_mm - mean_mm) / sigma_mm[:, None]).sum(-1))


def gaussian_level(
    mean_mm: Float[np.ndarray, "N 3"], covariance_mm2: Float[np.ndarray, "N 3 3"], truth_mm: Float[np.ndarray, "N 3"]
) -> Float[np.ndarray, " N"]:
    """Level of the ellipsoid that just holds the truth.

    The covariance is taken as known. One estimated from H hypotheses is too uncertain for H below about 30, and makes a
    perfect sampler look overconfident; use `ball_level` with the mean variance of the three axes then.
    """
    return _chi2_cdf(_squared_distance(mean_mm, covariance_mm2, truth_mm))


def ball_radius(sigma_mm: Float[np.ndarray, " N"], level: float) -> Float[np.ndarray, " N"]:
    """Radius in mm of the ball round the mean that holds the given probability."""
    if not 0 < level < 1:
        raise InputError(f"a level must lie between 0 and 1, got {level}")
    low, high = 0.0, 100.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _chi2_cdf(np.array([middle]))[0] < level else (low, middle)
    return np.asarray(sigma_mm) * np.sqrt(low)


def ball_coverage(
    mean_mm: Float[np.ndarray, "N 3"], radius_mm: Float[np.ndarray, " N"], truth_mm: Float[np.ndarray, "N 3"]
) -> float:
    """Share of the truths inside balls of the stated radius, whatever model stated it."""
    _not_empty(radius_mm)
    return float((np.linalg.norm(truth_mm - mean_mm, axis=-1) <= radius_mm).mean())


def coverage(level: Float[np.ndarray, " N"], levels: Sequence[float] = LEVELS) -> Float[np.ndarray, " K"]:
    """Share of the truths inside the region of each nominal level; equal to `levels` when the spread is true."""
    _not_empty(level)
    return (level[:, None] <= np.asarray(levels)).mean(0)


def reliability(
    level: Float[np.ndarray, " N"], points: int = 19
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """(nominal, observed) coverage at evenly spaced levels, 0.05 to 0.95 for 19. Observed too low: overconfident."""
    nominal = np.arange(1, points + 1) / (points + 1)
    return nominal, coverage(level, nominal.tolist())


def expected_calibration_error(level: Float[np.ndarray, " N"], points: int = 19) -> float:
    """Mean absolute gap between nominal and observed coverage on the `reliability` curve: 0 is perfect, 0.5 worst."""
    nominal, observed = reliability(level, points)
    return float(np.abs(nominal - observed).mean())


def fit_scale(
    mean_mm: Float[np.ndarray, "N 3"],
    covariance_mm2: Float[np.ndarray, "N 3 3"],
    truth_mm: Float[np.ndarray, "N 3"],
    group: Sequence[str],
) -> dict[str, float]:
    """For every group (a joint, a visibility, ...) the factor on sigma that makes the truths most likely.

    Maximum likelihood in closed form: the root of the mean squared Mahalanobis distance over 3. Fit on one split, use
    on another. Multiply a covariance by the factor squared.
    """
    if len(group) != len(truth_mm):
        raise InputError(f"expected one group name per joint, {len(truth_mm)}, got {len(group)}")
    squared = _squared_distance(mean_mm, covariance_mm2, truth_mm)
    _not_empty(squared)
    names = np.asarray(group)
    return {str(name): float(np.sqrt(squared[names == name].mean() / 3)) for name in np.unique(names)}


def _squared_distance(mean: np.ndarray, covariance: np.ndarray, truth: np.ndarray) -> np.ndarray:
    try:
        factor = np.linalg.cholesky(covariance.astype(np.float64))
    except np.linalg.LinAlgError as error:
        raise InputError(
            "every covariance must be positive definite; one from fewer than 4 hypotheses, or from equal ones, is not"
        ) from error
    whitened = np.linalg.solve(factor, (truth - mean).astype(np.float64)[..., None])[..., 0]
    return np.square(whitened).sum(-1)


def _chi2_cdf(squared: np.ndarray) -> np.ndarray:
    """Distribution function of chi-squared with 3 degrees of freedom, in closed form."""
    if not np.isfinite(squared).all():
        raise InputError("means, spreads and truths must be finite; leave masked joints out first")
    half = squared.astype(np.float64) / 2
    return torch.special.erf(torch.from_numpy(np.sqrt(half))).numpy() - 2 * np.sqrt(half / np.pi) * np.exp(-half)


def _not_empty(values: np.ndarray) -> None:
    if len(values) == 0:
        raise InputError("calibration needs at least one joint, got none")
