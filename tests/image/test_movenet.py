"""MoveNet Thunder: agreement with the tfjs runtime, and its tokens."""

import numpy as np
import pytest
import torch

from di2pose.image.blazepose import BlazePose
from di2pose.image.movenet import MoveNet, _enlarged, _enlarged_by_numpy
from di2pose.pose.skeleton import COCO_17

# @tensorflow/tfjs 4.22.0, cpu backend, on every second pixel of the astronaut: x and y in pixels of 256, score.
TFJS = [
    [111.9772, 61.4390, 0.6005],
    [123.5349, 51.0763, 0.5886],
    [102.2596, 50.7190, 0.8364],
    [137.4741, 58.8277, 0.7568],
    [88.5513, 56.1644, 0.6581],
    [160.4159, 137.5798, 0.8080],
    [51.6426, 134.1255, 0.8486],
    [167.5666, 204.2762, 0.1916],
    [32.6347, 211.4798, 0.6000],
    [148.3029, 249.1974, 0.1401],
    [69.9921, 248.1881, 0.4836],
    [134.9917, 253.3349, 0.2883],
    [83.4009, 249.9843, 0.3255],
    [248.9055, 249.2350, 0.0763],
    [58.4196, 235.5410, 0.0075],
    [101.8426, 261.8322, 0.0036],
    [88.6325, 257.9250, 0.0078],
]


@pytest.fixture(scope="module")
def movenet():
    return MoveNet("torch")


def test_crops_are_enlarged_alike_by_both_libraries():
    parts = np.random.default_rng(0).integers(0, 256, (2, 204, 204, 3), np.uint8)
    there = _enlarged(torch.from_numpy(parts).permute(0, 3, 1, 2).float()).permute(0, 2, 3, 1)
    np.testing.assert_array_equal(_enlarged_by_numpy(parts), there.numpy())


def test_agrees_with_the_tfjs_runtime(movenet, astronaut):
    pixels = torch.from_numpy(np.asarray(astronaut)[::2, ::2].copy())[None].float()
    with torch.inference_mode():
        maps = movenet.network(pixels * movenet.scale - 1)
        points, scores, _ = movenet.decode(*(each.permute(0, 3, 1, 2) for each in maps))
    assert (points[0] * 4 - torch.tensor(TFJS)[:, :2]).abs().max() < 0.01
    assert (scores[0] - torch.tensor(TFJS)[:, 2]).abs().max() < 1e-3


def test_keypoints_are_in_the_pixels_of_the_whole_crop(movenet, crops):
    """MoveNet looks at the middle 0.8 of the crop; its keypoints lie where BlazePose sees the same joints."""
    ours, theirs = movenet(torch.from_numpy(crops[:1])), BlazePose("full")(torch.from_numpy(crops[:1]))
    for name, blazepose in (("nose", 0), ("left_hip", 23), ("right_hip", 24), ("left_ankle", 27), ("right_knee", 26)):
        apart = ours.keypoints[0, COCO_17.index(name)] - theirs.landmarks_2d[0, blazepose]
        assert apart.norm() < 15, name


@pytest.mark.parametrize("runtime", ["torch", "litert"])
def test_a_crop_gives_the_same_alone_and_in_a_batch(crops, runtime):
    movenet = MoveNet(runtime)
    together, alone = movenet(torch.from_numpy(crops)), movenet(torch.from_numpy(crops[1:2]))
    assert torch.equal(together.tokens[1:2], alone.tokens)


def test_the_quick_runtime_sees_the_same(movenet, crops):
    """Eight bits move keypoints by parts of a pixel. (In the portrait, those outside the picture jump.)"""
    walkers = torch.from_numpy(crops[:2])
    ours, quick = movenet(walkers), MoveNet("litert")(walkers)
    apart, sure = (ours.keypoints - quick.keypoints).norm(dim=-1), ours.scores > 0.3
    assert sure.sum() > 24
    assert apart[sure].median() < 0.4
    assert apart[sure].max() < 3
    assert (ours.scores - quick.scores)[sure].abs().mean() < 0.04
    assert (ours.spread - quick.spread)[sure][:, :2].abs().median() < 0.5


def test_spread_is_the_standard_deviation_of_the_heat_map(movenet):
    """A Gaussian of known width at the person's centre is given back, with its correlation."""
    line = torch.arange(64.0)
    x, y = line - 30, (line - 20)[:, None]
    rho, across, down = 0.5, 3.0, 2.0
    form = (x / across) ** 2 - 2 * rho * (x / across) * (y / down) + (y / down) ** 2
    bump = torch.exp(-form / (2 * (1 - rho**2)))
    heat = torch.logit(0.9 * bump.clamp(1e-12)).expand(1, 17, 64, 64)
    centre = torch.full((1, 1, 64, 64), -9.0)
    centre[0, 0, 20, 30] = 9.0
    far_away = torch.zeros(1, 34, 64, 64)
    far_away[:, :, 20, 30] = 1e4  # expected so far away that the distance weighs all cells alike
    offset = torch.full((1, 34, 64, 64), 0.25)
    points, scores, spread = movenet.decode(heat, centre, far_away, offset)
    assert torch.allclose(spread[0, 0], torch.tensor([across, down, rho]), atol=0.05)
    assert points[0, 0].tolist() == [30.25, 20.25]
    assert scores[0, 0] == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize("runtime", ["torch", "litert"])
def test_tokens_can_be_appended_to_blazepose(crops, runtime):
    """By the runtime that BlazePose has."""
    encoder = BlazePose("lite", movenet=True, runtime=runtime)
    images = torch.from_numpy(crops[:1])
    seen = encoder(images)
    assert (encoder.layout.length, encoder.layout.width) == (117 + 17, 200 + 6)
    tokens = seen.features[:, encoder.layout.tokens("movenet")]
    assert torch.equal(tokens[..., 200:], MoveNet(runtime)(images).tokens)
    assert (tokens[..., :200] == 0).all()
    assert encoder.cache_parts(crops[:1])["movenet"].shape == (1, 17, 6)
