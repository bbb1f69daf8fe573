"""Brute force: the (C + 1) x (C + 1) transition matrices of the paper, and Bayes' rule on them, in float64."""

from functools import cache

import torch
from torch import Tensor

from di2pose.diffusion import Schedule

RATES = (0.0, 0.3, 0.6, 0.9, 1.0)


def one_step(schedule: Schedule, s: int) -> Tensor:
    """M_s of "masked and uniform transition mat": column j is q(k_s | k_{s-1} = j)."""
    C = schedule.codes
    alpha = (schedule.keep[s] / schedule.keep[s - 1]).item()
    gamma = 1 - ((1 - schedule.occlude[s]) / (1 - schedule.occlude[s - 1])).item()
    beta = (1 - alpha - gamma) / C
    M = torch.zeros(C + 1, C + 1, dtype=torch.float64)
    M[:C, :C] = beta + alpha * torch.eye(C, dtype=torch.float64)
    M[C, :C] = gamma
    M[C, C] = 1
    return M


@cache
def transition(schedule: Schedule, r: int, s: int) -> Tensor:
    """M_s ... M_{r+1}."""
    if r == s:
        return torch.eye(schedule.codes + 1, dtype=torch.float64)
    return one_step(schedule, s) @ transition(schedule, r, s - 1)


def bayes(p0: Tensor, k_s: int, r: int, s: int, schedule: Schedule) -> Tensor:
    """sum over k_0 of p0[k_0] q(k_s | k_r) q(k_r | k_0) / q(k_s | k_0), for rows p0 (R, C)."""
    C = schedule.codes
    to_r, r_to_s, to_s = transition(schedule, 0, r), transition(schedule, r, s), transition(schedule, 0, s)
    joint = r_to_s[k_s, :].unsqueeze(1) * to_r[:, :C] / to_s[k_s, :C]  # k_r x k_0
    return p0.double() @ joint.T


def possible(k_s: int, s: int, schedule: Schedule) -> bool:
    """Whether every k_0 can lead to k_s: Bayes' rule has no 0 / 0."""
    return bool((transition(schedule, 0, s)[k_s, : schedule.codes] > 1e-14).all())
