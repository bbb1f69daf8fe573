"""MoveNet MultiPose: agreement with the tfjs runtime, and people in real pictures."""

import numpy as np
import pytest
import torch
from PIL import Image

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.litert import LitertSizes
from di2pose.image.multipose import MultiPose
from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph
from di2pose.pose.skeleton import COCO_17

# @tensorflow/tfjs 4.22.0, cpu backend, on every second pixel of the astronaut: x and y in pixels of 256, score.
TFJS = [
    [111.879, 61.332, 0.717],
    [123.662, 51.777, 0.623],
    [102.358, 49.928, 0.863],
    [137.061, 58.685, 0.702],
    [88.935, 54.878, 0.725],
    [151.767, 128.136, 0.625],
    [60.474, 113.818, 0.56],
    [166.391, 191.789, 0.319],
    [41.436, 189.484, 0.16],
    [166.779, 219.279, 0.053],
    [45.623, 220.793, 0.039],
    [132.478, 245.527, 0.108],
    [60.327, 253.099, 0.139],
    [171.899, 247.273, 0.04],
    [61.517, 256.746, 0.042],
    [119.874, 244.153, 0.034],
    [85.593, 242.097, 0.038],
]
BOX, SCORE = [12.941, 6.001, 181.96, 253.785], 0.50356  # of the same run


@pytest.fixture(scope="module")
def multipose():
    return MultiPose()


@pytest.mark.parametrize("runtime", ["torch", "litert"])
def test_agrees_with_the_tfjs_runtime(astronaut, runtime):
    pixels = torch.from_numpy(np.asarray(astronaut)[::2, ::2].copy())[None]
    with torch.inference_mode():
        keypoints, boxes, scores = MultiPose(people=6, runtime=runtime)(pixels)
    assert tuple(keypoints.shape) == (6, 17, 3)
    assert (keypoints[0] - torch.tensor(TFJS)).abs().max() < 1e-3
    assert (boxes[0] - torch.tensor(BOX)).abs().max() < 1e-2
    assert scores[0] == pytest.approx(SCORE, abs=1e-4)


def test_keypoints_are_in_the_pixels_of_the_picture(multipose, walker):
    """Whatever the size and the aspect that the network sees."""
    part = walker.crop((730, 430, 1330, 994))
    for size in ((600, 564), (300, 282), (1200, 1128)):
        poses = multipose.look(part.resize(size))
        best = poses.scores.argmax()
        hips = poses.keypoints[best, list(COCO_17.indices("left_hip", "right_hip")), :2].mean(0)
        assert np.abs(hips / size - np.array([300, 300]) / (600, 564)).max() < 0.03


def test_more_people_than_the_files_own_six_are_found(multipose, walker):
    """Eight walkers in two rows."""
    part = walker.crop((880, 480, 1190, 960)).resize((250, 387))
    crowd = Image.new("RGB", (1000, 774))
    for place in range(8):
        crowd.paste(part, (250 * (place % 4), 387 * (place // 4)))
    poses = multipose.look(crowd)
    assert (poses.scores > 0.25).sum() == 8


def test_leaving_out_whoever_is_hardly_there_changes_nothing_about_the_others(multipose, walker):
    every, few = multipose.look(walker), multipose.begin(walker, least=0.125)()
    assert 0 < len(few.scores) < len(every.scores)
    assert (every.scores[len(few.scores) :] < 0.125).all()
    np.testing.assert_array_equal(few.keypoints, every.keypoints[: len(few.scores)])


def test_an_unknown_operation_and_node_are_named():
    file = TfjsFile(fetch("movenet-multipose-graph"), fetch("movenet-multipose"))
    prefix = "StatefulPartitionedCall/"
    with pytest.raises(InputError, match="operation TopKV2 of the node"):
        TfjsGraph(file, f"{prefix}Reshape_2", [f"{prefix}TopKV2"])
    with pytest.raises(InputError, match="no node 'nothing'"):
        TfjsGraph(file, f"{prefix}sub_1", ["nothing"])


def test_weights_that_do_not_fit_their_graph_are_refused(tmp_path):
    (tmp_path / "short.bin").write_bytes(fetch("movenet-multipose").read_bytes()[:-2])
    with pytest.raises(InputError, match="delete both to fetch them again"):
        TfjsFile(fetch("movenet-multipose-graph"), tmp_path / "short.bin")


def test_both_runtimes_find_the_same_people_in_pictures_of_any_shape(multipose, walker):
    walk = MultiPose(runtime="torch")
    for box in ((730, 430, 1330, 994), (880, 480, 1190, 960), (0, 430, 1920, 994)):
        quick, slow = multipose.look(walker.crop(box)), walk.look(walker.crop(box))
        assert isinstance(multipose.network, LitertSizes)
        sure = slow.scores > 0.1
        assert sure.any()
        assert np.abs(quick.scores - slow.scores)[sure].max() < 1e-4
        assert np.abs(quick.boxes - slow.boxes)[sure].max() < 1e-2
        assert np.abs(quick.keypoints - slow.keypoints)[sure].max() < 1e-2


def test_weights_are_frozen_and_on_any_device():
    multipose = MultiPose(runtime="torch")
    assert not any(weight.requires_grad for weight in multipose.parameters())
    heads = multipose.network.to("meta")(torch.empty(2, 192, 256, 3, device="meta"))
    assert tuple(heads[0].shape) == (2, 48, 64, 1)
