"""Where a person stands: exact on exact 2D, held by the box where 2D is wrong, always in front of the camera."""

import numpy as np
import pytest
from output.people import pose

from di2pose.errors import InputError
from di2pose.pose.camera import Camera, fit_root
from di2pose.pose.root import LEAST_DEPTH_MM, place, place_by_box, stature_mm
from di2pose.pose.skeleton import H36M_17

CAMERAS = [
    Camera((900.0, 900.0), (640.0, 360.0), (1280, 720)),
    Camera((520.0, 540.0), (300.0, 260.0), (640, 480), distortion=(-0.2, 0.05, 0.001, -0.001)),
]
NOWHERE = (np.full((17, 2), np.nan), np.zeros(17))


def box_round(points, margin=0.08):
    low, high = points.min(0), points.max(0)
    pad = margin * (high - low).max()
    return (*(low - pad).tolist(), *(high + pad).tolist())


@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize("root", [(0.0, 0.0, 3000.0), (-900.0, 300.0, 4200.0), (500.0, -200.0, 12_000.0)])
def test_exact_2d_gives_the_root_back_from_a_wrong_box(camera, root):
    rng = np.random.default_rng(1)
    for _ in range(5):
        joints = pose(rng)
        points = camera.project(joints + root)
        x0, y0, x1, y1 = box_round(points)
        wrong = (x0 - 0.4 * (x1 - x0), y0, x1, y1 + 0.3 * (y1 - y0))
        np.testing.assert_allclose(place(joints, points, np.ones(17), wrong, camera), root, atol=0.05)


def test_joints_without_a_place_in_the_picture_are_left_out():
    camera, root, joints = CAMERAS[0], np.array([200.0, 0.0, 3500.0]), pose(np.random.default_rng(2))
    points = camera.project(joints + root)
    box = box_round(points)
    points[[0, 7, 8, 9, 10]] = np.nan
    np.testing.assert_allclose(place(joints, points, np.ones(17), box, camera), root, atol=0.05)


def test_a_wild_joint_moves_little_and_one_of_weight_0_nothing():
    camera, root, joints = CAMERAS[0], np.array([200.0, 0.0, 3500.0]), pose(np.random.default_rng(3))
    points = camera.project(joints + root)
    box = box_round(points)
    noisy = points + np.random.default_rng(4).normal(0, 2, points.shape)
    clean = place(joints, noisy, np.ones(17), box, camera)
    noisy[16] += 300
    weights = np.ones(17)
    robust = place(joints, noisy, weights, box, camera)
    assert np.linalg.norm(robust - clean) < 0.03 * root[2]
    weights[16] = 0
    before = place(joints, noisy, weights, box, camera)
    noisy[16] += 1000
    assert np.array_equal(place(joints, noisy, weights, box, camera), before)


def test_where_2d_joints_contradict_the_pose_the_box_holds_the_depth():
    """Landmarks of other joints: what they say of the depth alone is wildly off, with the box it is not."""
    camera, root, rng = CAMERAS[0], np.array([0.0, 0.0, 3000.0]), np.random.default_rng(5)
    alone, held = [], []
    for _ in range(10):
        joints = pose(rng)
        points = camera.project(joints + root)
        shuffled = points[rng.permutation(17)]
        alone.append(fit_root(joints, shuffled, camera)[2])
        held.append(place(joints, shuffled, np.ones(17), box_round(points), camera)[2])
    assert np.abs(np.array(alone) / 3000 - 1).max() > 0.9
    assert np.abs(np.array(held) / 3000 - 1).max() < 0.5


def test_without_2d_joints_the_box_answers():
    camera, joints = CAMERAS[0], pose(np.random.default_rng(6))
    box = box_round(camera.project(joints + np.array([300.0, 100.0, 5000.0])))
    found = place(joints, *NOWHERE, box, camera)
    assert np.array_equal(found, place_by_box(joints, box, camera))
    np.testing.assert_allclose(found, (300, 100, 5000), atol=0.12 * 5000)


def test_everything_stays_in_front_of_the_camera():
    """Somebody as large as the picture twenty times over, and 2D joints that are mirrored, which asks for z < 0."""
    camera = CAMERAS[0]
    rng = np.random.default_rng(7)
    for _ in range(10):
        joints = pose(rng)
        points = 2 * np.array(camera.centre) - camera.project(joints + np.array([0.0, 0.0, 2000.0]))
        for box in ((-12_000.0, -12_000.0, 13_000.0, 13_000.0), box_round(points)):
            root = place(joints, points, np.ones(17), box, camera)
            assert np.isfinite(root).all()
            assert (joints[:, 2] + root[2]).min() >= LEAST_DEPTH_MM - 1e-9
            assert np.isfinite(camera.project(joints + root)).all()


def test_a_box_that_the_lens_cannot_reach_is_named():
    fold = Camera((500.0, 500.0), (320.0, 240.0), (640, 480), distortion=(-0.4, 0.0, 0.0, 0.0))
    with pytest.raises(InputError, match="cannot reach the box"):
        place_by_box(pose(np.random.default_rng(0)), (-5000.0, 0.0, 5000.0, 400.0), fold)


def test_stature_piles_up_the_bones_and_scales_with_the_body():
    joints = pose(np.random.default_rng(8))  # its bones: thigh 450, shank 440, back 235 + 255, neck and head 124 + 117
    expected = (450 + 440 + 235 + 255 + np.hypot(120, 30) + np.hypot(115, 20)) / (1 - 0.039)
    assert stature_mm(joints) == pytest.approx(expected)
    batch = np.stack([joints, 1.1 * joints])
    np.testing.assert_allclose(stature_mm(batch), [expected, 1.1 * expected])
    assert H36M_17.count == len(joints)
