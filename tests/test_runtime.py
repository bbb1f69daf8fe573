"""What runs the networks of a default installation: Google's runtime for all of them, and threads that sleep."""

import os
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import pytest
from di2pose_people.features import people_features

import di2pose
from di2pose import Di2Pose
from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.evaluation.predictors import load_predictor
from di2pose.image.blazepose import BlazePose
from di2pose.image.blazepose_detector import BlazePoseDetector
from di2pose.image.detect import load_detector
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.encoder import DEFAULT_ENCODER, load_encoder
from di2pose.image.find import Finder
from di2pose.image.movenet import MoveNet
from di2pose.image.multipose import MultiPose
from di2pose.image.people_detector import PeopleDetector
from di2pose.image.read import read_image
from di2pose.image.tfjs_graph import TfjsGraph
from di2pose.image.tflite_graph import TfliteGraph
from di2pose.training.features import features

ROOT = Path(__file__).parents[1]


def people_of_a_photo():
    """What `predict`, its workers, `serve`, `demo` and videos run."""
    assert Di2Pose.from_pretrained()(fetch("astronaut"), hypotheses=1, steps=1).people


def blazepose_finds():
    assert load_detector("blazepose").detect(read_image(fetch("astronaut")))


OPENED = {
    "a photo": people_of_a_photo,
    "encoder": lambda: load_encoder(DEFAULT_ENCODER),
    "detector": lambda: load_detector("auto"),
    "detector of BlazePose": blazepose_finds,
    "detector of the features command": lambda: Finder().detector,
    "peer of the evaluation": lambda: load_predictor("blazepose-lite"),
    "BlazePose": lambda: BlazePose("lite", movenet=True),
    "MoveNet": MoveNet,
    "EfficientDet": EfficientDet,
    "MultiPose": MultiPose,
    "BlazePoseDetector": BlazePoseDetector,
    "PeopleDetector": PeopleDetector.load,
}


@pytest.mark.parametrize("opened", OPENED)
def test_no_network_runs_in_pytorch_unless_asked(opened, monkeypatch):
    def refuse(self, *arguments, **options):
        raise AssertionError(f"{type(self).__name__} opened by default")

    for walk in (TfliteGraph, TfjsGraph):
        monkeypatch.setattr(walk, "__init__", refuse)
    OPENED[opened]()


@pytest.mark.parametrize("command", [features, people_features])
def test_commands_that_cache_features_use_the_same_runtime(command):
    assert signature(command).parameters["runtime"].default == "litert"


def test_an_unknown_runtime_is_refused():
    with pytest.raises(InputError, match="'litert' or 'torch', got 'auto'"):
        load_encoder("blazepose-lite", runtime="auto")


def test_the_runtime_is_installed_with_the_package():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert any(each.startswith("ai-edge-litert") for each in needed)


def run(code, **settings):
    """stdout and stderr of a new process, whose environment says nothing about waiting but for the given settings."""
    ours = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in ours} | settings
    environment["PYTHONPATH"] = str(Path(di2pose.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout, done.stderr


def test_threads_that_wait_sleep():
    code = "import di2pose, os; print(os.environ['OMP_WAIT_POLICY'], os.environ['KMP_BLOCKTIME'])"
    assert run(code)[0].split() == ["PASSIVE", "0"]


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP is that of torch on Linux")
def test_torch_reads_it_before_its_threads_start():
    told = run("from di2pose import Di2Pose", OMP_DISPLAY_ENV="VERBOSE")[1]
    assert "GOMP_SPINCOUNT = '0'" in told


def test_what_the_user_set_stays():
    code = "import di2pose, os; print(os.environ['OMP_WAIT_POLICY'], os.environ.get('KMP_BLOCKTIME'))"
    assert run(code, OMP_WAIT_POLICY="active")[0].split() == ["active", "None"]
    assert run(code, KMP_BLOCKTIME="7")[0].split() == ["PASSIVE", "7"]
