"""The fast sampler has the distribution of the posterior and of the reference, on NumPy's arrays as on PyTorch's."""

from functools import partial

import numpy as np
import pytest
import torch
from diffusion.dense import RATES, bayes, possible

from di2pose.diffusion import Schedule, posterior, sample
from di2pose.diffusion.denoiser import truncated
from di2pose.diffusion.fast_sampler import draw_codes, fast_sample, jump
from di2pose.diffusion.schedule import step_grid
from di2pose.errors import InputError
from di2pose.noise import antithetic_uniform, hypothesis_generators, mirrored, uniform

CODES, FATES, POINTS = 5, 120, 61


def fast(predict, schedule, steps, shape, noise, levels=(), kept=None):
    """All states of the fast sampler, in PyTorch."""
    draws = partial(uniform, noise=noise), partial(mirrored, noise=noise)
    return list(fast_sample(predict, schedule, step_grid(steps, schedule), shape, *draws, levels, kept))


def constant(p0):
    return lambda ks, s, asked: [p0.repeat(len(asked), 1)]


def unit_square() -> torch.Tensor:
    """Uniforms (1, n, 2) on a fine grid of the unit square: shares of it are probabilities."""
    fates, points = (torch.arange(count) + 0.5 for count in (FATES, POINTS))
    return torch.cartesian_prod(points / POINTS, fates / FATES).unsqueeze(0)


@pytest.mark.parametrize("rate", RATES)
def test_a_jump_has_the_distribution_of_bayes_on_dense_matrices(rate):
    schedule = Schedule(CODES, 20, rate)
    u = unit_square()
    rows = torch.tensor([[0.5, 0.3, 0.15, 0.05, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])
    checked = 0
    for r, s in [(0, 1), (0, 20), (7, 13), (19, 20)]:
        for k_s in (k for k in range(CODES + 1) if possible(k, s, schedule)):
            for p0 in rows:
                drawn = jump(torch.full(u.shape[:2], k_s), u, r, s, schedule, constant(p0))
                found = torch.bincount(drawn.flatten(), minlength=CODES + 1) / drawn.numel()
                wanted = bayes(p0.unsqueeze(0), k_s, r, s, schedule)[0].float()
                assert (found[wanted == 0] == 0).all()
                torch.testing.assert_close(found, wanted, atol=1 / FATES + 1 / POINTS, rtol=0)
                checked += 1
    assert checked >= 12


def test_where_replace_is_0_a_visible_token_stays_without_p0():
    ks = torch.full((1, FATES * POINTS), 3)
    never = lambda *_: pytest.fail("p0 was computed")  # noqa: E731
    assert torch.equal(jump(ks, unit_square(), 2, 9, Schedule(CODES, 20, 1.0), never), ks)


@pytest.mark.parametrize("rate", [0.0, 0.6, 0.9])
def test_codes_drawn_channel_by_channel_follow_the_posterior(rate):
    """60,000 draws of a jump, chi-square below the 99.99 % point of 24 degrees of freedom."""
    schedule = Schedule(24, 20, rate)
    p0 = torch.rand(24, generator=torch.Generator().manual_seed(1))
    p0[[3, 17]] = 0
    p0 /= p0.sum()
    for k_s in (5, 24) if rate else (5,):
        noise = hypothesis_generators(0, range(3), 20)
        u = uniform((60, 1000, 4), noise)
        u = torch.cat([mirrored(u[..., :-1], noise), u[..., -1:]], -1)
        drawn = jump(torch.full((60, 1000), k_s), u, 6, 12, schedule, constant(p0), (4, 3, 2))
        wanted = posterior(p0.view(1, 1, -1), torch.tensor([[k_s]]), 6, 12, schedule)[0, 0] * 60_000
        counts = torch.bincount(drawn.flatten(), minlength=25)
        seen = wanted > 0
        assert (counts[~seen] == 0).all()
        assert ((counts - wanted)[seen] ** 2 / wanted[seen]).sum() < 60


@pytest.mark.parametrize("rate", [0.0, 0.6, 1.0])
def test_it_draws_pairs_of_tokens_as_the_reference_does(rate):
    """p0 of a token depends on its neighbour, so that k_0 depends on all steps before: 20,000 pairs by either sampler,
    chi-square of two samples below the 99.99 % point of 35 degrees of freedom."""
    schedule, shape = Schedule(6, 10, rate), (20_000, 2)
    table = torch.randn(7, 7, 6, generator=torch.Generator().manual_seed(2)).mul(1.5).softmax(-1)

    def predict(ks, s):
        return table[ks, ks.flip(1)]

    def lazily(ks, s, asked):
        return predict(ks, s).flatten(0, 1)[asked].split(7000)

    *_, reference = sample(predict, schedule, 4, shape, torch.Generator().manual_seed(0))
    found = fast(lazily, schedule, 4, shape, torch.Generator().manual_seed(1), (3, 2))[-1]
    a, b = (torch.bincount(k0[:, 0] * 6 + k0[:, 1], minlength=36).float() for k0 in (reference, found))
    assert ((a - b) ** 2 / (a + b).clamp_min(1)).sum() < 80


@pytest.mark.parametrize("rate", [0.0, 0.9, 1.0])
@pytest.mark.parametrize(("levels", "keep"), [((), False), ((4, 3, 2), True)])
def test_numpy_draws_the_tokens_that_pytorch_draws(rate, levels, keep):
    schedule, rows, tokens, codes = Schedule(24, 20, rate), 6, 10, 24
    logits = torch.randn(tokens, codes + 1, codes, generator=torch.Generator().manual_seed(0)) * 4
    stay = torch.zeros(rows, tokens, dtype=torch.bool)
    stay[:, 2:5] = keep
    kept = torch.arange(tokens).repeat(rows, 1), stay

    def predict(ks, s, asked):
        p0 = (logits[torch.arange(tokens), torch.as_tensor(ks)] / (1 + 0.05 * s)).softmax(-1)
        p0 = p0.flatten(0, 1)[torch.as_tensor(asked)]
        return [p0.numpy() if isinstance(ks, np.ndarray) else p0]

    for seed in range(3):
        noise = [hypothesis_generators(seed, ["a", "b"], rows // 2) for _ in range(2)]
        wanted = fast(predict, schedule, 8, (rows, tokens), noise[0], levels, kept)[-1]
        draws = partial(antithetic_uniform, rows=noise[1]), partial(mirrored, noise=noise[1])
        grid, kept_here = step_grid(8, schedule), tuple(part.numpy() for part in kept)
        *_, found = fast_sample(predict, schedule, grid, (rows, tokens), *draws, levels, kept_here)
        np.testing.assert_array_equal(found, wanted.numpy())
        assert len(np.unique(found)) > 3


def test_p0_is_computed_only_for_undecided_tokens():
    """At the paper's size for a few of a hundred in a step; in the last one for all that are not kept."""
    schedule, asked = Schedule(4375, 100, 0.9), []

    def predict(ks, s, rows):
        asked.append(len(rows))
        yield torch.full((len(rows), 4375), 1 / 4375)

    kept = torch.zeros(2, 100, dtype=torch.bool)
    kept[:, :30] = True
    noise = torch.Generator().manual_seed(0)
    states = fast(predict, schedule, 100, (2, 100), noise, kept=(torch.zeros(2, 100, dtype=torch.int64), kept))
    assert (states[-1] < 4375).all()
    assert (states[-1][kept] == 0).all()
    assert asked[-1] == 140
    assert sum(asked[:-1]) / 99 < 0.1 * 140


def test_an_impossible_code_is_never_drawn():
    weights = torch.tensor([0.0, 0.25, 0.75, 0.0]).repeat(200_000, 1)
    drawn = draw_codes(weights, torch.rand(200_000, 1, generator=torch.Generator().manual_seed(0)))
    assert sorted(set(drawn.tolist())) == [1, 2]
    assert (drawn == 1).float().mean() == pytest.approx(0.25, abs=0.01)


def test_a_mirrored_draw_lies_on_the_other_side_in_every_channel():
    noise = hypothesis_generators(0, ["a"], 2)
    u = mirrored(uniform((2, 500, 3), noise), noise).flatten(0, 1)
    drawn = draw_codes(torch.ones(1000, 64), u, (4, 4, 4)).view(2, 500)
    digits = drawn.unsqueeze(-1) // torch.tensor([1, 4, 16]) % 4
    assert torch.equal(digits[0], 3 - digits[1])
    one, pair = (drawn[:k].float().mean(0).std() for k in (1, 2))
    assert pair < 0.01 * one


def test_truncation_keeps_the_most_probable_codes_and_temperature_sharpens():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert torch.equal(truncated(logits), logits.softmax(-1))
    torch.testing.assert_close(truncated(logits, top_r=0.7), torch.tensor([[0.625, 0.375, 0, 0]]))
    torch.testing.assert_close(truncated(logits, top_r=1e-9), torch.tensor([[1.0, 0, 0, 0]]))  # never none
    squared = torch.tensor([[0.25, 0.09, 0.0225, 0.0025]])
    torch.testing.assert_close(truncated(logits, temperature=0.5), squared / squared.sum())


def test_bad_input_is_named():
    schedule = Schedule(5, 10, 0.5)
    with pytest.raises(InputError, match=r"p0 of \d+ tokens must have shape"):
        fast(constant(torch.ones(1, 6) / 6), schedule, 5, (1, 40), torch.Generator())
    kept = torch.full((1, 2), 5), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(InputError, match=r"kept tokens must lie in 0\.\.4"):
        fast(constant(torch.ones(1, 5) / 5), schedule, 5, (1, 2), torch.Generator(), kept=kept)
