"""Crops as a detector gives them: turned upright, centred on the hips, as wide as on real footage."""

import numpy as np
import pytest
from di2pose_people.body import Shape, model
from di2pose_people.retarget import Rig
from di2pose_people.view import HIPS, LIMBS, SHOULDERS, SIZE, draw_view

from di2pose.pose.skeleton import H36M_17


@pytest.fixture(scope="module")
def joints():
    rig = Rig(model().body(Shape((0.4, 0.75, 0.5, 0.5, 0.52, 0.5, 0.5, 0.5), (0.4, 0.3, 0.3), 1.72)))
    return rig.pose(np.tile(np.eye(3), (20, 1, 1))).joints


@pytest.fixture(scope="module")
def views(joints):
    generator = np.random.default_rng(0)
    ground = joints[:, 2].min() - 0.08
    return [draw_view(joints, 0.0, ground, generator) for _ in range(400)]


def test_crops_have_the_size_and_centre_of_a_detectors(views, joints):
    for view in views:
        if view.kind == "close":
            continue
        points = view.to_pixels(view.to_camera(joints))
        hips = points[list(HIPS)].mean(axis=0)
        assert np.abs(hips - SIZE / 2).max() < 0.13 * SIZE
        ratio = SIZE / 2 / np.linalg.norm(points[list(LIMBS)] - hips, axis=1).max()
        assert abs(ratio - view.side_ratio) < 1e-6
        assert 0.9 < ratio < 2.0
    ratios = [view.side_ratio for view in views if view.kind == "detector"]
    assert 1.2 < np.median(ratios) < 1.35  # arms out: they reach farther than the head


def test_detector_crops_hold_the_body_upright(views, joints):
    angles = []
    for view in views:
        if view.kind == "detector" and abs(view.pitch) < 0.5:
            points = view.to_pixels(view.to_camera(joints))
            x, y = points[list(SHOULDERS)].mean(axis=0) - points[list(HIPS)].mean(axis=0)
            angles.append(np.degrees(np.arctan2(x, -y)))
    assert np.median(np.abs(angles)) < 8
    assert 20 < np.max(np.abs(angles)) < 75


def test_a_body_that_faces_the_camera_has_its_left_on_the_right_of_the_picture(views, joints):
    for view in views:
        if view.kind == "upright" and abs(view.yaw) < 1.0 and abs(view.pitch) < 0.5:
            points = view.to_pixels(view.to_camera(joints))
            assert points[H36M_17.index("left_shoulder"), 0] > points[H36M_17.index("right_shoulder"), 0]


def test_cameras_are_rotations_above_the_floor_and_vary_widely(views, joints):
    ground = joints[:, 2].min() - 0.08
    for view in views:
        assert np.allclose(view.rotation @ view.rotation.T, np.eye(3))
        assert np.linalg.det(view.rotation) > 0
        assert view.position[2] > ground
    pitch, fields = np.degrees([v.pitch for v in views]), np.degrees([2 * np.arctan(SIZE / 2 / v.focal) for v in views])
    assert pitch.min() < -12
    assert pitch.max() > 50
    assert fields.min() < 15
    assert fields.max() > 70


def test_misled_crops_are_turned_anyhow_and_further_off(views, joints):
    generator, ground = np.random.default_rng(0), joints[:, 2].min() - 0.08
    misled = [draw_view(joints, 0.0, ground, generator, misled=True) for _ in range(400)]

    def crops(some):
        kept = [view for view in some if view.kind == "detector" and abs(view.pitch) < 0.5]
        points = [view.to_pixels(view.to_camera(joints)) for view in kept]
        axes = np.array([p[list(SHOULDERS)].mean(axis=0) - p[list(HIPS)].mean(axis=0) for p in points])
        away = np.array([np.linalg.norm(p[list(HIPS)].mean(axis=0) - SIZE / 2) for p in points]) / SIZE
        return np.degrees(np.abs(np.arctan2(axes[:, 0], -axes[:, 1]))), away, [view.side_ratio for view in kept]

    (angle, away, ratio), (wild_angle, wild_away, wild_ratio) = crops(views), crops(misled)
    assert (angle > 90).mean() < 0.02
    assert 0.1 < (wild_angle > 90).mean() < 0.25
    assert np.median(wild_away) > 1.4 * np.median(away)
    assert np.std(wild_ratio) > 1.3 * np.std(ratio)
