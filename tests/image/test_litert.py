"""Google's runtime: as many threads as PyTorch may use, and the same numbers whatever their number."""

import pytest
import torch

from di2pose.image import litert
from di2pose.image.efficientdet import EfficientDet


@pytest.fixture
def graph():
    before = torch.get_num_threads()
    yield EfficientDet().graph
    torch.set_num_threads(before)


@pytest.mark.parametrize("most", [4, 1])  # threads of one image: with 1, images go side by side
def test_threads_and_batches_change_no_number(graph, monkeypatch, most):
    monkeypatch.setattr(litert, "_THREADS", most)
    monkeypatch.setattr(litert, "_PASSES", 1)
    images = torch.randint(256, (5, 320, 320, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.set_num_threads(1)
    one_by_one = [graph(image[None]) for image in images]
    torch.set_num_threads(3)
    for _ in range(2):
        for told, parts in zip(graph(images), zip(*one_by_one, strict=True), strict=True):
            torch.testing.assert_close(told, torch.cat(parts), rtol=0, atol=0)


def test_a_network_that_is_begun_twice_answers_each(graph):
    torch.set_num_threads(2)
    first, second = (torch.full((1, 320, 320, 3), grey, dtype=torch.uint8) for grey in (40, 200))
    answers = [graph.begin(first), graph.begin(second)]
    for answer, image in zip(answers, (first, second), strict=True):
        for told, again in zip(answer(), graph(image), strict=True):
            torch.testing.assert_close(told, again, rtol=0, atol=0)
