"""Are several hypotheses a good answer as a whole? Energy score and coverage, joint by joint.

Energy score of H hypotheses x_h of a joint whose truth is t, in mm:

    energy = mean_h |x_h - t| - 1/2 mean_{h != h'} |x_h - x_h'|

A proper scoring rule, over distinct pairs, so that its expectation does not depend on H: least where the hypotheses are
drawn from what the truth varies by, and worse for hypotheses that lie elsewhere, agree too much or too little. Of one
pose, repeated, it is the error of that pose. It judges each joint for itself, not how joints vary together.

Coverage: is the truth as far from the mean of the hypotheses as it would be, were it one of them? Of hypotheses that
are normal and alike in all directions, with s^2 the mean of their three unbiased variances,

    |t - mean|^2 / (3 s^2 (1 + 1/H))    has the distribution F(3, 3(H - 1)),

whose distribution function gives the level of the smallest ball that holds t: below 0.9 in 90 % of cases. It has
chi-squared with 3 degrees as its limit for many hypotheses; of few, s and the mean are uncertain themselves.

B records, H hypotheses, K joints.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import f as fisher
from torch import Tensor

from di2pose.evaluation.bootstrap import mean_interval
from di2pose.evaluation.coverage import LEAST_MM
from di2pose.pose.metrics import joint_errors

Json = dict[str, Any]

HYPOTHESES = "hypotheses"
"""The estimate, in a key, that is all of them: '8/hypotheses/energy'."""
LEVEL = 0.9
"""Of the balls whose coverage is told."""
FIGURES = ("energy_mm", "coverage_90", "calibrated_90")
"""What is told of each group of joints, each with its interval; coverages are shares of 1."""


class EnsembleResult(TypedDict):
    """What the hypotheses of one record are worth: for each seed and joint, None where it does not count."""

    energy_mm: list[list[float | None]]
    level: list[list[float | None]]
    """Of the ball that just holds the truth; None also at the root, where nothing can vary."""
    varies: bool
    """Whether the hypotheses differ at all."""
    calibrated: NotRequired[list[list[float | None]]]
    """1 where the 90 % ball that the model's calibration gives to a user holds the truth, else 0."""


def energy_score(
    poses: Float[Tensor, "B H K 3"], truth: Float[Tensor, "B K 3"], mask: Bool[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """In mm, of each joint; NaN where it does not count."""
    count = poses.shape[1]
    first, second = torch.triu_indices(count, count, offset=1)
    error = (poses - truth[:, None]).norm(dim=-1).mean(1)
    apart = (poses[:, first] - poses[:, second]).norm(dim=-1).mean(1)
    return torch.where(mask, error - apart / 2, torch.nan)


def ball_level(
    poses: Float[Tensor, "B H K 3"], truth: Float[Tensor, "B K 3"], mask: Bool[Tensor, "B K"]
) -> Float[np.ndarray, "B K"]:
    """Level of the ball about the mean of the hypotheses that just holds the truth; NaN where a joint does not count,
    or where neither hypotheses nor truth vary: at the root. 1 where the hypotheses agree and are wrong."""
    count = poses.shape[1]
    error = joint_errors(poses.mean(1), truth, mask).numpy()
    sigma = poses.var(1).mean(-1).sqrt().numpy()
    scaled = np.square(error / np.maximum(sigma, LEAST_MM)) / (3 * (1 + 1 / count))
    level = fisher.cdf(scaled, 3, 3 * (count - 1))
    fixed = (sigma < LEAST_MM) & (error < LEAST_MM)
    return np.where(mask.numpy() & ~fixed, level, np.nan)


def calibrated_hits(
    pose: Float[Tensor, "B K 3"],
    r90_mm: Float[np.ndarray, "B K"],
    truth: Float[Tensor, "B K 3"],
    mask: Bool[Tensor, "B K"],
) -> Float[np.ndarray, "B K"]:
    """1 where a ball of that radius about the joint holds the truth, else 0; NaN as in `ball_level`."""
    error = joint_errors(pose, truth, mask).numpy()
    fixed = (r90_mm < LEAST_MM) & (error < LEAST_MM)
    return np.where(mask.numpy() & ~fixed, error <= r90_mm, np.nan)


def ensemble_result(
    by_seed: Sequence[Float[Tensor, "1 H K 3"]], truth: Float[Tensor, "1 K 3"], mask: Bool[Tensor, "1 K"]
) -> EnsembleResult:
    """Of one record."""
    return {
        "energy_mm": [listed(energy_score(poses, truth, mask)[0].numpy(), 2) for poses in by_seed],
        "level": [listed(ball_level(poses, truth, mask)[0], 5) for poses in by_seed],
        "varies": any(bool(poses.std(1).max() >= LEAST_MM) for poses in by_seed),
    }


def ensemble_tables(results: Sequence[EnsembleResult]) -> dict[str, Float[np.ndarray, "n S K"]]:
    """FIGURES of n records, joint by joint, 1 where covered; NaN where a joint does not count. Without coverage where
    all hypotheses of all records agree, or where the run had no calibrated radii."""
    level = np.array([result["level"] for result in results], float)
    tables = {"energy_mm": np.array([result["energy_mm"] for result in results], float)}
    if any(result["varies"] for result in results):
        tables["coverage_90"] = np.where(np.isfinite(level), level <= LEVEL, np.nan)
    if all("calibrated" in result for result in results):
        tables["calibrated_90"] = np.array([result["calibrated"] for result in results], float)
    return tables


def ensemble_figures(
    tables: Mapping[str, Float[np.ndarray, "n S K"]],
    groups: Mapping[str, Bool[np.ndarray, "n 1 K"]],
    drawn: np.ndarray,
    seed: int,
) -> dict[str, Json]:
    """FIGURES of each group of joints, None where there is none, and their intervals: `drawn` are the groups of
    records, `seed` is that of the bootstrap. Of 'all' joints means over records, else over the joints of all records,
    as MPJPE is."""
    found: dict[str, Json] = {}
    for name, mask in groups.items():
        joints = int((mask & np.isfinite(tables["energy_mm"])).sum())
        if not joints:
            continue
        figures: Json = {"joints": joints}
        for part in FIGURES:
            chosen = np.where(mask, tables.get(part, np.nan), np.nan)
            counts = np.isfinite(chosen).sum(axis=(1, 2)).astype(float)  # n
            rows = counts > 0
            figures |= {part: None, f"{part}_interval": None}
            if rows.any():
                means = np.nanmean(chosen[rows], axis=(1, 2))
                weights = np.ones(len(means)) if name == "all" else counts[rows]
                figures[part] = float(np.average(means, weights=weights))
                figures[f"{part}_interval"] = mean_interval(means, drawn[rows], seed, weights)
        found[name] = figures
    return found


def listed(values: np.ndarray, places: int) -> list[float | None]:
    return [round(float(value), places) if np.isfinite(value) else None for value in values]
