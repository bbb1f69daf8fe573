"""Seen, self-occluded, occluded, out of frame: a person of known pose before a known camera."""

import numpy as np
import pytest
from di2pose_people.body import Shape, model
from di2pose_people.motion import NODES
from di2pose_people.occluders import draw_texture, solid
from di2pose_people.scene import Figure, rasterise
from di2pose_people.view import View
from di2pose_people.visibility import visibility
from di2pose_people.wardrobe import Outfit, dress
from scipy.spatial.transform import Rotation

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED
from di2pose.pose.skeleton import H36M_21


@pytest.fixture(scope="module")
def figure():
    """A man with his arms hanging 40 degrees off his sides."""
    shape = Shape((0.0, 0.75, 0.5, 0.5, 0.52, 0.5, 0.5, 0.5), (0.2, 0.2, 0.6), 1.78)
    outfit = Outfit(
        "young_asian_male", "male_casualsuit02.top", "male_casualsuit02.bottom", "shoes01", "short01", "", ""
    )
    person = dress(model().body(shape), outfit, np.random.default_rng(0))
    turns = np.tile(np.eye(3), (20, 1, 1))
    for side, sign in (("Left", 1), ("Right", -1)):
        for node in ("Arm", "ForeArm", "Hand"):
            turns[NODES.index(side + node)] = Rotation.from_euler("z", -50 * sign, degrees=True).as_matrix()
    return Figure(person, person.rig.pose(turns), np.zeros(3))


def look(figure, azimuth, focal=330.0, block=None, pasted=None, inside=None):
    """Visibility by joint name, from 4 m away; azimuth 0 is the front, 90 the person's left, in degrees."""
    turn = np.radians(azimuth)
    ahead = -np.array([np.sin(turn), -np.cos(turn), 0])
    rotation = np.stack([np.cross(ahead, [0, 0, 1.0]), [0, 0, -1.0], ahead])
    view = View(figure.joints[0] - 4 * ahead, rotation, focal, 0, 0, 0, 4, 60, 1.4, "detector")
    meshes = [figure.mesh()]
    if block is not None:
        centre, half = figure.joints[0] - ahead * 0.6 + block[0], np.array(block[1]) / 2
        meshes.append(solid(tuple(centre - half), tuple(centre + half), draw_texture(np.random.default_rng(0))))
    _, drawn, nearest = rasterise(meshes, view)
    joints = view.to_camera(figure.joints)
    mask = np.zeros((256, 256), bool) if pasted is None else pasted
    seen = visibility(figure.person, joints[:, 2], view.to_pixels(joints), drawn, nearest, mask, inside)
    return dict(zip(H36M_21.joints, seen.tolist(), strict=True)), view.to_pixels(joints)


def test_from_front_and_back_every_joint_is_seen_and_from_the_side_the_far_limbs_are_not(figure):
    for azimuth, hidden in ((0, "heel"), (180, "toe")):  # of the feet one end hides the other
        states = {name: SELF_OCCLUDED if name.endswith(hidden) else SEEN for name in H36M_21.joints}
        assert look(figure, azimuth)[0] == states
    for azimuth, near, far in ((90, "left", "right"), (-90, "right", "left")):
        seen, _ = look(figure, azimuth)
        assert {seen[f"{far}_{name}"] for name in ("shoulder", "hip", "elbow", "wrist")} == {SELF_OCCLUDED}
        assert {seen[f"{near}_{name}"] for name in ("shoulder", "elbow", "wrist", "knee", "ankle")} == {SEEN}


def test_a_patch_over_a_joint_occludes_it_and_no_other(figure):
    _, points = look(figure, 0)
    x, y = points[H36M_21.index("right_wrist")].astype(int)
    patch = np.zeros((256, 256), bool)
    patch[y - 6 : y + 7, x - 6 : x + 7] = True
    seen, _ = look(figure, 0, pasted=patch)
    assert [name for name, state in seen.items() if state == OCCLUDED] == ["right_wrist"]
    assert {state for name, state in seen.items() if not name.endswith(("heel", "wrist"))} == {SEEN}


def test_a_box_occludes_the_legs_behind_it_and_nothing_before_it(figure):
    legs = [f"{side}_{name}" for side in ("left", "right") for name in ("knee", "ankle", "toe")]
    seen, _ = look(figure, 0, block=(np.array([0, 0, -0.5]), (1.0, 0.1, 0.7)))
    assert {seen[name] for name in legs} == {OCCLUDED}
    assert seen["left_shoulder"] == seen["head"] == SEEN
    seen, _ = look(figure, 0, block=(np.array([0, 1.4, -0.5]), (1.0, 0.1, 0.7)))
    assert {state for name, state in seen.items() if not name.endswith("heel")} == {SEEN}


def test_joints_beyond_the_crop_or_the_photo_are_out_of_frame(figure):
    seen, points = look(figure, 0, focal=900.0)
    outside = ((points < 0) | (points >= 256)).any(axis=1)
    assert outside.any()
    for name, out in zip(H36M_21.joints, outside, strict=True):
        assert (seen[name] == OUT_OF_FRAME) == out
    upper = np.ones((256, 256), bool)
    upper[128:] = False
    seen, points = look(figure, 0, inside=upper)
    for name, (_, y) in zip(H36M_21.joints, points, strict=True):
        assert (seen[name] == OUT_OF_FRAME) == (y >= 128)
