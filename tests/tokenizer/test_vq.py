"""The learned codebook: nearest codes, straight-through gradients, running means."""

from dataclasses import replace

import pytest
import torch

from di2pose import checkpoint, recipes
from di2pose.errors import InputError
from di2pose.tokenizer import VQ, PoseTokenizer
from di2pose.tokenizer.vq import DEAD, DECAY

TINY = replace(recipes.tiny().tokenizer, quantiser="vq", vq_channels=6)


def quantiser(codes=12, channels=4):
    torch.manual_seed(0)
    return VQ(codes, channels)


def test_each_latent_gets_its_nearest_code_and_the_gradient_goes_straight_through():
    vq, z = quantiser(), torch.randn(5, 7, 4, requires_grad=True)
    codes, indices = vq(z)
    assert torch.equal(indices, torch.cdist(z.detach(), vq.codebook).argmin(-1))
    torch.testing.assert_close(codes, vq.codebook[indices])
    weight = torch.randn(5, 7, 4)
    (weight * codes).sum().backward()
    assert torch.equal(z.grad, weight)
    assert torch.equal(vq.indices_to_codes(indices), vq.codebook[indices])


def test_a_code_is_the_running_mean_of_what_fell_to_it():
    vq, generator = quantiser(), torch.Generator().manual_seed(0)
    vq.size.fill_(20.0)
    vq.total.copy_(20 * vq.codebook)
    size, total = vq.size.clone(), vq.total.clone()
    for _ in range(3):
        z = torch.randn(60, 4, generator=generator)
        one_hot = torch.nn.functional.one_hot(torch.cdist(z, total / size[:, None]).argmin(-1), 12).float()
        size = DECAY * size + (1 - DECAY) * one_hot.sum(0)
        total = DECAY * total + (1 - DECAY) * one_hot.T @ z
        for part in z.split(25):  # a batch may come in parts
            vq(part)
        vq.update_codebook()
        torch.testing.assert_close(vq.size, size)
        torch.testing.assert_close(vq.codebook, total / size[:, None])


def test_codes_that_nothing_falls_to_begin_anew_among_the_latents():
    vq = quantiser()
    z = 100 + torch.randn(48, 4)
    vq(z)
    vq.update_codebook()
    assert (vq.size >= DEAD).all()
    distance = (vq.codebook[:, None] - z).norm(dim=-1).min(1).values
    assert int((distance < 1e-4).sum()) >= 11  # of 12; the twelfth took all latents and is their mean
    assert len(vq.codebook.unique(dim=0)) == 12
    assert not vq.seen


def test_nothing_is_learned_in_use():
    vq = quantiser().eval()
    before = vq.codebook.clone()
    vq(torch.randn(9, 4))
    vq.train()
    with torch.no_grad():
        vq(torch.randn(9, 4))
    vq.update_codebook()
    assert torch.equal(vq.codebook, before)
    with pytest.raises(InputError, match="VQ expected 4 channels"):
        vq(torch.randn(9, 3))


def test_a_tokenizer_with_it_learns_decodes_softly_and_comes_back_strictly(tmp_path, as_user):
    torch.manual_seed(0)
    model, joints = PoseTokenizer(TINY).train(), 300 * torch.randn(16, 17, 3)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    errors = []
    for _ in range(40):
        optimiser.zero_grad()
        losses = model.loss(joints)
        losses["loss"].backward()
        optimiser.step()
        model.update_codebook()
        errors.append(float(losses["mpjpe_mm"]))
    assert errors[-1] < 0.8 * errors[0]
    assert "commitment" in losses
    model.eval()
    tokens = model.encode(joints)
    assert model.usage(tokens).used > 20
    one_hot = torch.nn.functional.one_hot(tokens, TINY.codes).float()
    torch.testing.assert_close(model.decode_soft(one_hot), model.decode(tokens), atol=1e-3, rtol=0)
    assert model.latents(joints).shape == (16, TINY.tokens, 6)
    config = replace(recipes.tiny(), tokenizer=TINY)
    folder = checkpoint.save(tmp_path / "model", config, {"tokenizer": model})
    again = PoseTokenizer(checkpoint.read_config(folder).tokenizer).eval()
    checkpoint.load(folder, {"tokenizer": again})
    assert torch.equal(again.encode(joints), tokens)
    torch.testing.assert_close(again.decode(tokens), model.decode(tokens))
    with pytest.raises(InputError, match=r"unexpected quantiser.codebook"):
        checkpoint.load(folder, {"tokenizer": PoseTokenizer(replace(TINY, quantiser="fsq", levels=(5,) * 6))})
