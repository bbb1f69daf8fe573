import numpy as np
import pytest
import torch

from di2pose.errors import InputError
from di2pose.pose.aggregate import ORACLE, covariance, j_agg, j_best, mean_pose, p_agg, p_best, reprojected_pose
from di2pose.pose.camera import Camera
from di2pose.pose.metrics import mpjpe, pa_mpjpe, procrustes

CAMERA = Camera((1100.0, 1100.0), (500.0, 500.0), (1000, 1000), (-0.2, 0.2, 0.001, -0.001, 0.0))


def sampled(batch: int = 6, count: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(batch, 17, 3)) * [250, 450, 200]
    target -= target[:, :1]
    hypotheses = target[:, None] + rng.normal(size=(batch, count, 17, 3)) * 60
    return torch.from_numpy(hypotheses), torch.from_numpy(target)


def some(batch: int = 6) -> torch.Tensor:
    mask = torch.from_numpy(np.random.default_rng(9).random((batch, 17)) < 0.7)
    mask[:, :4] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
def test_each_error_agrees_with_its_definition_one_pose_at_a_time(masked):
    hypotheses, target = sampled()
    mask = some() if masked else None
    for b in range(len(target)):
        one = None if mask is None else mask[b : b + 1]
        keep = slice(None) if mask is None else mask[b]
        truth = target[b : b + 1]
        each = [hypotheses[b : b + 1, h] for h in range(5)]

        assert p_best(hypotheses, target, mask, 0)[b] == pytest.approx(
            min(mpjpe(x, truth, one, 0).item() for x in each)
        )
        assert p_best(hypotheses, target, mask, pa=True)[b] == pytest.approx(
            min(pa_mpjpe(x, truth, one).item() for x in each)
        )
        mean = sum(each) / 5
        assert p_agg(hypotheses, target, mask, 0)[b] == pytest.approx(mpjpe(mean, truth, one, 0).item())
        assert p_agg(hypotheses, target, mask, pa=True)[b] == pytest.approx(pa_mpjpe(mean, truth, one).item())

        rooted = np.stack([(x - x[:, :1] - truth)[0].norm(dim=-1).numpy() for x in each])
        assert j_best(hypotheses, target, mask, 0)[b] == pytest.approx(rooted.min(0)[keep].mean())
        fitted = np.stack([(procrustes(x, truth, one) - truth)[0].norm(dim=-1).numpy() for x in each])
        assert j_best(hypotheses, target, mask, pa=True)[b] == pytest.approx(fitted.min(0)[keep].mean())


def test_p_best_is_chosen_for_every_pose_not_for_the_batch():
    target = torch.zeros(2, 17, 3)
    hypotheses = torch.zeros(2, 2, 17, 3)
    hypotheses[0, 1] += 100.0  # the first pose is best in hypothesis 0, the second in hypothesis 1
    hypotheses[1, 0] += 100.0
    assert p_best(hypotheses, target).tolist() == [0.0, 0.0]


def test_oracles_are_ordered_and_labelled():
    hypotheses, target = sampled()
    joint, pose, first = j_best(hypotheses, target), p_best(hypotheses, target), mpjpe(hypotheses[:, 0], target)
    assert (joint <= pose).all()
    assert (pose <= first).all()
    assert ORACLE == {"p_best": True, "j_best": True, "p_agg": False, "j_agg": False}


def test_one_hypothesis_makes_all_errors_equal():
    hypotheses, target = sampled(count=1)
    root = torch.tensor([[0.0, 0.0, 5000.0]]).double().expand(6, 3)
    px = CAMERA.project(target + root[:, None])
    expected = mpjpe(hypotheses[:, 0], target, root=0)
    for error in (
        p_best(hypotheses, target, root=0),
        p_agg(hypotheses, target, root=0),
        j_best(hypotheses, target, root=0),
        j_agg(hypotheses, target, px, [CAMERA] * 6, root=0),
    ):
        torch.testing.assert_close(error, expected)


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
    assert j_agg(hypotheses, target, px, [CAMERA] * 6, pa=True).max() < 1e-6


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


def test_mean_and_covariance_are_numpys():
    hypotheses, _ = sampled()
    assert torch.equal(mean_pose(hypotheses), hypotheses.mean(1))
    spread = covariance(hypotheses)
    assert spread.shape == (6, 17, 3, 3)
    np.testing.assert_allclose(spread[2, 11].numpy(), np.cov(hypotheses[2, :, 11].numpy().T), rtol=1e-10)
    with pytest.raises(InputError, match="at least 2 hypotheses"):
        covariance(hypotheses[:, :1])


@pytest.mark.usefixtures("as_user")
def test_wrong_shapes_are_refused():
    hypotheses, target = sampled()
    with pytest.raises(InputError, match=r"\(B, H, J, 3\).*got \(6, 17, 3\)"):
        p_agg(target, target)
    with pytest.raises(InputError, match=r"need a target \(6, 17, 3\), got \(6, 14, 3\)"):
        j_best(hypotheses, target[:, :14])
    with pytest.raises(InputError, match="6 cameras"):
        reprojected_pose(hypotheses, target[..., :2], [CAMERA])


def test_a_pose_that_is_wholly_masked_is_nan():
    hypotheses, target = sampled()
    mask = some()
    mask[3] = False
    for error in (p_best, p_agg, j_best):
        for pa in (False, True):
            assert error(hypotheses, target, mask, pa=pa).isnan().tolist() == [b == 3 for b in range(6)]
