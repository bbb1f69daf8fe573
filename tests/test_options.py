"""Options of a call: wrong ones are named in one line, in photos and videos alike."""

import math
import os
from dataclasses import fields

import numpy as np
import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.device import usable_device
from di2pose.errors import InputError
from di2pose.image.litert import without_information
from di2pose.options import CallOptions, Options
from di2pose.video.estimate import video_results


@pytest.fixture(scope="module")
def model():
    return Di2Pose(recipes.tiny())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hypotheses": "8"}, "hypotheses must be a whole number, got '8'"),
        ({"hypotheses": 2.0}, "hypotheses must be a whole number, got 2.0"),
        ({"hypotheses": True}, "hypotheses must be a whole number, got True"),
        ({"hypotheses": 0}, "hypotheses must be 1 or more, got 0"),
        ({"steps": "10"}, "steps must be a whole number, or None, got '10'"),
        ({"steps": 0}, "steps must be 1 or more, got 0"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"max_people": "all"}, "max_people must be a whole number, got 'all'"),
        ({"max_people": 0}, "max_people must be 1 or more, got 0"),
        ({"height_m": "1.78"}, "height_m must be a number, or None, got '1.78'"),
        ({"height_m": 178.0}, "height_m must be from 0.3 to 3, got 178.0"),
        ({"height_m": {0: 178}}, "height_m must be from 0.3 to 3, got 178"),
        ({"height_m": {"a": 1.7}}, "height_m must be metres by the person's number, {0: 1.78}, got 'a'"),
        ({"field_of_view": 0}, "field_of_view must be from 1 to 170, got 0"),
        ({"min_score": "high"}, "min_score must be a number, or None, got 'high'"),
        ({"min_score": math.nan}, "min_score must be from 0 to 1, got nan"),
    ],
)
def test_wrong_options_are_named(model, changes, message, as_user):
    for call in (lambda: model("gone.jpg", **changes), lambda: video_results(model, "gone.mp4", **changes)):
        with pytest.raises(InputError) as error:
            call()
        assert str(error.value) == message


def test_numbers_of_numpy_are_numbers(as_user):
    numbers = {"hypotheses": np.int64(4), "steps": np.int32(2), "seed": np.uint8(1), "max_people": np.int16(3)}
    Options(**numbers, height_m=np.float32(1.7), field_of_view=np.float64(60), min_score=np.float32(0.5)).check()


def test_the_keyword_arguments_are_the_fields(model):
    assert list(CallOptions.__annotations__) == [each.name for each in fields(Options)]
    with pytest.raises(TypeError, match="hypothesis"):
        model("gone.jpg", hypothesis=4)


@pytest.mark.parametrize("device", ["nonsense", "tpu", "cuda:x", "", "meta"])
def test_an_unknown_device_is_named(device, as_user):
    with pytest.raises(InputError, match=r"device is auto, cpu, cuda \(or cuda:1, ...\) or mps, got"):
        Di2Pose.from_pretrained(device=device)


@pytest.mark.parametrize("device", ["cuda", "cuda:63", "mps"])
def test_a_missing_device_is_named(device, as_user):
    if (device == "cuda" and torch.cuda.is_available()) or (device == "mps" and torch.backends.mps.is_available()):
        pytest.skip(f"{device} can be used here")
    with pytest.raises(InputError, match=f"device {device} cannot be used here: run `di2pose doctor`"):
        Di2Pose.from_pretrained(device=device)


def test_the_cpu_is_usable():
    assert usable_device("cpu") == "cpu"
    assert usable_device("auto") in ("cpu", "cuda")


def test_litert_prints_errors_only(capfd):
    """Its lines come from C++, past sys.stderr."""
    with without_information():
        os.write(2, b"INFO: chatter\nERROR: trouble\n")
    assert capfd.readouterr().err == "ERROR: trouble\n"
