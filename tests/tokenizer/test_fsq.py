import pytest
import torch

from di2pose.errors import InputError
from di2pose.tokenizer import FSQ


@pytest.mark.parametrize("levels", [[7, 5, 5, 5, 5], [8, 5, 5, 5], [8, 8, 8, 6, 5], [2, 3]])
def test_index_to_code_is_a_bijection_and_every_code_is_reachable(levels):
    fsq = FSQ(levels)
    indices = torch.arange(fsq.codebook_size)
    codes = fsq.indices_to_codes(indices)
    assert len(codes.unique(dim=0)) == fsq.codebook_size
    assert codes.abs().max() <= 1
    # Reachable: a z whose bound lies on the code gives it back. Invert the bound, level by level.
    rounded = codes * (fsq.levels // 2)
    half = (fsq.levels - 1) * 1.001 / 2
    offset = (fsq.levels % 2 == 0) * 0.5
    z = torch.atanh((rounded + offset) / half) - torch.atanh(offset / half)
    found_codes, found = fsq(z)
    assert torch.equal(found, indices)
    torch.testing.assert_close(found_codes, codes)


@pytest.mark.parametrize("level", range(2, 10))
def test_a_channel_takes_exactly_its_levels(level):
    _, indices = FSQ([level])(torch.linspace(-20, 20, 4001).unsqueeze(1))
    assert sorted(set(indices.tolist())) == list(range(level))


def test_index_basis_counts_the_first_channel_fastest():
    fsq = FSQ([7, 5, 5, 5, 5])
    assert fsq.codebook_size == 4375
    assert fsq.basis.tolist() == [1, 7, 35, 175, 875]
    assert fsq.indices_to_codes(torch.tensor([0])).tolist() == [[-1] * 5]
    assert fsq.indices_to_codes(torch.tensor([4374])).tolist() == [[1] * 5]


def test_gradient_passes_straight_through_the_rounding():
    fsq = FSQ([5, 4])
    z = torch.tensor([[0.3, -0.2]], requires_grad=True)
    codes, _ = fsq(z)
    (through,) = torch.autograd.grad(codes.sum(), z)
    (smooth,) = torch.autograd.grad((fsq.bound(z) / (fsq.levels // 2)).sum(), z)
    torch.testing.assert_close(through, smooth)


def test_bad_input_is_named(as_user):
    for levels in ([], [5, 1], [0]):
        with pytest.raises(InputError, match=">= 2"):
            FSQ(levels)
    with pytest.raises(InputError, match="2 channels"):
        FSQ([5, 5])(torch.zeros(3, 4))
    with pytest.raises(InputError, match=r"0\.\.24, got 0\.\.25"):
        FSQ([5, 5]).indices_to_codes(torch.tensor([0, 25]))
