import pytest
import torch

from di2pose.config import DenoiserConfig
from di2pose.diffusion import Denoiser
from di2pose.errors import InputError

CONFIG = DenoiserConfig(tokens=6, codes=11, steps=8, feature_width=20, width=32, layers=2, heads=4)


@pytest.fixture
def denoiser():
    torch.manual_seed(0)
    return Denoiser(CONFIG).eval()


def inputs(batch):
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(12, (batch, 6), generator=generator), torch.randint(1, 9, (batch,), generator=generator)


@pytest.mark.parametrize("length", [1, 7, 192])
def test_any_number_of_image_tokens(denoiser, length):
    ks, s = inputs(3)
    assert denoiser(ks, s, denoiser.condition(torch.randn(3, length, 20))).shape == (3, 6, 11)


def test_hypotheses_share_a_condition_and_equal_a_copied_one(denoiser):
    y = torch.randn(2, 5, 20)
    ks, s = inputs(6)
    shared = denoiser(ks, s, denoiser.condition(y))
    copied = denoiser(ks, s, denoiser.condition(y.repeat_interleave(3, dim=0)))
    torch.testing.assert_close(shared, copied, atol=1e-5, rtol=1e-4)


def test_it_listens_to_the_image_the_step_and_every_token(denoiser):
    y, (ks, s) = torch.randn(1, 5, 20), inputs(1)
    base = denoiser(ks, s, denoiser.condition(y))
    assert (denoiser(ks, s, denoiser.condition(y + 1)) - base).abs().max() > 1e-4
    assert (denoiser(ks, s % 8 + 1, denoiser.condition(y)) - base).abs().max() > 1e-5
    other = ks.clone()
    other[0, 5] = (other[0, 5] + 1) % 12
    assert (denoiser(other, s, denoiser.condition(y)) - base)[0, 0].abs().max() > 1e-6


def test_every_weight_gets_a_gradient(denoiser):
    ks, s = torch.arange(12).view(2, 6), torch.tensor([1, 8])
    denoiser(ks, s, denoiser.condition(torch.randn(2, 5, 20))).square().mean().backward()
    # keys' biases shift all scores of a query alike: softmax does not see them
    silent = [n for n, p in denoiser.named_parameters() if p.grad is None]
    assert silent == []


def test_bad_input_is_named(denoiser, as_user):
    ks, s = inputs(3)
    condition = denoiser.condition(torch.randn(2, 5, 20))
    with pytest.raises(InputError, match=r"\(B, L, 20\)"):
        denoiser.condition(torch.randn(2, 5, 21))
    with pytest.raises(InputError, match="3 token rows cannot be shared out over 2 images"):
        denoiser(ks, s, condition)
    with pytest.raises(InputError, match=r"\(B, 6\)"):
        denoiser(ks[:2, :5], s[:2], condition)
    with pytest.raises(InputError, match=r"0\.\.11"):
        denoiser(ks[:2] + 12, s[:2], condition)
    with pytest.raises(InputError, match=r"1\.\.8"):
        denoiser(ks[:2], s[:2] * 0, condition)
    with pytest.raises(InputError, match="multiple of heads"):
        DenoiserConfig(width=30, heads=4)


def test_a_step_that_all_rows_share_and_some_tokens_give_what_the_whole_pass_gives(denoiser):
    ks, condition = inputs(6)[0], denoiser.condition(torch.randn(2, 5, 20))
    whole = denoiser(ks, torch.full((6,), 3), condition)
    x = denoiser.trunk(ks, denoiser.step_norms(torch.tensor([3])), condition)
    torch.testing.assert_close(denoiser.head(x), whole, atol=1e-5, rtol=1e-4)
    rows = torch.tensor([1, 7, 30])
    torch.testing.assert_close(denoiser.head(x.flatten(0, 1)[rows]), whole.flatten(0, 1)[rows], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("asked", [[0], [1, 7, 30], [3, 4, 12, 13, 14, 35], list(range(36)), list(range(6, 12))])
def test_the_last_block_looks_from_the_tokens_that_are_asked_for_alone(denoiser, asked):
    """As many or as few as there are of a row, of any of the images' rows."""
    ks, condition = inputs(6)[0], denoiser.condition(torch.randn(2, 5, 20))
    whole = denoiser(ks, torch.full((6,), 3), condition).softmax(-1).flatten(0, 1)
    p0_of = denoiser.predictor(condition, [8, 3, 0])(ks, torch.full((6,), 3))(torch.tensor(asked))
    torch.testing.assert_close(p0_of(torch.tensor(asked)), whole[asked], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(p0_of(torch.tensor(asked[-1:])), whole[asked[-1:]], atol=1e-5, rtol=1e-4)
