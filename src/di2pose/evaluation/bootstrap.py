"""How far a mean over records could be off because other records might have been measured: percentile bootstrap."""

import numpy as np
from jaxtyping import Float

RESAMPLES = 1000
"""Of the intervals in reports, of which there are many."""
MOST_ALONE = 5
"""Sequences up to which records are drawn one by one: so few wholes say little."""


def bootstrap_interval(
    values: Float[np.ndarray, " n"],
    groups: np.ndarray,
    generator: np.random.Generator,
    resamples: int = 5000,
    level: float = 0.95,
    weights: Float[np.ndarray, " n"] | None = None,
) -> tuple[float, float]:
    """Percentile interval of the mean, drawing whole groups with replacement (one record each: the plain bootstrap).
    `weights`, above 0: of a weighted mean, e.g. over the joints of all records."""
    _, member = np.unique(groups, return_inverse=True)
    weights = np.ones(len(values)) if weights is None else weights
    sums, sizes = np.bincount(member, weights * values), np.bincount(member, weights)
    means = np.empty(resamples)
    for start in range(0, resamples, 100):  # in pieces: 100 x groups indices at once
        drawn = generator.integers(len(sums), size=(min(100, resamples - start), len(sums)))
        means[start : start + len(drawn)] = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def drawn_groups(sequences: np.ndarray) -> tuple[str, np.ndarray]:
    """What is drawn for the intervals of a report, and the number of each record's group: 'sequence', since frames of
    a video are alike; 'record' where there are few of them."""
    found, member = np.unique(sequences, return_inverse=True)
    return ("sequence", member) if len(found) > MOST_ALONE else ("record", np.arange(len(sequences)))


def mean_interval(
    values: Float[np.ndarray, " n"], groups: np.ndarray, seed: int, weights: Float[np.ndarray, " n"] | None = None
) -> list[float] | None:
    """95 % interval of the (weighted) mean over records, [low, high]; None of a single group, which tells nothing."""
    if len(np.unique(groups)) < 2:
        return None
    return list(bootstrap_interval(values, groups, np.random.default_rng(seed), RESAMPLES, weights=weights))
