"""Which crops get a second look, with the shipped model on real pictures."""

from dataclasses import replace

import numpy as np
import pytest

from di2pose import Di2Pose
from di2pose.data.demo_footage import walker as _walker
from di2pose.image.crop import assumed_camera
from di2pose.noise import hypothesis_generators
from di2pose.pipeline.assemble import fit_people
from di2pose.pipeline.crops import EncodedCrops, encode_mirrored
from di2pose.pipeline.observations import observe
from di2pose.pipeline.second_look import needs_second_look


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="module")
def crop(model):
    """A walker, well seen."""
    picture = _walker()
    (person,) = model.load_detector().detect(picture, max_people=1)
    return model.crop(picture, person, assumed_camera(picture.size))


@pytest.fixture
def passes(model, monkeypatch):
    """Crops that went through the encoder, a number for each call."""
    encoder, calls = model.encoder, []
    real = type(encoder).encode
    monkeypatch.setattr(type(encoder), "encode", lambda self, crops: (calls.append(len(crops)), real(self, crops))[1])
    return calls


def test_a_clear_crop_and_its_mirror_image_are_encoded_once_together(model, crop, passes):
    both = model.encode([crop], second_look=True)
    assert passes == [2]
    assert both.crops == [crop]
    assert not needs_second_look(both, model.encoder).any()
    alone, mirrored = model.encode([crop]).output, encode_mirrored(model.encoder, [crop])
    assert passes == [2, 1, 1]
    np.testing.assert_allclose(both.output.features, alone.features, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(both.flipped.features, mirrored.features, rtol=1e-5, atol=1e-5)


def test_a_turned_crop_is_replaced_with_its_mirror_image(model, crop, passes):
    turned = crop.at(replace(crop.region, angle=2.2))
    found = model.encode([crop, turned], second_look=True)
    assert passes[0] == 4
    assert len(passes) > 2
    assert found.crops[0] is crop
    assert abs(found.crops[1].region.angle) < 0.5
    alone = encode_mirrored(model.encoder, [found.crops[1]])
    np.testing.assert_allclose(found.flipped.features[1:], alone.features, rtol=1e-5, atol=1e-5)


def test_what_needs_a_second_look(model, crop):
    both = model.encode([crop], flip_test=True)
    width = model.encoder.size[0]

    def doubt(**output):
        return bool(needs_second_look(replace(both, output=replace(both.output, **output)), model.encoder)[0])

    marks, points = both.output.keypoints, both.output.landmarks_2d
    assert not doubt()
    assert doubt(person=np.array([0.2]))
    assert doubt(keypoints=marks + np.array([0.04 * width, 0.0, 0.0]))
    assert doubt(landmarks_2d=points + np.array([0.0, 0.04 * width]))
    assert doubt(landmarks_2d=None, keypoints=None)
    assert needs_second_look(EncodedCrops(both.crops, replace(both.output, keypoints=None)), model.encoder).all()
    bare = replace(crop, detection=replace(crop.detection, keypoints=np.zeros((17, 3))))
    assert needs_second_look(replace(both, crops=[bare]), model.encoder).all()


def test_the_fit_of_the_mean_alone_gives_the_same_depth(model, crop):
    encoded = model.encode([crop, crop])
    estimate = model.estimate(encoded, 4, 2, hypothesis_generators(0, [0, 1], 4))
    views = observe(encoded, model.encoder)
    for height_m in (None, 1.6):
        people = model.place(encoded, estimate, height_m)
        found = fit_people(views, estimate, model.calibration, height_m, only_mean=True)
        np.testing.assert_allclose([fit.depth_mm for fit in found], [each.root_mm[2] for each in people], rtol=1e-9)
