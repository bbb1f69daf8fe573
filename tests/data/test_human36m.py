"""Human3.6M's official download and VideoPose3D's poses: what is theirs alone. test_readers.py has the contract."""

import numpy as np
import pytest
from data import layouts
from data.test_readers import CLIP, positions_npz

from di2pose.data.human36m import ACTIONS, parse_clip
from di2pose.data.human36m import read as read_parts
from di2pose.data.sample import Sources
from di2pose.pose.skeleton import H36M_17


def read(folder, name="h36m", **options):
    """Samples, and what is left out with its reason."""
    return layouts.drain(read_parts(Sources(name, folder, **options)))


@pytest.fixture
def official(tmp_path):
    layouts.write_human36m(tmp_path, "S1", CLIP)
    return tmp_path


def test_the_camera_is_fitted_with_its_distortion(official):
    sample = read(official)[0][0]
    camera, extra = sample.camera, sample.extra
    np.testing.assert_allclose(camera.focal, layouts.FOCAL, atol=0.05)
    np.testing.assert_allclose(camera.centre, layouts.CENTRE, atol=0.05)
    rays = np.stack(np.meshgrid([-0.35, 0.1, 0.3], [-0.3, 0.2]), -1).reshape(-1, 2)
    points = 4000 * np.concatenate([rays, np.ones((6, 1))], 1)
    expected = layouts.project(points, layouts.RADIAL, layouts.TANGENTIAL)
    assert np.abs(camera.project(points) - expected).max() < 0.05
    assert camera.size == (1000, 1002)
    assert 0 <= extra["camera_fit_mean_px"] <= extra["camera_fit_largest_px"] < 0.01


def test_spellings_takes_and_all_are_understood(tmp_path):
    for stem in ("TakingPhoto.54138969", "WalkingDog 1.54138969", "_ALL.54138969", "_ALL 1.54138969"):
        layouts.write_human36m(tmp_path, "S9", stem, 4, video=False)
    assert {(sample.action, sample.sequence, sample.split, sample.image) for sample in read(tmp_path)[0]} == {
        ("Photo", "S9_TakingPhoto.54138969", "test", None),
        ("WalkDog", "S9_WalkingDog_1.54138969", "test", None),
    }
    for action in ACTIONS:
        for base in (action, f"{action} 1", f"{action}_2"):
            assert parse_clip("S1", base)["action"] == action


def test_a_clip_without_its_video_is_left_out(tmp_path):
    layouts.write_human36m(tmp_path, "S11", "Directions.55011271", 4)
    layouts.write_human36m(tmp_path, "S11", "Eating.55011271", 4, video=False)
    samples, left_out = read(tmp_path)
    assert {sample.sequence for sample in samples} == {"S11_Directions.55011271"}
    assert "Eating.55011271.mp4 is missing" in left_out["S11/MyPoseFeatures/D3_Positions_mono/Eating.55011271.cdf"]


def test_poses_beyond_the_end_of_the_video_are_not_read(official):
    layouts.write_video(official / "S1" / "Videos" / f"{CLIP}.mp4", 7)
    assert len(read(official)[0]) == 7


@pytest.mark.parametrize("order", [layouts.H36M_32, layouts.H36M_17], ids=["32", "17"])
def test_positions_are_turned_rigidly_with_left_and_right_kept(tmp_path, order):
    joints = layouts.people(5)
    positions_npz(tmp_path, layouts.ordered(joints, order))
    samples, _ = read(tmp_path, "h36m-npz", seed=3)
    assert {(sample.action, sample.split) for sample in samples} == {
        ("Directions", "train"), ("Photo", "train"), ("WalkDog", "test"),
    }  # fmt: skip
    truth = layouts.ordered(joints, layouts.H36M_17)
    truth = truth - truth[:, :1]
    for sample in samples:
        turn = np.array(sample.extra["rotation"]) @ [[1, 0, 0], [0, 0, 1], [0, -1, 0]]
        assert np.linalg.det(turn) == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(sample.joints_mm @ turn, truth[sample.frame], atol=0.01)
        assert sample.joints_mm[H36M_17.index("head"), 1] < -300  # y is down: the head is above the pelvis
    again, other = (read(tmp_path, "h36m-npz", seed=seed)[0] for seed in (3, 4))
    np.testing.assert_array_equal(again[2].joints_mm, samples[2].joints_mm)
    assert np.abs(other[2].joints_mm - samples[2].joints_mm).max() > 100


def test_each_layout_is_chosen_by_its_name_and_the_fullest_by_default(tmp_path):
    layouts.write_h36m_processed(tmp_path)
    for file in (tmp_path / "annotation_body3d/fps50").iterdir():
        file.rename(tmp_path / file.name)
    positions_npz(tmp_path)
    counts = {name: len(read(tmp_path, name)[0]) for name in ("h36m", "h36m-processed", "h36m-npz")}
    assert counts == {"h36m": 10, "h36m-processed": 10, "h36m-npz": 15}
    layouts.write_human36m(tmp_path, "S1", CLIP)
    assert len(read(tmp_path)[0]) == 12
