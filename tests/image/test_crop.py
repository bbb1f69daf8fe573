"""The crop and its inverses: pixels, 2D points, 3D axes, camera."""

import math

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.crop import Roi, assumed_camera, crop, crop_camera, roi_from_box, roi_from_keypoints
from di2pose.pose.camera import Camera

TURNED = Roi((310.5, 212.25), 181.0, 0.7)


def test_matrix_and_inverse_undo_each_other():
    points = np.random.default_rng(0).uniform(-50, 300, (40, 2))
    assert np.abs(TURNED.to_crop(TURNED.to_image(points)) - points).max() < 1e-9
    single = TURNED.to_image(points.astype(np.float32))
    assert single.dtype == np.float32
    assert np.abs(single - TURNED.to_image(points)).max() < 1e-3


def test_angle_is_clockwise_and_turns_the_up_direction():
    quarter = Roi((100.0, 100.0), 50.0, math.pi / 2)
    top_of_crop = quarter.to_image(np.array([128.0, 0.0]))
    assert np.allclose(top_of_crop, [125.0, 100.0])  # up in the crop is right in the image


def test_corners_of_an_upright_region_are_its_borders():
    roi = roi_from_box((10, 20, 50, 100))
    assert roi == Roi((30.0, 60.0), 100.0, 0.0)
    assert np.allclose(roi.to_image(np.array([[0.0, 0.0], [256.0, 256.0]])), [[-20, 10], [80, 110]])


def test_keypoints_give_a_hip_centred_region_with_top_straight_up():
    roi = roi_from_keypoints((100, 100), (140, 70))
    assert roi.side == pytest.approx(125.0)
    assert np.allclose(roi.to_crop(np.array([[100.0, 100.0], [140.0, 70.0]])), [[128, 128], [128, 128 - 128 / 1.25]])


def test_pixels_follow_the_points():
    """A bright pixel of the image lies in the crop where its centre is mapped to."""
    for roi in (Roi((40.0, 30.0), 32.0, 0.0), Roi((41.0, 33.0), 40.0, 1.1), Roi((38.0, 31.0), 60.0, -2.0)):
        image = np.zeros((64, 80, 3), np.uint8)
        image[33, 42] = 255
        pixels = crop(image, roi, 256).astype(np.float64)[..., 0]
        rows, columns = np.mgrid[0:256, 0:256] + 0.5
        centre = np.array([(pixels * columns).sum(), (pixels * rows).sum()]) / pixels.sum()
        assert np.abs(centre - roi.to_crop(np.array([42.5, 33.5]))).max() < 0.1


def test_shrinking_does_not_alias():
    """Pixel-wide stripes, shrunk eight times, become grey and not a moire."""
    stripes = np.zeros((1800, 1800, 3), np.uint8)
    stripes[:, ::2] = 255
    pixels = crop(stripes, Roi((900.0, 900.0), 1300.0, 0.3), 160)
    assert abs(pixels.mean() - 127.5) < 2
    assert pixels.std() < 4


def test_outside_the_image_is_black():
    white = np.full((50, 50, 3), 255, np.uint8)
    half = crop(white, Roi((0.0, 25.0), 40.0), 64)
    assert (half[:, :31] == 0).all()
    assert (half[:, 33:] == 255).all()
    assert (crop(white, Roi((500.0, 500.0), 40.0), 64) == 0).all()


def test_on_the_optical_axis_the_crop_camera_sees_exactly_the_crop():
    turn = ((0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    camera = Camera((900.0, 900.0), (320.0, 240.0), (640, 480), (), turn, (100.0, -50.0, 3000.0))
    roi = Roi((320.0, 240.0), 211.0, 0.6)
    turned, rotation = crop_camera(camera, roi, 256)
    assert np.allclose(turned.to_camera(np.ones(3)), camera.to_camera(np.ones(3)) @ rotation.T)
    points = np.random.default_rng(5).normal(scale=300, size=(20, 3)) + np.array([0, 0, 4000])
    assert np.abs(turned.project(points @ rotation.T) - roi.to_crop(camera.project(points))).max() < 1e-9


def test_off_the_axis_the_crop_camera_agrees_to_first_order():
    """At 20 degrees off the axis a point 2 % off the ray is met to a tenth of its way from the centre."""
    camera = Camera((900.0, 900.0), (640.0, 360.0), (1280, 720))
    roi = Roi((960.0, 270.0), 200.0, 0.5)
    turned, rotation = crop_camera(camera, roi, 256)
    ray = camera.unproject_ray(np.array(roi.centre)) * 4000
    assert np.abs(turned.project(ray @ rotation.T) - 128).max() < 1e-6
    near = ray + np.random.default_rng(6).uniform(-80, 80, (20, 3))
    seen, expected = turned.project(near @ rotation.T), roi.to_crop(camera.project(near))
    assert (np.linalg.norm(seen - expected, axis=1) < 0.1 * np.linalg.norm(expected - 128, axis=1) + 0.1).all()


def test_assumed_camera_spans_the_stated_field_of_view():
    camera = assumed_camera((600, 800), 60.0)
    edges = camera.unproject_ray(np.array([[300.0, 0.0], [300.0, 800.0]]))
    assert math.degrees(math.acos(edges[0] @ edges[1] / np.linalg.norm(edges, axis=1).prod())) == pytest.approx(60)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Roi((0.0, 0.0), 0.0),
        lambda: Roi((0.0, math.nan), 5.0),
        lambda: roi_from_box((10, 10, 10, 20)),
        lambda: roi_from_keypoints((5, 5), (5, 5)),
        lambda: assumed_camera((10, 10), 0.0),
        lambda: crop(Image.new("L", (10, 10)), Roi((5.0, 5.0), 5.0)),
    ],
)
def test_impossible_regions_are_refused(make):
    with pytest.raises(InputError):
        make()
