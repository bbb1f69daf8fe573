"""ViTPose through transformers, with a small random network saved to disk."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.crop import apply
from di2pose.image.detect import from_boxes
from di2pose.image.encoder import crop_pixels, load_encoder
from di2pose.image.vitpose import VitPose

transformers = pytest.importorskip("transformers", reason="the extra 'vitpose' is not installed")


def save(folder, **changes):
    torch.manual_seed(0)
    settings = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2} | changes
    backbone = transformers.VitPoseBackboneConfig(**settings)
    config = transformers.VitPoseConfig(backbone_config=backbone)
    model = transformers.VitPoseForPoseEstimation(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a saved network."""
    made = tmp_path_factory.mktemp("vitpose")
    save(made)
    return made


@pytest.fixture(scope="module")
def encoder(folder):
    return VitPose(str(folder))


@pytest.fixture(scope="module")
def crops():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 256, 192, 3), dtype=np.uint8))


def test_saved_model_gives_192_tokens_equal_to_its_own_backbone(folder, encoder, crops):
    model = transformers.VitPoseForPoseEstimation.from_pretrained(folder)
    features = encoder(crops)
    assert tuple(features.shape) == (2, 192, 32)
    assert encoder.width == 32
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = ((crops / 255 - mean) / std).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = model.backbone(pixels).feature_maps[-1]
    assert (features - expected).abs().max() < 1e-5
    assert not any(weight.requires_grad for weight in encoder.parameters())


def test_tokens_run_row_by_row(tmp_path, crops):
    """A change of the pixels of one patch moves its own token most: row 5, column 7 is token 5 * 12 + 7."""
    save(tmp_path, num_hidden_layers=1)
    encoder = VitPose(str(tmp_path))
    other = crops.clone()
    other[:, 5 * 16 + 4 : 6 * 16 - 4, 7 * 16 + 4 : 8 * 16 - 4] = 0
    moved = (encoder(crops) - encoder(other)).abs().amax((0, 2))
    assert moved.argmax() == 5 * 12 + 7
    assert moved.max() > 10 * moved.kthvalue(191).values


def test_mixture_of_experts_uses_the_coco_expert(tmp_path, crops):
    save(tmp_path, num_experts=3, part_features=8)
    assert tuple(VitPose(str(tmp_path))(crops).shape) == (2, 192, 32)


def test_cache_form_is_half_precision(encoder, crops):
    parts = encoder.cache_parts(crops.numpy())
    assert {name: (x.dtype.name, x.shape) for name, x in parts.items()} == {"tokens": ("float16", (2, 192, 32))}


def test_on_a_gpu_it_computes_in_bfloat16_and_gives_float32(encoder, crops, monkeypatch):
    plain = encoder(crops)
    monkeypatch.setattr("di2pose.image.vitpose.autocast", lambda device: torch.autocast("cpu", torch.bfloat16))
    features = encoder(crops)
    assert features.dtype == torch.float32
    assert 0 < (features - plain).abs().max() < 0.1


def test_crop_agrees_with_the_library_s_own_preprocessing(encoder):
    """Smooth, so that scipy's and PIL's rounding do not matter. The library counts pixels from their centres."""
    y, x = np.mgrid[0:400, 0:300]
    waves = [127 + 120 * np.sin(x / 30 + phase) * np.cos(y / 40) for phase in (0, 1, 2)]
    image = Image.fromarray(np.stack(waves, -1).astype(np.uint8))
    left, top, width, height = 60.0, 40.0, 150.0, 260.0
    processor = transformers.VitPoseImageProcessorPil(do_normalize=False, do_rescale=False)
    theirs = processor(image, boxes=[[[left, top, width, height]]], return_tensors="np")["pixel_values"][0]
    (person,) = from_boxes([(left + 0.5, top + 0.5, left + width + 0.5, top + height + 0.5)])
    ours = crop_pixels(encoder, image, encoder.region(person))
    assert np.abs(ours.astype(float) - theirs.transpose(1, 2, 0)).max() < 4


def test_another_crop_size_is_refused(tmp_path):
    save(tmp_path, image_size=[128, 96])
    with pytest.raises(InputError, match="256x192"):
        VitPose(str(tmp_path))


@pytest.mark.parametrize("damage", ["no folder", "cut weights", "bad config", "pickle"])
def test_weights_that_cannot_be_read_are_one_clear_line(folder, tmp_path, damage):
    copy = tmp_path / "copy"
    if damage != "no folder":
        shutil.copytree(folder, copy)
    weights = copy / "model.safetensors"
    if damage == "cut weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "bad config":
        (copy / "config.json").write_text("{")
    elif damage == "pickle":
        weights.unlink()
        torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"Give a hub name .* or a local folder") as caught:
        VitPose(str(copy))
    assert len(str(caught.value).splitlines()) == 1


def test_it_is_an_encoder_that_its_own_name_rebuilds(encoder, crops):
    again = load_encoder(encoder.name)
    output = again.encode(crops.numpy())
    assert np.array_equal(output.features, encoder(crops).numpy())
    assert output.landmarks_2d is output.person is output.world_mm is None
    assert (again.layout.length, again.layout.width, again.size) == (192, 32, (192, 256))
    with pytest.raises(InputError, match="no encoder is called 'resnet'"):
        load_encoder("resnet")


def test_the_crop_has_the_aspect_the_margin_and_the_udp_grid(encoder):
    tall, wide = from_boxes([(100.0, 50.0, 160.0, 250.0), (0.0, 0.0, 192.0, 10.0)])  # 60 x 200 grows sideways
    ends = np.array([[0.5, 0.5], [191.5, 255.5]])
    assert np.allclose(apply(encoder.matrix(encoder.region(tall)), ends), [[36.25, 25], [223.75, 275]])
    first, last = apply(encoder.matrix(encoder.region(wide)), ends)
    assert np.allclose(last - first, [240, 320])
