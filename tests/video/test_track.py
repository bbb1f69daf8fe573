"""Track numbers stay with the person, through crossings and short occlusions."""

import numpy as np
import pytest
from video.crossing import BODY, CENTRE, FOCAL, Jumper, Street, Walker, run

from di2pose.image.crop import roi_from_keypoints
from di2pose.image.detect import Detection
from di2pose.video.track import TILES_EVERY, Observation, Tracker

RATE = 30


def numbers_of(story, walker):
    return [frame[walker] for frame in story if walker in frame]


@pytest.mark.parametrize(("far_mm", "seed"), [(4200.0, 0), (5000.0, 2), (7000.0, 4)])
def test_two_people_who_pass_each_other_keep_their_numbers(far_mm, seed):
    street = Street(Walker(-1500, 3000, 1200), Walker(1500, far_mm, -1200), seed=seed)
    story = run(street, Tracker(), np.arange(0, 2.5, 1 / RATE))
    hidden = sum(1 not in frame for frame in story)
    assert 5 < hidden < 45, "the far walker must really be hidden for a while"
    assert len(numbers_of(story, 0)) == len(story)
    assert len(set(numbers_of(story, 0))) == 1
    assert len(set(numbers_of(story, 1))) == 1
    assert set(numbers_of(story, 0)) != set(numbers_of(story, 1))


@pytest.mark.parametrize("far_mm", [4200.0, 6000.0])
def test_overtaking_keeps_the_numbers(far_mm):
    """The same direction: the far walker is hidden for a second."""
    street = Street(Walker(-1600, 3000, 1100), Walker(-900, far_mm, 500))
    story = run(street, Tracker(), np.arange(0, 3, 1 / RATE))
    assert sum(1 not in frame for frame in story) >= 25
    assert [len(set(numbers_of(story, walker))) for walker in (0, 1)] == [1, 1]


def test_who_walks_on_while_hidden_is_expected_where_they_come_out():
    """Behind somebody who fills half the picture they walk farther than the gate allows from where they were lost."""
    street = Street(Walker(0, 2000, 0), Walker(-2600, 4000, 2200))
    story = run(street, Tracker(), np.arange(0, 2.4, 1 / RATE))
    gone = [k for k, frame in enumerate(story) if 1 not in frame]
    assert len(gone) >= 10
    assert set(numbers_of(story, 0)) != set(numbers_of(story, 1))
    assert [len(set(numbers_of(story, walker))) for walker in (0, 1)] == [1, 1]


def test_who_stood_behind_somebody_does_not_become_them_when_they_are_gone():
    """Both at one place: only the size tells who it is that remains."""
    near, far, elsewhere = Walker(-900, 3000, 900), Walker(1500, 5000, -1500), Walker(1e6, 3000, 0)
    street, tracker = Street(near, far), Tracker()
    before = run(street, tracker, np.arange(0, 1, 1 / RATE))
    assert 1 not in before[-1]
    street.walkers = (elsewhere, far)
    after = run(street, tracker, np.arange(1, 1.4, 1 / RATE))
    assert set(numbers_of(after, 1)) == set(numbers_of(before, 1)) != set(numbers_of(before, 0))


def test_who_is_hidden_for_longer_than_the_patience_gets_a_new_number():
    street = Street(Walker(0, 3000, 0), Walker(2000, 5000, -700))
    times = np.arange(0, 6, 2 / RATE)
    patient, short = (run(street, Tracker(patience_s=patience), times) for patience in (4.0, 0.3))
    assert len(set(numbers_of(patient, 1))) == 1
    assert len(set(numbers_of(short, 1))) == 2


def test_nobody_is_counted_twice_and_max_people_is_kept():
    street = Street(Walker(-1500, 3000, 1200), Walker(1500, 5000, -1200), Walker(0, 9000, 0))
    for frame in run(street, Tracker(), np.arange(0, 2.5, 1 / RATE)):
        assert len(set(frame.values())) == len(frame) <= 3
    street = Street(Walker(-1500, 3000, 0), Walker(0, 3000, 0), Walker(1500, 3000, 0))
    story = run(street, Tracker(max_people=2, detect_every=1), np.arange(0, 0.5, 1 / RATE))
    assert all(len(frame) == 2 for frame in story)


def test_the_detector_runs_rarely_unless_somebody_is_lost():
    calls = []
    street = Street(Walker(-1000, 3000, 300), Walker(1000, 3500, 200))
    story = run(street, Tracker(detect_every=20), np.arange(0, 2, 1 / RATE), calls)
    assert [k for k, call in enumerate(calls) if call != "none"] == [0, 20, 40]
    assert all(set(frame) == {0, 1} for frame in story)
    calls = []
    street = Street(Walker(-1500, 3000, 1200), Walker(1500, 5000, -1200))
    story = run(street, Tracker(detect_every=1000), np.arange(0, 2.5, 1 / RATE), calls)
    lost = [k + 1 for k, frame in enumerate(story[:-1]) if 1 not in frame]
    assert lost
    assert all(calls[k] == "quick" for k in lost)
    calls = []  # max_people are in sight
    run(Street(Walker(0, 3000, 100)), Tracker(detect_every=5, max_people=1), np.arange(0, 1, 1 / RATE), calls)
    assert calls[0] == "all"
    assert set(calls[1:]) == {"none"}


def test_one_search_in_five_is_in_tiles():
    tracker, searches = Tracker(detect_every=2), []
    for frame in range(4 * TILES_EVERY + 1):
        searches.append(tracker.search)
        tracker.update(frame / 30, [])
    assert [frame for frame, search in enumerate(searches) if search == "all"] == [0, 2 * TILES_EVERY, 4 * TILES_EVERY]
    assert set(searches) == {"all", "quick"}, "nobody is there: every frame is glanced at"


def test_the_next_region_follows_the_body():
    """Centre on the hips as they move on, the size of the body's circle, turned with the trunk."""
    street, tracker = Street(Walker(-500, 3000, 900), noise=0.0), Tracker()
    times = np.arange(0, 1, 1 / RATE)
    run(street, tracker, times)
    soon = times[-1] + 1 / RATE
    roi = tracker.regions(soon)[0][0].roi
    truth = street.walkers[0].points(soon)
    hips = truth[[23, 24]].mean(0)
    assert np.hypot(*(np.array(roi.centre) - hips)) < 2.0
    assert np.linalg.norm(truth - hips, axis=1).max() < roi.side / 2 < 1.6 * np.linalg.norm(truth - hips, axis=1).max()
    assert abs(roi.angle) < 0.05
    turned = street.look(tracker.regions(soon)[0][0], False, soon)[0]
    quarter = hips + (turned.points - hips) @ np.array([[0.0, 1.0], [-1.0, 0.0]])  # head to the right
    tracker = Tracker()
    tracker.update(0.0, [turned._replace(points=quarter, fresh=True)])
    assert tracker.regions(0.0)[0][0].roi.angle == pytest.approx(np.pi / 2, abs=0.05)
    x0, y0, x1, y1 = tracker.regions(0.0)[0][0].box
    np.testing.assert_allclose((x1 - x0, y1 - y0), 1.15 * np.ptp(quarter, axis=0))


def look_at(points, fresh=True, pose_mm=None):
    """What the encoder says of a body with these landmarks, in the middle of its crop."""
    hips, radius = points[[23, 24]].mean(0), 300.0
    box = (*(hips - radius).tolist(), *(hips + radius).tolist())
    detection = Detection(box, 0.9, roi_from_keypoints(hips.tolist(), (hips - (0, radius)).tolist()))
    return Observation(points, 0.99, detection, fresh, pose_mm)


@pytest.mark.parametrize("rate", [30, 10])
def test_a_jumper_and_a_walker_who_passes_behind_keep_their_numbers(rate):
    times = np.arange(0, 3, 1 / rate)
    story = run(Street(Jumper(0, 3000, 0), Walker(-2500, 5000, 2000)), Tracker(), times)
    assert [len(set(numbers_of(story, one))) for one in (0, 1)] == [1, 1]
    assert set(numbers_of(story, 0)) != set(numbers_of(story, 1))
    story = run(Street(Jumper(-1500, 3500, 1500)), Tracker(), times)
    assert {number for frame in story for number in frame.values()} == {0}
    assert sum(0 in frame for frame in story) >= 0.9 * len(story)


def test_who_is_lost_in_a_somersault_comes_back_under_the_same_number():
    """For a third of a second nothing is seen; then the body is upside down and has stopped rising."""
    tracker, standing = Tracker(), CENTRE + FOCAL * BODY / 5000
    for k in range(10):
        rising = standing + np.array([6.0, -12.0]) * k
        assert tracker.update(k / RATE, [look_at(rising, fresh=k == 0)]) == {0: 0}
    for k in range(10, 20):
        assert tracker.update(k / RATE, []) == {}
    turned = 2 * rising.mean(0) - rising + np.array([60, -40])
    assert tracker.update(20 / RATE, [look_at(turned)]) == {0: 0}


def test_of_two_bodies_at_one_place_the_pose_tells_who_it_is():
    """One turns their face, the other their back to the camera: in the picture they differ little."""
    tracker, points = Tracker(), CENTRE + FOCAL * BODY / 3000
    front = np.concatenate([BODY, np.zeros((33, 1))], axis=1)
    back = front * (-1, 1, -1)
    aside = np.array([260.0, 0.0])
    for k in range(10):
        looks = [look_at(points, k == 0, front), look_at(points + aside, k == 0, back)]
        assert tracker.update(k / RATE, looks) == {0: 0, 1: 1}
    here, there = points + 0.5 * aside + np.array([-5, -50]), points + 0.5 * aside + np.array([5, 50])
    between = [look_at(here, False, back), look_at(there, False, front)]
    assert tracker.update(10 / RATE, between) == {0: 1, 1: 0}


def test_a_stray_look_at_a_tracked_body_starts_nobody():
    """The detector points at the walker again, and in that crop half of the landmarks come out upside down."""
    tracker, points = Tracker(detect_every=5), CENTRE + FOCAL * BODY / 3000
    rng = np.random.default_rng(0)
    for k in range(30):
        walking = points + np.array([4 * k, 0])
        looks = [look_at(walking, fresh=k == 0)]
        if k % 5 == 4:
            stray = 2 * walking.mean(0) - walking + rng.normal(0, 10, 2)
            looks.append(look_at(stray))
        assert tracker.update(k / RATE, looks) == {0: 0}


def test_a_child_in_front_of_somebody_tall_is_somebody_and_an_empty_crop_is_not():
    tracker, tall = Tracker(), CENTRE + FOCAL * BODY / 3000
    child = CENTRE + (0, 100) + 0.5 * FOCAL * BODY / 3000
    assert tracker.update(0.0, [look_at(tall), look_at(child)]) == {0: 0, 1: 1}
    nobody = look_at(tall)._replace(person=0.49)
    assert Tracker().update(0.0, [nobody]) == {}


def test_stray_looks_do_not_add_up_to_somebody():
    """Three frames here, one there, seconds apart: nobody waits for them under one number."""
    tracker, points, numbers = Tracker(), CENTRE + FOCAL * BODY / 3000, []
    for k in range(90):
        given = tracker.update(k / RATE, [look_at(points)] if k in (0, 1, 2, 30, 60) else [])
        numbers += given.values()
    assert numbers == [0, 0, 0, 1, 2]
