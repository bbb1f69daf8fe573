"""Noise in numpy is PyTorch's, bit for bit."""

import numpy as np
import pytest
import torch

from di2pose.noise import (
    Uniforms,
    antithetic_mirrored,
    antithetic_uniform,
    generator_of,
    hypothesis_generators,
    mirrored,
    seed_of,
    uniform,
)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, seed_of(7, "record"), 2**63 - 1])
def test_a_seed_gives_what_pytorch_gives(seed):
    theirs, ours = torch.Generator().manual_seed(seed), Uniforms(seed)
    for shape in ((5,), (3, 1), (700, 2), (1,), (2, 3, 4)):  # more than the 624 words that are made at once
        wanted = torch.rand(shape, generator=theirs).numpy()
        found = ours.draw(shape)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, wanted)


def test_rows_are_turned_and_mirrored_as_pytorch_has_them():
    rows, again = (hypothesis_generators(3, ["a", "b"], 4) for _ in range(2))
    u = uniform((8, 50), rows)
    np.testing.assert_array_equal(antithetic_uniform((8, 50), again), u.numpy())
    np.testing.assert_array_equal(antithetic_mirrored(u.numpy(), again), mirrored(u, rows).numpy())
    np.testing.assert_array_equal(u[0].numpy(), torch.rand(50, generator=generator_of(3, "a")).numpy())
    turned = (torch.rand(50, generator=generator_of(3, "a")) + torch.tensor(rows[2].turn)).remainder(1)
    np.testing.assert_array_equal(u[2].numpy(), turned.numpy())
