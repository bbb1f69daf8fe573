"""One body for a track: constant bones, by certainty, and a pose that stays in its place in the picture."""

from dataclasses import replace

import numpy as np
import pytest
from output.people import CAMERA, H36M_19, person, pose, result

from di2pose.pose.bones import even, impossible, rebuild, stature_mm
from di2pose.pose.skeleton import H36M_17, bone_lengths
from di2pose.video import body
from di2pose.video.body import growing_body, measured, one_body
from di2pose.video.smooth import smooth

COLUMN = {H36M_17.joints[child]: k for k, (child, _) in enumerate(H36M_17.bones)}
TRUE_MM = even(bone_lengths(pose(np.random.default_rng(0)), H36M_17))


def sighting(rng, wrong=0.1, std_mm=30.0, track=0, bones=(), bend=0.05):
    """Somebody with TRUE_MM bones in a pose that a body can take, unless `bend` is more; those of `bones` (all, if
    empty) come out wrong by this share, and `std_mm` (a number, or one for each joint) says how sure the joints are."""
    lengths = TRUE_MM.copy()
    columns = [COLUMN[name] for name in bones] or slice(None)
    lengths[columns] *= np.exp(rng.normal(0, wrong, len(TRUE_MM)))[columns]
    joints = rebuild(pose(rng, bend), lengths)
    samples = joints + rng.normal(0, 5, (4, 17, 3)) * (np.arange(17) > 0)[:, None]
    std = np.broadcast_to(np.asarray(std_mm, dtype=np.float64), 17)
    one = person(1, track=track, joints_mm=joints)
    return replace(one, samples_mm=samples, covariance_mm2=std[:, None, None] ** 2 * np.eye(3))


def video(count, **options):
    rng = np.random.default_rng(3)
    return [result([sighting(rng, **options)], frame_index=k, time_s=k / 30) for k in range(count)]


def lengths_of(results, track=0):
    people = [one for each in results for one in each.people if one.track == track]
    return np.stack([bone_lengths(np.asarray(one.joints_mm, dtype=np.float64), H36M_17) for one in people])


def test_the_bones_of_a_track_are_constant_and_even_and_near_the_truth():
    before, after = lengths_of(video(60)), lengths_of(one_body(video(60)))
    assert np.ptp(before, axis=0).max() > 100
    assert np.ptp(after, axis=0).max() < 1e-6
    np.testing.assert_allclose(even(after), after)
    np.testing.assert_allclose(after[0], TRUE_MM, rtol=0.05)
    for each in one_body(video(5)):
        one = each.people[0]
        own = bone_lengths(np.asarray(one.joints_mm), H36M_17)
        np.testing.assert_allclose(bone_lengths(np.asarray(one.samples_mm), H36M_17), np.tile(own, (4, 1)))


def test_poses_become_possible_and_shoulders_hardly_change_their_width():
    left, right = H36M_17.indices("left_shoulder", "right_shoulder")

    def widths(results):
        return [np.linalg.norm(each.people[0].joints_mm[left] - each.people[0].joints_mm[right]) for each in results]

    bent = video(30, bend=0.6)
    fitted = one_body(bent)
    assert max(widths(bent)) > 1.8 * min(widths(bent))
    assert max(widths(fitted)) < min(widths(fitted)) / 0.846 + 1e-6
    for before, after in zip(bent[:5], fitted[:5], strict=True):
        drawn, one = before.people[0], after.people[0]
        lengths = bone_lengths(np.asarray(one.joints_mm), H36M_17)
        assert impossible(rebuild(drawn.joints_mm, lengths)[None], lengths).all()
        assert not impossible(np.concatenate([one.joints_mm[None], one.samples_mm]), lengths).any()


def test_frames_that_are_sure_tell_the_length():
    """In two of three frames the left forearm is hidden and comes out far too long."""
    std = np.full(17, 15.0)
    std[H36M_17.index("left_wrist")] = 150.0
    rng, frames = np.random.default_rng(5), []
    for k in range(30):
        one = sighting(rng, wrong=0.02)
        if k % 3:
            longer = TRUE_MM.copy()
            longer[COLUMN["left_wrist"]] *= 1.5
            joints = rebuild(one.joints_mm, longer)
            spread = std[:, None, None] ** 2 * np.eye(3)
            one = replace(one, joints_mm=joints, samples_mm=joints + 0 * one.samples_mm, covariance_mm2=spread)
        frames.append(result([one], frame_index=k, time_s=k / 30))
    forearm = lengths_of(one_body(frames))[0, COLUMN["left_wrist"]]
    assert forearm == pytest.approx(TRUE_MM[COLUMN["left_wrist"]], rel=0.03)


def test_a_length_is_the_mean_of_the_hypotheses_and_not_that_of_their_mean():
    """Arms that point anywhere: their mean has no length."""
    rng = np.random.default_rng(0)
    one = sighting(rng)
    samples = np.stack([rebuild(pose(rng), TRUE_MM) for _ in range(16)])
    one = replace(one, samples_mm=samples, joints_mm=samples.mean(0))
    np.testing.assert_allclose(measured(one)[0], TRUE_MM)


def test_the_body_stays_on_its_pixels():
    """A body that has become larger stands farther away."""
    for before, after in zip(video(20), one_body(video(20)), strict=True):
        old, new = before.people[0], after.people[0]
        np.testing.assert_allclose(new.joints_2d, CAMERA.project(new.joints_mm + new.root_mm), atol=1e-6)
        moved = np.linalg.norm(new.joints_2d - old.joints_2d, axis=-1)
        stay = np.linalg.norm(CAMERA.project(new.joints_mm + old.root_mm) - old.joints_2d, axis=-1)
        assert (moved[~old.guessed] ** 2).mean() < (stay[~old.guessed] ** 2).mean() + 1e-6
        assert moved.mean() < 0.1 * np.ptp(old.joints_2d, axis=0).max()
    half = [replace(each, people=[replace(each.people[0], joints_mm=0.5 * each.people[0].joints_mm,
            root_mm=0.5 * each.people[0].root_mm)]) for each in video(1, wrong=0.0)]  # fmt: skip
    grown = one_body([*half, *video(5, wrong=0.0)])[0].people[0]
    np.testing.assert_allclose(grown.root_mm, 2 * half[0].people[0].root_mm, rtol=0.01, atol=5)


def test_with_a_known_height_the_bones_add_up_to_it():
    for height in (1.55, 1.92):
        for make in (one_body, growing_body):
            for each in make(video(10), height):
                assert float(stature_mm(each.people[0].joints_mm)) == pytest.approx(1000 * height, abs=0.01)


def test_everybody_has_a_body_of_their_own_and_nobody_else_changes():
    rng = np.random.default_rng(0)
    tall = [replace(one, samples_mm=1.2 * one.samples_mm) for one in (sighting(rng, track=4) for _ in range(10))]
    both = [replace(each, people=[*each.people, one]) for each, one in zip(video(10), tall, strict=True)]
    out = one_body(both)
    np.testing.assert_array_equal(lengths_of(out), lengths_of(one_body(video(10))))
    assert (lengths_of(out, 4) > lengths_of(out)).all()
    alone = result([person(2)])
    assert one_body([alone])[0].people[0] is alone.people[0]


def test_the_body_of_a_stream_settles_and_results_come_at_once(monkeypatch):
    monkeypatch.setattr(body, "SETTLED", 110)
    change = np.abs(np.diff(lengths_of(growing_body(video(120))), axis=0)).max(1)
    assert change[:5].max() > 10
    assert change[100:].max() < 2
    assert change[110:].max() < 1e-9
    frames = iter(video(3))
    assert next(growing_body(frames)).frame_index == 0
    assert next(frames).frame_index == 1


def test_a_skeleton_with_feet_is_smoothed_and_gets_a_possible_body_whose_feet_stay_on_the_ankles():
    rng = np.random.default_rng(0)
    bent = pose(rng, 0.6, H36M_19)
    people = [person(k, 0, joints_mm=bent + rng.normal(0, 5, (19, 3)), skeleton=H36M_19) for k in range(5)]
    frames = one_body(list(smooth([result([one], time_s=k / 30) for k, one in enumerate(people)])), height_m=1.8)
    lengths = np.stack([bone_lengths(each.people[0].joints_mm, H36M_19) for each in frames])
    assert np.ptp(lengths, axis=0).max() < 1e-6
    for each in frames:
        joints = each.people[0].joints_mm
        assert float(stature_mm(joints, H36M_19)) == pytest.approx(1800, abs=1)
        assert not impossible(joints[None, :17], lengths[0, :16]).any()
