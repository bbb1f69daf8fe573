"""The sampler in numpy is the one in PyTorch, draw for draw."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose.diffusion import jump as torch_jump
from di2pose.diffusion import sampler as torch_sampler
from di2pose.diffusion.schedule import Schedule as TorchSchedule
from di2pose.diffusion.transition import carry_over, carry_over_gain
from di2pose.errors import InputError
from di2pose.noise import hypothesis_generators
from di2pose.onnx.sampler import Schedule, odds_of, sample

LEVELS, TOKENS, ROWS = (4, 3, 2), 10, 6
CODES = 24


def both(final_occlude, steps=20):
    theirs = TorchSchedule(CODES, steps, final_occlude)
    tables = (tuple(array.tolist()) for array in (theirs.keep, theirs.replace, theirs.occlude))
    return theirs, Schedule(CODES, final_occlude, *tables)


def peaked(seed=0):
    """Probabilities that depend on token, code and step; some of them nearly 0."""
    logits = torch.randn(TOKENS, CODES + 1, CODES, generator=torch.Generator().manual_seed(seed)) * 4

    def p0(ks, s):
        return (logits[torch.arange(TOKENS), ks] / (1 + 0.05 * s)).softmax(-1)

    return p0


@pytest.mark.parametrize("final_occlude", [0.0, 0.9, 1.0])
def test_the_odds_of_every_jump_are_the_same(final_occlude):
    theirs, ours = both(final_occlude)
    for s in range(1, 21):
        for r in range(s):
            assert odds_of(r, s, ours) == pytest.approx(tuple(torch_jump._odds(r, s, theirs)), rel=1e-12)


@pytest.mark.parametrize("final_occlude", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("levels", [(), LEVELS])
@pytest.mark.parametrize("keep", [False, True])
def test_the_same_noise_draws_the_same_tokens(final_occlude, levels, keep):
    theirs, ours = both(final_occlude)
    p0 = peaked()
    tokens, stay = torch.arange(TOKENS).repeat(ROWS, 1), torch.zeros(ROWS, TOKENS, dtype=torch.bool)
    stay[:, 2:5] = keep
    calls = []

    def ask(ks, s):
        calls.append(s)
        table = p0(torch.from_numpy(ks), s).numpy().reshape(-1, CODES)
        return lambda rows: table[rows].copy()

    for seed in range(8):
        noise = [hypothesis_generators(seed, ["a", "b"], ROWS // 2) for _ in range(2)]
        kept = (tokens, stay)
        *_, wanted = torch_sampler.sample(
            lambda ks, s: p0(ks, int(s[0])), theirs, 8, (ROWS, TOKENS), noise[0], kept=kept, levels=levels
        )
        found = sample(ask, ours, 8, (ROWS, TOKENS), noise[1], levels, (tokens.numpy(), stay.numpy()))
        np.testing.assert_array_equal(found, wanted.numpy())
        assert len(np.unique(found)) > 3
    assert max(calls) <= 20


@pytest.mark.parametrize("final_occlude", [0.0, 0.9, 1.0])
def test_carry_over_draws_the_same_tokens_from_what_the_head_gives(final_occlude):
    """PyTorch adds the evidence of a visible token, numpy leaves it out and does not divide by it: the same weights."""
    theirs, ours = both(final_occlude)
    ours, p0, gain = replace(ours, carry_over=True), peaked(), carry_over_gain(theirs)

    def carried(ks, s):
        return carry_over(p0(ks, int(s[0])).log(), ks, gain[s[0]]).softmax(-1)

    def ask(ks, s):
        table = p0(torch.from_numpy(ks), s).numpy().reshape(-1, CODES)
        return lambda rows: table[rows].copy()

    same = 0.0
    for seed in range(8):
        noise = [hypothesis_generators(seed, ["a", "b"], ROWS // 2) for _ in range(2)]
        *_, wanted = torch_sampler.sample(carried, theirs, 8, (ROWS, TOKENS), noise[0], levels=LEVELS)
        same += (sample(ask, ours, 8, (ROWS, TOKENS), noise[1], LEVELS) == wanted.numpy()).mean() / 8
    assert same > 0.98  # but for draws on the edge of two codes


def test_more_steps_than_there_are_get_refused():
    def never(ks, s):
        raise AssertionError

    with pytest.raises(InputError, match=r"must lie in 1\.\.20, got 21"):
        sample(never, both(0.9)[1], 21, (1, TOKENS), hypothesis_generators(0, ["a"], 1))
