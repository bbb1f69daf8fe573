"""A warm start: known tokens noised to an intermediate step, and the reverse process from there."""

from dataclasses import replace

import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.diffusion import Schedule, forward_sample, sample
from di2pose.diffusion.sampler import step_grid
from di2pose.errors import InputError
from di2pose.model import Constraints
from di2pose.randomness import hypothesis_generators


def oracle(k0, codes):
    return lambda ks, s: torch.nn.functional.one_hot(k0, codes).float()


def test_it_begins_at_the_noised_tokens_and_ends_where_the_network_says():
    schedule = Schedule(50, 100, 0.9)
    before = torch.randint(50, (3, 200), generator=torch.Generator().manual_seed(0))
    now = torch.randint(50, (3, 200), generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    states = list(sample(oracle(now, 50), schedule, 5, (3, 200), generator, warm=(before, 40)))
    assert len(states) == 6
    assert torch.equal(states[0], forward_sample(before, 40, schedule, torch.Generator().manual_seed(2)))
    assert (states[0] == before).float().mean() == pytest.approx(0.6, abs=0.05)
    assert torch.equal(states[-1], now)


def test_it_visits_the_steps_below_its_own():
    schedule, visited = Schedule(5, 100, 0.9), []

    def predict(ks, s):
        visited.append(int(s[0]))
        return torch.full((*ks.shape, 5), 0.2)

    tokens = torch.zeros(1, 400, dtype=torch.int64)  # so many that some are undecided at every step
    list(sample(predict, schedule, 5, (1, 400), torch.Generator(), warm=(tokens, 50)))
    assert visited == [50, 40, 30, 20, 10]
    assert step_grid([30, 7, 0], schedule, 30) == [30, 7, 0]


def test_from_the_last_step_it_is_the_usual_sampler():
    """At S nothing of the tokens is left: the warm start is distributed as the stationary one."""
    schedule = Schedule(10, 100, 0.9)
    tokens = torch.zeros(50, 200, dtype=torch.int64)
    first = next(sample(oracle(tokens, 10), schedule, 10, (50, 200), torch.Generator(), warm=(tokens, 100)))
    assert (first == 10).float().mean() == pytest.approx(0.9, abs=0.01)
    assert (first == 0).float().mean() == pytest.approx(0.01, abs=0.004)


def test_bad_warm_starts_are_named():
    schedule, tokens = Schedule(5, 100, 0.9), torch.zeros(2, 4, dtype=torch.int64)
    predict = oracle(tokens, 5)
    with pytest.raises(InputError, match=r"lie in 1\.\.100, got 0"):
        sample(predict, schedule, 1, (2, 4), torch.Generator(), warm=(tokens, 0))
    with pytest.raises(InputError, match=r"reverse steps must lie in 1\.\.5, got 10"):
        sample(predict, schedule, 10, (2, 4), torch.Generator(), warm=(tokens, 5))
    with pytest.raises(InputError, match=r"needs tokens of shape \(2, 4\), got \(1, 4\)"):
        sample(predict, schedule, 1, (2, 4), torch.Generator(), warm=(tokens[:1], 5))
    with pytest.raises(InputError, match="must descend from 30 to 0"):
        step_grid([100, 0], schedule, 30)


def test_the_model_starts_every_hypothesis_at_its_own_tokens():
    """Where tokens are only ever occluded, those that the noise leaves visible are the old ones to the end."""
    torch.manual_seed(0)
    config = recipes.tiny()
    model = Di2Pose(replace(config, diffusion=replace(config.diffusion, final_occlude=1.0))).eval()
    features = torch.randn(3, 17, 32)
    first = model.predict_tokens(features, 2, 20, hypothesis_generators(0, range(3), 2))
    start = Constraints(warm=(first, 10))
    warm = model.predict_tokens(features, 2, 5, hypothesis_generators(1, range(3), 2), constraints=start)
    cold = model.predict_tokens(features, 2, 5, hypothesis_generators(1, range(3), 2))
    assert warm.shape == first.shape
    assert (warm == first).float().mean() == pytest.approx(0.5, abs=0.15)
    assert (cold == first).float().mean() < 0.1
    start = Constraints(warm=(first[1:2], 10))
    alone = model.predict_tokens(features[1:2], 2, 5, hypothesis_generators(1, [1], 2), constraints=start)
    assert torch.equal(alone[0], warm[1])
