"""Steering: a pinned joint is met, and nothing else moves more than it must."""

import pytest
import torch

from di2pose.diffusion.guidance import towards_pins
from di2pose.diffusion.sampler import sample
from di2pose.diffusion.schedule import Schedule
from di2pose.errors import InputError
from di2pose.noise import generator_of

B, N, C, J = 3, 4, 6, 5
ANY = (torch.zeros(B, N, dtype=torch.long), torch.ones(B, dtype=torch.long))


@pytest.fixture
def decode():
    generator = torch.Generator().manual_seed(0)
    codebook = 200 * torch.randn(C, 3, generator=generator)
    mix = torch.randn(J, N, generator=generator)
    mix[0] = torch.tensor([1.0, 0.5, 0.0, 0.0])  # joint 0 is made by tokens 0 and 1 alone
    return lambda p: torch.einsum("jn,bnc,cx->bjx", mix, p, codebook)


def uncertain(ks, s):
    return torch.randn(B, N, C, generator=torch.Generator().manual_seed(1)).softmax(-1)


def test_a_pinned_joint_comes_to_its_place_and_tokens_that_do_not_make_it_stay_as_they_were(decode):
    truth = torch.nn.functional.one_hot(torch.tensor([[2, 1, 0, 3]] * B), C).float()
    pins, pinned = decode(truth), torch.zeros(B, J, dtype=torch.bool)
    pinned[:, 0] = True
    before = uncertain(*ANY)
    after = towards_pins(uncertain, decode, pins, pinned)(*ANY)
    off_before = (decode(before) - pins)[:, 0].norm(dim=-1)
    off_after = (decode(after) - pins)[:, 0].norm(dim=-1)
    assert (off_after < 0.35 * off_before).all()
    assert torch.allclose(after[:, 2:], before[:, 2:], atol=1e-5)
    assert not torch.allclose(after[:, :2], before[:, :2], atol=0.05)
    assert torch.allclose(after.sum(-1), torch.ones(B, N))


def test_rows_are_steered_each_on_its_own(decode):
    pins = decode(torch.nn.functional.one_hot(torch.tensor([[2, 1, 0, 3], [5, 5, 1, 0], [0, 0, 0, 0]]), C).float())
    pinned = torch.tensor([[True, False, False, False, False], [False] * J, [False, True, True, False, False]])
    together = towards_pins(uncertain, decode, pins, pinned)(*ANY)
    for row in range(B):
        alone = towards_pins(lambda ks, s, row=row: uncertain(ks, s)[row : row + 1], decode, pins[row : row + 1],
                             pinned[row : row + 1])(*ANY)  # fmt: skip
        assert torch.allclose(together[row], alone[0], atol=1e-5)


def test_nothing_pinned_changes_nothing_and_a_mask_must_fit(decode, as_user):
    after = towards_pins(uncertain, decode, torch.zeros(B, J, 3), torch.zeros(B, J, dtype=torch.bool))(*ANY)
    assert torch.allclose(after, uncertain(*ANY), atol=1e-3)
    with pytest.raises(InputError, match="mask"):
        towards_pins(uncertain, decode, torch.zeros(B, J, 3), torch.zeros(B, J - 1, dtype=torch.bool))


def test_drawn_poses_come_to_the_pin_when_the_network_knows_what_is_revealed():
    """With a network that is sure of revealed tokens and knows nothing of the others, as a trained one would be."""
    tokens, schedule = 12, Schedule(C, 50, 0.9)
    generator = torch.Generator().manual_seed(0)
    codebook, mix = 60 * torch.randn(C, 3, generator=generator), torch.randn(1, tokens, generator=generator)

    def decode(p):
        return torch.einsum("jn,bnc,cx->bjx", mix, p, codebook)

    def predict(ks, s):
        revealed = torch.nn.functional.one_hot(ks, C + 1)[..., :C].float()
        return 0.95 * revealed + (1 - 0.95 * revealed.sum(-1, keepdim=True)) / C

    def off(predict_p0):
        *_, k0 = sample(predict_p0, schedule, 25, (40, tokens), generator_of(3))
        return (decode(torch.nn.functional.one_hot(k0, C).float()) - pins).norm(dim=-1).mean()

    truth = torch.randint(C, (1, tokens), generator=generator)
    pins = decode(torch.nn.functional.one_hot(truth, C).float()).expand(40, -1, -1)
    pinned = torch.ones(40, 1, dtype=torch.bool)
    assert off(towards_pins(predict, decode, pins, pinned)) < 0.5 * off(predict)
