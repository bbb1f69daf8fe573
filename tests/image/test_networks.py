"""Frozen networks: tfjs networks converted, BlazePose cut, the cache of both, and threads that change no number."""

import base64
import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image import litert, networks
from di2pose.image.blazepose import BlazePose
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.litert import MOST_KEPT, LitertNetwork, made_network
from di2pose.image.networks import convert, cut, schema


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
    return tmp_path / "graph.json", tmp_path / "weights.bin"


def run(content, pictures):
    return LitertNetwork(lambda: content)(pictures)


def constants_of(network):
    graph, weights = network
    return networks._constants(json.loads(graph.read_text()), weights)


def reference(constants, pictures):
    """`head` and `stem` of the network above, by PyTorch."""

    def convolve(x, name, stride=1, same=True, high=None, relu=True):
        weight = torch.from_numpy(constants[f"{name}/weight"].astype(np.float32))
        depthwise = weight.shape[3] == 1
        bias = constants.get(f"{name}/bias")
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
    ours = run(convert(*network, "picture", ["head", "stem"], size), pictures)
    for mine, theirs in zip(ours, reference(constants_of(network), pictures), strict=True):
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() < 1e-5 * np.abs(theirs).max()


def test_eight_bits_are_for_1x1_convolutions_of_many_channels_but_not_for_heads(network):
    content = convert(*network, "picture", ["head"], (32, 32), eight_bits=True)
    model, constants = schema.ModelT.InitFromPackedBuf(content), constants_of(network)
    graph = model.subgraphs[0]
    weights = [graph.tensors[each.inputs[1]] for each in graph.operators if each.opcodeIndex < 2]
    for tensor, name in zip(weights, ("stem", "depth", "wide", "inner", "narrow", "head"), strict=True):
        stored = constants[f"{name}/weight"].astype(np.float32).transpose(3, 0, 1, 2)
        data = model.buffers[tensor.buffer].data
        if name == "narrow":
            scales = tensor.quantization.scale[:, None, None, None]
            values = data.view(np.int8).reshape(stored.shape) * scales
            assert (np.abs(values - stored) <= 1.001 * scales / 2).all()
        else:
            assert tensor.quantization is None, name
            assert np.array_equal(data.view("<f4").reshape(stored.shape), stored), name
    pictures = np.random.default_rng(1).normal(size=(1, 32, 32, 3)).astype(np.float32)
    exact, coarse = run(convert(*network, "picture", ["head"], (32, 32)), pictures)[0], run(content, pictures)[0]
    assert 0 < np.abs(exact - coarse).mean() < 0.02 * np.abs(exact).mean()


def test_what_cannot_be_converted_is_named():
    prefix = "StatefulPartitionedCall/"
    source = fetch("movenet-multipose-graph"), fetch("movenet-multipose")
    with pytest.raises(InputError, match="operation TopKV2 of the node"):
        convert(*source, f"{prefix}Reshape_2", [f"{prefix}TopKV2"], (64, 64))


def test_a_cut_network_gives_what_the_whole_one_does_with_fewer_operations(crops):
    path = fetch("blazepose-lite")
    pictures = crops[:1].astype(np.float32) / 255
    landmarks, _, _, _, world = run(path, pictures)
    smaller = cut(path, [312, 310])
    for mine, theirs in zip(run(smaller, pictures), (world, landmarks), strict=True):
        assert np.array_equal(mine, theirs)
    whole, part = (schema.ModelT.InitFromPackedBuf(each).subgraphs[0] for each in (path.read_bytes(), smaller))
    assert len(part.operators) < len(whole.operators)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Details of the networks that were made; the cache is a new one."""
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    monkeypatch.setattr(litert, "fetch", lambda name: tmp_path / name)
    details = []
    monkeypatch.setattr(networks, "cut", lambda path, detail: (details.append(detail), b"network")[1])
    return details


def make(detail=(1,), asset="blazepose-lite"):
    return made_network("cut", [asset], detail)


def test_a_network_is_made_once(made):
    path = make()
    assert {make(), make()} == {path}
    assert path.read_bytes() == b"network"
    assert make((2,)) != path
    assert made == [(1,), (2,)]


@pytest.mark.parametrize("suffix", [".tflite", ".sha256"])
@pytest.mark.parametrize("damage", [b"Network", b"\xff", b"", None])
def test_a_damaged_one_is_made_anew(made, suffix, damage):
    path = make()
    file = path.with_suffix(suffix)
    file.unlink() if damage is None else file.write_bytes(damage)
    assert make() == path
    assert path.read_bytes() == b"network"
    assert len(made) == 2


def test_only_a_few_of_a_network_are_kept(made, tmp_path):
    for number in range(MOST_KEPT + 3):
        newest = make((number,))
    make(asset="blazepose-full")
    kept = sorted((tmp_path / "networks").glob("blazepose-lite-*.tflite"))
    assert newest in kept
    assert len(kept) == len(list((tmp_path / "networks").glob("blazepose-lite-*.sha256"))) == MOST_KEPT


def test_without_room_for_it_the_bytes_are_used(made, tmp_path):
    (tmp_path / "networks").write_text("no folder")
    assert make() == b"network"


@pytest.fixture
def threads():
    """PyTorch's number of threads is what it was after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("folder", ["cache", "Zwischenlager für Äpfel"])
@pytest.mark.usefixtures("threads")
def test_a_real_network_gives_the_same_from_the_cache_and_after_its_file_is_gone(tmp_path, monkeypatch, folder):
    source = fetch("blazepose-lite")
    cache = tmp_path / folder
    monkeypatch.setenv("DI2POSE_CACHE", str(cache))
    (cache / "assets" / "blazepose-lite").mkdir(parents=True)
    shutil.copy(source, cache / "assets" / "blazepose-lite")
    pixels = np.random.default_rng(0).integers(0, 255, (2, 256, 256, 3), np.uint8)
    first, second = BlazePose("lite"), BlazePose("lite")
    shutil.rmtree(cache / "networks")
    torch.set_num_threads(2)  # interpreters of several threads are built now
    assert np.array_equal(*(encoder.encode(pixels).features for encoder in (first, second)))


@pytest.mark.parametrize("most", [4, 1])  # threads of one image: with 1, images go side by side
@pytest.mark.usefixtures("threads")
def test_threads_and_batches_change_no_number(monkeypatch, most):
    """Image by image in order, however many there are and however often the network was built."""
    monkeypatch.setattr(litert, "_THREADS", most)
    network = EfficientDet().network
    images = np.random.default_rng(0).integers(0, 256, (5, 320, 320, 3), dtype=np.uint8)
    torch.set_num_threads(1)
    one_by_one = [network(image[None]) for image in images]
    torch.set_num_threads(3)
    waiting = [network.begin(images), network.begin(images[:1])]  # both before any is waited for
    for count, wait in zip((5, 1), waiting, strict=True):
        for found, parts in zip(wait(), zip(*one_by_one[:count], strict=True), strict=True):
            np.testing.assert_array_equal(found, np.concatenate(parts))


def test_without_pytorch_the_environment_sets_the_threads(monkeypatch):
    monkeypatch.delitem(litert.sys.modules, "torch")
    for wanted, threads in (("3", 3), ("", litert.os.cpu_count()), ("many", litert.os.cpu_count())):
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
        assert litert._all_threads() == threads


def test_sigmoid_of_any_logit():
    assert litert.sigmoid(np.array([-1e4, 0, 1e4], np.float32)).tolist() == [0, 0.5, 1]
