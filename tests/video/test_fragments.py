"""Complete tracks: stray ones dropped, fragments joined, and both reported."""

from dataclasses import replace

import numpy as np
import pytest
from output.people import person, pose, result

from di2pose.errors import InputError
from di2pose.video.fragments import LEAST_FRAMES, TrackNotes, confirmed, least_frames, whole_tracks

RATE = 30
REST, OTHER = pose(np.random.default_rng(0)), pose(np.random.default_rng(7))


def standing(track, x_mm=0.0, joints_mm=REST, z_mm=3500.0):
    return person(1, track=track, joints_mm=joints_mm, root_mm=(x_mm, 0.0, z_mm))


def video(count, *people, rate=RATE):
    """`people`: functions of the frame's number, a Person or None."""
    frames = []
    for k in range(count):
        there = [one for one in (make(k) for make in people) if one is not None]
        frames.append(result(there, frame_index=k, time_s=k / rate))
    return frames


def within(first, last, make):
    return lambda k: make(k) if first <= k <= last else None


def still(*arguments):
    return lambda k: standing(*arguments)


def walker(track, speed=30.0, **changes):
    return lambda k: standing(track, -1000 + speed * k, **changes)


def tracks_of(results):
    return [tuple(one.track for one in each.people) for each in results]


def all_tracks(results):
    return {track for there in tracks_of(results) for track in there}


STRAY = within(10, 12, still(3, 2000.0))


def test_a_short_track_is_dropped_and_reported():
    notes, frames = TrackNotes(), video(60, walker(0), STRAY)
    assert tracks_of(whole_tracks(frames, notes=notes)) == [(0,)] * 60
    assert (str(notes), str(TrackNotes())) == ("1 stray track dropped (3 sightings)", "")
    assert tracks_of(whole_tracks(frames, least_s=0)) == tracks_of(frames) == tracks_of(confirmed(frames, 0.0))


@pytest.mark.parametrize(("rate", "needed"), [(10, LEAST_FRAMES), (60, 12)])
def test_a_track_needs_a_fifth_of_a_second_and_five_frames(rate, needed):
    assert least_frames([0.0, 1 / rate]) == needed
    for length, kept in ((needed - 1, False), (needed, True)):
        frames = video(3 * needed, walker(0), within(3, 2 + length, still(1, 3000)), rate=rate)
        assert (1 in all_tracks(whole_tracks(frames))) == kept


def test_nothing_is_dropped_from_a_shorter_video():
    short = video(LEAST_FRAMES - 1, walker(0), within(1, 1, still(1, 2000)))
    assert tracks_of(whole_tracks(short)) == tracks_of(short) == tracks_of(confirmed(short))
    assert whole_tracks([]) == []


@pytest.mark.parametrize("gap", [1, 20])
def test_fragments_that_meet_in_time_and_place_are_joined(gap):
    notes = TrackNotes()
    out = whole_tracks(video(60, within(0, 20, walker(0)), within(21 + gap, 59, walker(4))), notes=notes)
    assert tracks_of(out) == [(0,)] * 21 + [()] * gap + [(0,)] * (39 - gap)
    assert str(notes) == "1 fragment joined"


def wrong_at_the_end(k):
    """The last three observations are twice as far away, elsewhere, and in another pose."""
    return standing(0, -1000 + 30.0 * k) if k < 18 else standing(0, -1600 + 30.0 * k, OTHER, 7000.0)


@pytest.mark.parametrize(
    "people",
    [
        [within(5 * k, 5 * k + 3, walker(k)) for k in range(6)],  # each too short on its own
        [within(0, 20, lambda k: standing(0, 40.0 * k)), within(31, 49, still(1, 950.0, -REST))],  # a somersault
        [within(0, 20, wrong_at_the_end), within(24, 59, walker(1))],
    ],
)
def test_difficult_fragments_are_joined(people):
    frames = video(60, *people)
    out = whole_tracks(frames)
    assert all_tracks(out) == {0}
    assert sum(map(len, tracks_of(out))) == sum(map(len, tracks_of(frames)))


@pytest.mark.parametrize(
    "people",
    [
        [within(0, 20, walker(0)), within(23, 59, still(1, 2500.0))],  # elsewhere
        [within(0, 20, walker(0)), within(23, 59, walker(1, z_mm=7000.0))],  # at another distance
        [within(0, 20, still(0)), within(80, 119, still(1))],  # much later
        [walker(0), lambda k: standing(1, -980 + 30.0 * k)],  # together
    ],
)
def test_other_people_are_not_joined(people):
    frames = video(120, *people)
    assert tracks_of(whole_tracks(frames)) == tracks_of(frames)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (((-300.0, REST), (0.0, REST)), ((20.0, REST), (-280.0, REST)), {1: 20, 0: -280}),  # by distance
        (((0.0, REST), (60.0, OTHER)), ((10.0, OTHER), (50.0, REST)), {1: 10, 0: 50}),  # by pose
    ],
)
def test_each_fragment_goes_to_the_best_fitting_of_two_lost_people(before, after, expected):
    people = [within(0, 20, still(k, *each)) for k, each in enumerate(before)]
    people += [within(25, 59, still(k, *each)) for k, each in enumerate(after, start=2)]
    last = whole_tracks(video(60, *people))[-1].people
    assert {one.track: round(float(one.root_mm[0])) for one in last} == expected


def test_scattered_observations_on_somebody_are_dropped_and_a_child_in_front_of_them_is_not():
    child, notes = walker(1, joints_mm=0.4 * REST), TrackNotes()
    scattered = video(60, walker(0), lambda k: child(k) if k % 5 < 2 else None)
    assert tracks_of(whole_tracks(scattered, notes=notes)) == [(0,)] * 60
    assert str(notes) == "1 stray track dropped (24 sightings)"
    for frames in (
        video(60, walker(0), child),
        video(60, walker(0), lambda k: standing(1, 3000.0) if k % 5 < 2 else None),
    ):
        assert tracks_of(whole_tracks(frames)) == tracks_of(frames)


def test_a_stream_holds_back_only_frames_with_new_people():
    taken, late, order, notes = [], [], [], TrackNotes()

    def counted(frames):
        for each in frames:
            taken.append(each.frame_index)
            yield each

    for each in confirmed(counted(video(60, walker(0), STRAY)), notes=notes):
        order.append(each.frame_index)
        late.append(taken[-1] - each.frame_index)
        assert [one.track for one in each.people] == [0]
    needed = least_frames([0, 1 / RATE])
    assert order == list(range(60))
    assert late[0] == needed - 1
    assert max(late) <= 2 * needed
    assert late[30:] == [0] * 30
    assert str(notes) == "1 stray track dropped (3 sightings)"
    frames = video(60, walker(0), within(20, 59, still(1, 2000)))
    assert tracks_of(confirmed(frames)) == tracks_of(frames)  # from their first frame


def test_results_without_time_or_track_are_refused():
    with pytest.raises(InputError, match="time of every frame"):
        whole_tracks([result([person(track=1)])])
    with pytest.raises(InputError, match="track numbers"):
        whole_tracks([result([person()], time_s=0.0)])


def test_a_track_with_a_low_mean_score_is_dropped_and_reported():
    notes = TrackNotes()
    frames = video(
        20,
        lambda k: replace(walker(0)(k), score=0.05 if k == 3 else 0.9),
        lambda k: replace(standing(1, 2000.0), score=0.1),
    )
    assert tracks_of(confirmed(frames, 0.0, notes, 0.4)) == [(0,)] * 20
    assert tracks_of(whole_tracks(frames, least_score=0.4)) == [(0,)] * 20
    assert "20 sightings" in str(notes)
    assert tracks_of(confirmed(frames)) == tracks_of(frames)
