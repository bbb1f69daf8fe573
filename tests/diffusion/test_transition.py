import pytest
import torch
from diffusion.dense import RATES, bayes, possible, transition

from di2pose.diffusion import Schedule, forward_probs, forward_sample, posterior
from di2pose.errors import InputError


def all_rows(codes: int) -> torch.Tensor:
    """Rows p0: each one-hot, and mixtures, some with zeros."""
    generator = torch.Generator().manual_seed(codes)
    mixtures = torch.rand(4, codes, generator=generator, dtype=torch.float64)
    mixtures[0, 0] = 0
    return torch.cat([torch.eye(codes, dtype=torch.float64), mixtures / mixtures.sum(1, keepdim=True)])


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(("codes", "steps"), [(2, 7), (5, 4)])
def test_forward_probs_and_posterior_equal_bayes_on_dense_matrices_for_every_jump(codes, steps, rate):
    schedule, rows = Schedule(codes, steps, rate), all_rows(codes)
    k0 = torch.arange(codes).unsqueeze(0)
    for s in range(steps + 1):
        dense = transition(schedule, 0, s)[:, :codes].T.unsqueeze(0)
        torch.testing.assert_close(forward_probs(k0, s, schedule), dense, atol=1e-12, rtol=0)
    checked = 0
    for s in range(1, steps + 1):
        # every k_s that Bayes can decide; the others are decided by rule and tested below
        for k_s in (k for k in range(codes + 1) if possible(k, s, schedule)):
            ks, p0 = torch.full((s, len(rows)), k_s), rows.expand(s, -1, -1)
            jumps = torch.arange(s), torch.full((s,), s)  # from s to every r
            wanted = torch.stack([bayes(rows, k_s, r, s, schedule) for r in range(s)])
            exact = posterior(p0, ks, *jumps, schedule)
            single = posterior(p0.float(), ks, *jumps, schedule)
            torch.testing.assert_close(exact, wanted, atol=1e-12, rtol=0)
            torch.testing.assert_close(single.double(), wanted, atol=1e-5, rtol=0)
            torch.testing.assert_close(exact.sum(-1), torch.ones(s, len(rows), dtype=torch.float64))
            checked += s * len(rows)
    assert checked >= steps * len(rows)


@pytest.mark.parametrize("rate", RATES)
def test_posterior_rows_sum_to_one_for_many_codes(rate):
    schedule = Schedule(1000, 100, rate)
    generator = torch.Generator().manual_seed(0)
    p0 = (4 * torch.randn(6, 5, 1000, generator=generator)).softmax(-1)
    p0[0] = torch.nn.functional.one_hot(torch.arange(5), 1000).float()
    for r, s in [(0, 1), (1, 2), (49, 50), (24, 96), (0, 100), (99, 100)]:
        ks = forward_sample(torch.arange(30).view(6, 5), s, schedule, generator)
        torch.testing.assert_close(posterior(p0, ks, r, s, schedule).sum(-1), torch.ones(6, 5), atol=1e-5, rtol=0)


def test_an_impossible_or_certain_token_is_decided_by_rule():
    schedule = Schedule(5, 10, 1.0)
    p0 = torch.full((1, 2, 5), 0.2, requires_grad=True)
    probs = posterior(p0, torch.tensor([[3, 5]]), 4, 8, schedule)
    assert probs[0, 0].tolist() == [0, 0, 0, 1, 0, 0]
    (gradient,) = torch.autograd.grad(probs[0, 0].square().sum(), p0)
    assert gradient.abs().max() == 0
    with pytest.raises(ValueError, match=r"occlude\[s\] is 0"):
        posterior(torch.full((1, 1, 5), 0.2), torch.tensor([[5]]), 1, 2, Schedule(5, 10, 0.0))


@pytest.mark.parametrize("rate", RATES)
def test_forward_sample_follows_forward_probs(rate):
    """Chi-square over 40,000 draws at three steps; 99.99 % quantiles of chi2 with 6 and fewer degrees are below 28."""
    schedule = Schedule(6, 10, rate)
    generator = torch.Generator().manual_seed(1)
    for s in (1, 5, 10):
        ks = forward_sample(torch.full((40, 1000), 2), s, schedule, generator)
        counts = torch.bincount(ks.flatten(), minlength=7).double()
        expected = forward_probs(torch.tensor([[2]]), s, schedule)[0, 0] * ks.numel()
        assert (counts[expected == 0] == 0).all()
        seen = expected > 0
        assert ((counts - expected)[seen] ** 2 / expected[seen]).sum() < 28


def test_bad_input_is_named(as_user):
    schedule = Schedule(5, 10, 0.5)
    p0, ks = torch.full((2, 3, 5), 0.2), torch.zeros(2, 3, dtype=torch.int64)
    for call, message in (
        (lambda: posterior(p0, ks, 4, 4, schedule), "earlier r < s"),
        (lambda: posterior(p0, ks, 4, 11, schedule), r"0\.\.10, got 11"),
        (lambda: posterior(p0[..., :4], ks, 3, 4, schedule), r"\(B, N, 5\)"),
        (lambda: posterior(p0, ks + torch.tensor([0, 0, 6]), 3, 4, schedule), r"0\.\.5, got 0\.\.6"),
        (lambda: posterior(p0, ks, 1, torch.tensor([2, 3, 4]), schedule), r"\(2,\)"),
        (lambda: forward_sample(ks + 5, 3, schedule, torch.Generator()), r"0\.\.4, got 5"),
        (lambda: forward_sample(ks, 3, schedule, [torch.Generator()]), "one for each of the 2 rows"),
        (lambda: forward_probs(ks.float(), 3, schedule), "integers"),
    ):
        with pytest.raises(InputError, match=message):
            call()
