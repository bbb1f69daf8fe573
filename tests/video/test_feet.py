"""The floor under walkers, contacts, and feet that are held; files that stand upright."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from output.people import person, result, video
from video.walking import FEET, FPS, angle_degrees, film, placed_feet, walking

from di2pose.errors import InputError
from di2pose.output.motion import UP
from di2pose.pose.floor import contacts, find_floor
from di2pose.pose.skeleton import H36M_17, H36M_21, bone_lengths
from di2pose.result import Motion, Result, walks_of
from di2pose.video.feet import hold_feet

TIMES = np.arange(72) / FPS
WORLD, STANDS = walking(TIMES)


def steps(motion, stands):
    """Mean way of standing feet from frame to frame, mm."""
    both = stands[1:] & stands[:-1]
    return float(np.linalg.norm(np.diff(placed_feet(motion), axis=0), axis=-1)[both].mean())


def bend(motion):
    """Largest acceleration of a foot's joint, mm a frame and frame."""
    return float(np.linalg.norm(np.diff(placed_feet(motion), 2, axis=0), axis=-1).max())


@pytest.mark.parametrize(("pitch", "roll"), [(0, 0), (12, 3), (25, -6), (-8, 0)])
def test_up_and_the_floor_are_within_their_uncertainty(pitch, roll):
    motion, up = film([WORLD], pitch, roll, np.random.default_rng(pitch + 10))
    floor = motion.floor
    assert angle_degrees(floor.up, up) < floor.up_std_degrees < 6
    assert floor.pitch_degrees == pytest.approx(pitch, abs=2)
    assert floor.roll_degrees == pytest.approx(roll, abs=2)
    assert np.abs(floor.height_mm(placed_feet(motion))[STANDS]).mean() < 40
    assert floor.source == "feet and posture"
    np.testing.assert_allclose(floor.rotation @ floor.up, [0, -1, 0], atol=1e-12)
    words = rf"floor: camera looks {'down' if pitch > 0 else 'up'} by {abs(pitch)} \+/- [45] degrees"
    assert pitch == 0 or re.fullmatch(words, motion.floor_note)


def test_contacts_are_found_and_feet_stay_in_their_place():
    motion, up = film([WORLD], 12, 3, np.random.default_rng(0))
    (walk,) = walks_of(motion.results).values()
    found = contacts(walk, motion.floor)
    assert (found & STANDS).sum() > 0.95 * found.sum()
    assert (found & STANDS).sum() > 0.85 * STANDS.sum()
    still = Motion(hold_feet(motion.results), FPS)
    assert steps(still, STANDS) < min(3, steps(motion, STANDS) / 10)
    assert bend(still) < 1.2 * bend(film([WORLD], 12, 3)[0])  # than the true one: no jump where a contact begins
    before, after = (np.stack([each.people[0].joints_mm for each in one]) for one in (motion, still))
    np.testing.assert_allclose(bone_lengths(after, H36M_21), bone_lengths(before, H36M_21), atol=1e-6)
    pixels = [np.stack([each.people[0].joints_2d for each in one]) for one in (motion, still)]
    assert np.linalg.norm(pixels[0] - pixels[1], axis=-1).mean() < 6  # of 500; the noise of the feet is 4
    assert angle_degrees(still.floor.up, up) < still.floor.up_std_degrees
    shares = still.contact_shares()[0]
    assert shares["left"] == pytest.approx(STANDS[:, 0].mean(), abs=0.1)
    assert shares["right"] == pytest.approx(STANDS[:, 2].mean(), abs=0.1)


def test_feet_in_the_air_are_not_held():
    times = np.arange(60) / FPS
    world, stands = walking(times, jump=(1.0, 1.55), still=True)
    motion, _ = film([world], 10, 0, np.random.default_rng(1), depth_mm=10)
    (walk,) = walks_of(motion.results).values()
    found = contacts(walk, motion.floor)
    air = (times > 1.1) & (times < 1.45)
    assert not found[air].any()
    assert found[(times < 0.9) | (times > 1.7)].mean() > 0.9
    jumped = Motion(hold_feet(motion.results), FPS)
    rise = [motion.floor.height_mm(placed_feet(each))[air].max() for each in (motion, jumped)]
    assert rise == pytest.approx([350, 350], abs=40)
    assert steps(jumped, stands) < 3


def test_without_heels_and_toes_ankles_stand_on_the_floor():
    motion, up = film([WORLD], 12, 0, np.random.default_rng(2), skeleton=H36M_17)
    floor = motion.floor
    assert angle_degrees(floor.up, up) < floor.up_std_degrees
    heels, _ = film([WORLD], 12, 0, np.random.default_rng(2))
    assert floor.offset_mm == pytest.approx(heels.floor.offset_mm, abs=40)
    assert motion.contact_shares() == {}
    ankles = list(H36M_17.indices("left_ankle", "right_ankle"))
    still = Motion(hold_feet(motion.results), FPS)
    step = [
        np.linalg.norm(np.diff([p.joints_mm[ankles] + p.root_mm for p in each.track(0)], axis=0), axis=-1)
        [STANDS[1:, ::2] & STANDS[:-1, ::2]].mean() for each in (motion, still)
    ]  # fmt: skip
    assert step[1] < step[0] / 3


def test_two_people_share_a_floor_and_each_keeps_their_own_feet():
    other = walking(TIMES + 0.4)[0] + (0, 0, 1200)
    motion, up = film([WORLD, other], 15, 0, np.random.default_rng(3))
    alone = film([WORLD], 15, 0, np.random.default_rng(3))[0].floor
    floor = motion.floor
    assert angle_degrees(floor.up, up) < floor.up_std_degrees < alone.up_std_degrees
    still = Motion(hold_feet(motion.results), FPS)
    assert set(still.contact_shares()) == {0, 1}
    assert steps(still, STANDS) < 3
    gone = [replace(each, people=each.people[1:] if k % 3 else each.people) for k, each in enumerate(motion)]
    assert [len(each.people) for each in hold_feet(gone)] == [len(each.people) for each in gone]


def test_somebody_on_a_roof_does_not_tilt_the_floor():
    roof = walking(TIMES + 0.3)[0] + (0, 1500, 2500)
    motion, up = film([WORLD, roof], 5, 0, np.random.default_rng(7))
    assert angle_degrees(motion.floor.up, up) < motion.floor.up_std_degrees
    heights = [np.median(motion.floor.height_mm(placed_feet(motion, track))) for track in (0, 1)]
    assert abs(heights[0]) < 60
    assert heights[1] > 1000


def test_a_photo_of_people_who_stand_has_a_floor_and_a_looser_one():
    both, up = film([WORLD[:1], WORLD[:1] + np.array([900, 0, 700])], 12, 0)
    photo = both[0]
    assert angle_degrees(photo.floor.up, up) < photo.floor.up_std_degrees
    one = film([WORLD[:1]], 12, 0)[0][0]
    assert photo.floor.up_std_degrees < one.floor.up_std_degrees < 10
    assert len(hold_feet(both.results)) == 1


def test_where_there_is_no_floor_the_reason_is_said():
    tilted, _ = film([WORLD], 5, 0, np.random.default_rng(4), moved=np.linspace(0, 20, len(TIMES)))
    assert tilted.floor is None
    assert "does the camera move?" in tilted.floor_note
    nobody = video([None, None])
    assert (nobody.floor, nobody.floor_note, nobody.contact_shares()) == (None, "no floor: no person with feet", {})
    assert [len(each.people) for each in hold_feet(nobody.results)] == [0, 0]
    lying = film([WORLD[:, :, [1, 0, 2]] * (1, -1, 1)], 10, 0)[0]
    assert lying.floor_note == "no floor: no person stands upright"
    assert find_floor([]) == (None, "no person with feet")


def rows_of_trc(path):
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return np.array([line[2:] for line in lines[6:]], float).reshape(len(lines) - 6, -1, 3)


def test_files_with_up_floor_stand_on_a_level_floor(tmp_path):
    motion, _ = film([WORLD], 20, 4, np.random.default_rng(5))
    still = Motion(hold_feet(motion.results), FPS)
    for choice in ("camera", "floor"):
        still.save(tmp_path / f"{choice}.trc", up=choice)
    camera, floor = (rows_of_trc(tmp_path / f"{choice}.trc") for choice in ("camera", "floor"))
    np.testing.assert_allclose(camera[0], (still[0].people[0].joints_mm + still[0].people[0].root_mm) * UP, atol=0.001)
    heights = floor[:, FEET, 1][STANDS]
    assert np.abs(heights).max() < 80
    assert np.abs(heights).mean() < 30
    assert np.ptp(camera[:, FEET, 1][STANDS]) > 2 * np.ptp(heights)
    apart = [np.linalg.norm(np.diff(each, axis=1), axis=-1) for each in (camera, floor)]
    np.testing.assert_allclose(apart[0], apart[1], atol=0.01)
    way = floor[:, 10].mean(0) - floor[:, [3, 6]].mean((0, 1))
    assert angle_degrees(way / np.linalg.norm(way), np.array([0, 1, 0])) < still.floor.up_std_degrees
    short = Motion(still.results[:12], FPS)
    for name in ("a.csv", "a.npz"):
        assert short.to_files(name, up="floor") == short.to_files(name)
    for name in ("a.bvh", "a.c3d", "a.html"):
        assert short.to_files(name, up="floor") != short.to_files(name)
    with pytest.raises(InputError, match="up must be one of camera, floor, got 'sky'"):
        still.to_files("a.trc", up="sky")
    lying = film([WORLD[:, :, [1, 0, 2]] * (1, -1, 1)], 10, 0)[0]
    assert lying.to_files("a.trc", up="floor") == lying.to_files("a.trc")


def test_the_json_holds_the_floor_and_the_contacts(tmp_path):
    motion, _ = film([WORLD[:30]], 12, 0, np.random.default_rng(6))
    record = json.loads(motion.to_files("a.json")["a.json"])
    assert record["floor"] == motion.floor.to_json()
    assert np.linalg.norm(record["floor"]["up"]) == pytest.approx(1, abs=1e-4)
    assert record["floor_note"] == str(motion.floor)
    assert record["contact_shares"]["0"]["left"] == pytest.approx(motion.contact_shares()[0]["left"], abs=1e-3)
    motion.save(tmp_path / "a.json")
    assert angle_degrees(Motion.load(tmp_path / "a.json").floor.up, motion.floor.up) < 0.01
    photo = result([person()])
    record = json.loads(photo.to_files("b.json")["b.json"])
    assert record["floor_note"] == photo.floor_note
    assert "contact_shares" not in record
    assert isinstance(photo, Result)
