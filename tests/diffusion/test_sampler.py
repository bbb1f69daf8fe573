"""The schedule, and Algorithm 2 as it is written."""

import numpy as np
import pytest
import torch

from di2pose.diffusion import Schedule, sample
from di2pose.diffusion.schedule import step_grid
from di2pose.errors import InputError
from di2pose.noise import hypothesis_generators


def oracle(k0, codes):
    def predict(ks, s):
        assert s.shape == (len(ks),)
        return torch.nn.functional.one_hot(k0, codes).float()

    return predict


@pytest.mark.parametrize("rate", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("steps", [20, 3, 1])
def test_an_oracle_denoiser_recovers_k0_exactly(steps, rate):
    generator = torch.Generator().manual_seed(steps)
    schedule = Schedule(500, 20, rate)
    k0 = torch.randint(500, (2, 8), generator=generator)
    states = list(sample(oracle(k0, 500), schedule, steps, (2, 8), generator))
    assert len(states) == steps + 1
    assert torch.equal(states[-1], k0)


def test_the_start_is_stationary():
    schedule = Schedule(10, 100, 0.9)
    first = next(sample(oracle(torch.zeros(50, 200).long(), 10), schedule, 10, (50, 200), torch.Generator()))
    assert (first == 10).float().mean() == pytest.approx(0.9, abs=0.01)
    assert sorted(set(first.flatten().tolist())) == list(range(11))


def test_grids():
    schedule = Schedule(5, 100)
    assert step_grid(25, schedule) == list(range(100, -1, -4))
    assert step_grid(1, schedule) == [100, 0]
    assert step_grid([100, 37, 0], schedule) == [100, 37, 0]
    for bad in (0, 101, [100, 50], [90, 0], [100, 100, 0], [100, 20, 30, 0]):
        with pytest.raises(InputError):
            step_grid(bad, schedule)


def test_skipping_steps_is_exact():
    """k_0 has distribution p0 whatever the grid: 30,000 draws, chi-square below the 99.99 % point."""
    p0 = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])
    schedule = Schedule(5, 20, 0.6)
    for steps in (1, 3, 20):
        shape = (30, 1000)

        def posterior_mean(ks, s):
            """The Bayes-optimal p(k_0 | k_s) of independent tokens with prior p0."""
            keep, replace = schedule.keep[s[0]], schedule.replace[s[0]] / 5
            visible = p0 * (float(replace) + float(keep) * torch.eye(5))  # row k_s
            table = torch.cat([visible / visible.sum(1, keepdim=True), p0.unsqueeze(0)])
            return table[ks]

        *_, k0 = sample(posterior_mean, schedule, steps, shape, torch.Generator().manual_seed(steps))
        counts = torch.bincount(k0.flatten(), minlength=5).float()
        expected = p0 * k0.numel()
        assert counts[4] == 0
        assert ((counts - expected)[:4] ** 2 / expected[:4]).sum() < 22


def test_a_row_is_the_same_in_any_batch():
    schedule = Schedule(9, 10, 0.6)
    table = torch.rand(10, 9, generator=torch.Generator().manual_seed(3)).softmax(-1)

    def predict(ks, s):
        return table[ks]

    *_, together = sample(predict, schedule, 5, (6, 4), hypothesis_generators(0, ["a", "b", "c"], 2))
    *_, alone = sample(predict, schedule, 5, (2, 4), hypothesis_generators(0, ["b"], 2))
    assert torch.equal(together[2:4], alone)
    with pytest.raises(InputError, match=r"must return shape \(1, 2, 5\)"):
        list(sample(lambda ks, s: torch.ones(1, 2, 6) / 6, Schedule(5, 10, 0.5), 5, (1, 2), torch.Generator()))


@pytest.mark.parametrize("final_occlude", [0.0, 0.3, 1.0])
def test_probabilities_are_exact_at_both_ends_and_sum_to_one(final_occlude):
    schedule = Schedule(4375, 100, final_occlude)
    arrays = schedule.keep, schedule.replace, schedule.occlude
    assert all(a.dtype == np.float64 and a.shape == (101,) for a in arrays)
    assert [a[0].item() for a in arrays] == [1, 0, 0]
    assert schedule.keep[100] == 0
    assert schedule.occlude[100] == final_occlude
    assert schedule.replace[100] == 1 - final_occlude
    np.testing.assert_allclose(sum(arrays), 1, atol=1e-15, rtol=0)


def test_steps_compose():
    schedule = Schedule(5, 20, 0.6)
    for r in range(20):
        later = np.arange(r + 1, 21)
        keep, replace, occlude = schedule.between(r, later)
        np.testing.assert_allclose(keep + replace + occlude, 1, atol=1e-14, rtol=0)
        np.testing.assert_allclose(schedule.keep[r] * keep, schedule.keep[later], atol=1e-15)
        assert (replace >= 0).all()
    for impossible in ((1, 10, 0.5), (5, 0, 0.5), (5, 10, -0.1), (5, 10, 1.1)):
        with pytest.raises(InputError):
            Schedule(*impossible)
