"""The rule that decides: what it says of small cases, and how often it errs where all rows are equal."""

import numpy as np
import pytest
from di2pose_experiments.claims import FAILS, HOLDS, OPEN, SMALL, UNDER_TRAINED, holm, judge


def seeds(values):
    return dict(enumerate(values))


def of(best, *others):
    return {name: seeds(values) for name, values in zip("abcdefg", (best, *others), strict=False)}


TEN = [10, 10.1, 9.9, 10.05, 9.95]
ELEVEN = [11, 11.2, 10.9, 11.0, 10.9]


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        (of(TEN, ELEVEN), HOLDS),
        (of(ELEVEN, TEN), FAILS),
        (of(TEN, TEN), OPEN),
        (of([10, 14, 8, 11, 9], [11.1, 15, 9, 12.1, 10]), HOLDS),  # seeds are compared in pairs
        (of([10, 14, 8, 11, 9], [15, 9, 12.1, 10, 11.1]), OPEN),
        (of(TEN, ELEVEN, TEN), OPEN),  # one of two rivals is not worse
        (of(ELEVEN, [12, 12.3, 11.9, 12, 12], TEN), FAILS),  # one is better
        (of(TEN, [value + 0.1 for value in TEN]), SMALL),  # clear, but 1 %
        (of(TEN[:4], ELEVEN[:4]), "not decided (4 seeds, 5 needed)"),
        (of(TEN, ELEVEN[:3]), "not decided (3 seeds, 5 needed)"),
        (of(TEN, []), "not decided (0 seeds, 5 needed)"),
        (of(TEN), "not decided (0 seeds, 5 needed)"),
    ],
)
def test_the_word(cells, word):
    assert judge(cells).word == word


def test_a_verdict_carries_its_figures():
    found = judge(of(TEN, ELEVEN, [12, 12.1, 12.2, 11.9, 12.0]))
    assert (found.rival, found.seeds, found.length_checked) == ("b", 5, False)
    assert found.effect == pytest.approx(100 * 1.0 / 11.0)
    assert found.rivals["c"][0] == pytest.approx(100 * 2.04 / 12.04)
    assert 0 < found.p < 0.001
    assert found.rivals["b"] == (found.effect, found.p)
    few = judge(of(TEN[:3], ELEVEN[:3]))
    assert few.p < 0.05  # printed, though nothing is decided by it
    assert few.effect > 5


def test_holm_corrects_the_smallest_most():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("doubled", "word", "checked"),
    [
        ({"a": {0: 9.9}, "b": {0: 10.9}}, HOLDS, True),
        ({"a": {0: 9.9}}, HOLDS, False),  # not run for b
        ({}, HOLDS, False),
        ({"a": {0: 9.9}, "b": {0: 10.7}}, UNDER_TRAINED, True),  # b gains 2.7 %
        ({"a": {7: 9.9}, "b": {7: 10.9}}, HOLDS, False),  # a seed that has no run of the single length
    ],
)
def test_twice_the_length_must_say_the_same(doubled, word, checked):
    found = judge(of(TEN, ELEVEN), doubled)
    assert (found.word, found.length_checked) == (word, checked)


def test_a_difference_whose_sign_changes_is_under_trained():
    cells = of([10.0, 10.02, 9.98, 10.01, 9.99], [10.25, 10.27, 10.22, 10.26, 10.25])
    assert judge(cells).word == HOLDS
    assert judge(cells, {"a": {0: 10.15}, "b": {0: 10.10}}).word == UNDER_TRAINED


def drawn(effects, noise, shared, count):
    """(count, cells, 5 seeds): 100 mm, what a seed has in common for all cells, and noise of each run."""
    rng = np.random.default_rng(0)
    common = rng.normal(0, shared, (count, 1, 5))
    return 100 * (1 + np.array(effects)[:, None] + common + rng.normal(0, noise, (count, len(effects), 5)))


def words(effects, noise, shared, count):
    return [judge(of(*cells.tolist())).word for cells in drawn(effects, noise, shared, count)]


def test_with_all_cells_equal_it_seldom_decides():
    """Five cells of five seeds. The noise is above the least effect, so that p alone has to keep it from erring."""
    count = 1000
    errors = sum(word in (HOLDS, FAILS) for word in words([0] * 5, 0.03, 0.03, count))
    assert errors > 0
    assert errors <= 0.05 * count + 3 * np.sqrt(0.05 * 0.95 * count)


def test_a_true_effect_is_found():
    found = words([0, 0.05, 0.06, 0.08, 0.05], 0.01, 0.03, 100)
    assert found.count(HOLDS) >= 0.95 * len(found)
    found = words([0.05, 0], 0.01, 0.03, 100)
    assert found.count(FAILS) >= 0.95 * len(found)
