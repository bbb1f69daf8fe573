"""Tracks once they are over: ghosts dropped, fragments joined, and both said."""

from dataclasses import replace

import numpy as np
import pytest
from output.people import person, pose, result

from di2pose.errors import InputError
from di2pose.video.fragments import LEAST_FRAMES, TrackNotes, confirmed, least_frames, likely, whole_tracks

RATE = 30
REST = pose(np.random.default_rng(0))
OTHER = pose(np.random.default_rng(7))


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


def tracks_of(results):
    return [tuple(one.track for one in each.people) for each in results]


def walker(track, speed=30.0):
    return lambda k: standing(track, -1000 + speed * k)


GHOST = within(10, 12, lambda k: standing(3, 2000.0))


def test_a_short_track_is_dropped_and_said():
    notes = TrackNotes()
    out = whole_tracks(video(60, walker(0), GHOST), notes=notes)
    assert tracks_of(out) == [(0,)] * 60
    assert str(notes) == "1 stray track dropped (3 sightings)"
    assert str(TrackNotes()) == ""


@pytest.mark.parametrize(("rate", "needed"), [(10, LEAST_FRAMES), (25, LEAST_FRAMES), (60, 12), (240, 48)])
def test_a_track_needs_a_fifth_of_a_second_and_five_frames(rate, needed):
    assert least_frames([0.0, 1 / rate]) == needed
    for length, kept in ((needed - 1, False), (needed, True)):
        frames = video(3 * needed, walker(0), within(3, 2 + length, lambda k: standing(1, 3000)), rate=rate)
        out = whole_tracks(frames)
        assert any(1 in there for there in tracks_of(out)) == kept


def test_of_a_video_that_is_shorter_than_that_nothing_is_dropped():
    short = video(LEAST_FRAMES - 1, walker(0), within(1, 1, lambda k: standing(1, 2000)))
    assert tracks_of(whole_tracks(short)) == tracks_of(short) == tracks_of(confirmed(short))
    assert whole_tracks([]) == []


def test_nobody_is_dropped_where_that_is_asked_for():
    frames = video(60, walker(0), GHOST)
    assert tracks_of(whole_tracks(frames, least_s=0)) == tracks_of(frames) == tracks_of(confirmed(frames, 0.0))


@pytest.mark.parametrize("gap", [1, 8, 20])
def test_two_fragments_that_meet_in_time_and_place_are_one_person(gap):
    notes = TrackNotes()
    walk = video(60, within(0, 20, walker(0)), within(21 + gap, 59, walker(4)))
    out = whole_tracks(walk, notes=notes)
    assert tracks_of(out) == [(0,)] * 21 + [()] * gap + [(0,)] * (39 - gap)
    assert str(notes) == "1 fragment joined"


def test_fragments_of_fragments_become_one_and_short_ones_are_saved_by_that():
    parts = [within(4 * k + k, 4 * k + k + 3, walker(k)) for k in range(6)]
    out = whole_tracks(video(29, *parts))
    assert {track for there in tracks_of(out) for track in there} == {0}
    assert sum(map(len, tracks_of(out))) == 24


@pytest.mark.parametrize(
    ("case", "second"),
    [
        ("elsewhere", lambda k: standing(1, 2500.0)),
        ("at another distance", lambda k: standing(1, -1000 + 30.0 * k, z_mm=7000.0)),
    ],
)
def test_other_people_are_not_joined(case, second):
    frames = video(60, within(0, 20, walker(0)), within(23, 59, second))
    assert tracks_of(whole_tracks(frames)) == tracks_of(frames), case


def test_who_comes_much_later_is_not_joined():
    frames = video(120, within(0, 20, lambda k: standing(0)), within(80, 119, lambda k: standing(1)))
    assert {0, 1} == {track for there in tracks_of(whole_tracks(frames)) for track in there}


def test_people_who_are_there_together_are_two():
    frames = video(40, walker(0), lambda k: standing(1, -1000 + 30.0 * k + 20))
    assert tracks_of(whole_tracks(frames)) == tracks_of(frames)


def test_each_fragment_goes_to_the_nearer_of_two_who_were_lost():
    frames = video(
        60,
        within(0, 20, lambda k: standing(0, -300.0)),
        within(0, 20, lambda k: standing(1, 0.0)),
        within(25, 59, lambda k: standing(2, 20.0)),
        within(25, 59, lambda k: standing(3, -280.0)),
    )
    last = whole_tracks(frames)[-1].people
    assert {one.track: round(float(one.root_mm[0])) for one in last} == {1: 20, 0: -280}


def test_of_two_at_one_place_the_pose_tells_whose_fragment_it_is():
    frames = video(
        60,
        within(0, 20, lambda k: standing(0, 0.0, REST)),
        within(0, 20, lambda k: standing(1, 60.0, OTHER)),
        within(25, 59, lambda k: standing(2, 10.0, OTHER)),
        within(25, 59, lambda k: standing(3, 50.0, REST)),
    )
    last = whole_tracks(frames)[-1].people
    assert {one.track: round(float(one.root_mm[0])) for one in last} == {1: 10, 0: 50}


def test_scattered_sightings_on_somebody_are_dropped_and_a_child_in_front_of_them_is_not():
    def on_walker(k):
        return standing(1, -1000 + 30.0 * k, 0.4 * REST)

    scattered = video(60, walker(0), lambda k: on_walker(k) if k % 5 < 2 else None)
    notes = TrackNotes()
    assert tracks_of(whole_tracks(scattered, notes=notes)) == [(0,)] * 60
    assert str(notes) == "1 stray track dropped (24 sightings)"
    child = video(60, walker(0), on_walker)
    assert tracks_of(whole_tracks(child)) == tracks_of(child)
    elsewhere = video(60, walker(0), lambda k: standing(1, 3000.0) if k % 5 < 2 else None)
    assert tracks_of(whole_tracks(elsewhere)) == tracks_of(elsewhere)


def test_somebody_lost_in_a_somersault_is_joined():
    def jumper(k):
        return standing(0, 40.0 * k)

    turned = -REST  # upside down and back to front
    frames = video(50, within(0, 20, jumper), within(31, 49, lambda k: standing(1, 40.0 * 20 + 150, turned)))
    assert {track for there in tracks_of(whole_tracks(frames)) for track in there} == {0}


def test_who_is_seen_wrongly_before_they_are_lost_is_joined_all_the_same():
    """The last three sightings are twice as far away, elsewhere, and in another pose."""

    def spoiled(k):
        return standing(0, 30.0 * k) if k < 18 else standing(0, 30.0 * k - 600, OTHER, 7000.0)

    frames = video(60, within(0, 20, spoiled), within(24, 59, lambda k: standing(1, 30.0 * k)))
    assert {track for there in tracks_of(whole_tracks(frames)) for track in there} == {0}


def test_a_stream_holds_back_only_frames_with_somebody_new():
    taken, late = [], []

    def counted(frames):
        for each in frames:
            taken.append(each.frame_index)
            yield each

    order, notes = [], TrackNotes()
    for each in confirmed(counted(video(60, walker(0), GHOST)), notes=notes):
        order.append(each.frame_index)
        late.append(taken[-1] - each.frame_index)
        assert [one.track for one in each.people] == [0]
    assert order == list(range(60))
    needed = least_frames([0, 1 / RATE])
    assert late[0] == needed - 1
    assert max(late) <= 2 * needed
    assert late[30:] == [0] * 30
    assert str(notes) == "1 stray track dropped (3 sightings)"


def test_in_a_stream_whoever_stays_is_there_from_their_first_frame():
    frames = video(60, walker(0), within(20, 59, lambda k: standing(1, 2000)))
    assert tracks_of(confirmed(frames)) == tracks_of(frames)


def test_results_without_time_or_track_are_refused():
    with pytest.raises(InputError, match="time of every frame"):
        whole_tracks([result([person(track=1)])])
    with pytest.raises(InputError, match="track numbers"):
        whole_tracks([result([person()], time_s=0.0)])


def test_a_track_that_scores_like_nobody_is_left_out_and_told():
    notes = TrackNotes()
    unlikely = lambda k: replace(standing(1, 2000.0), score=0.1)  # noqa: E731
    doubtful_once = lambda k: replace(walker(0)(k), score=0.05 if k == 3 else 0.9)  # noqa: E731
    frames = video(20, doubtful_once, unlikely)
    assert tracks_of(likely(frames, 0.4, notes)) == [(0,)] * 20
    assert tracks_of(whole_tracks(frames, least_score=0.4)) == [(0,)] * 20
    assert "20 sightings" in str(notes)
    assert tracks_of(likely(frames, 0.0)) == tracks_of(frames)
