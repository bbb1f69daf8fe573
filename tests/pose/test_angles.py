"""Angles of poses whose angles are known: a puppet that stands, and limbs that are bent by so many degrees."""

import numpy as np
import pytest
from output.people import pose, rotation
from output.people import standing as rest

from di2pose.errors import InputError
from di2pose.pose.angles import (
    ALL,
    DIFFERENCES,
    NAMES,
    PAIRED,
    angle_names,
    joint_angles,
    joints_of,
    with_differences,
    wrapped,
)
from di2pose.pose.skeleton import BODY_25, COCO_17, H36M_17, H36M_21, mirror

X, Y, Z = np.eye(3)  # camera axes: the puppet looks into the camera, its left is +x, up is -y, front is -z
LIMBS = {"left_shoulder": ("left_elbow", "left_wrist"), "left_hip": ("left_knee", "left_ankle"),
         "right_shoulder": ("right_elbow", "right_wrist"), "right_hip": ("right_knee", "right_ankle")}  # fmt: skip


def standing():
    """Upright, straight legs; arms hang straight down."""
    joints, down = rest(), {"elbow": 280, "wrist": 250}
    for name, length in ((f"{side}_{part}", down[part]) for side in ("left", "right") for part in ("elbow", "wrist")):
        joints[H36M_17.index(name)] = joints[H36M_17.parents[H36M_17.index(name)]] + (0, length, 0)
    joints[list(H36M_17.indices("nose", "head"))] = joints[H36M_17.index("thorax")] + [(0, -120, 0), (0, -235, 0)]
    return joints


def turned(joints, about, moving, axis, degrees):
    """The joints `moving`, turned by the right hand about an axis through a joint."""
    out, turn = joints.copy(), rotation(np.radians(degrees) * np.asarray(axis))
    pivot, rows = joints[H36M_21.index(about)], list(H36M_21.indices(*moving))
    out[rows] = (joints[rows] - pivot) @ turn.T + pivot
    return out


def with_feet():
    """Standing on flat feet."""
    joints = standing()
    ankles = joints[list(H36M_17.indices("left_ankle", "left_ankle", "right_ankle", "right_ankle"))]
    return np.concatenate([joints, ankles + [(0, 60, 40), (0, 60, -180)] * 2])


def angles(joints):
    skeleton = H36M_17 if len(joints) == 17 else H36M_21
    return {name: float(value) for name, value in with_differences(joint_angles(joints, skeleton)).items()}


def test_somebody_who_stands_upright_has_zeros():
    found = angles(standing())
    assert list(found) == [*NAMES, *DIFFERENCES]
    assert max(abs(value) for value in found.values()) < 1e-9


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("about", "part", "name"), [("knee", "ankle", "knee_flexion"), ("elbow", "wrist", "elbow_flexion")]
)
@pytest.mark.parametrize("degrees", [0.001, 30, 90, 150])
def test_hinges_tell_how_far_they_are_bent(side, about, part, name, degrees):
    found = angles(turned(standing(), f"{side}_{about}", [f"{side}_{part}"], X, degrees))
    assert found[f"{side}_{name}"] == pytest.approx(degrees, abs=1e-9)
    assert found[f"{name}_difference"] == pytest.approx(degrees if side == "left" else -degrees, abs=1e-9)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("degrees", [-60, -0.001, 0, 35])
def test_an_ankle_is_flexed_by_as_much_as_the_toes_are_raised(side, degrees):
    foot = [f"{side}_heel", f"{side}_toe"]
    found = angles(turned(with_feet(), f"{side}_ankle", foot, X, -degrees))  # the toes (-z) go to -y, up
    assert tuple(found) == ALL
    assert found[f"{side}_ankle_flexion"] == pytest.approx(degrees, abs=1e-9)
    other = {name: value for name, value in found.items() if "ankle" not in name}
    assert other == pytest.approx(dict.fromkeys([*NAMES, *DIFFERENCES], 0), abs=1e-9)
    outwards = angles(turned(with_feet(), f"{side}_ankle", foot, Y, 30))
    assert outwards[f"{side}_ankle_flexion"] == pytest.approx(0, abs=1e-9)
    knelt = turned(with_feet(), f"{side}_knee", [f"{side}_ankle", *foot], X, 90)  # the foot goes along
    assert angles(knelt)[f"{side}_ankle_flexion"] == pytest.approx(0, abs=1e-9)
    lunge = turned(with_feet(), f"{side}_ankle", [n for n in H36M_21.joints if n not in foot], X, 20)  # over the foot
    assert angles(lunge)[f"{side}_ankle_flexion"] == pytest.approx(20)
    assert angles(lunge)["ankle_flexion_difference"] == pytest.approx(20 if side == "left" else -20)


def test_ankles_have_an_angle_where_the_skeleton_has_heels_and_toes():
    assert angle_names(H36M_17) == angle_names(COCO_17) == (*NAMES, *DIFFERENCES)
    assert angle_names(H36M_21) == angle_names(BODY_25) == ALL  # its big toe is the toe
    assert set(ALL) - {*NAMES, *DIFFERENCES} == {f"{side}ankle_flexion" for side in ("left_", "right_")} | {
        "ankle_flexion_difference"
    }


# About +x by the right hand a hanging limb (+y) goes to +z, backwards; about +z it goes to -x, to the puppet's right.
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("degrees", [-25, 40, 90, 130])
def test_hip_flexion_is_forwards_and_abduction_outwards(side, degrees):
    forwards = angles(turned(standing(), f"{side}_hip", LIMBS[f"{side}_hip"], X, -degrees))
    assert forwards[f"{side}_hip_flexion"] == pytest.approx(degrees)
    assert forwards[f"{side}_hip_abduction"] == pytest.approx(0, abs=1e-9)
    assert forwards[f"{side}_knee_flexion"] == pytest.approx(0, abs=1e-4)
    out = {"left": -1, "right": 1}[side]
    outwards = angles(turned(standing(), f"{side}_hip", LIMBS[f"{side}_hip"], Z, out * degrees / 2))
    assert outwards[f"{side}_hip_abduction"] == pytest.approx(degrees / 2)
    assert outwards[f"{side}_hip_flexion"] == pytest.approx(0, abs=1e-9)
    seated = turned(standing(), "left_hip", LIMBS["left_hip"], X, -90)
    apart = angles(turned(seated, "left_hip", LIMBS["left_hip"], Y, -30))  # knees apart on a chair
    assert apart["left_hip_flexion"] == pytest.approx(90)
    assert apart["left_hip_abduction"] == pytest.approx(30)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("degrees", [20, 90, 150])
def test_an_arm_forwards_is_flexed_and_one_sideways_abducted(side, degrees):
    arm = LIMBS[f"{side}_shoulder"]
    for axis, sign, name, other in ((X, -1, "flexion", "abduction"), (Z, -1, "abduction", "flexion")):
        sign = sign if axis is X or side == "left" else -sign
        found = angles(turned(standing(), f"{side}_shoulder", arm, axis, sign * degrees))
        assert found[f"{side}_shoulder_elevation"] == pytest.approx(degrees)
        assert found[f"{side}_shoulder_{name}"] == pytest.approx(degrees)
        assert found[f"{side}_shoulder_{other}"] == pytest.approx(0, abs=1e-9)
    backwards = angles(turned(standing(), f"{side}_shoulder", arm, X, 30))
    assert backwards[f"{side}_shoulder_flexion"] == pytest.approx(-30)


@pytest.mark.parametrize("degrees", [15, 60, 100])
def test_leaning_is_forwards_and_to_the_left(degrees):
    whole = list(H36M_17.joints)
    forwards = angles(turned(standing(), "pelvis", whole, X, degrees))  # up (-y) goes to -z, to the front
    assert forwards["trunk_lean"] == pytest.approx(degrees)
    assert forwards["trunk_forward_lean"] == pytest.approx(degrees)
    assert forwards["trunk_side_lean"] == pytest.approx(0, abs=1e-9)
    assert forwards["left_hip_flexion"] == pytest.approx(0, abs=1e-9)  # the legs go along
    upper = [name for name in whole if "knee" not in name and "ankle" not in name]
    bowed = angles(turned(standing(), "pelvis", upper, X, degrees))
    assert bowed["right_hip_flexion"] == pytest.approx(degrees)
    if degrees < 78:  # beyond, the hips' axis is nearly upright: nobody can tell what is forwards
        sideways = angles(turned(standing(), "pelvis", whole, Z, degrees))
        assert sideways["trunk_side_lean"] == pytest.approx(degrees)


def test_shoulders_turned_to_the_left_are_positive():
    top = ["left_shoulder", "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist"]
    assert angles(turned(standing(), "thorax", top, Y, -35))["trunk_rotation"] == pytest.approx(35)
    nodding = angles(turned(standing(), "thorax", ["nose", "head"], X, 25))
    assert nodding["neck_flexion"] == pytest.approx(25)


def test_what_a_pose_leaves_open_is_not_a_number():
    aside = angles(turned(standing(), "left_hip", LIMBS["left_hip"], Z, -85))  # along the hips' own axis
    assert np.isnan(aside["left_hip_flexion"])
    assert aside["left_hip_abduction"] == pytest.approx(85)
    assert np.isnan(aside["hip_flexion_difference"])
    overhead = angles(turned(standing(), "left_shoulder", LIMBS["left_shoulder"], X, -175))
    assert overhead["left_shoulder_elevation"] == pytest.approx(175)
    assert np.isnan([overhead["left_shoulder_flexion"], overhead["left_shoulder_abduction"]]).all()
    lying = angles(turned(standing(), "pelvis", list(H36M_17.joints), Z, 90))  # on the left side
    assert lying["trunk_lean"] == pytest.approx(90)
    assert np.isnan([lying["trunk_forward_lean"], lying["trunk_side_lean"]]).all()
    point = angles(np.zeros((17, 3)))
    assert np.isnan(list(point.values())).all()


def test_a_joint_that_is_not_known_spoils_its_own_angles_alone():
    with pytest.raises(InputError, match="no angle is called 'left_wrist_flexion'; there are left_ankle_flexion"):
        joints_of("left_wrist_flexion")
    joints = pose(np.random.default_rng(0), skeleton=H36M_21)
    whole = angles(joints)
    assert repr(angles(joints[:17])) == repr({name: whole[name] for name in (*NAMES, *DIFFERENCES)})
    together = joint_angles(np.stack([joints, 2 * joints]).reshape(2, 1, 21, 3), H36M_21)
    for name, value in together.items():
        assert value == pytest.approx(np.full((2, 1), whole[name]), nan_ok=True)
    for j, joint in enumerate(H36M_21.joints):
        part = joints.copy()
        part[j] = np.nan
        found = angles(part)
        for name in whole:
            if joint in joints_of(name):
                assert np.isnan(found[name]), (joint, name)
            else:
                assert found[name] == pytest.approx(whole[name], nan_ok=True), (joint, name)


@pytest.mark.parametrize(("seed", "heading", "scale"), [(0, 37, 0.3), (1, -150, 1.0), (2, 90, 3.0), (3, 180, 2.0)])
def test_angles_are_of_the_body_alone(seed, heading, scale):
    """Turning about the vertical, size and place change nothing; a mirror swaps the sides."""
    joints = pose(np.random.default_rng(seed))
    found = joint_angles(joints)
    elsewhere = scale * joints @ rotation(np.radians(heading) * Y).T + (100, -200, 4000)
    for name, value in joint_angles(elsewhere).items():
        assert value == pytest.approx(found[name], abs=1e-6, nan_ok=True), name
    assert all(np.isnan(value) or -180 <= value <= 180 for value in found.values())
    swapped = joint_angles(mirror(joints, H36M_17))
    for name in PAIRED:
        assert swapped[f"left_{name}"] == pytest.approx(found[f"right_{name}"], abs=1e-6, nan_ok=True)
    for name, sign in (("trunk_side_lean", -1), ("trunk_rotation", -1), ("trunk_forward_lean", 1), ("neck_flexion", 1)):
        off = wrapped(np.array([swapped[name] - sign * found[name]]))
        assert np.isnan([swapped[name], found[name]]).all() or abs(off[0]) < 1e-6
