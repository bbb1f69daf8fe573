import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.metrics import auc, mpjpe, pa_mpjpe, pck, procrustes, reprojected_pose
from di2pose.pose.skeleton import H36M_17, mirror

HIPS = H36M_17.indices("left_hip", "right_hip")


def poses(seed: int, batch: int = 32, noise: float = 80.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions and targets of a person's size: a random target, and a turned, shrunk and noisy copy of it."""
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(batch, 17, 3)) * [250, 450, 200] + rng.normal(size=(batch, 1, 3)) * 100
    turn = Rotation.random(batch, rng=rng).as_matrix()
    pred = rng.uniform(0.6, 1.5, (batch, 1, 1)) * target @ turn + rng.normal(size=target.shape) * noise
    return torch.from_numpy(pred), torch.from_numpy(target)


def similar(pose: torch.Tensor, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    turn = torch.from_numpy(Rotation.random(len(pose), rng=rng).as_matrix())
    scale = torch.from_numpy(rng.uniform(0.2, 5.0, (len(pose), 1, 1)))
    return scale * pose @ turn + torch.from_numpy(rng.normal(size=(len(pose), 1, 3)) * 500)


def masks(seed: int, batch: int = 32) -> torch.Tensor:
    mask = torch.from_numpy(np.random.default_rng(seed).random((batch, 17)) < 0.6)
    mask[:, :4] = True
    return mask


def slow_mpjpe(pred, target, mask=None, root=None):
    """The same definition, one pose and one joint at a time."""
    result = []
    for b in range(len(pred)):
        p, t = pred[b].numpy(), target[b].numpy()
        if root is not None:
            joints = [root] if isinstance(root, int) else list(root)
            p, t = p - np.mean([p[j] for j in joints], axis=0), t - np.mean([t[j] for j in joints], axis=0)
        joints = [j for j in range(len(p)) if mask is None or mask[b, j]]
        result.append(sum(np.sqrt(((p[j] - t[j]) ** 2).sum()) for j in joints) / len(joints))
    return torch.tensor(result)


def slow_pa_mpjpe(pred, target, mask=None):
    """Another route to the same optimum: scipy's rotation (never a mirror), then the scale by least squares."""
    result = []
    for b in range(len(pred)):
        keep = np.ones(17, bool) if mask is None else mask[b].numpy()
        p, t = pred[b].numpy()[keep], target[b].numpy()[keep]
        p, t = p - p.mean(0), t - t.mean(0)
        turned = Rotation.align_vectors(t, p)[0].apply(p)
        scale = np.vdot(turned, t) / np.vdot(turned, turned)
        result.append(np.linalg.norm(scale * turned - t, axis=1).mean())
    return torch.tensor(result)


@pytest.mark.parametrize("root", [None, 0, 8, HIPS])
@pytest.mark.parametrize("masked", [False, True])
def test_mpjpe_agrees_with_an_independent_implementation(root, masked):
    pred, target = poses(0)
    mask = masks(1) if masked else None
    torch.testing.assert_close(mpjpe(pred, target, mask, root), slow_mpjpe(pred, target, mask, root), rtol=0, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_pa_mpjpe_agrees_with_an_independent_implementation(masked):
    pred, target = poses(2)
    mirrored = target * torch.tensor([-1.0, 1.0, 1.0])  # half of the batch needs the reflection fix
    pred = torch.where(torch.arange(32)[:, None, None] % 2 == 0, pred, mirrored + 0.1 * pred)
    mask = masks(3) if masked else None
    torch.testing.assert_close(pa_mpjpe(pred, target, mask), slow_pa_mpjpe(pred, target, mask), rtol=0, atol=1e-6)


def test_float32_gives_float32_close_to_float64():
    pred, target = poses(4)
    for metric in (mpjpe, pa_mpjpe):
        single = metric(pred.float(), target.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), metric(pred, target), rtol=0, atol=1e-3)
    assert mpjpe(pred.float(), target).dtype == torch.float64


def test_pa_mpjpe_may_exceed_mpjpe_and_mirror_images_are_not_aligned():
    one, target = poses(5, batch=1)[1], poses(6)[1]
    pred = one.clone()
    pred[0, 16] += 300.0  # all joints right but one: the least-squares fit spoils the sixteen to help the one
    assert pa_mpjpe(pred, one) > mpjpe(pred, one)
    assert (pa_mpjpe(target * torch.tensor([-1.0, 1.0, 1.0]), target) > 20).all()
    assert (pa_mpjpe(mirror(target, H36M_17), target) > 20).all()
    flat = target * torch.tensor([1.0, 1.0, 0.0])
    torch.testing.assert_close(procrustes(similar(flat, 8), flat), flat, rtol=0, atol=1e-6)


def test_masked_joints_do_not_matter_and_all_joints_are_moved_by_the_fit():
    pred, target = poses(9)
    mask = masks(10)
    rubbish = torch.where(mask[..., None], pred, torch.nan)
    rubbish_target = torch.where(mask[..., None], target, torch.nan)
    assert torch.equal(mpjpe(rubbish, rubbish_target, mask), mpjpe(pred, target, mask))
    assert torch.equal(pa_mpjpe(rubbish, rubbish_target, mask), pa_mpjpe(pred, target, mask))
    assert torch.equal(pck(rubbish, rubbish_target, mask), pck(pred, target, mask))
    moved = similar(target, 11)
    torch.testing.assert_close(procrustes(moved, target, mask), target, rtol=0, atol=1e-6)


def test_a_pose_without_joints_or_with_a_nan_is_nan_and_its_neighbours_are_not():
    pred, target = poses(12, batch=3)
    mask = torch.ones(3, 17, dtype=torch.bool)
    mask[1] = False
    for metric in (mpjpe, pa_mpjpe, pck, auc):
        assert metric(pred, target, mask).isnan().tolist() == [False, True, False]
    few = torch.arange(17) < torch.tensor([[2], [3], [4]])
    assert pa_mpjpe(pred, target, few).isnan().tolist() == [True, False, False]
    pred[1, 5, 0] = torch.nan
    for metric in (mpjpe, pa_mpjpe):
        assert metric(pred, target).isnan().tolist() == [False, True, False]
    assert pck(pred, target, threshold_mm=1e9)[1] == pytest.approx(16 / 17)  # a joint that is not there is not found


def test_a_prediction_of_one_point_costs_the_spread_of_the_target():
    target = poses(15, batch=4)[1]
    expected = torch.linalg.vector_norm(target - target.mean(1, keepdim=True), dim=-1).mean(-1)
    torch.testing.assert_close(pa_mpjpe(torch.zeros_like(target), target), expected)


def test_gradients_are_right():
    pred, target = (pose[:1, :6].requires_grad_() for pose in poses(16))
    mask = masks(17, batch=1)[:, :6]
    assert torch.autograd.gradcheck(lambda p, t: mpjpe(p, t, mask, HIPS), (pred, target))
    assert torch.autograd.gradcheck(lambda p, t: pa_mpjpe(p, t, mask), (pred, target))
    assert torch.autograd.gradcheck(procrustes, (pred, target))


def test_masked_nans_and_empty_poses_leave_finite_gradients():
    pred, target = poses(18, batch=3)
    mask = masks(19, batch=3)
    mask[2] = False
    pred = torch.where(mask[..., None], pred, torch.nan).requires_grad_()
    for metric in (mpjpe, pa_mpjpe):
        (gradient,) = torch.autograd.grad(metric(pred, target, mask)[:2].sum(), pred)
        assert gradient.isfinite().all()
        assert gradient[:2].abs().sum() > 0
    (gradient,) = torch.autograd.grad(mpjpe(target.requires_grad_(), target.detach()).sum(), target)
    assert gradient.isfinite().all()


def test_pck_and_auc_of_known_errors():
    target = torch.zeros(2, 17, 3, dtype=torch.float64)
    pred = target.clone()
    pred[0, :, 0] = torch.arange(17) * 10.0  # 0, 10, ..., 160 mm
    pred[1, :, 1] = 150.0
    assert pck(pred, target)[0] == pytest.approx(15 / 17)  # 0 to 140; 150 is not below 150
    assert pck(pred, target)[1] == 0
    assert pck(pred, target, root=3)[1] == 1
    assert pck(pred, target, threshold_mm=25.0)[0] == pytest.approx(3 / 17)
    expected = np.mean([np.mean([10 * k < t for k in range(17)]) for t in range(0, 151, 5)])
    assert auc(pred, target)[0] == pytest.approx(expected)
    assert auc(target, target)[0] == pytest.approx(30 / 31)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("metric", [mpjpe, pa_mpjpe, procrustes, pck, auc])
def test_wrong_input_is_refused_with_the_shapes(metric):
    pred, target = poses(20, batch=2)
    with pytest.raises(InputError, match=r"\(B, J, 3\), got \(17, 3\) and \(17, 3\)"):
        metric(pred[0], target[0])
    with pytest.raises(InputError, match=r"got \(2, 17, 3\) and \(2, 14, 3\)"):
        metric(pred, target[:, :14])
    with pytest.raises(InputError, match="floating point"):
        metric(pred.long(), target.long())
    with pytest.raises(InputError, match=r"mask must be bool of shape \(2, 17\).*float64"):
        metric(pred, target, torch.ones(2, 17).double())


@pytest.mark.parametrize("root", [17, -1, (), (0, 99)])
def test_a_root_that_is_no_joint_is_refused(root):
    pred, target = poses(21, batch=2)
    with pytest.raises(InputError, match="from 0 to 16"):
        mpjpe(pred, target, root=root)


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
