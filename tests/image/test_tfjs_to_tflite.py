"""A tfjs network written as a tflite file: what it holds, and that Google's runtime computes what the walk does."""

import base64
import json

import numpy as np
import pytest
import torch

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.litert import LitertGraph, LitertSizes
from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph
from di2pose.image.tfjs_to_tflite import to_tflite
from di2pose.image.tflite_file import TfliteFile

MOVENET = [f"StatefulPartitionedCall/{head}/BiasAdd" for head in ("kpt_heatmap_0/conv2d_5", "kpt_offset_0/conv2d_7")]
SOURCE = "StatefulPartitionedCall/sub_1"


def text(word):
    return base64.b64encode(word.encode()).decode()


def convolution(name, source, stride=1, padding="SAME", fused=("BiasAdd",), op="_FusedConv2D"):
    attributes = {
        "strides": {"list": {"i": ["1", str(stride), str(stride), "1"]}},
        "padding": {"s": text(padding)},
        "fused_ops": {"list": {"s": [text(each) for each in fused]}},
    }
    inputs = [source, f"{name}/weight", f"{name}/bias"] if fused else [source, f"{name}/weight"]
    return {"name": name, "op": op, "input": inputs, "attr": attributes}


@pytest.fixture
def network(tmp_path):
    """Every operation and padding that is written, in a network for pictures of 3 channels."""
    nodes = [
        convolution("stem", "picture", stride=2, fused=("BiasAdd", "Relu6")),
        convolution("depth", "stem", stride=2, fused=(), op="DepthwiseConv2dNative"),
        convolution("wide", "depth", fused=("BiasAdd", "Relu")),
        {"name": "up", "op": "ResizeBilinear", "input": ["wide", "size"], "attr": {"half_pixel_centers": {"b": True}}},
        convolution("inner", "up", padding="VALID", op="FusedDepthwiseConv2dNative", fused=("BiasAdd", "Relu")),
        {"name": "sum", "op": "AddV2", "input": ["inner", "inner"], "attr": {}},
        convolution("narrow", "sum"),
        convolution("head", "narrow"),
    ]
    shapes = {"stem": (3, 3, 3, 5), "depth": (3, 3, 5, 1), "wide": (1, 1, 5, 48), "inner": (3, 3, 48, 1)}
    shapes |= {"narrow": (1, 1, 48, 44), "head": (1, 1, 44, 2)}
    generator, manifest, data = np.random.default_rng(0), [], b""
    for name, shape in shapes.items():
        biases = () if name == "depth" else (shape[2] if name == "inner" else shape[3],)
        for kind, dims in (("weight", shape), ("bias", biases)):
            if dims:
                manifest.append({"name": f"{name}/{kind}", "shape": dims, "dtype": "float32"})
                manifest[-1]["quantization"] = {"dtype": "float16"}
                data += generator.normal(size=dims).astype("<f2").tobytes()
    manifest.append({"name": "size", "shape": [2], "dtype": "int32"})
    data += np.zeros(2, "<i4").tobytes()
    document = {"modelTopology": {"node": nodes}, "weightsManifest": [{"weights": manifest}]}
    (tmp_path / "graph.json").write_text(json.dumps(document))
    (tmp_path / "weights.bin").write_bytes(data)
    return TfjsFile(tmp_path / "graph.json", tmp_path / "weights.bin")


@pytest.mark.parametrize("size", [(32, 48), (17, 30), (23, 21)])
def test_the_runtime_computes_what_the_walk_does(network, size):
    """Also where a stride does not divide the picture, so that TensorFlow pads its two sides differently."""
    wanted = "picture", ["head", "stem"]
    pictures = torch.from_numpy(np.random.default_rng(1).normal(size=(2, *size, 3)).astype(np.float32))
    ours = LitertGraph(to_tflite(network, *wanted, (1, *size, 3)))(pictures)
    walked = TfjsGraph(network, *wanted)(pictures)
    for mine, theirs in zip(ours, walked, strict=True):
        assert mine.shape == theirs.shape
        assert (mine - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("size", [(256, 256), (96, 256)])
def test_movenet_written_in_f32_gives_the_maps_of_the_walk(crops, size):
    file = TfjsFile(fetch("movenet-thunder-graph"), fetch("movenet-thunder"))
    pictures = torch.from_numpy(crops[:, : size[0]]).float() / 127.5 - 1
    ours = LitertGraph(to_tflite(file, SOURCE, MOVENET, (1, *size, 3)))(pictures)
    for mine, theirs in zip(ours, TfjsGraph(file, SOURCE, MOVENET)(pictures), strict=True):
        assert (mine - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_eight_bits_are_for_1x1_convolutions_of_many_channels_but_not_for_heads(network, tmp_path):
    path = tmp_path / "network.tflite"
    content = to_tflite(network, "picture", ["head"], (1, 32, 32, 3), eight_bits=True)
    path.write_bytes(content)
    written = TfliteFile(path)
    weights = {each.output: each.inputs[1] for each in written.operations if "CONV" in each.kind}
    names = dict(zip(weights.values(), ("stem", "depth", "wide", "inner", "narrow", "head"), strict=True))
    for index, name in names.items():
        stored = network.constants[f"{name}/weight"].astype(np.float32).transpose(3, 0, 1, 2)
        if name == "narrow":
            half_step = np.abs(stored).max((1, 2, 3), keepdims=True) / 127 / 2
            assert written.levels(index) is not None
            assert (np.abs(written.constant(index) - stored) <= 1.001 * half_step).all()
        else:
            assert written.levels(index) is None, name
            assert np.array_equal(written.constant(index), stored), name


def test_eight_bits_stay_near(network):
    pictures = torch.from_numpy(np.random.default_rng(1).normal(size=(1, 32, 32, 3)).astype(np.float32))
    exact, coarse = (
        LitertGraph(to_tflite(network, "picture", ["head"], (1, 32, 32, 3), eight_bits))(pictures)[0]
        for eight_bits in (False, True)
    )
    assert 0 < (exact - coarse).abs().mean() < 0.02 * exact.abs().mean()


def test_a_network_for_every_size_keeps_the_last_few_ready(network):
    written = []

    def write(height, width):
        written.append((height, width))
        return to_tflite(network, "picture", ["head"], (1, height, width, 3))

    sizes = LitertSizes(write)
    for size in ((32, 32), (32, 64), (32, 32)):
        (head,) = sizes(torch.zeros(1, *size, 3))
        assert head.shape[1:3] == (size[0] // 2 - 2, size[1] // 2 - 2)
    assert written == [(32, 32), (32, 64)]


def test_what_cannot_be_written_is_named():
    file = TfjsFile(fetch("movenet-multipose-graph"), fetch("movenet-multipose"))
    prefix = "StatefulPartitionedCall/"
    with pytest.raises(InputError, match="operation TopKV2 of the node"):
        to_tflite(file, f"{prefix}Reshape_2", [f"{prefix}TopKV2"], (1, 64, 64, 1))
