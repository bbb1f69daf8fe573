"""2D observers: ViTPose and RTMPose with small random weights on disk, and the names of all."""

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.observer import Observer, RtmlibObserver, VitPoseObserver, load_observer, peaks

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8))
BOXES = [(50.0, 20.0, 170.0, 280.0), (180.0, 10.0, 390.0, 290.0)]


@pytest.fixture(scope="module")
def vitpose_folder(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vitpose")
    backbone = transformers.VitPoseBackboneConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=[256, 192], patch_size=[16, 16]
    )
    config = transformers.VitPoseConfig(backbone_config=backbone, use_simple_decoder=True, num_labels=17)
    transformers.VitPoseForPoseEstimation(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rtmpose_file(tmp_path_factory):
    """SimCC outputs of the mean of the picture: a real ONNX network of RTMPose's shape."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("rtmlib")
    path = tmp_path_factory.mktemp("rtmpose") / "tiny.onnx"
    make, random = onnx.helper, np.random.default_rng(0)
    nodes, weights, outputs = [make.make_node("ReduceMean", ["input"], ["mean"], axes=[2, 3], keepdims=0)], [], []
    for name, bins in (("simcc_x", 384), ("simcc_y", 512)):
        matrix = random.normal(size=(3, 17 * bins)).astype(np.float32)
        weights += [onnx.numpy_helper.from_array(matrix, f"w_{name}")]
        weights += [onnx.numpy_helper.from_array(np.array([-1, 17, bins]), f"s_{name}")]
        nodes += [make.make_node("MatMul", ["mean", f"w_{name}"], [f"m_{name}"])]
        nodes += [make.make_node("Reshape", [f"m_{name}", f"s_{name}"], [name])]
        outputs += [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 17, bins])]
    image = make.make_tensor_value_info("input", onnx.TensorProto.FLOAT, [None, 3, 256, 192])
    graph = make.make_graph(nodes, "tiny", [image], outputs, weights)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("kind", ["vitpose", "rtmlib"])
def test_keypoints_lie_in_the_boxes_and_people_are_apart(kind, request):
    place = request.getfixturevalue("vitpose_folder" if kind == "vitpose" else "rtmpose_file")
    observer = load_observer(f"{kind}:{place}")
    assert isinstance(observer, Observer)
    both, (second,) = observer.observe(PICTURE, BOXES), observer.observe(PICTURE, BOXES[1:])
    assert both.shape == (2, 17, 3)
    np.testing.assert_allclose(both[1], second, atol=1e-3)
    for box, person in zip(BOXES, both, strict=True):
        seen = person[person[:, 2] > 0, :2]
        size = max(box[2] - box[0], box[3] - box[1])
        assert (seen >= np.array(box[:2]) - size).all()
        assert (seen <= np.array(box[2:]) + size).all()
    assert observer.observe(PICTURE, []).shape == (0, 17, 3)


def test_vitposes_cells_are_pixels_of_the_picture(vitpose_folder, monkeypatch):
    """A peak in the middle of the heat map is the middle of the box, one 4 cells to the right lies 4 cells there."""
    observer = VitPoseObserver(str(vitpose_folder))
    maps = np.zeros((1, 17, 64, 48), np.float32)
    maps[0, :, 31:33, 23:25] = 0.8
    maps[0, 1] = np.roll(maps[0, 1], 4, axis=1)
    monkeypatch.setattr(observer.encoder, "heat_maps", lambda crops: maps)
    (found,) = observer.observe(PICTURE, BOXES[:1])
    x0, y0, x1, y1 = BOXES[0]
    cell = 1.25 * (y1 - y0) * 192 / 256 / 47
    np.testing.assert_allclose(found[0], ((x0 + x1) / 2, (y0 + y1) / 2, 0.8), atol=0.02)
    np.testing.assert_allclose(found[1] - found[0], (4 * cell, 0, 0), atol=1e-3)


def test_peaks_lie_between_cells():
    y, x = np.mgrid[:64, :48]
    maps = np.exp(-((x - 20.3) ** 2 + (y - 40.6) ** 2) / 8)[None, None]
    places, scores = peaks(maps)
    np.testing.assert_allclose(places[0, 0], (20.3, 40.6), atol=0.05)
    assert 0.9 < scores[0, 0] <= 1


def test_names(tmp_path):
    assert load_observer("movenet") is None
    with pytest.raises(InputError, match="choose from movenet, vitpose"):
        load_observer("openpose")
    with pytest.raises(InputError, match="neither an ONNX file nor one of lightweight"):
        load_observer("rtmlib:nothing.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    with pytest.raises(InputError, match="could not load"):
        RtmlibObserver(str(tmp_path / "broken.onnx"))
    with pytest.raises(InputError, match="could not load"):
        load_observer(f"vitpose:{tmp_path}")
