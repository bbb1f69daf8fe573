import numpy as np
import pytest
import torch

from di2pose.errors import InputError
from di2pose.pose.aggregate import reprojected_pose
from di2pose.pose.camera import Camera

CAMERA = Camera((1100.0, 1100.0), (500.0, 500.0), (1000, 1000), (-0.2, 0.2, 0.001, -0.001, 0.0))


def sampled(batch: int = 6, count: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(batch, 17, 3)) * [250, 450, 200]
    target -= target[:, :1]
    hypotheses = target[:, None] + rng.normal(size=(batch, count, 17, 3)) * 60
    return torch.from_numpy(hypotheses), torch.from_numpy(target)


@pytest.mark.parametrize("known_root", [True, False])
def test_the_reprojected_pose_takes_the_true_joint_wherever_a_hypothesis_has_it(known_root):
    _, target = sampled()
    rng = np.random.default_rng(1)
    root = torch.from_numpy(rng.uniform([-500, -500, 4000], [500, 500, 6000], (6, 3)))
    px = CAMERA.project(target + root[:, None])
    noise = torch.from_numpy(rng.normal(size=(6, 2, 17, 3)) * 150)
    # One whole hypothesis is the truth, so that the fitted root of that one is exact as well.
    hypotheses = torch.cat([target[:, None] + noise, target[:, None]], dim=1)
    pose = reprojected_pose(hypotheses, px, [CAMERA] * 6, root if known_root else None)
    torch.testing.assert_close(pose, target)


def test_with_the_root_known_joints_are_mixed_from_several_hypotheses():
    _, target = sampled()
    root = torch.tensor([0.0, 0.0, 5000.0]).double().expand(6, 3)
    px = CAMERA.project(target + root[:, None])
    upper = torch.arange(17) > 7
    first = torch.where(upper[:, None], target, target + 200)
    second = torch.where(upper[:, None], target + 200, target)
    pose = reprojected_pose(torch.stack([first, second], dim=1), px, [CAMERA] * 6, root)
    torch.testing.assert_close(pose, target)


def test_a_joint_without_2d_takes_the_mean_of_the_hypotheses():
    hypotheses, target = sampled()
    px = CAMERA.project(target + torch.tensor([0.0, 0.0, 5000.0]).double())
    px[:, 10] = torch.nan
    pose = reprojected_pose(hypotheses, px, [CAMERA] * 6)
    torch.testing.assert_close(pose[:, 10], hypotheses[:, :, 10].mean(1))
    assert pose.isfinite().all()


@pytest.mark.usefixtures("as_user")
def test_wrong_shapes_are_refused():
    hypotheses, target = sampled()
    with pytest.raises(InputError, match="6 cameras"):
        reprojected_pose(hypotheses, target[..., :2], [CAMERA])
