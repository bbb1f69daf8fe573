"""A small model of the real shape on disk, real pictures, and the command line as a user calls it."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from di2pose import recipes
from di2pose.assets import extract, fetch
from di2pose.commands import demo, predict, writing
from di2pose.data.frames import Video
from di2pose.image.blazepose import BlazePose
from di2pose.image.read import read_image
from di2pose.pipeline.pipeline import Di2Pose

CLIP = "Sports2D/Demo/demo.mp4"


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch):
    """What a run prints must not depend on how long it takes. Ctrl-C works, also where the tests run in a shell's
    background."""
    monkeypatch.setattr(writing, "PROGRESS_S", float("inf"))
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """Untrained, but with the shipped one's road: real detector, real encoder, whole diffusion."""
    torch.manual_seed(0)
    config = recipes.tiny(feature_width=BlazePose("lite").layout.width)
    return Di2Pose(dataclasses.replace(config, encoder="blazepose-lite")).save(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def pipelines():
    """Loaded ones of this module by the name of the model."""
    return {}


@pytest.fixture
def loaded_once(pipelines, monkeypatch):
    """A model is loaded by the first run of a module."""
    real = predict.load

    def load(options):
        model = pipelines[options.model] = pipelines.get(options.model) or real(options)
        model.detector = options.detector
        return model

    for module in (predict, demo):
        monkeypatch.setattr(module, "load", load)


@pytest.fixture(scope="session")
def portrait():
    """512x512, one person."""
    return read_image(fetch("astronaut"))


@pytest.fixture(scope="session")
def clip():
    pytest.importorskip("av")
    return extract("sports2d-demo", CLIP) / CLIP


@pytest.fixture(scope="session")
def walker(clip):
    """A part of frame 120 that shows the walker and nobody else."""
    video = Video(clip)
    try:
        return video.frame(120).crop((510, 464, 1160, 994))
    finally:
        video.close()


@pytest.fixture
def run(model_folder, tmp_path, capsys, loaded_once):
    """`di2pose predict ...` with few hypotheses and steps: (exit code, stdout, stderr, output folder)."""

    def predict_files(*words, **options):
        out = options.pop("out", tmp_path / "out")
        quick = {"model": str(model_folder), "hypotheses": 2, "steps": 2, "format": "json", "second_look": False}
        flags = {"boxes": "box_source", "camera": "camera_file", "height": "height_m", "fov": "field_of_view"}
        flags["keypoints"] = "keypoint_source"
        named = {flags.get(flag, flag): value for flag, value in (quick | options).items()}
        if "box_source" in named:
            named["box_source"] = Path(named["box_source"])
        code = predict.predict(tuple(map(str, words)), predict.PredictOptions(out=out, **named))
        said = capsys.readouterr()
        return code, said.out, said.err, out

    return predict_files


@pytest.fixture
def small_disk(tmp_path):
    """A real disk of 64 kB, or a skip where one may not mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not sys.platform.startswith("linux") or shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this machine does not mount: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)
