"""People who sit, kneel, lie or bend: what a body can do, what it rests on, and what hides it."""

from dataclasses import replace

import numpy as np
import pytest
from di2pose_people import sampling, supported_poses
from di2pose_people.body import model
from di2pose_people.furniture import furnish
from di2pose_people.ik_rig import ELBOW, HIP_FLEXION, KNEE, two_bones
from di2pose_people.motion import CLASSES, classify, library
from di2pose_people.pose_builder import Seat, sitting_bones
from di2pose_people.render import make_plan, render_people
from di2pose_people.scene import Figure, draw, project
from di2pose_people.store import People
from di2pose_people.supported_poses import KINDS, WAYS, draw_settled
from di2pose_people.view import SIZE, View
from di2pose_people.visibility import visibility

from di2pose.cli import main
from di2pose.data.sample import OCCLUDED
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17

EVERY_WAY = [(kind, way) for kind, ways in WAYS.items() for way in ways]
KNEES = list(H36M_17.indices("left_knee", "right_knee"))
ANKLES = list(H36M_17.indices("left_ankle", "right_ankle"))
WRISTS = list(H36M_17.indices("left_wrist", "right_wrist"))


@pytest.fixture(scope="module")
def person(plan):
    return sampling._person(plan, 0, "target")


@pytest.fixture
def pose_of(plan, person, monkeypatch):
    """A drawn pose of one kind and way."""

    def drawn(kind, way, seed, seat=None):
        monkeypatch.setattr(supported_poses, "KINDS", {kind: 1.0})
        monkeypatch.setattr(supported_poses, "WAYS", {kind: {way: 1.0}})
        monkeypatch.setattr(supported_poses, "FOUND", 0.0)
        if seat is not None:
            monkeypatch.setattr(supported_poses, "_draw_seat", lambda *_: seat)
        return draw_settled(person, library(plan.motion, plan.split), np.random.default_rng(seed))

    return drawn


def heights(person, made, joints):
    """Of these joints above the floor, or above what carries the whole body."""
    lowest = Figure(person, made.pose, np.zeros(3)).mesh().vertices[:, 2].min()
    return made.pose.joints[joints, 2] - lowest


@pytest.mark.parametrize(("kind", "way"), EVERY_WAY)
def test_no_joint_bends_further_than_a_human_one(pose_of, kind, way):
    for seed in range(6):
        pose = pose_of(kind, way, seed).pose
        turns = dict(zip(model().bones, pose.turns, strict=True))
        at = dict(zip(H36M_17.joints, pose.joints, strict=True))
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


def test_limbs_rest_on_the_floor(pose_of, person):
    """Joints lie inside the body: a knee on the floor is at most a hand's breadth above it."""
    for seed in range(5):
        assert (heights(person, pose_of("kneeling", "two", seed), KNEES) < 0.11).all()
        assert (heights(person, pose_of("kneeling", "heels", seed), KNEES) < 0.13).all()
        assert (heights(person, pose_of("kneeling", "fours", seed), KNEES) < 0.14).all()
        assert heights(person, pose_of("kneeling", "fours", seed), WRISTS).min() < 0.14
        assert heights(person, pose_of("kneeling", "one", seed), KNEES).min() < 0.13
        assert (heights(person, pose_of("floor", "squat", seed), ANKLES) < 0.2).all()
        assert (heights(person, pose_of("floor", "hugging", seed), ANKLES) < 0.17).all()
        assert heights(person, pose_of("floor", "crosslegged", seed), [0]) < 0.22
        assert (heights(person, pose_of("floor", "crosslegged", seed), ANKLES) < 0.2).all()
        assert (heights(person, pose_of("lying", "back", seed), [0, 7, 8]) < 0.25).all()
        assert (heights(person, pose_of("bent", "pick", seed), ANKLES) < 0.2).all()


@pytest.mark.parametrize("kind", [*supported_poses.SEATS])
def test_a_seat_is_under_the_flesh_and_on_the_floor(pose_of, person, kind):
    for seed in range(4):
        made = pose_of("seated", "feet", seed, Seat(kind))
        figure = Figure(person, made.pose, np.zeros(3))
        body = figure.mesh().vertices
        floor, parts = furnish(made.seat, person, body, figure.joints, np.random.default_rng(seed))
        wood = np.concatenate([part.vertices for part in parts])
        hip = made.pose.joints[0]
        assert floor == pytest.approx(body[:, 2].min())
        assert (made.pose.joints[ANKLES, 2] - floor < 0.17).all()
        assert floor - 0.02 < wood[:, 2].min() < floor + 0.07
        flesh = body[np.isin(person.bone_index[:, 0], sitting_bones())]
        lowest = flesh[np.abs(flesh[:, 1] - hip[1]) < 0.2, 2].min()
        below = wood[(np.abs(wood[:, 0] - hip[0]) < 1.3) & (wood[:, 2] < hip[2]), 2]
        assert np.abs(below - lowest).min() < 0.06  # the seat's top is where the flesh ends
        assert 0.15 < lowest - floor < 0.7


def test_kinds_are_mostly_classed_as_what_they_are(plan, person):
    generator, poses = np.random.default_rng(4), library(plan.motion, plan.split)
    drawn = [draw_settled(person, poses, generator) for _ in range(120)]
    classes = [CLASSES[i] for i in classify(np.stack([made.pose.joints for made in drawn]), up=2)]
    right = [made.kind == found for made, found in zip(drawn, classes, strict=True)]
    assert np.mean(right) > 0.8
    shares = {kind: np.mean([made.kind == kind for made in drawn]) for kind in KINDS}
    assert all(abs(shares[kind] - share) < 0.13 for kind, share in KINDS.items())
    assert all(made.name.startswith(f"{made.kind} {made.way} ") for made in drawn)


def test_a_table_hides_the_legs_from_the_front_and_says_so(pose_of, person):
    for seed in range(40):
        made = pose_of("seated", "feet", seed, Seat("chair", 0.0))
        figure = Figure(person, made.pose, np.zeros(3))
        body, joints = figure.mesh(), figure.joints
        floor, parts = furnish(made.seat, person, body.vertices, joints, np.random.default_rng(seed))
        ahead = parts[0].vertices[parts[0].vertices[:, 1] < joints[ANKLES, 1].min() - 0.2]
        if ahead[:, 2].min() > floor + 0.05 or len(ahead) < 30:
            continue
        position = joints[0] + (0.0, -2.6, 0.75)
        forwards = (joints[0] - position) / np.linalg.norm(joints[0] - position)
        right = np.cross(forwards, [0.0, 0, 1])
        right /= np.linalg.norm(right)
        rotation = np.stack([right, np.cross(forwards, right), forwards])
        view = View(position, rotation, 300.0, 0.0, 0.0, 0.3, 2.7, 60.0, 1.0, "upright")
        camera = view.to_camera(joints)
        hidden = []
        for meshes in ([body], [body, *parts]):
            buffers = draw(project(meshes, view))
            states = visibility(
                person, camera[:, 2], view.to_pixels(camera), *buffers, np.zeros((SIZE, SIZE), bool), None
            )
            hidden.append(states == OCCLUDED)
        assert not hidden[0].any()
        if hidden[1][KNEES + ANKLES].sum() >= 2:
            assert not hidden[1][H36M_17.index("head")]
            return
    pytest.fail("no table of 40 hid a leg")


def test_everybody_is_settled_at_a_share_of_one_and_nobody_at_none(plan, motion, tmp_path, monkeypatch):
    everybody = make_plan(motion, "train", 3, None, settled=1.0)
    assert render_people(everybody, tmp_path, 12) == 12
    people = People(tmp_path)
    assert {name.split()[0] for name in people.labels("variant")} <= set(KINDS)
    assert people.header["settings"]["settled"] == 1.0
    again = sampling.picture(everybody, 7)
    assert again.jpeg == (tmp_path / people.index[7]["image"]).read_bytes()
    some = replace(everybody, settled=0.5)
    variants = {sampling.picture(some, i).sample.extra["variant"].split()[0] for i in range(12)}
    assert variants & set(KINDS)
    assert variants & {"motion", "sit", "lie"}
    with pytest.raises(InputError, match=r"another set \(settled 1.0, not None"):
        render_people(plan, tmp_path, 12)
    assert "settled" not in sampling.settings(plan)
    monkeypatch.setattr(sampling, "draw_settled", None)
    before = sampling.picture(plan, 2)
    assert sampling.picture(replace(plan, settled=0.0), 2).jpeg == before.jpeg


def test_a_share_beyond_one_is_refused(motion):
    with pytest.raises(InputError, match=r"--settled is a share of the people, 0 to 1, got 1\.5"):
        make_plan(motion, "train", 3, None, settled=1.5)


def test_two_bones_reach_or_stretch_towards():
    generator = np.random.default_rng(0)
    for _ in range(50):
        target, pole = generator.normal(size=(2, 3))
        target *= generator.uniform(0.1, 1.2) / np.linalg.norm(target)
        first, second, hinge = two_bones(np.zeros(3), target, pole, 0.45, 0.4, KNEE)
        end = 0.45 * first + 0.4 * second
        assert np.allclose(np.linalg.norm([first, second, hinge], axis=1), 1)
        assert np.allclose(np.cross(end, target), 0, atol=1e-9)
        assert end @ target > 0
        if 0.25 < np.linalg.norm(target) < 0.84:
            assert np.allclose(end, target)
        assert first @ (pole - (pole @ target) * target / (target @ target)) >= 0
        assert np.cross(first, second) @ hinge >= 0


@pytest.mark.parametrize("command", ["render", "features"])
def test_the_commands_take_the_share(motion, tmp_path, capsys, command):
    assert main(["people", command, "--motion", str(motion), "--out", str(tmp_path / "out"), "--settled", "2"]) != 0
    assert "--settled is a share of the people, 0 to 1, got 2" in capsys.readouterr().err
