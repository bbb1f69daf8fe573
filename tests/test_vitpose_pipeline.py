"""The paper's encoder wherever BlazePose runs: photos and videos, with a small ViTPose of random weights on disk.

Features, training and evaluation with it: experiments/smoke.sh, run by tests/test_smoke.py.
"""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image
from video.films import write_film

from di2pose import Di2Pose, recipes, video_results
from di2pose.assets import extract, fetch
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import from_boxes
from di2pose.image.read import read_image
from di2pose.video.stream import Stream

transformers = pytest.importorskip("transformers", reason="the extra 'vitpose' is not installed")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Saved and loaded: the checkpoint alone says which encoder made its features."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("vitpose")
    backbone = transformers.VitPoseBackboneConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    transformers.VitPoseForPoseEstimation(transformers.VitPoseConfig(backbone_config=backbone)).save_pretrained(folder)
    made = Di2Pose(replace(recipes.tiny(feature_width=32), encoder=f"vitpose:{folder}"))
    return Di2Pose.from_pretrained(made.save(tmp_path_factory.mktemp("model") / "m"))


def test_a_photo_gives_people_in_camera_axes(model):
    picture = read_image(fetch("astronaut"))
    result = model(picture, hypotheses=3, steps=2)
    (person,) = result.people
    assert person.samples_mm.shape == (3, 17, 3)
    assert set(person.state.tolist()) <= {"visible", "occluded", "out_of_frame"}
    np.testing.assert_allclose(result.camera.project(person.joints_mm + person.root_mm), person.joints_2d, atol=1e-6)
    crop = model.crop(picture, from_boxes([person.box])[0], assumed_camera(picture.size))
    one = model.encode([crop], second_look=True)
    assert one.flipped is not None
    raw = model.numpy_model.predict(one.output.features, 2, 2, torch.Generator().manual_seed(0)).joints_mm
    turned = model.estimate(replace(one, flipped=None), 2, 2, torch.Generator().manual_seed(0)).samples_mm
    np.testing.assert_allclose(turned, raw, atol=1e-3)  # poses of ViTPose's crop are in camera axes already


def test_a_video_is_followed_by_the_detector(model, tmp_path):
    whole = "Pose2Sim/Demo_SinglePerson/videos/cam01.mp4"
    frames = islice(Stream(extract("pose2sim-videos", whole) / whole), 0, 18, 6)
    small = [np.asarray(frame.picture.resize((324, 576), Image.Resampling.BOX)) for frame in frames]
    write_film(tmp_path / "small.mp4", small, rate=10)
    results = list(video_results(model, tmp_path / "small.mp4", hypotheses=2, steps=2, max_people=1))
    assert [[person.track for person in result.people] for result in results] == [[0]] * 3
