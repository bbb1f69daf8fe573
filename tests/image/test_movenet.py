"""MoveNet Thunder and MultiPose: agreement with the tfjs runtime, tokens, people in real pictures."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from di2pose.image import movenet as module
from di2pose.image.blazepose import BlazePose
from di2pose.image.movenet import MoveNet, MultiPose, decode_thunder, keypoints_of
from di2pose.pose.skeleton import COCO_17

# @tensorflow/tfjs 4.22.0, cpu backend, on every second pixel of the astronaut: x and y in pixels of 256, score.
THUNDER = [
    [111.9772, 61.4390, 0.6005], [123.5349, 51.0763, 0.5886], [102.2596, 50.7190, 0.8364],
    [137.4741, 58.8277, 0.7568], [88.5513, 56.1644, 0.6581], [160.4159, 137.5798, 0.8080],
    [51.6426, 134.1255, 0.8486], [167.5666, 204.2762, 0.1916], [32.6347, 211.4798, 0.6000],
    [148.3029, 249.1974, 0.1401], [69.9921, 248.1881, 0.4836], [134.9917, 253.3349, 0.2883],
    [83.4009, 249.9843, 0.3255], [248.9055, 249.2350, 0.0763], [58.4196, 235.5410, 0.0075],
    [101.8426, 261.8322, 0.0036], [88.6325, 257.9250, 0.0078],
]  # fmt: skip
MULTIPOSE = [
    [111.879, 61.332, 0.717], [123.662, 51.777, 0.623], [102.358, 49.928, 0.863], [137.061, 58.685, 0.702],
    [88.935, 54.878, 0.725], [151.767, 128.136, 0.625], [60.474, 113.818, 0.56], [166.391, 191.789, 0.319],
    [41.436, 189.484, 0.16], [166.779, 219.279, 0.053], [45.623, 220.793, 0.039], [132.478, 245.527, 0.108],
    [60.327, 253.099, 0.139], [171.899, 247.273, 0.04], [61.517, 256.746, 0.042], [119.874, 244.153, 0.034],
    [85.593, 242.097, 0.038],
]  # fmt: skip
BOX, SCORE = [12.941, 6.001, 181.96, 253.785], 0.50356  # of the same run


@pytest.fixture(scope="module")
def movenet():
    return MoveNet()


@pytest.fixture(scope="module")
def multipose():
    return MultiPose()


@pytest.fixture(scope="module")
def half(astronaut):
    """(1, 256, 256, 3): every second pixel, over the networks' scale."""
    return np.asarray(astronaut)[None, ::2, ::2].astype(np.float32) * module._SCALE - 1


def test_crops_are_enlarged_as_by_pytorch():
    parts = np.random.default_rng(0).integers(0, 256, (2, 204, 204, 3), np.uint8)
    planes = torch.from_numpy(parts).permute(0, 3, 1, 2).float()
    theirs = F.interpolate(planes, (256, 256), mode="bilinear", align_corners=False).permute(0, 2, 3, 1)
    np.testing.assert_array_equal(module._enlarged(parts), theirs.numpy())


@pytest.fixture(scope="module")
def exact():
    """Thunder in f32."""
    made = MoveNet()
    made.network = module.network(module._THUNDER, module._THUNDER_HEADS, (256, 256))
    return made


def test_thunder_agrees_with_the_tfjs_runtime(exact, half):
    points, scores, _ = decode_thunder(*exact.network(half))
    wanted = np.array(THUNDER)
    assert np.abs(points[0] * 4 - wanted[:, :2]).max() < 0.01
    assert np.abs(scores[0] - wanted[:, 2]).max() < 1e-3


def test_eight_bits_move_keypoints_by_parts_of_a_pixel(exact, movenet, crops):
    (ours, tokens), (quick, quick_tokens) = exact.begin(crops[:2])(), movenet.begin(crops[:2])()
    apart, sure = np.linalg.norm((ours - quick)[..., :2], axis=-1), ours[..., 2] > 0.3
    assert sure.sum() > 24
    assert np.median(apart[sure]) < 0.4
    assert apart[sure].max() < 3
    assert np.abs(ours - quick)[sure][:, 2].mean() < 0.04
    assert np.median(128 * np.abs(tokens - quick_tokens)[sure][:, 2:4]) < 0.5


def test_keypoints_are_in_the_pixels_of_the_whole_crop(movenet, crops):
    """MoveNet gets the middle 0.8 of the crop; its keypoints lie where BlazePose has the same joints."""
    (ours, tokens), theirs = movenet.begin(crops[:1])(), BlazePose("full").encode(crops[:1]).landmarks_2d
    np.testing.assert_allclose(keypoints_of(tokens), ours, atol=1e-4)
    for name, blazepose in (("nose", 0), ("left_hip", 23), ("right_hip", 24), ("left_ankle", 27), ("right_knee", 26)):
        assert np.linalg.norm(ours[0, COCO_17.index(name), :2] - theirs[0, blazepose]) < 15, name


def test_spread_is_the_standard_deviation_of_the_heat_map():
    """A Gaussian of known width at the person's centre is given back, with its correlation."""
    line = np.arange(64.0)
    x, y = line - 30, (line - 20)[:, None]
    rho, across, down = 0.5, 3.0, 2.0
    form = (x / across) ** 2 - 2 * rho * (x / across) * (y / down) + (y / down) ** 2
    bump = 0.9 * np.maximum(np.exp(-form / (2 * (1 - rho**2))), 1e-12)
    heat = np.repeat(np.log(bump / (1 - bump))[None, ..., None], 17, -1).astype(np.float32)
    centre = np.full((1, 64, 64, 1), -9, np.float32)
    centre[0, 20, 30] = 9
    far_away = np.zeros((1, 64, 64, 34), np.float32)
    far_away[:, 20, 30] = 1e4  # expected so far away that the distance weighs all cells alike
    offset = np.full((1, 64, 64, 34), 0.25, np.float32)
    points, scores, spread = decode_thunder(heat, centre, far_away, offset)
    np.testing.assert_allclose(spread[0, 0], [across, down, rho], atol=0.05)
    assert points[0, 0].tolist() == [30.25, 20.25]
    assert scores[0, 0] == pytest.approx(0.9, abs=1e-4)


def test_tokens_are_appended_to_blazepose_alone_and_in_a_batch(movenet, crops):
    encoder = BlazePose("lite", movenet=True)
    assert (encoder.layout.length, encoder.layout.width) == (117 + 17, 200 + 6)
    tokens = encoder.encode(crops).features[:, encoder.layout.tokens("movenet")]
    assert np.array_equal(tokens[1:2, :, 200:], movenet.begin(crops[1:2])()[1])
    assert (tokens[..., :200] == 0).all()
    assert encoder.cache_parts(crops[:1])["movenet"].shape == (1, 17, 6)


def test_multipose_agrees_with_the_tfjs_runtime(half):
    multipose = MultiPose(people=6)
    keypoints, boxes, scores = multipose.decode(multipose.network(256, 256)(half))
    assert keypoints.shape == (6, 17, 3)
    assert np.abs(keypoints[0] - MULTIPOSE).max() < 1e-3
    assert np.abs(boxes[0] - BOX).max() < 1e-2
    assert scores[0] == pytest.approx(SCORE, abs=1e-4)


def test_keypoints_are_in_the_pixels_of_the_picture(multipose, walker):
    """Whatever the size and the aspect of the network's input."""
    part = walker.crop((730, 430, 1330, 994))
    for size in ((300, 282), (1200, 1128)):
        poses = multipose.begin(part.resize(size))()
        best = poses.scores.argmax()
        hips = poses.keypoints[best, list(COCO_17.indices("left_hip", "right_hip")), :2].mean(0)
        assert np.abs(hips / size - np.array([300, 300]) / (600, 564)).max() < 0.03


def test_more_people_than_the_files_own_six_are_found(multipose, walker):
    """Eight walkers in two rows."""
    part = walker.crop((880, 480, 1190, 960)).resize((250, 387))
    crowd = Image.new("RGB", (1000, 774))
    for place in range(8):
        crowd.paste(part, (250 * (place % 4), 387 * (place // 4)))
    assert (multipose.begin(crowd)().scores > 0.25).sum() == 8


def test_leaving_out_low_scores_changes_nothing_about_the_others(multipose, walker):
    every, few = multipose.begin(walker)(), multipose.begin(walker, least=0.125)()
    assert 0 < len(few.scores) < len(every.scores)
    assert (every.scores[len(few.scores) :] < 0.125).all()
    np.testing.assert_array_equal(few.keypoints, every.keypoints[: len(few.scores)])
