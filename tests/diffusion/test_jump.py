"""A drawn jump has the posterior's distribution, and asks for no more of p0 than it needs."""

import pytest
import torch
from diffusion.dense import RATES, bayes, possible

from di2pose.diffusion import Schedule, posterior, sample
from di2pose.diffusion.jump import draw_codes, jump, truncated
from di2pose.noise import hypothesis_generators, mirrored, uniform

CODES, FATES, POINTS = 5, 200, 101


def everywhere() -> torch.Tensor:
    """Uniforms (1, n, 2) on a fine grid of the unit square: shares of it are probabilities, without any luck."""
    fates, points = (torch.arange(count) + 0.5 for count in (FATES, POINTS))
    return torch.cartesian_prod(points / POINTS, fates / FATES).unsqueeze(0)


@pytest.mark.parametrize("rate", RATES)
def test_a_jump_has_the_distribution_of_bayes_on_dense_matrices(rate):
    schedule = Schedule(CODES, 20, rate)
    u = everywhere()
    rows = torch.tensor([[0.5, 0.3, 0.15, 0.05, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])
    checked = 0
    for r, s in [(0, 1), (0, 20), (4, 5), (7, 13), (19, 20), (1, 18)]:
        for k_s in (k for k in range(CODES + 1) if possible(k, s, schedule)):
            for p0 in rows:
                ks = torch.full(u.shape[:2], k_s)
                drawn = jump(ks, u, r, s, schedule, lambda _, p0=p0: lambda rows: p0.repeat(len(rows), 1))
                found = torch.bincount(drawn.flatten(), minlength=CODES + 1) / drawn.numel()
                wanted = bayes(p0.unsqueeze(0), k_s, r, s, schedule)[0].float()
                assert (found[wanted == 0] == 0).all()
                torch.testing.assert_close(found, wanted, atol=1 / FATES + 1 / POINTS, rtol=0)
                checked += 1
    assert checked >= 15


def test_where_replace_is_0_a_visible_token_stays_and_nothing_is_asked_about_it():
    schedule = Schedule(CODES, 20, 1.0)
    ks = torch.full((1, FATES * POINTS), 3)
    assert torch.equal(jump(ks, everywhere(), 2, 9, schedule, lambda asked: pytest.fail("asked")), ks)


@pytest.mark.parametrize("rate", [0.0, 0.6, 0.9])
def test_codes_drawn_channel_by_channel_follow_the_posterior(rate):
    """60,000 draws of a jump, chi-square below the 99.99 % point of 24 degrees of freedom."""
    schedule = Schedule(24, 20, rate)
    p0 = torch.rand(24, generator=torch.Generator().manual_seed(1))
    p0[[3, 17]] = 0
    p0 /= p0.sum()
    for k_s in (5, 24) if rate else (5,):
        ks = torch.full((60, 1000), k_s)
        noise = hypothesis_generators(0, range(3), 20)
        u = uniform((60, 1000, 4), noise)
        u = torch.cat([mirrored(u[..., :-1], noise), u[..., -1:]], -1)
        drawn = jump(ks, u, 6, 12, schedule, lambda _: lambda rows: p0.repeat(len(rows), 1), (4, 3, 2))
        wanted = posterior(p0.view(1, 1, -1), torch.tensor([[k_s]]), 6, 12, schedule)[0, 0] * 60_000
        counts = torch.bincount(drawn.flatten(), minlength=25)
        possible = wanted > 0
        assert (counts[~possible] == 0).all()
        assert ((counts - wanted)[possible] ** 2 / wanted[possible]).sum() < 60


def test_p0_is_asked_for_only_where_it_decides_something():
    """At the paper's size a step asks for a few tokens of a hundred; the last one for all that are not kept."""
    schedule = Schedule(4375, 100, 0.9)
    asked = []

    def predict(ks, s):
        def ask(rows):
            asked.append(len(rows))
            return lambda some: torch.full((len(some), 4375), 1 / 4375)

        return ask

    kept = torch.zeros(2, 100, dtype=torch.bool)
    kept[:, :30] = True
    states = list(sample(predict, schedule, 100, (2, 100), torch.Generator().manual_seed(0),
                         kept=(torch.zeros(2, 100, dtype=torch.int64), kept)))  # fmt: skip
    assert (states[-1] < 4375).all()
    assert (states[-1][kept] == 0).all()
    assert asked[-1] == 140
    assert sum(asked[:-1]) / 99 < 0.1 * 140


def test_a_token_is_drawn_alike_whoever_else_is_undecided():
    schedule = Schedule(9, 10, 0.6)
    p0 = torch.rand(10, 9, generator=torch.Generator().manual_seed(3)).softmax(-1)
    ks = torch.randint(10, (40, 50), generator=torch.Generator().manual_seed(4))
    u = torch.rand(40, 50, 2, generator=torch.Generator().manual_seed(5))
    whole = jump(ks, u, 4, 7, schedule, lambda _: lambda rows: p0[ks.flatten()[rows]])
    assert not torch.equal(whole, ks)
    for row in range(0, 40, 7):
        one = slice(row, row + 1)
        alone = jump(ks[one], u[one], 4, 7, schedule, lambda _, one=one: lambda rows: p0[ks[one].flatten()[rows]])
        assert torch.equal(whole[one], alone)


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
