"""The model inside the package, on real pictures: what a user relies on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ImageOps

import di2pose
from di2pose import Di2Pose
from di2pose.image.crop import Roi, assumed_camera
from di2pose.image.detect import Detection, PersonMatcher
from di2pose.noise import hypothesis_generators
from di2pose.pipeline.second_look import with_second_looks
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import H36M_17, H36M_21, LIMB_12, mirror

WEIGHTS = Path(di2pose.__file__).parent / "weights"
LIMBS = list(H36M_17.indices(*LIMB_12))
HIPS = tuple(LIMB_12.index(f"{side}_hip") for side in ("left", "right"))


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="module")
def frames(footage):
    samples = [footage[row] for row in (10, 110, 210, 310)]
    return samples, [footage.read_image(sample) for sample in samples]


def test_it_is_small_and_comes_with_its_calibration(model):
    bytes_of = {each.name: sum(path.stat().st_size for path in each.iterdir()) for each in WEIGHTS.iterdir()}
    assert bytes_of.keys() == {"small", "lift"}
    assert bytes_of["small"] < 43e6
    assert bytes_of["lift"] < 12e6
    assert not [path for path in WEIGHTS.rglob("*") if path.suffix in (".pt", ".pth", ".pkl", ".bin")]
    assert model.calibration is not None
    assert model.config.sample_steps >= 4


def test_it_sees_the_man_in_all_four_views_better_than_a_mean_pose_would(model, frames):
    samples, images = frames
    find, noise = PersonMatcher(), hypothesis_generators(0, [sample.id for sample in samples], 8)
    crops = [model.crop(i, find.find(s, i), s.camera) for s, i in zip(samples, images, strict=True)]
    found = model.estimate(model.encode(crops, second_look=True), 8, model.config.sample_steps, noise).samples_mm
    truth = torch.from_numpy(np.stack([sample.joints_mm for sample in samples]))[:, LIMBS].double()
    pose = torch.from_numpy(found.mean(1))[:, LIMBS]
    assert pa_mpjpe(pose, truth).mean() < 110
    assert mpjpe(pose, truth, root=HIPS).mean() < 160


def test_a_second_look_rights_a_crop_that_is_turned_and_off(model, frames):
    """As a detector gives it that something before the person misleads."""
    samples, images = frames
    views = []
    for sample, image in zip(samples, images, strict=True):
        roi = PersonMatcher()(sample, image)
        centre = (roi.centre[0] + 0.06 * roi.side, roi.centre[1] - 0.06 * roi.side)
        region = Roi(centre, 1.15 * roi.side, roi.angle + 1.6)
        views.append(model.crop(image, Detection((0.0, 0.0, 1.0, 1.0), 1.0, region), sample.camera))
    truth = torch.from_numpy(np.stack([sample.joints_mm for sample in samples]))[:, LIMBS].double()
    first = model.encode(views)
    second = with_second_looks(first, model.encoder, model.numpy_model)
    errors = []
    for seen in (first, second):
        noise = hypothesis_generators(0, [sample.id for sample in samples], 8)
        pose = torch.from_numpy(model.estimate(seen, 8, model.config.sample_steps, noise).samples_mm.mean(1))[:, LIMBS]
        errors.append(float(mpjpe(pose, truth, root=HIPS).mean()))
    assert errors[1] < 170
    assert errors[1] < 0.8 * errors[0]
    certainty = model.numpy_model.certainty
    assert (certainty(second.output.features) >= certainty(first.output.features)).all()
    assert with_second_looks(first, model.encoder, model.numpy_model, []) is first


def test_a_mirrored_photo_gives_the_mirrored_pose_within_the_spread(model, frames):
    samples, images = frames
    for sample, image in zip(samples[:1], images[:1], strict=True):
        roi = PersonMatcher()(sample, image)
        turned = type(roi)((image.width - roi.centre[0], roi.centre[1]), roi.side, -roi.angle)
        poses = []
        for picture, region in ((image, roi), (ImageOps.mirror(image), turned)):
            view = model.crop(picture, Detection((0.0, 0.0, 1.0, 1.0), 1.0, region), assumed_camera(picture.size))
            noise = hypothesis_generators(0, [0], 8)
            poses.append(model.estimate(model.encode([view]), 8, model.config.sample_steps, noise).samples_mm[0])
        there, back = poses[0], mirror(poses[1], H36M_21)
        apart = np.linalg.norm(there.mean(0) - back.mean(0), axis=-1)[1:]
        spread = np.sqrt(there.var(0).sum(-1) + back.var(0).sum(-1))[1:]
        assert apart.mean() < 2 * spread.mean() + 20


def test_hiding_a_joint_that_was_seen_makes_it_less_sure_of_it(model, frames):
    picture = frames[1][0]
    whole = model(picture, max_people=1).people[0]
    ends = [f"{side}_{joint}" for side in ("left", "right") for joint in ("elbow", "wrist", "knee")]
    seen = [name for name in ends if whole[name].state == "visible"]
    assert len(seen) >= 2
    seen = seen[:3]
    states, radii = [], []
    for name in seen:
        x, y = whole.joints_2d[H36M_17.index(name)]
        hidden = model(picture, max_people=1, occluded=[(x - 90, y - 90, x + 90, y + 90)]).people[0]
        states.append(hidden[name].state)
        radii.append(hidden[name].r90_mm / whole[name].r90_mm)
    assert np.mean(radii) > 1.1
    assert states.count("occluded") > len(states) / 2  # a guess may fall beside the region, too
