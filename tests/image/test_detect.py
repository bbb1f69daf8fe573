"""Detections, detectors by name, the largest people first, boxes, RT-DETR out of a folder."""

import numpy as np
import pytest
import torch

from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePoseDetector
from di2pose.image.boxes import area, intersection, outside, parse_box, parse_boxes
from di2pose.image.crop import Roi
from di2pose.image.detect import from_boxes, largest, load_detector, overlap
from di2pose.image.people_detector import PeopleDetector


def test_given_boxes_get_upright_regions():
    (person,) = from_boxes([(10, 20, 50, 100)])
    assert person.roi == Roi((30.0, 60.0), 100.0)
    assert person.box == (10.0, 20.0, 50.0, 100.0)


def test_the_largest_people_in_the_picture_stay_in_order_of_size():
    """A box that is large only outside the picture is a small one."""
    small, large, beyond = (10, 10, 40, 90), (50, 0, 120, 200), (190, 0, 900, 900)
    people = from_boxes([small, beyond, large])
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


def test_rt_detr_gives_boxes_largest_first(tmp_path, astronaut):
    """A tiny random network saved to disk: the boxes mean nothing, their form does."""
    transformers = pytest.importorskip("transformers")
    sizes = {"encoder_hidden_dim": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "d_model": 16, "num_queries": 20}
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], out_features=["stage2", "stage3", "stage4"]
    )
    config = transformers.RTDetrV2Config(
        backbone_config=backbone, encoder_in_channels=[8, 16, 16], decoder_in_channels=[16, 16, 16],
        encoder_attention_heads=2, decoder_attention_heads=2, decoder_layers=2, id2label={0: "person", 1: "bicycle"},
        **sizes,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.RTDetrV2ForObjectDetection(config).save_pretrained(tmp_path)
    people = load_detector(f"rtdetr:{tmp_path}").detect(astronaut, max_people=5, least=0.0)
    areas = [intersection(person.box, (0, 0, 512, 512)) for person in people]
    assert len(people) == 5
    assert areas == sorted(areas, reverse=True)
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all" * 100)
    with pytest.raises(InputError, match="Give a hub name"):
        load_detector(f"rtdetr:{tmp_path}")


def test_any_four_numbers_are_a_box():
    assert parse_box(["1", 2, 3.5, np.float32(4)]) == (1.0, 2.0, 3.5, 4.0)
    assert parse_boxes(np.array([[0, 0, 9, 9], [1, 2, 3, 4]])) == ((0.0, 0.0, 9.0, 9.0), (1.0, 2.0, 3.0, 4.0))
    assert parse_boxes([]) == ()


FORM, ORDER = "here: a box is four numbers x0, y0, x1, y1 in pixels, got", "here: a box needs x0 < x1 and y0 < y1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *((each, FORM) for each in (3, None, "a box", (1, 2, 3), (1, 2, 3, "x"), [[1, 2, 3, 4]])),
        *((each, ORDER) for each in ((3, 2, 1, 4), (1, 2, 1, 4), (1, 4, 3, 2), (0, 0, np.inf, 1), (0, 0, 1, np.nan))),
    ],
)
def test_anything_else_is_not(wrong, message):
    with pytest.raises(InputError, match=message):
        parse_boxes([(0, 0, 1, 1), wrong], "here")


@pytest.mark.parametrize(
    ("box", "left"),
    [
        ((0.0, 0.0, 10.0, 10.0), 96.0),
        ((4.5, 4.5, 5.0, 5.0), 0.0),
        ((20.0, 0.0, 30.0, 10.0), 100.0),
        ((0.0, 20.0, 10.0, 30.0), 100.0),
        ((5.0, 4.0, 9.0, 6.0), 6.0),
    ],
)
def test_the_parts_of_a_box_outside_of_another(box, left):
    parts = outside(box, (4.0, 4.0, 6.0, 6.0))
    assert sum(map(area, parts)) == left
    assert all(intersection(part, (4.0, 4.0, 6.0, 6.0)) == 0 for part in parts)
    assert all(intersection(part, box) == area(part) for part in parts)
