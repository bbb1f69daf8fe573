"""Noise of hypotheses: PyTorch's numbers in numpy, each row uniform, all rows together evenly spread."""

import numpy as np
import pytest
import torch

from di2pose.noise import (
    Uniforms,
    antithetic_uniform,
    generator_of,
    hypothesis_generators,
    mirrored,
    seed_of,
    uniform,
)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, seed_of(7, "record"), 2**63 - 1])
def test_uniforms_equal_torch_rand(seed):
    theirs, ours = torch.Generator().manual_seed(seed), Uniforms(seed)
    for shape in ((5,), (3, 1), (700, 2), (1,), (2, 3, 4)):  # more than the 624 words that are made at once
        found = ours.draw(shape)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, torch.rand(shape, generator=theirs).numpy())


def test_numpy_and_torch_turn_and_mirror_rows_alike():
    rows, again = (hypothesis_generators(3, ["a", "b"], 4) for _ in range(2))
    u = uniform((8, 50), rows)
    np.testing.assert_array_equal(antithetic_uniform((8, 50), again), u.numpy())
    np.testing.assert_array_equal(mirrored(u.numpy(), again), mirrored(u, rows).numpy())
    first = torch.rand(50, generator=generator_of(3, "a"))
    np.testing.assert_array_equal(u[0].numpy(), first.numpy())
    np.testing.assert_array_equal(u[2].numpy(), (first + torch.tensor(rows[2].turn)).remainder(1).numpy())


def test_each_row_is_uniform_and_its_numbers_are_independent():
    noise = hypothesis_generators(0, ["a"], 4)
    for row in mirrored(uniform((4, 20000), noise), noise).numpy():
        assert np.abs(np.sort(row) - (np.arange(20000) + 0.5) / 20000).max() < 0.015
        assert abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 0.03


def test_pairs_are_spread_over_the_unit_interval_and_the_second_of_a_pair_is_mirrored():
    noise = hypothesis_generators(0, ["a"], 8)
    plain = uniform((8, 1000), noise)
    assert torch.equal(plain[::2], plain[1::2])
    assert plain[::2].sort(0).values.diff(dim=0).min() > 0.14
    both = mirrored(plain, noise)
    assert torch.equal(both[::2], plain[::2])
    torch.testing.assert_close(both[1::2], 1 - plain[1::2])
    assert (both.mean(0) - 0.5).abs().max() < 1e-6
    for numbers in (plain, both):
        assert numbers.min() >= 0
        assert numbers.max() < 1


def test_a_row_does_not_depend_on_the_other_rows():
    every = hypothesis_generators(3, ["b"], 2), hypothesis_generators(3, ["a", "b"], 8)
    few, many = (uniform((len(noise), 5), noise) for noise in every)
    assert torch.equal(many[8:10], few)
    assert not torch.equal(many[0], few[0])
