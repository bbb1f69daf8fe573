"""LiteRT: as many threads as PyTorch may use, and the same numbers whatever their number."""

import numpy as np
import pytest
import torch

from di2pose.image import litert
from di2pose.image.efficientdet import EfficientDet


@pytest.fixture
def network():
    before = torch.get_num_threads()
    yield EfficientDet().network
    torch.set_num_threads(before)


@pytest.mark.parametrize("most", [4, 1])  # threads of one image: with 1, images go side by side
def test_threads_and_batches_change_no_number(network, monkeypatch, most):
    """Image by image in order, however many there are and however often the network was built."""
    monkeypatch.setattr(litert, "_THREADS", most)
    monkeypatch.setattr(litert, "_PASSES", 1)
    images = np.random.default_rng(0).integers(0, 256, (5, 320, 320, 3), dtype=np.uint8)
    torch.set_num_threads(1)
    one_by_one = [network(image[None]) for image in images]
    torch.set_num_threads(3)
    for count in (5, 1, 5):
        for found, parts in zip(network(images[:count]), zip(*one_by_one[:count], strict=True), strict=True):
            np.testing.assert_array_equal(found, np.concatenate(parts))


def test_a_network_that_is_begun_twice_answers_each(network):
    torch.set_num_threads(2)
    first, second = (np.full((1, 320, 320, 3), grey, dtype=np.uint8) for grey in (40, 200))
    waiting = [network.begin(first), network.begin(second)]
    for wait, image in zip(waiting, (first, second), strict=True):
        for found, again in zip(wait(), network(image), strict=True):
            np.testing.assert_array_equal(found, again)


def test_without_pytorch_the_environment_sets_the_threads(monkeypatch):
    monkeypatch.delitem(litert.sys.modules, "torch")
    for told, threads in (("3", 3), ("", litert.os.cpu_count()), ("many", litert.os.cpu_count())):
        monkeypatch.setenv("OMP_NUM_THREADS", told)
        assert litert._all_threads() == threads


def test_sigmoid_of_any_logit():
    assert litert.sigmoid(np.array([-1e4, 0, 1e4], np.float32)).tolist() == [0, 0.5, 1]
