"""Noise of hypotheses: each exact, all together evenly spread."""

import numpy as np
import torch

from di2pose.noise import hypothesis_generators, mirrored, uniform


def test_each_hypothesis_is_uniform_and_its_numbers_are_independent():
    noise = hypothesis_generators(0, ["a"], 4)
    for row in mirrored(uniform((4, 20000), noise), noise).numpy():
        assert np.abs(np.sort(row) - (np.arange(20000) + 0.5) / 20000).max() < 0.015
        assert abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 0.03


def test_four_pairs_of_hypotheses_spread_over_the_unit_interval_as_independent_ones_would_not():
    numbers = uniform((8, 1000), hypothesis_generators(0, ["a"], 8))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert torch.equal(numbers[::2], numbers[1::2])  # a pair shares what is not mirrored
    gaps = numbers[::2].sort(0).values.diff(dim=0)
    assert gaps.min() > 0.14


def test_the_second_of_a_pair_is_mirrored_where_mirrors_are_asked_for():
    noise = hypothesis_generators(0, ["a"], 8)
    plain = uniform((8, 1000), noise)
    both = mirrored(plain, noise)
    assert torch.equal(both[::2], plain[::2])
    torch.testing.assert_close(both[1::2], 1 - plain[1::2])
    assert both.min() >= 0
    assert both.max() < 1
    assert (both.mean(0) - 0.5).abs().max() < 1e-6


def test_a_hypothesis_is_the_same_whatever_stands_beside_it():
    few, many = (uniform((len(n), 5), n) for n in (hypothesis_generators(3, ["b"], 2),
                                                   hypothesis_generators(3, ["a", "b"], 8)))  # fmt: skip
    assert torch.equal(many[8:10], few)
    assert not torch.equal(many[0], few[0])
