"""Seen and hidden joints, states and spread, on small numbers."""

import numpy as np
import pytest

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.joint_groups import confusion, joint_groups, spread_figures, true_states


def test_groups_by_visibility():
    groups = joint_groups(np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]]))
    assert {name: int(mask.sum()) for name, mask in groups.items()} == {
        "seen": 1, "hidden": 3, "self_occluded": 1, "occluded": 1, "out_of_frame": 1,
    }  # fmt: skip


def test_footage_that_labels_only_the_patch_counts_the_rest_as_seen_and_none_without_a_patch():
    groups = joint_groups(np.array([[UNKNOWN, OCCLUDED, UNKNOWN]]), rest_seen=True)
    assert groups["seen"].tolist() == [[True, False, True]]
    assert joint_groups(np.full((1, 3), UNKNOWN)) == {}


def ranked(a, b):
    a, b = (np.array([x], dtype=float) for x in (a, b))
    return spread_figures(a, b, {"all": np.ones(a.shape, bool)})["all"]["rank_correlation"]


def test_rank_correlation_of_small_lists():
    assert ranked([1, 2, 3, 4, 5], [1, 8, 27, 64, 125]) == pytest.approx(1)
    assert ranked([1, 2, 3, 4, 5], [-1, -2, -3, -4, -5]) == pytest.approx(-1)
    # Differences of rank 1, 1, 0, 1, 1: 1 - 6 * 4 / (5 * 24).
    assert ranked([1, 2, 3, 4, 5], [20, 10, 30, 50, 40]) == pytest.approx(0.8)
    # Equal values share their rank: 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert ranked([1, 7, 7, 9], [0, 1, 2, 3]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert ranked([1, 1, 1, 1], [0, 1, 2, 3]) is None


def test_spread_ratio_against_error_ratio():
    seen = np.array([[True, True, False, False]])
    spread, error = np.array([[10.0, 20.0, 30.0, 60.0]]), np.array([[20.0, 40.0, 120.0, 60.0]])
    found = spread_figures(spread, error, {"seen": seen, "hidden": ~seen, "alone": np.array([[True] + [False] * 3])})
    assert set(found) == {"seen", "hidden", "hidden_over_seen"}  # one joint has no correlation
    assert found["hidden"] == {"joints": 2, "spread_mm": 45, "error_mm": 90, "rank_correlation": pytest.approx(-1)}
    assert found["hidden_over_seen"] == {"spread": 3.0, "error": 3.0, "spread_over_error": 1.0}
    assert set(spread_figures(spread, error, {"seen": seen})) == {"seen"}


def test_states_and_their_confusion():
    true = true_states(np.array([[SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME, UNKNOWN]]))
    assert true.tolist() == [["seen", "occluded", "occluded", "out_of_frame", ""]]
    head = confusion(true, np.array([["seen", "seen", "occluded", "out_of_frame", "seen"]]))
    assert head.counts == ((1, 0, 0), (1, 1, 0), (0, 0, 1))
    assert head.accuracy == 0.75
    assert head.balanced_accuracy == pytest.approx((1 + 0.5 + 1) / 3)
    with pytest.raises(InputError, match="a known one"):
        confusion(np.array([[""]]), np.array([["seen"]]))
