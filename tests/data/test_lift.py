"""`di2pose data lift`: simulated 2D keypoints as a feature cache, and MoveNet's out of another cache."""

from dataclasses import replace

import numpy as np
from stick_figures import stick_figures, write_set

from di2pose.cli import main
from di2pose.data import lift
from di2pose.data.feature_cache import FeatureCache
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, Sample
from di2pose.noise import generator_of
from di2pose.pose.skeleton import COCO_17, H36M_17

CLEAN = lift.Observer(noise=0.0, patched=0.0, patch=(0.1, 0.2), cut=0.0, swapped=0.0)
TEXT = {"subject": "s", "action": "a", "sequence": "q", "split": "test"}
POSES = stick_figures(20, generator_of(0, "lift")).numpy()


def drawn(observer, seed=0, count=256):
    """Keypoints, poses and visibilities of some records."""
    source = lift.Keypoints(POSES, [TEXT | {"id": f"r{i}"} for i in range(20)], observer, count, seed)
    found = [source.crop(i) for i in range(count)]
    assert [text["id"].split("#")[1] for _, _, text in found] == [str(i) for i in range(count)]
    return tuple(map(np.stack, zip(*((k, v["joints_mm"], v["visibility"]) for k, v, _ in found), strict=True)))


def test_without_noise_keypoints_are_seen_by_one_camera():
    keypoints, joints_mm, _ = drawn(CLEAN)
    inside = (np.abs(keypoints[..., :2]) <= 1).all(-1)
    assert (keypoints[..., 3] == inside).mean() > 0.99
    limbs = joints_mm[:, H36M_17.indices(*COCO_17.joints[5:])].astype(float)
    for seen, pose in zip(keypoints[:, 5:].astype(float), limbs, strict=True):
        there = seen[:, 3] == 1
        (x, y, z), (u, v) = pose[there].T, seen[there, :2].T
        # u (z + D) = a x - b (z + D): linear in a, b, b D and D; likewise v.
        nothing, one = np.zeros_like(x), np.ones_like(x)
        rows = np.concatenate([np.stack([x, -z, nothing, -one, nothing, -u], 1),
                               np.stack([y, nothing, -z, nothing, -one, -v], 1)])  # fmt: skip
        rows /= np.abs(rows).max(0).clip(1e-9)
        wanted = np.concatenate([u * z, v * z]) / 1000
        left = np.linalg.lstsq(rows, wanted, rcond=None)[0]
        assert np.abs(rows @ left - wanted).max() < 2e-3


def test_what_is_hidden_is_known_and_hidden_keypoints_are_missing_or_far_off():
    noisy = replace(CLEAN, noise=0.01, patched=1.0, patch=(0.3, 0.5), cut=0.3)
    seen, _, visibility = drawn(noisy)
    clean, _, _ = drawn(replace(noisy, noise=1e-9))  # the same draws
    assert set(np.unique(visibility)) == {SEEN, OCCLUDED, OUT_OF_FRAME}
    state = visibility[:, H36M_17.indices(*COCO_17.joints[5:])]
    missing = seen[:, 5:, 3] == 0
    assert missing[state == OUT_OF_FRAME].all()
    assert not missing[state == SEEN].any()
    assert 0.4 < missing[state == OCCLUDED].mean() < 0.6
    error = np.linalg.norm(seen[:, 5:, :2] - clean[:, 5:, :2], axis=-1)
    guessed = (state == OCCLUDED) & ~missing
    assert np.median(error[guessed]) > 4 * np.median(error[state == SEEN])
    assert seen[:, 5:, 2][guessed].mean() < 0.6 * seen[:, 5:, 2][state == SEEN].mean()  # scores tell
    assert (seen[..., 3] * 1.0 == (np.abs(seen).sum(-1) > 0)).all()


def test_swapped_sides_and_the_two_published_settings():
    plain, _, _ = drawn(CLEAN)
    swapped, _, _ = drawn(replace(CLEAN, swapped=1.0))
    left, right = (COCO_17.indices(f"{side}_knee")[0] for side in ("left", "right"))
    both = (plain[:, [left, right], 3] == 1).all(1)
    np.testing.assert_allclose(swapped[both][:, left, :2], plain[both][:, right, :2], atol=1e-6)
    clear, hard = (drawn(lift.OBSERVERS[name])[2] for name in ("clear", "hard"))
    assert (clear != SEEN).mean() < 0.12 < 0.25 < (hard != SEEN).mean()


def test_a_face_looks_where_the_shoulders_point(monkeypatch):
    monkeypatch.setattr(lift, "HEAD_YAW", 0.0)
    pose = np.zeros((1, 17, 3))
    for name, place in {"head": (0, -750, 0), "nose": (0, -600, 0), "left_shoulder": (180, -450, 0),
                        "right_shoulder": (-180, -450, 0)}.items():  # fmt: skip
        pose[0, H36M_17.indices(name)[0]] = place
    nose, left_eye, right_eye, left_ear, right_ear = lift.face_points(pose, np.random.default_rng(0))[0]
    assert nose[2] < -90  # towards the camera, which the person faces
    assert left_eye[0] > 20 > -20 > right_eye[0]
    assert left_ear[0] > left_eye[0]
    assert abs(left_ear[2]) < 20
    assert right_ear[1] < nose[1]


def test_the_command_writes_the_same_cache_again_and_another_seed_another(tmp_path):
    poses = write_set(tmp_path / "set", [Sample(f"r{i}", pose, split="test") for i, pose in enumerate(POSES)])
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        words = ["data", "lift", poses, "--split", "test", "--count", 40, "--seed", seed, "--out", tmp_path / name]
        assert main([*map(str, words)]) == 0
    a, b, c = (FeatureCache(tmp_path / name).features(np.arange(40)).numpy() for name in "abc")
    assert a.shape == (40, 17, 17 * lift.CHANNELS)
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 0.05
    assert np.abs(a[:, 3, : 3 * lift.CHANNELS]).max() == 0  # each keypoint has channels of its own
    assert main(["data", "lift", str(poses), "--count", "0", "--out", str(tmp_path / "no")]) == 2
