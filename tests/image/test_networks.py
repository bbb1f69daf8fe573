"""tflite files that are made here: tfjs networks converted, BlazePose cut, and the cache of both."""

import base64
import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image import network_cache
from di2pose.image.blazepose import BlazePose
from di2pose.image.litert import LitertNetwork, LitertSizes
from di2pose.image.network_cache import MOST, cached_network
from di2pose.image.networks import TfjsFile, TfliteFile, schema, to_tflite

SOURCES = ["efficientdet-lite0"]
PREFIX = "StatefulPartitionedCall/"


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


def run(content, pictures):
    return LitertNetwork(lambda: content)(pictures)


def reference(file, pictures):
    """`head` and `stem` of the network above, by PyTorch."""

    def convolve(x, name, stride=1, same=True, high=None, relu=True):
        weight = torch.from_numpy(file.constants[f"{name}/weight"].astype(np.float32))
        depthwise = weight.shape[3] == 1
        bias = file.constants.get(f"{name}/bias")
        if same:  # TensorFlow's: an odd amount puts more behind than before
            sizes = zip(x.shape[2:], weight.shape[:2], strict=True)
            total = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k in sizes]
            (top, left), (bottom, right) = [n // 2 for n in total], [n - n // 2 for n in total]
            x = F.pad(x, (left, right, top, bottom))
        weight = weight.permute((2, 3, 0, 1) if depthwise else (3, 2, 0, 1))
        bias = None if bias is None else torch.from_numpy(bias.astype(np.float32))
        x = F.conv2d(x, weight, bias, stride, groups=len(weight) if depthwise else 1)
        return x.clamp(0, high) if relu else x

    stem = convolve(torch.from_numpy(pictures).permute(0, 3, 1, 2), "stem", 2, high=6.0)
    wide = convolve(convolve(stem, "depth", 2, relu=False), "wide")
    up = F.interpolate(wide, scale_factor=2.0, mode="bilinear", align_corners=False)
    inner = convolve(up, "inner", same=False)
    head = convolve(convolve(2 * inner, "narrow", relu=False), "head", relu=False)
    return [each.permute(0, 2, 3, 1).numpy() for each in (head, stem)]


@pytest.mark.parametrize("size", [(32, 48), (17, 30), (23, 21)])
def test_a_converted_network_computes_what_pytorch_does(network, size):
    """Also where a stride does not divide the picture, so that TensorFlow pads its two sides differently."""
    pictures = np.random.default_rng(1).normal(size=(2, *size, 3)).astype(np.float32)
    ours = run(to_tflite(network, "picture", ["head", "stem"], (1, *size, 3)), pictures)
    for mine, theirs in zip(ours, reference(network, pictures), strict=True):
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() < 1e-5 * np.abs(theirs).max()


def test_eight_bits_are_for_1x1_convolutions_of_many_channels_but_not_for_heads(network):
    model = schema.ModelT.InitFromPackedBuf(to_tflite(network, "picture", ["head"], (1, 32, 32, 3), eight_bits=True))
    graph = model.subgraphs[0]
    weights = [graph.tensors[each.inputs[1]] for each in graph.operators if each.opcodeIndex < 2]
    for tensor, name in zip(weights, ("stem", "depth", "wide", "inner", "narrow", "head"), strict=True):
        stored = network.constants[f"{name}/weight"].astype(np.float32).transpose(3, 0, 1, 2)
        data = model.buffers[tensor.buffer].data
        if name == "narrow":
            scales = tensor.quantization.scale[:, None, None, None]
            np.testing.assert_allclose(scales, np.abs(stored).max((1, 2, 3), keepdims=True) / 127, rtol=1e-6)
            values = data.view(np.int8).reshape(stored.shape) * scales
            assert (np.abs(values - stored) <= 1.001 * scales / 2).all()
        else:
            assert tensor.quantization is None, name
            assert np.array_equal(data.view("<f4").reshape(stored.shape), stored), name


def test_eight_bits_stay_near(network):
    pictures = np.random.default_rng(1).normal(size=(1, 32, 32, 3)).astype(np.float32)
    exact, coarse = (
        run(to_tflite(network, "picture", ["head"], (1, 32, 32, 3), eight_bits), pictures)[0]
        for eight_bits in (False, True)
    )
    assert 0 < np.abs(exact - coarse).mean() < 0.02 * np.abs(exact).mean()


def test_a_network_for_every_size_keeps_the_last_few_ready(network):
    written = []

    def source(height, width):
        written.append((height, width))
        content = to_tflite(network, "picture", ["head"], (1, height, width, 3))
        return lambda: content

    sizes = LitertSizes(source)
    for size in ((32, 32), (32, 64), (32, 32)):
        (head,) = sizes(np.zeros((1, *size, 3), np.float32))
        assert head.shape[1:3] == (size[0] // 2 - 2, size[1] // 2 - 2)
    assert written == [(32, 32), (32, 64)]


def test_what_cannot_be_converted_is_named(tmp_path):
    graph, weights = fetch("movenet-multipose-graph"), fetch("movenet-multipose")
    file = TfjsFile(graph, weights)
    with pytest.raises(InputError, match="operation TopKV2 of the node"):
        to_tflite(file, f"{PREFIX}Reshape_2", [f"{PREFIX}TopKV2"], (1, 64, 64, 1))
    with pytest.raises(InputError, match="no node 'nothing'"):
        to_tflite(file, f"{PREFIX}sub_1", ["nothing"], (1, 64, 64, 3))
    (tmp_path / "short.bin").write_bytes(weights.read_bytes()[:-2])
    with pytest.raises(InputError, match="delete both to fetch them again"):
        TfjsFile(graph, tmp_path / "short.bin")


def test_a_cut_network_gives_what_the_whole_one_does_with_fewer_operations(crops):
    path = fetch("blazepose-lite")
    file = TfliteFile(path)
    wanted = [file.output_named(name) for name in ("Identity_4", "Identity")]
    pictures = crops[:1].astype(np.float32) / 255
    landmarks, _, _, _, world = run(path, pictures)
    for mine, theirs in zip(run(file.cut(wanted), pictures), (world, landmarks), strict=True):
        assert np.array_equal(mine, theirs)
    half_way = file.operations[len(file.operations) // 2].outputs
    assert len(file.upstream(half_way)) < len(file.upstream(wanted)) < len(file.operations)
    with pytest.raises(InputError, match="no output 'Identity_9'"):
        file.output_named("Identity_9")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.tflite").write_bytes(np.arange(100, dtype=np.uint8).tobytes())
    with pytest.raises(InputError, match="not a tflite network"):
        TfliteFile(tmp_path / "a.tflite")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_made_once(cache):
    made = []

    def make():
        made.append(1)
        return b"network"

    paths = [cached_network("net", "8x8", SOURCES, make) for _ in range(3)]
    assert len(made) == 1
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == b"network"


@pytest.mark.parametrize("damage", [b"Network", b"net", b""])
def test_a_damaged_one_is_made_anew(cache, damage):
    path = cached_network("net", "8x8", SOURCES, lambda: b"network")
    path.write_bytes(damage)
    assert cached_network("net", "8x8", SOURCES, lambda: b"network") == path
    assert path.read_bytes() == b"network"


def test_a_missing_or_damaged_sha256_makes_it_anew(cache):
    path = cached_network("net", "8x8", SOURCES, lambda: b"network")
    for damage in (None, b"\xff\xff", b""):
        told = path.with_suffix(".sha256")
        told.unlink() if damage is None else told.write_bytes(damage)
        made = []
        assert cached_network("net", "8x8", SOURCES, lambda made=made: made.append(1) or b"network") == path
        assert made == [1]


def test_other_code_makes_another(cache, monkeypatch):
    path = cached_network("net", "8x8", SOURCES, lambda: b"old")
    monkeypatch.setattr(network_cache, "MAKERS", (*network_cache.MAKERS, "crop"))
    other = cached_network("net", "8x8", SOURCES, lambda: b"new")
    assert other != path
    assert other.read_bytes() == b"new"


def test_only_a_few_of_a_network_are_kept(cache):
    for size in range(MOST + 3):
        newest = cached_network("net", f"{size}x{size}", SOURCES, lambda: b"network")
    cached_network("another", "8x8", SOURCES, lambda: b"network")
    networks = sorted((cache / "networks").glob("net-*.tflite"))
    assert newest in networks
    assert len(networks) == len(list((cache / "networks").glob("net-*.sha256"))) == MOST


def test_without_room_for_it_the_bytes_are_used(cache):
    (cache / "networks").write_text("no folder")
    assert cached_network("net", "8x8", SOURCES, lambda: b"network") == b"network"


@pytest.mark.parametrize("folder", ["cache", "Zwischenlager für Äpfel"])
def test_a_real_network_says_the_same_from_the_cache_and_after_its_file_is_gone(tmp_path, monkeypatch, folder):
    source = fetch("blazepose-lite")
    cache = tmp_path / folder
    monkeypatch.setenv("DI2POSE_CACHE", str(cache))
    (cache / "assets" / "blazepose-lite").mkdir(parents=True)
    shutil.copy(source, cache / "assets" / "blazepose-lite")
    pixels = np.random.default_rng(0).integers(0, 255, (2, 256, 256, 3), np.uint8)
    first, second = BlazePose("lite"), BlazePose("lite")
    shutil.rmtree(cache / "networks")
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # interpreters of several threads are built now
    try:
        features = [encoder.encode(pixels).features for encoder in (first, second)]
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*features)
