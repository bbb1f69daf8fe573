"""People who sit, kneel, lie or bend: what a body can do, what it rests on, and what hides it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from di2pose_people import sampling, supported_poses
from di2pose_people.body import model
from di2pose_people.furniture import SEATS, SITTING, Seat, furnish
from di2pose_people.ik_rig import ELBOW, HIP_FLEXION, KNEE
from di2pose_people.motion import CLASSES, classify, library
from di2pose_people.pose_table import KINDS, WAYS
from di2pose_people.scene import Figure, rasterise
from di2pose_people.supported_poses import draw_settled
from di2pose_people.view import SIZE, View, look
from di2pose_people.visibility import visibility

from di2pose.data.sample import OCCLUDED
from di2pose.pose.bones import joint_pairs as limited_pairs
from di2pose.pose.skeleton import H36M_21

EVERY_WAY = [(kind, way) for kind, ways in WAYS.items() for way in ways]
KNEES = list(H36M_21.indices("left_knee", "right_knee"))
ANKLES = list(H36M_21.indices("left_ankle", "right_ankle"))
WRISTS = list(H36M_21.indices("left_wrist", "right_wrist"))


@pytest.fixture(scope="module")
def person(plan):
    return sampling._person(plan, 0, "target")


@pytest.fixture
def figure_of(plan, person, monkeypatch):
    """A drawn pose of one kind and way, and the person in it."""

    def drawn(kind, way, seed, seat=None):
        monkeypatch.setattr(supported_poses, "KINDS", {kind: 1.0})
        monkeypatch.setattr(supported_poses, "WAYS", {kind: {way: WAYS[kind][way]}})
        monkeypatch.setattr(supported_poses, "FOUND", 0.0)
        if seat is not None:
            monkeypatch.setattr(supported_poses, "_draw_seat", lambda *_: seat)
        poses, standing = library(plan.motion, plan.split), kind == "standing"
        made = draw_settled(person, poses, np.random.default_rng(seed), standing)
        return made, Figure(person, made.pose, np.zeros(3))

    return drawn


@pytest.mark.parametrize(("kind", "way"), EVERY_WAY)
def test_no_joint_bends_further_than_a_human_one(figure_of, kind, way):
    for seed in range(2):
        pose = figure_of(kind, way, seed)[0].pose
        turns = dict(zip(model().bones, pose.turns, strict=True))
        at = dict(zip(H36M_21.joints, pose.joints, strict=True))
        for side in ("left", "right"):
            upper, lower = at[f"{side}_knee"] - at[f"{side}_hip"], at[f"{side}_ankle"] - at[f"{side}_knee"]
            upper, lower = upper / np.linalg.norm(upper), lower / np.linalg.norm(lower)
            back = turns[f"upperleg02.{side[0].upper()}"][:, 1]
            assert lower @ back > -0.12  # a knee bends backwards
            assert np.arccos(upper @ lower) < KNEE[1] + 0.1
            in_pelvis = turns["root"].T @ upper
            flexion = np.arctan2(-in_pelvis[1], -in_pelvis[2])
            assert abs(in_pelvis[0]) > 0.8 or HIP_FLEXION[0] - 0.1 < flexion < HIP_FLEXION[1] + 0.1
            arm, fore = at[f"{side}_elbow"] - at[f"{side}_shoulder"], at[f"{side}_wrist"] - at[f"{side}_elbow"]
            assert arm @ fore / np.linalg.norm(arm) / np.linalg.norm(fore) > np.cos(ELBOW[1] + 0.15)


@pytest.mark.parametrize(
    ("kind", "way", "joints", "highest"),
    [
        ("kneeling", "two", KNEES, 0.11), ("kneeling", "heels", KNEES, 0.13), ("kneeling", "fours", KNEES, 0.14),
        ("floor", "squat", ANKLES, 0.2), ("floor", "hugging", ANKLES, 0.17), ("floor", "crosslegged", [0], 0.22),
        ("floor", "crosslegged", ANKLES, 0.2), ("lying", "back", [0, 7, 8], 0.25), ("bent", "pick", ANKLES, 0.2),
        ("kneeling", "one", KNEES, 0.14), ("kneeling", "fours", WRISTS, 0.14),
    ],
)  # fmt: skip
def test_limbs_rest_on_the_floor(figure_of, kind, way, joints, highest):
    """Joints lie inside the body: a knee on the floor is at most a hand's breadth above it. Of one who kneels on one
    knee, or lifts a hand, one of two."""
    every = min if way == "one" or joints == WRISTS else max
    for seed in range(2):
        figure = figure_of(kind, way, seed)[1]
        assert every(figure.joints[joints, 2]) - figure.mesh().vertices[:, 2].min() < highest


@pytest.mark.parametrize("way", ["hanging", "pockets", "crossed", "relaxed"])
def test_people_who_stand_have_straight_legs_below_them(figure_of, way):
    for seed in range(2):
        figure = figure_of("standing", way, seed)[1]
        at = dict(zip(H36M_21.joints, figure.joints, strict=True))
        bends = []
        for side in ("left", "right"):
            upper, lower = at[f"{side}_knee"] - at[f"{side}_hip"], at[f"{side}_ankle"] - at[f"{side}_knee"]
            bends.append(np.degrees(np.arccos(upper @ lower / np.linalg.norm(upper) / np.linalg.norm(lower))))
            assert at[f"{side}_ankle"][2] - figure.mesh().vertices[:, 2].min() < 0.17
        assert min(bends) < 12
        assert max(bends) < (35 if way == "relaxed" else 18)
        assert CLASSES[int(classify(figure.joints[None], up=2)[0])] == "upright"


@pytest.mark.parametrize("kind", SEATS)
def test_a_seat_is_under_the_flesh_and_on_the_floor(figure_of, person, kind):
    for seed in range(2):
        made, figure = figure_of("seated", "feet", seed, Seat(kind))
        body, hip = figure.mesh().vertices, figure.joints[0]
        floor, parts = furnish(made.seat, person, body, figure.joints, np.random.default_rng(seed))
        wood = np.concatenate([part.vertices for part in parts])
        assert floor == pytest.approx(body[:, 2].min())
        assert (figure.joints[ANKLES, 2] - floor < 0.17).all()
        assert floor - 0.02 < wood[:, 2].min() < floor + 0.07
        flesh = body[np.isin(person.bone_index[:, 0], model().bones_of(*SITTING))]
        lowest = flesh[np.abs(flesh[:, 1] - hip[1]) < 0.2, 2].min()
        below = wood[(np.abs(wood[:, 0] - hip[0]) < 1.3) & (wood[:, 2] < hip[2]), 2]
        assert np.abs(below - lowest).min() < 0.06  # the seat's top is where the flesh ends
        assert 0.15 < lowest - floor < 0.7


def test_kinds_are_mostly_classed_as_what_they_are(plan, person):
    generator, poses = np.random.default_rng(4), library(plan.motion, plan.split)
    drawn = [draw_settled(person, poses, generator) for _ in range(120)]
    classes = [CLASSES[i] for i in classify(np.stack([made.pose.joints for made in drawn]), up=2)]
    assert np.mean([made.kind == found for made, found in zip(drawn, classes, strict=True)]) > 0.8
    shares = {kind: np.mean([made.kind == kind for made in drawn]) for kind in KINDS}
    assert all(abs(shares[kind] - share) < 0.13 for kind, share in KINDS.items())
    assert all(made.name.startswith(f"{made.kind} {made.way} ") for made in drawn)


def test_a_table_hides_the_legs_from_the_front_and_says_so(figure_of, person):
    for seed in range(40):
        made, figure = figure_of("seated", "feet", seed, Seat("chair", 0.0))
        body, joints = figure.mesh(), figure.joints
        _, parts = furnish(made.seat, person, body.vertices, joints, np.random.default_rng(seed))
        position = joints[0] + (0.0, -2.6, 0.75)
        view = View(position, look(position, joints[0]), 300.0, 0.0, 0.0, 0.3, 2.7, 60.0, 1.0, "upright")
        camera = view.to_camera(joints)
        hidden = []
        for meshes in ([body], [body, *parts]):
            nothing = np.zeros((SIZE, SIZE), bool)
            _, *drawn = rasterise(meshes, view)
            seen = visibility(person, camera[:, 2], view.to_pixels(camera), *drawn, nothing, None)
            hidden.append(seen == OCCLUDED)
        assert not hidden[0].any()
        if hidden[1][KNEES + ANKLES].sum() >= 2:
            assert not hidden[1][H36M_21.index("head")]
            return
    pytest.fail("no table of 40 hid a leg")


def test_the_share_of_supported_poses(plan):
    def variants(share, count, standing=0.0):
        people = replace(plan, settled=share, standing=standing)
        drawn = (sampling.picture(people, i).sample.extra["variant"] for i in range(count))
        return {variant.split()[0] for variant in drawn}

    assert variants(1.0, 3) <= set(KINDS)
    assert variants(0.0, 2) == {"motion"}
    assert variants(0.0, 2, standing=1.0) == {"standing"}
    some = variants(0.5, 6)
    assert "motion" in some
    assert some & set(KINDS)


def test_the_limits_of_joint_pairs_are_those_of_drawn_people(motion, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import joint_pairs

    drawn = joint_pairs.shares(joint_pairs.settled(motion, 60, seed=1))
    rows = joint_pairs.table([drawn]).splitlines()[:17]  # the pairs of the feet follow
    numbers = np.array([row.split() for row in rows], int) / 1000
    (a, b), shares = limited_pairs().joints.T, limited_pairs().shares
    column = {tuple(pair): k for k, pair in enumerate(joint_pairs.joint_pairs(H36M_21).joints.tolist())}
    people = drawn[:, [column[pair] for pair in zip(a.tolist(), b.tolist(), strict=True)]]
    assert ((numbers[a, b] < people) & (people <= numbers[b, a] + 1e-9)).all()
    beyond = (people < shares[:, 0]) | (people > shares[:, 1] + 1e-9)
    assert beyond.any(1).mean() < 0.05
    assert (people.min(0) < 2 * shares[:, 0]).mean() > 0.5  # and are no wider than they must
