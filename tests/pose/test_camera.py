import json

import numpy as np
import pytest
import torch

from di2pose.errors import InputError
from di2pose.pose.camera import Camera, fit_root

# One camera of Human3.6M's kind: mild radial and tangential distortion.
LENS = (-0.207, 0.247, -0.0009, -0.0016, -0.0031)


def turned(distortion=LENS) -> Camera:
    angle = 0.7
    c, s = np.cos(angle), np.sin(angle)
    rotation = ((c, 0.0, -s), (0.0, 1.0, 0.0), (s, 0.0, c))
    return Camera((1145.0, 1143.5), (512.5, 515.4), (1000, 1002), distortion, rotation, (100.0, -250.0, 4500.0))


def points(n: int = 200) -> np.ndarray:
    return np.random.default_rng(0).uniform([-1000, -1000, 3000], [1000, 1000, 6000], size=(n, 3))


def test_projection_agrees_with_a_hand_computation():
    camera = Camera((1000.0, 900.0), (320.0, 240.0))
    np.testing.assert_allclose(camera.project(np.array([[100.0, -200.0, 2000.0]])), [[370.0, 150.0]])
    # x = 0.2, y = -0.1, r2 = 0.05; radial = (1 + .1 r2 + .02 r2^2 + .003 r2^3) / (1 + .04 r2 + .05 r2^2 + .06 r2^3)
    # = 1.005050375 / 1.0021325; tangential x: 2(.01)(-.02) + .02(.05 + .08), y: .01(.05 + .02) + 2(.02)(-.02)
    camera = Camera((1000.0, 1000.0), (0.0, 0.0), None, (0.1, 0.02, 0.01, 0.02, 0.003, 0.04, 0.05, 0.06))
    radial = 1.005050375 / 1.0021325
    expected = [1000 * (0.2 * radial + 0.0022), 1000 * (-0.1 * radial - 0.0001)]
    np.testing.assert_allclose(camera.project(np.array([400.0, -200.0, 2000.0])), expected, rtol=1e-12)


@pytest.mark.parametrize("distortion", [(), (-0.2, 0.1, 0.001, -0.002), LENS, (*LENS, 0.01, -0.02, 0.003)])
def test_a_ray_times_its_depth_is_the_point_again(distortion):
    camera = turned(distortion)
    world = points()
    rays = camera.unproject_ray(camera.project(world))
    np.testing.assert_allclose(rays * world[:, 2:], world, atol=1e-6)


def test_a_pixel_that_the_lens_cannot_reach_is_nan_and_its_neighbours_are_not():
    camera = Camera((1000.0, 1000.0), (500.0, 500.0), None, (-0.3, 0.0, 0.0, 0.0))
    rays = camera.unproject_ray(np.array([[600.0, 500.0], [5000.0, 500.0]]))
    assert np.isfinite(rays[0]).all()
    assert np.isnan(rays[1, :2]).all()


def test_world_to_camera_is_rotation_then_translation_and_back_is_the_identity():
    camera, world = turned(), points()
    np.testing.assert_allclose(camera.to_world(camera.to_camera(world)), world, atol=1e-9)
    np.testing.assert_allclose(camera.to_camera(np.zeros(3)), camera.translation_mm)
    rough = Camera((1.0, 1.0), (0.0, 0.0), rotation=((0.765, 0.0, -0.644), (0.0, 1.0, 0.0), (0.644, 0.0, 0.765)))
    np.testing.assert_allclose(rough.to_world(rough.to_camera(world)), world, atol=1e-9)
    camera = Camera((1.0, 1.0), (0.0, 0.0), None, (), ((0, -1, 0), (1, 0, 0), (0, 0, 1)), (10, 20, 30))
    np.testing.assert_array_equal(camera.to_camera(np.array([1.0, 2.0, 3.0])), [8.0, 21.0, 33.0])


def test_points_not_in_front_are_nan_and_leave_the_gradient_alone():
    camera = turned()
    both = np.array([[0.0, 0.0, 3000.0], [10.0, 10.0, 0.0], [10.0, 10.0, -5.0]])
    px = camera.project(both)
    assert np.isfinite(px[0]).all()
    assert np.isnan(px[1:]).all()
    tensor = torch.tensor(both, requires_grad=True)
    camera.project(tensor)[0].sum().backward()
    assert tensor.grad.isfinite().all()


def test_torch_projects_as_numpy_does_and_the_gradient_is_right():
    camera = turned()
    tensor = torch.tensor(points(5), requires_grad=True)
    np.testing.assert_allclose(camera.project(tensor).detach().numpy(), camera.project(points(5)), rtol=1e-12)
    assert torch.autograd.gradcheck(camera.project, (tensor,))
    assert camera.project(tensor.detach().float()).dtype == torch.float32


def test_json_round_trip_is_equal():
    camera = turned()
    assert Camera.from_json(json.loads(json.dumps(camera.to_json()))) == camera
    record = camera.to_json()
    del record["centre"]
    with pytest.raises(InputError, match="exactly the keys"):
        Camera.from_json(record)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"focal": (0.0, 1000.0)}, "positive focal"),
        ({"centre": (np.nan, 1.0)}, "finite principal point"),
        ({"size": (0, 10)}, r"\(width, height\)"),
        ({"distortion": (0.1, 0.2)}, "0, 4, 5 or 8"),
        ({"rotation": ((2.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 0.0, 2.0))}, "orthonormal"),
        ({"rotation": ((-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))}, "determinant"),
        ({"translation_mm": (0.0, np.inf, 0.0)}, "finite numbers in mm"),
    ],
)
def test_nonsense_is_refused(change, message):
    good = {"focal": (1000.0, 1000.0), "centre": (0.0, 0.0)}
    with pytest.raises(InputError, match=message):
        Camera(**{**good, **change})


def test_wrong_shapes_are_refused():
    camera = turned()
    for call in (camera.project, camera.to_camera, camera.to_world):
        with pytest.raises(InputError, match=r"\(\.\.\., 3\), got \(5, 2\)"):
            call(np.zeros((5, 2)))
    with pytest.raises(InputError, match=r"\(\.\.\., 2\), got \(5, 3\)"):
        camera.unproject_ray(np.zeros((5, 3)))


def test_the_root_is_found_from_2d_alone_even_with_joints_missing():
    camera = turned()
    pose = np.random.default_rng(1).normal(size=(4, 17, 3)) * 300
    root = np.array([[200.0, -100.0, 5000.0], [0.0, 0.0, 4000.0], [-500.0, 50.0, 6000.0], [1.0, 2.0, 3500.0]])
    px = camera.project(pose + root[:, None])
    np.testing.assert_allclose(fit_root(pose, px, camera), root, atol=1e-5)
    px[0, 3:] = np.nan
    px[1, 1:] = np.nan
    found = fit_root(pose, px, camera)
    np.testing.assert_allclose(found[0], root[0], atol=1e-5)
    assert np.isnan(found[1]).all()
