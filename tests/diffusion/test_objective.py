from dataclasses import replace

import pytest
import torch
from diffusion.dense import RATES, bayes, possible

from di2pose import recipes
from di2pose.diffusion import Schedule, diffusion_loss, forward_sample, posterior
from di2pose.diffusion import objective as module
from di2pose.errors import InputError
from di2pose.network import Di2PoseNetwork
from di2pose.noise import training_generators
from di2pose.pose.metrics import mpjpe


def brute_kl(logits, k0, k_s, s, schedule):
    p0 = logits.double().softmax(-1)
    true = bayes(torch.nn.functional.one_hot(k0, schedule.codes).double(), k_s, s - 1, s, schedule)
    predicted = bayes(p0, k_s, s - 1, s, schedule)
    terms = torch.where(true > 0, true * (true.log() - torch.where(true > 0, predicted, 1).log()), 0)
    return terms.sum(-1).mean()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("codes", [2, 4])
def test_vlb_equals_the_brute_force_kl_in_value_and_gradient(codes, rate):
    schedule = Schedule(codes, 3, rate)
    logits = 3 * torch.randn(codes, codes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for s in range(1, 4):
        for k_s in (k for k in range(codes + 1) if possible(k, s, schedule)):
            leaf, other = (logits.clone().unsqueeze(0).requires_grad_() for _ in range(2))
            k0, ks = torch.arange(codes).unsqueeze(0), torch.full((1, codes), k_s)
            ours = diffusion_loss(leaf, k0, ks, torch.tensor([s]), schedule, 0.0)
            wanted = brute_kl(other[0], k0[0], k_s, s, schedule)
            torch.testing.assert_close(ours["vlb"], wanted, atol=1e-12, rtol=1e-9)
            gradients = torch.autograd.grad(ours["vlb"], leaf), torch.autograd.grad(wanted, other)
            torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-8)
            single = diffusion_loss(logits.float().unsqueeze(0), k0, ks, torch.tensor([s]), schedule, 0.0)["vlb"]
            torch.testing.assert_close(single.double(), wanted, atol=1e-5, rtol=1e-5)


def test_at_step_one_the_kl_is_the_negative_log_likelihood():
    generator = torch.Generator().manual_seed(0)
    schedule = Schedule(50, 10, 0.6)
    k0 = torch.randint(50, (6, 30), generator=generator)
    ks = forward_sample(k0, 1, schedule, generator)
    logits = torch.randn(6, 30, 50, generator=generator, dtype=torch.float64)
    losses = diffusion_loss(logits, k0, ks, torch.ones(6, dtype=torch.int64), schedule, 0.1)
    # q(k_0 | k_1, k_0) is a delta, but p_theta(k_0 | k_1) also knows k_1: equal to p0 only where k_1 is Occ.
    nll = -posterior(logits.softmax(-1), ks, 0, 1, schedule).gather(-1, k0.unsqueeze(-1)).log().mean()
    torch.testing.assert_close(losses["vlb"], nll)
    torch.testing.assert_close(losses["aux"], -logits.log_softmax(-1).gather(-1, k0.unsqueeze(-1)).mean())
    torch.testing.assert_close(losses["loss"], losses["vlb"] + 0.1 * losses["aux"])


@pytest.mark.parametrize("rate", [0.0, 0.9, 1.0])
def test_gradients_are_finite_at_the_papers_size_also_under_bf16_autocast(rate):
    generator = torch.Generator().manual_seed(0)
    schedule = Schedule(4375, 100, rate)
    s = torch.tensor([1, 2, 50, 100])
    k0 = torch.randint(4375, (4, 6), generator=generator)
    ks = forward_sample(k0, s, schedule, generator)
    for scale in (1.0, 30.0):
        logits = (scale * torch.randn(4, 6, 4375, generator=generator)).requires_grad_()
        diffusion_loss(logits, k0, ks, s, schedule, 5e-4)["loss"].backward()
        assert logits.grad.isfinite().all()
        assert logits.grad.abs().sum() > 0
    head, x = torch.nn.Linear(8, 4375), torch.randn(4, 6, 8, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(x)
        assert logits.dtype == torch.bfloat16
        losses = diffusion_loss(logits, k0, ks, s, schedule, 5e-4)
    assert losses["loss"].dtype == torch.float32
    losses["loss"].backward()
    assert head.weight.grad.isfinite().all()


def test_occlude_only_visible_tokens_cost_nothing_and_teach_nothing():
    schedule = Schedule(7, 10, 1.0)
    logits = torch.randn(1, 4, 7, requires_grad=True)
    k0 = torch.tensor([[1, 2, 3, 4]])
    losses = diffusion_loss(logits, k0, k0, torch.tensor([5]), schedule, 0.0)
    losses["vlb"].backward()
    assert losses["vlb"] == 0
    assert logits.grad.abs().max() == 0


def test_chunks_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    schedule = Schedule(11, 10, 0.5)
    k0 = torch.randint(11, (3, 5), generator=generator)
    s = torch.tensor([1, 4, 10])
    ks = forward_sample(k0, s, schedule, generator)
    results = []
    for size in (1 << 20, 23):
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", size)
        logits = torch.linspace(-3, 3, 3 * 5 * 11).view(3, 5, 11).requires_grad_()
        losses = diffusion_loss(logits, k0, ks, s, schedule, 0.3)
        results.append((losses, *torch.autograd.grad(losses["loss"], logits)))
    torch.testing.assert_close(*results)


def test_bad_input_is_named(as_user):
    schedule = Schedule(5, 10, 0.5)
    logits, k = torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(InputError, match=r"\(B, N, 5\)"):
        diffusion_loss(logits[..., :4], k, k, torch.tensor([1, 2]), schedule, 0.0)
    with pytest.raises(InputError, match=r"1\.\.10, got 0"):
        diffusion_loss(logits, k, k, torch.tensor([0, 2]), schedule, 0.0)
    with pytest.raises(InputError, match=r"0\.\.4, got 5"):
        diffusion_loss(logits, k + 5, k, torch.tensor([1, 2]), schedule, 0.0)
    with pytest.raises(InputError, match=r"occlude\[s\] is 0"):
        diffusion_loss(logits, k, k + 5, torch.tensor([1, 2]), Schedule(5, 10, 0.0), 0.0)


def test_the_pose_loss_is_the_error_of_the_softly_decoded_pose_in_metres():
    tiny, models = recipes.tiny(), []
    for weight in (0.0, 10.0):
        torch.manual_seed(0)
        models.append(Di2PoseNetwork(replace(tiny, diffusion=replace(tiny.diffusion, pose_weight=weight))))
    batch = {"features": torch.randn(4, 5, 32), "joints_mm": 300 * torch.randn(4, 17, 3) + 1000}
    seen = {}
    models[1].denoiser.register_forward_hook(lambda module, inputs, logits: seen.update(logits=logits))
    paper, ours = (model.loss(batch, training_generators(0, 0, 0, 4)) for model in models)
    assert "pose" not in paper
    torch.testing.assert_close(ours["loss"], paper["loss"] + 10 * ours["pose"])
    soft = models[1].tokenizer.decode_soft(seen["logits"].softmax(-1))
    torch.testing.assert_close(ours["pose"], mpjpe(soft, batch["joints_mm"], root=0).mean() / 1000)
    ours["pose"].backward()
    assert models[1].denoiser.to_logits.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in models[1].tokenizer.parameters())
