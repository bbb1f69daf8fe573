"""Options that cannot be right are named in one line, wherever they come in."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.call_options import check_call, usable_device
from di2pose.errors import InputError
from di2pose.video.estimate import video_results

GOOD = {"hypotheses": 8, "steps": None, "seed": 0, "max_people": 8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hypotheses": "8"}, "hypotheses must be a whole number, got '8'"),
        ({"hypotheses": 2.0}, "hypotheses must be a whole number, got 2.0"),
        ({"hypotheses": True}, "hypotheses must be a whole number, got True"),
        ({"hypotheses": 0}, "hypotheses must be 1 or more, got 0"),
        ({"steps": "10"}, "steps must be a whole number, or None for the model's own, got '10'"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"max_people": "all"}, "max_people must be a whole number, got 'all'"),
        ({"height_m": "1.78"}, "height_m must be a stature in metres like 1.78, or None, got '1.78'"),
        ({"field_of_view": "60"}, "field_of_view must be an angle in degrees like 60, or None, got '60'"),
        ({"min_score": "high"}, "min_score must be a number from 0 to 1, or None, got 'high'"),
        ({"min_score": -0.1}, "min_score must be a number from 0 to 1, got -0.1"),
    ],
)
def test_wrong_options_are_named_by_photos_and_videos_alike(changes, message, as_user):
    model = Di2Pose(recipes.tiny())
    for call in (lambda: model("gone.jpg", **changes), lambda: video_results(model, "gone.mp4", **changes)):
        with pytest.raises(InputError) as error:
            call()
        assert str(error.value) == message


def test_numbers_of_numpy_are_numbers(as_user):
    check_call(np.int64(4), np.int32(2), np.uint8(1), np.int16(3), np.float32(1.7), np.float64(60), np.float32(0.5))
    check_call(**GOOD)


@pytest.mark.parametrize("device", ["nonsense", "tpu", "cuda:x", "", "meta"])
def test_a_device_that_is_none_is_named(device, as_user):
    with pytest.raises(InputError, match=r"device is auto, cpu, cuda \(or cuda:1, ...\) or mps, got"):
        Di2Pose.from_pretrained(device=device)


@pytest.mark.parametrize("device", ["cuda", "cuda:63", "mps"])
def test_a_device_that_is_not_here_is_named(device, as_user):
    if (device == "cuda" and torch.cuda.is_available()) or (device == "mps" and torch.backends.mps.is_available()):
        pytest.skip(f"{device} can be used here")
    with pytest.raises(InputError, match=f"device {device} cannot be used here: run `di2pose doctor`"):
        Di2Pose.from_pretrained(device=device)


def test_the_processor_is_always_there():
    assert usable_device("cpu") == "cpu"
    assert usable_device("auto") in ("cpu", "cuda")


def test_the_runtime_of_the_encoder_says_nothing_and_errors_still_come_through():
    """The line of XNNPACK comes from C++, past sys.stderr: a process of its own shows it."""
    code = (
        "import os, warnings; warnings.simplefilter('ignore')\n"
        "from di2pose.image.blazepose import load\n"
        "from di2pose.image.litert import without_information\n"
        "load('lite', 'litert')\n"
        "with without_information():\n"
        "    os.write(2, b'INFO: chatter\\nERROR: trouble\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "ERROR: trouble\n"
