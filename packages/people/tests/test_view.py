"""Crops as a detector gives them: turned upright, centred on the hips, as wide as on real footage."""

import numpy as np
import pytest
from di2pose_people.body import Shape, model
from di2pose_people.retarget import Rig
from di2pose_people.view import HIPS, LIMBS, SHOULDERS, SIZE, draw_view


@pytest.fixture(scope="module")
def joints():
    rig = Rig(model().body(Shape((0.4, 0.75, 0.5, 0.5, 0.52, 0.5, 0.5, 0.5), (0.4, 0.3, 0.3), 1.72)))
    return rig.pose(np.tile(np.eye(3), (20, 1, 1))).joints


@pytest.fixture(scope="module")
def views(joints):
    generator = np.random.default_rng(0)
    ground = joints[:, 2].min() - 0.08
    return [draw_view(joints, 0.0, ground, generator) for _ in range(300)]


def crops(views, joints):
    """Angle of the trunk in the picture (degrees), distance of the hips from the crop's centre (sides), side ratio."""
    points = np.stack([view.to_pixels(view.to_camera(joints)) for view in views])
    hips = points[:, HIPS].mean(axis=1)
    x, y = (points[:, SHOULDERS].mean(axis=1) - hips).T
    away = np.linalg.norm(hips - SIZE / 2, axis=1) / SIZE
    ratio = SIZE / 2 / np.linalg.norm(points[:, LIMBS] - hips[:, None], axis=2).max(axis=1)
    return np.degrees(np.arctan2(x, -y)), away, ratio


def test_crops_have_the_size_and_centre_of_a_detectors(views, joints):
    whole = [view for view in views if view.kind != "close"]
    _, away, ratio = crops(whole, joints)
    assert away.max() < 0.18
    assert np.allclose(ratio, [view.side_ratio for view in whole])
    assert 0.9 < ratio.min() <= ratio.max() < 2.0
    assert 1.2 < np.median([view.side_ratio for view in views if view.kind == "detector"]) < 1.35  # arms out: wide


def test_crops_hold_the_body_upright_and_misled_ones_are_turned_anyhow_and_further_off(views, joints):
    generator, ground = np.random.default_rng(0), joints[:, 2].min() - 0.08
    misled = [draw_view(joints, 0.0, ground, generator, misled=True) for _ in range(400)]
    (angle, away, ratio), (wild_angle, wild_away, wild_ratio) = (
        crops([view for view in some if view.kind == "detector" and abs(view.pitch) < 0.5], joints)
        for some in (views, misled)
    )
    assert np.median(np.abs(angle)) < 8
    assert 20 < np.abs(angle).max() < 75
    assert 0.1 < (np.abs(wild_angle) > 90).mean() < 0.25
    assert np.median(wild_away) > 1.4 * np.median(away)
    assert np.std(wild_ratio) > 1.3 * np.std(ratio)


def test_cameras_are_rotations_above_the_floor_and_vary_widely(views, joints):
    for view in views:
        assert np.allclose(view.rotation @ view.rotation.T, np.eye(3))
        assert np.linalg.det(view.rotation) > 0
        assert view.position[2] > joints[:, 2].min() - 0.08
        if view.kind == "upright" and abs(view.yaw) < 1.0 and abs(view.pitch) < 0.5:  # it faces the camera
            left, right = view.to_pixels(view.to_camera(joints))[list(SHOULDERS), 0]
            assert left > right
    pitch, fields = np.degrees([v.pitch for v in views]), np.degrees([2 * np.arctan(SIZE / 2 / v.focal) for v in views])
    assert pitch.min() < -12
    assert pitch.max() > 50
    assert fields.min() < 15
    assert fields.max() > 70
