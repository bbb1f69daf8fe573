"""The graph walk against Google's own runtime on the real networks."""

import numpy as np
import pytest
import torch

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.litert import LitertGraph, begin
from di2pose.image.tflite_file import TfliteFile
from di2pose.image.tflite_graph import _BUILDERS, TfliteGraph


def test_detector_agrees_with_the_runtime(crops):
    """Sparse weights, depth-to-space, concatenation and explicit padding, on all 2254 anchors."""
    path = fetch("blazepose-detector")
    file = TfliteFile(path)
    images = torch.from_numpy(crops[:, 16:240, 16:240]).float() / 127.5 - 1
    ours, theirs = TfliteGraph(file, file.outputs)(images), LitertGraph(file, file.outputs)(images)
    assert [tuple(x.shape) for x in ours] == [(3, 2254, 12), (3, 2254, 1)]
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() < 1e-4 * b.abs().max()


def test_an_image_gives_the_same_alone_and_in_a_batch(crops):
    file = TfliteFile(fetch("blazepose-lite"))
    graph = TfliteGraph(file, file.outputs)
    images = torch.from_numpy(crops).float() / 255
    for together, alone in zip(graph(images), graph(images[1:2]), strict=True):
        assert (together[1:2] - alone).abs().max() < 1e-4 * alone.abs().max()


def test_the_runtime_says_the_same_of_an_image_on_any_number_of_threads(crops):
    """Image by image in order, however many there are and however often the network was built."""
    file = TfliteFile(fetch("blazepose-lite"))
    graph = LitertGraph(file, file.outputs)
    images = torch.from_numpy(np.concatenate([crops, crops[:2, :, ::-1]])).float() / 255
    alone = [graph(image.unsqueeze(0)) for image in images]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for count in (5, 1, 2, 5):
            later = begin(graph, images[:count])
            graph(images[:1])  # others may be asked meanwhile
            for together, wanted in zip(later(), zip(*alone[:count], strict=True), strict=True):
                assert torch.equal(together, torch.cat(wanted))
    finally:
        torch.set_num_threads(before)


def test_only_what_is_asked_is_computed():
    file = TfliteFile(fetch("blazepose-lite"))
    everything = TfliteGraph(file, file.outputs)
    landmarks = TfliteGraph(file, (file.output_named("Identity"),))
    assert len(landmarks.steps) < len(everything.steps)
    half_way = file.operations[len(file.operations) // 2].output
    assert len(TfliteGraph(file, (half_way,)).steps) < len(landmarks.steps)


def test_weights_are_frozen_and_on_any_device():
    file = TfliteFile(fetch("blazepose-lite"))
    graph = TfliteGraph(file, (file.output_named("Identity"),))
    assert not any(weight.requires_grad for weight in graph.parameters())
    (output,) = graph.to("meta")(torch.empty(2, 256, 256, 3, device="meta"))
    assert output.shape == (2, 195)
    assert output.device.type == "meta"


def test_unknown_operation_is_named(monkeypatch):
    file = TfliteFile(fetch("blazepose-lite"))
    monkeypatch.delitem(_BUILDERS, "LOGISTIC")
    with pytest.raises(InputError, match="LOGISTIC is not supported"):
        TfliteGraph(file, file.outputs)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.tflite").write_bytes(np.arange(100, dtype=np.uint8).tobytes())
    with pytest.raises(InputError, match="not a tflite network"):
        TfliteFile(tmp_path / "a.tflite")
