"""Smoothing: the exact estimate of the stated model, no lag, and certainty as weight."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from output.people import CAMERA, person, result

from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17
from di2pose.video.smooth import FRESH, smooth, spline_weights

RATE = 32.0  # a power of two: times are exact, so is the length of a window
REST = np.asarray(person(3).joints_mm)


def video(motion, noise=None, std_mm=30.0, times=None, track=0, seed=1):
    """Results of one person whose joints are REST + motion(t), measured with standard deviation std_mm (frames, J)."""
    times = np.arange(60) / RATE if times is None else times
    rng = np.random.default_rng(seed)
    std = np.broadcast_to(np.asarray(std_mm, dtype=np.float64), (len(times), 17)).copy()
    std[:, 0] = 0.0
    for k, t in enumerate(times):
        joints = REST + motion(t) * (np.arange(17) > 0)[:, None]
        if noise is not None:
            joints = joints + rng.normal(0, noise, (17, 3)) * (np.arange(17) > 0)[:, None]
        spread = std[k, :, None, None] ** 2 * np.eye(3)
        one = replace(person(3, track=track), joints_mm=joints, covariance_mm2=spread, r90_mm=2.5 * std[k])
        yield result([one], frame_index=k, time_s=float(t))


def joints_of(results):
    return np.stack([each.people[0].joints_mm for each in results])


def swing(t):
    return np.array([150 * np.sin(2 * np.pi * t), 50 * np.cos(2 * np.pi * t), 0.0])


def kalman_with_backward_pass(times, measured, variance, density):
    """Textbook filter and Rauch-Tung-Striebel smoother of position and velocity in one dimension, diffuse start."""
    state, spread = np.zeros(2), 1e12 * np.eye(2)
    before, after, steps = [], [], []
    for k in range(len(times)):
        h = times[k] - times[k - 1] if k else 0.0
        step = np.array([[1, h], [0, 1]])
        state, spread = step @ state, step @ spread @ step.T
        spread = spread + density * np.array([[h**3 / 3, h**2 / 2], [h**2 / 2, h]])
        before.append((state, spread))
        gain = spread[:, 0] / (spread[0, 0] + variance[k])
        state, spread = state + gain * (measured[k] - state[0]), spread - np.outer(gain, spread[0])
        after.append((state, spread))
        steps.append(step)
    out = [after[-1][0]]
    for k in reversed(range(len(times) - 1)):
        back = after[k][1] @ steps[k + 1].T @ np.linalg.inv(before[k + 1][1])
        out.append(after[k][0] + back @ (out[-1] - before[k + 1][0]))
    return np.array(out[::-1])[:, 0]


def test_the_weights_are_those_of_a_kalman_smoother_at_uneven_times():
    rng = np.random.default_rng(0)
    times, variance = np.cumsum(rng.uniform(0.01, 0.06, 20)), rng.uniform(20, 900, 20)
    measured = rng.normal(0, 100, 20)
    expected = kalman_with_backward_pass(times, measured, variance, 2e6)
    noise = variance[:, None, None, None] * np.eye(3)
    for centre in (0, 7, 19):
        weights = spline_weights(times, noise, centre, 2e6)
        np.testing.assert_allclose(weights[:, 0, 1, 1] @ measured, expected[centre], atol=1e-3)
        np.testing.assert_allclose(weights.sum(0)[0], np.eye(3), atol=1e-9)


def test_noise_becomes_less_and_the_motion_stays():
    truth, noisy = joints_of(video(swing)), joints_of(video(swing, noise=12))
    smoothed = joints_of(smooth(video(swing, noise=12)))

    def off(joints):
        return np.sqrt(((joints - truth)[:, 1:] ** 2).mean())

    def jitter(joints):
        return np.linalg.norm(np.diff(joints, 2, axis=0), axis=-1).mean()

    assert off(smoothed) < 0.6 * off(noisy)
    assert jitter(smoothed) < 0.25 * jitter(noisy)
    assert off(joints_of(smooth(video(swing)))) < 2.0


def test_constant_velocity_is_kept_to_the_ends_at_any_frame_rate():
    times = np.cumsum(np.random.default_rng(0).uniform(0.01, 0.08, 40))
    line = list(video(lambda t: t * np.array([900.0, -300.0, 200.0]), times=times, std_mm=80.0))
    np.testing.assert_allclose(joints_of(smooth(line)), joints_of(line), atol=1e-3)


def test_an_uncertain_outlier_moves_the_track_less_than_a_certain_one():
    knee, at = H36M_17.index("left_knee"), 30
    moved = {}
    for std in (10.0, 40.0, 160.0):
        frames = list(video(lambda t: np.zeros(3)))
        spoiled = np.array(frames[at].people[0].joints_mm)
        spoiled[knee, 0] += 100
        spread = np.array(frames[at].people[0].covariance_mm2)
        spread[knee] = std**2 * np.eye(3)
        one = replace(frames[at].people[0], joints_mm=spoiled, covariance_mm2=spread)
        frames[at] = replace(frames[at], people=[one])
        change = joints_of(smooth(frames)) - REST
        moved[std] = change[at, knee, 0]
        others = np.delete(change, knee, axis=1)
        np.testing.assert_allclose(others, 0, atol=1e-6)
    assert moved[160.0] < 0.1 * 100
    assert moved[160.0] < 0.4 * moved[40.0] < 0.4 * moved[10.0]


def test_depth_that_is_uncertain_is_smoothed_while_the_sure_directions_stay():
    frames, noisy = [], list(video(lambda t: np.zeros(3), noise=20))
    for each in noisy:
        spread = np.zeros((17, 3, 3))
        spread[1:] = np.diag([1.0, 1.0, 3600.0])
        frames.append(replace(each, people=[replace(each.people[0], covariance_mm2=spread)]))
    change = np.abs(joints_of(smooth(frames)) - joints_of(noisy))[:, 1:].mean((0, 1))
    assert change[2] > 20 * change[0]


def test_the_spread_keeps_what_all_frames_share():
    """With the same covariance C in all frames: at least (1 - w) C remains, and less than C."""
    before = list(video(swing, std_mm=50.0))
    for old, new in zip(before, smooth(before), strict=True):
        ratio = np.trace(new.people[0].covariance_mm2, axis1=1, axis2=2)[1:] / (3 * 50.0**2)
        assert ((ratio >= 1 - FRESH) & (ratio < 1)).all()
        np.testing.assert_allclose(new.people[0].r90_mm[1:], old.people[0].r90_mm[1:] * np.sqrt(ratio))


def test_the_place_is_smoothed_and_the_pixels_are_projected_anew():
    rng = np.random.default_rng(0)
    frames = [
        replace(
            each, people=[replace(each.people[0], root_mm=np.array([0.0, 0.0, 3000.0]) + rng.normal(0, (5, 5, 60)))]
        )
        for each in video(swing, noise=10)
    ]
    roots = [np.stack([each.people[0].root_mm for each in some]) for some in (frames, list(smooth(frames)))]
    assert roots[1][:, 2].std() < 0.6 * roots[0][:, 2].std()
    for each in smooth(frames):
        one = each.people[0]
        np.testing.assert_allclose(one.joints_2d, CAMERA.project(one.joints_mm + one.root_mm), atol=1e-6)
        np.testing.assert_array_equal(one.joints_mm[0], 0.0)


def test_every_frame_comes_out_once_in_order_and_late_by_the_window_only():
    taken, late, order, alive = [], [], [], weakref.WeakSet()

    def counted():
        for each in video(swing):
            taken.append(each.frame_index)
            alive.add(each)
            yield each

    for each in smooth(counted(), window_s=6 / RATE):
        order.append(each.frame_index)
        late.append(taken[-1] - each.frame_index)
        assert len(alive) <= 2 * 6 + 3  # no more than the window needs
    assert order == list(range(60))
    assert max(late) == 6
    quick = list(video(swing, times=np.arange(100) / 1000))
    assert [each.frame_index for each in smooth(quick)] == list(range(100))


def test_people_are_smoothed_each_along_their_own_track_and_gaps_stay_gaps():
    here, there = list(video(swing, track=4)), list(video(lambda t: -swing(t), track=7, seed=2))
    both = []
    for k, (a, b) in enumerate(zip(here, there, strict=True)):
        people = [*a.people, *(() if 20 <= k < 26 else b.people)]
        both.append(replace(a, people=people if k % 2 else people[::-1]))
    out = list(smooth(both))
    alone = joints_of(smooth(here))
    for k, each in enumerate(out):
        assert {one.track for one in each.people} == ({4} if 20 <= k < 26 else {4, 7})
        np.testing.assert_allclose(next(p for p in each.people if p.track == 4).joints_mm, alone[k], atol=1e-9)


def test_results_without_time_or_track_are_refused():
    with pytest.raises(InputError, match="time of every frame"):
        list(smooth([result([person(track=1)])]))
    with pytest.raises(InputError, match="track numbers"):
        list(smooth([result([person()], time_s=0.0)]))
    twice = [result([person(track=1)], time_s=t) for t in (0.0, 0.1, 0.1)]
    with pytest.raises(InputError, match="must increase"):
        list(smooth(twice))
