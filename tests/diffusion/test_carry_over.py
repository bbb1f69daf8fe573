"""Carry-over: what a visible token says of its own k_0, by Bayes' rule on dense matrices."""

import math
from dataclasses import replace

import pytest
import torch
from diffusion.dense import bayes, transition

from di2pose import recipes
from di2pose.diffusion import Denoiser, Schedule, diffusion_loss, forward_sample, posterior, sample
from di2pose.diffusion.transition import carry_over, carry_over_gain
from di2pose.errors import InputError
from di2pose.network import Di2PoseNetwork

RATES = (0.0, 0.3, 0.9, 1.0)
STEPS = 4


def opinions(codes):
    """Logits of p(k_0 | the other tokens, y), one row a token."""
    return 2 * torch.randn(codes, codes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def dense_p0(logits, k_s, s, schedule):
    """p(k_0 | k_s) with the prior softmax(logits), normalised."""
    weighted = logits.softmax(-1) * transition(schedule, 0, s)[k_s, : schedule.codes]
    return weighted / weighted.sum(-1, keepdim=True)


def reached(s, schedule):
    """Tokens that step s can show."""
    return [k for k in range(schedule.codes + 1) if transition(schedule, 0, s)[k, : schedule.codes].max() > 1e-14]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("codes", [2, 4])
def test_it_is_bayes_rule_and_the_posterior_stays_exact_for_any_stride(codes, rate):
    schedule, logits = Schedule(codes, STEPS, rate), opinions(codes)
    gain = carry_over_gain(schedule)
    for s in range(1, STEPS + 1):
        for k_s in reached(s, schedule):
            ks = torch.full((codes,), k_s)
            p0 = carry_over(logits, ks, gain[s].expand(codes)).softmax(-1)
            torch.testing.assert_close(p0, dense_p0(logits, k_s, s, schedule), atol=1e-13, rtol=1e-11)
            for r in range(s):
                # Without dividing by q(k_s | k_0): p(k_r | k_s) ~ q(k_s | k_r) sum over k_0 of q(k_r | k_0) p(k_0).
                known = transition(schedule, 0, r)[:, :codes] @ logits.softmax(-1).T
                joint = (transition(schedule, r, s)[k_s].unsqueeze(1) * known).T
                ours = posterior(p0.unsqueeze(0), ks.unsqueeze(0), r, s, schedule)[0]
                torch.testing.assert_close(ours, joint / joint.sum(-1, keepdim=True), atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("rate", RATES)
def test_the_bound_is_the_brute_force_kl_of_what_is_carried_over(rate):
    codes = 4
    schedule = Schedule(codes, STEPS, rate)
    gain, start = carry_over_gain(schedule), opinions(codes)
    for s in range(1, STEPS + 1):
        for k_s in reached(s, schedule):
            sure = schedule.replace[s] == 0 and k_s < codes  # only k_0 = k_s leads here
            k0 = torch.full((codes,), k_s) if sure else torch.arange(codes)
            leaf, other = (start.clone().requires_grad_() for _ in range(2))
            ks = torch.full((codes,), k_s)
            logits = carry_over(leaf, ks, gain[s].expand(codes)).unsqueeze(0)
            ours = diffusion_loss(logits, k0[None], ks[None], torch.tensor([s]), schedule, aux_weight=1.0)
            gradient = torch.autograd.grad(ours["loss"], leaf)[0]
            if sure:  # certain tokens leave the bound and the auxiliary loss
                assert ours["loss"] == 0
                assert gradient.abs().max() == 0
                continue
            p0 = dense_p0(other, k_s, s, schedule)
            true = bayes(torch.nn.functional.one_hot(k0, codes).double(), k_s, s - 1, s, schedule)
            predicted = bayes(p0, k_s, s - 1, s, schedule)
            kl = torch.where(true > 0, true * (true.log() - torch.where(true > 0, predicted, 1).log()), 0).sum(-1)
            wanted = (kl - p0.gather(1, k0.unsqueeze(1)).squeeze(1).log()).mean()
            torch.testing.assert_close(ours["loss"], wanted, atol=1e-12, rtol=1e-9)
            torch.testing.assert_close(gradient, torch.autograd.grad(wanted, other)[0], atol=1e-12, rtol=1e-8)


def test_the_gain_is_nothing_at_the_last_step_and_grows_to_certainty():
    gain = carry_over_gain(Schedule(512, 100, 0.9))
    assert gain.dtype == torch.float64
    assert gain[100] == 0
    assert (gain.diff() < 0).all()
    assert gain[50].item() == pytest.approx(math.log((0.5 + 0.05 / 512) / (0.05 / 512)), rel=1e-14)
    p0 = carry_over(torch.randn(3, 7), torch.tensor([2, 4, 7]), carry_over_gain(Schedule(7, 10, 1.0))[5].expand(3))
    assert p0[:2].softmax(-1).tolist() == torch.eye(7)[[2, 4]].tolist()  # exactly
    assert p0[2].softmax(-1).max() < 1


CONFIG = replace(recipes.tiny().denoiser, carry_over=True)


@pytest.mark.parametrize("rate", RATES)
def test_the_sampler_draws_from_what_the_network_says_in_training(rate):
    """The lazy predictor gives the rows of `forward`, and a network that is always right is followed."""
    torch.manual_seed(0)
    schedule = Schedule(CONFIG.codes, CONFIG.steps, rate)
    denoiser = Denoiser(CONFIG, schedule).eval()
    condition = denoiser.encode_condition(torch.randn(2, 17, CONFIG.feature_width))
    k0 = torch.randint(CONFIG.codes, (2, CONFIG.tokens))
    s = torch.tensor([11, 11])
    ks = forward_sample(k0, s, schedule, torch.Generator().manual_seed(0))
    with torch.no_grad():
        all_rows = torch.arange(ks.numel())
        (lazy,) = denoiser.lazy_p0(condition, [20, 11, 0])(ks, 11, all_rows)
        torch.testing.assert_close(lazy, denoiser(ks, s, condition).softmax(-1).flatten(0, 1), atol=1e-6, rtol=1e-4)
        plain = Denoiser(replace(CONFIG, carry_over=False)).eval()
        plain.load_state_dict(denoiser.state_dict())  # carry-over has no weights
        own = plain(ks, s, condition)
        wanted = carry_over(own, ks, carry_over_gain(schedule)[s].unsqueeze(1))
        torch.testing.assert_close(denoiser(ks, s, condition), wanted, atol=1e-5, rtol=1e-4)
        shown = (ks < CONFIG.codes).flatten()
        changed = (own.flatten(0, 1)[~shown] - wanted.flatten(0, 1)[~shown]).abs()
        assert not changed.numel() or changed.max() == 0  # Occ tokens say nothing
        gain = carry_over_gain(schedule)

        def right(ks, s):
            opinion = 12.0 * torch.nn.functional.one_hot(k0, CONFIG.codes)
            return carry_over(opinion, ks, gain[s].unsqueeze(1)).softmax(-1)

        *_, found = sample(right, schedule, [20, 15, 4, 0], tuple(k0.shape), torch.Generator().manual_seed(0))
        assert (found == k0).float().mean() > 0.95


def test_a_model_with_carry_over_learns_and_says_which_part_needs_the_schedule(as_user):
    config = recipes.tiny()
    model = Di2PoseNetwork(replace(config, denoiser=CONFIG))
    batch = {"features": torch.randn(3, 17, 32), "joints_mm": 200 * torch.randn(3, 17, 3)}
    losses = model.loss(batch, torch.Generator().manual_seed(0))
    losses["loss"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(InputError, match="needs the schedule"):
        Denoiser(CONFIG)
