import numpy as np
import pytest

from di2pose.diffusion import Schedule
from di2pose.errors import InputError


@pytest.mark.parametrize("final_occlude", [0.0, 0.1, 0.3, 0.9, 1.0])
def test_probabilities_are_exact_at_both_ends_and_sum_to_one(final_occlude):
    schedule = Schedule(4375, 100, final_occlude)
    arrays = schedule.keep, schedule.replace, schedule.occlude
    assert all(a.dtype == np.float64 and a.shape == (101,) for a in arrays)
    assert [a[0].item() for a in arrays] == [1, 0, 0]
    assert schedule.keep[100] == 0
    assert schedule.occlude[100] == final_occlude
    assert schedule.replace[100] == 1 - final_occlude
    np.testing.assert_allclose(sum(arrays), 1, atol=1e-15, rtol=0)


def test_steps_compose():
    schedule = Schedule(5, 20, 0.6)
    for r in range(20):
        later = np.arange(r + 1, 21)
        keep, replace, occlude = schedule.between(r, later)
        np.testing.assert_allclose(keep + replace + occlude, 1, atol=1e-14, rtol=0)
        np.testing.assert_allclose(schedule.keep[r] * keep, schedule.keep[later], atol=1e-15)
        assert (replace >= 0).all()


@pytest.mark.parametrize("arguments", [(1, 10, 0.5), (5, 0, 0.5), (5, 10, -0.1), (5, 10, 1.1)])
def test_impossible_schedules_are_refused(arguments):
    with pytest.raises(InputError):
        Schedule(*arguments)
