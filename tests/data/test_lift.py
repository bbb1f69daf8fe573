"""`di2pose data lift`: simulated 2D keypoints as a feature cache, and MoveNet's out of another cache."""

from dataclasses import replace

import numpy as np
import pytest
from stick_figures import stick_figures, write_set

from di2pose.cli import main
from di2pose.data import bvh, lift
from di2pose.data.feature_cache import FeatureCache, write_features
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, Sample
from di2pose.errors import InputError
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.image.keypoint_encoder import CHANNELS
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
    inside, face = (np.abs(keypoints[..., :2]) <= 1).all(-1), np.arange(17) < 5
    assert (keypoints[..., 3] == inside)[:, ~face].mean() > 0.99
    assert 0.5 < (keypoints[:, face, 3] == 1).all(1).mean() < 0.7  # others have none
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
    assert a.shape == (40, 17, 17 * CHANNELS)
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 0.05
    assert np.abs(a[:, 3, : 3 * CHANNELS]).max() == 0  # each keypoint has channels of its own
    assert main(["data", "lift", str(poses), "--count", "0", "--out", str(tmp_path / "no")]) == 2


def test_mirror_images_are_what_is_seen_of_mirrored_people(tmp_path):
    poses = write_set(tmp_path / "set", [Sample(f"r{i}", pose, split="test") for i, pose in enumerate(POSES)])
    words = ["data", "lift", poses, "--split", "test", "--count", 20, "--mirrored", "--out", tmp_path / "cache"]
    assert main([*map(str, words)]) == 0
    cache = FeatureCache(tmp_path / "cache")
    here, there = (cache.features(np.arange(20), flipped=each).numpy().reshape(20, 17, 17, 4) for each in (False, True))
    left, right = COCO_17.indices("left_wrist", "right_wrist")
    assert np.abs(here[:, left, left, 0]).max() > 0.1
    np.testing.assert_allclose(there[:, right, right], here[:, left, left] * (-1, 1, 1, 1), atol=2e-3)


def test_movenets_keypoints_come_out_of_another_cache(tmp_path):
    class Pictures:
        name = "blazepose-heavy+movenet"
        layout = FeatureLayout((TokenBlock("map", 1, 3, 0), TokenBlock("movenet", 17, 6, 0)))

        def __len__(self):
            return 5

        def crop(self, i):
            return np.full((2, 2), i, np.uint8), {"joints_mm": POSES[i].astype(np.float32)}, TEXT | {"id": f"p{i}"}

        def cache_parts(self, crops):
            number = crops[:, 0, 0].astype(np.float32)
            tokens = np.arange(17 * 6, dtype=np.float32).reshape(17, 6) / 200 + number[:, None, None]
            return {"map": np.zeros((len(crops), 1, 3), np.float16), "movenet": tokens.astype(np.float16)}

    write_features(Pictures(), Pictures(), tmp_path / "pictures", {"skeleton": "h36m_17", "source": "p"})
    assert main(["data", "lift", str(tmp_path / "pictures"), "--out", str(tmp_path / "lifted")]) == 0
    cache = FeatureCache(tmp_path / "lifted")
    np.testing.assert_array_equal(cache.column("joints_mm"), POSES[:5].astype(np.float32))
    token = cache.features(np.array([3])).numpy()[0, 2, 2 * CHANNELS : 3 * CHANNELS]
    steps = np.arange(17) - 11.5  # keypoints lie on a line, the hips in its middle at 11 and 12
    place = (2 - 11.5) / np.sqrt(2 * np.square(steps).mean())
    np.testing.assert_allclose(token, [place, place, 3 + 16 / 200, 1], atol=0.02)
    assert [line["id"] for line in cache.index] == [f"p{i}" for i in range(5)]
    with pytest.raises(InputError, match="holds no keypoints of MoveNet"):
        lift.MoveNetKeypoints(cache)
    assert main(["data", "lift", str(tmp_path / "pictures"), "--window", "3", "--out", str(tmp_path / "windows")]) == 0
    window = FeatureCache(tmp_path / "windows").features(np.array([3])).numpy()[0]
    assert not window[[0, 2]].any()  # the other frames are missing
    np.testing.assert_allclose(window[1].reshape(17, 4)[2], token, atol=1e-3)


def test_windows_are_frames_of_one_motion_by_one_body_and_camera(tmp_path):
    """A body that walks on at 1.2 m/s and turns its arms, 24 frames a second; frames 10 to 12 are not there."""
    frames = [k for k in range(60) if not 10 <= k <= 12]
    turn = bvh.virtual_camera(0, "any")
    samples = []
    for k in frames:
        pose = POSES[0] @ turn  # of the camera in which POSES are, back to a world
        pose[H36M_17.index("left_wrist")] += (0, 2.0 * k, 0)
        extra = {"rotation": turn.tolist(), "root_mm": [50.0 * k, 900.0, 0.0], "time_s": k / 24}
        samples.append(Sample(f"r{k}", (pose @ turn.T).astype(np.float32), split="test", sequence="walk", extra=extra))
    poses = write_set(tmp_path / "set", samples)
    words = ["data", "lift", poses, "--split", "test", "--count", 64, "--window", 27, "--observer", "true"]
    assert main([*map(str, words), "--out", str(tmp_path / "w")]) == 0
    cache = FeatureCache(tmp_path / "w")
    assert cache.header["encoder"] == "keypoints:27"
    found = cache.features(np.arange(64)).numpy().reshape(64, 27, 17, CHANNELS)
    number = [int(line["id"].partition("#")[0][1:]) for line in cache.index]
    for row, k in enumerate(number):
        there = [k + t in frames for t in range(-13, 14)]
        np.testing.assert_array_equal(found[row, :, 11, 3] == 1, there)
    row = next(row for row, k in enumerate(number) if 30 <= k <= 40)
    hips = found[row, :, 11:13, :2].mean(1)
    steps = np.diff(hips, axis=0)
    assert np.abs(hips[13]).max() < 1e-2  # the middle frame's hips are the origin
    assert np.linalg.norm(steps, axis=1).min() > 0 or np.linalg.norm(steps, axis=1).max() < 0.02
    lengths = np.linalg.norm(steps, axis=1, keepdims=True).clip(1e-6)
    np.testing.assert_allclose(steps / lengths, np.tile(steps[13] / lengths[13], (26, 1)), atol=0.2)
    plain = write_set(tmp_path / "plain", [Sample("r0", POSES[0], split="test")])
    assert main(["data", "lift", str(plain), "--split", "test", "--window", "27", "--out", str(tmp_path / "n")]) == 2


def test_errors_of_a_video_change_slowly():
    random = np.random.default_rng(0)
    places, nothing = np.zeros((500 * 9, 17, 2)), np.zeros((500 * 9, 17), bool)
    seen = lift.observe(places, nothing, nothing, np.ones(len(places)), replace(CLEAN, noise=0.01), random, 9)
    error = np.where(seen[..., 3:] == 1, seen[..., :2], np.nan).reshape(500, 9, 17, 2).clip(-0.1, 0.1)
    here, there = error[:, :-1].ravel(), error[:, 1:].ravel()
    both = np.isfinite(here) & np.isfinite(there)
    assert 0.25 < np.corrcoef(here[both], there[both])[0, 1] < 0.55
    faces = np.isnan(error[:, :, 0, 0])
    assert (faces.all(1) | ~faces.any(1)).all()  # a person has a face in all frames or in none
