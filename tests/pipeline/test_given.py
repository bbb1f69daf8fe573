"""Keypoints that the user gives decide who is there, place the crop and replace the second observer's."""

import json

import numpy as np
import pytest

from di2pose.data.demo_footage import walker
from di2pose.errors import InputError
from di2pose.image.movenet import keypoints_of
from di2pose.pipeline.given import detections_of
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import COCO_17


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="module")
def photo():
    return walker()


@pytest.fixture(scope="module")
def marks(model, photo):
    """The walker's keypoints by a detector; all of them sure."""
    found = model.find(photo)[0].keypoints.copy()
    found[:, 2] = 0.9
    return found


def test_they_decide_who_is_there(model, photo, marks):
    twice = np.stack([marks, marks])
    for count in (2, 1, 0):
        assert len(model(photo, keypoints=twice[:count], hypotheses=1).people) == count
    padded = np.concatenate([twice[:1], np.full((3, 17, 3), np.nan)])
    assert [person.score for person in model(photo, keypoints=padded, hypotheses=1).people] == [1.0]


def test_the_pose_is_the_one_that_is_found_without_them(model, photo, marks):
    (found,), (given,) = (model(photo, **each).people for each in ({}, {"keypoints": marks[None]}))
    assert np.linalg.norm(found.joints_mm - given.joints_mm, axis=1).max() < 60


def test_tokens_and_observations_are_the_given_ones_also_in_the_mirror(model, photo, marks):
    gaps = marks.copy()
    gaps[[0, 15]] = (np.nan, np.nan, 0)
    detection = detections_of(gaps[None])[0]
    camera = model(photo, keypoints=marks, hypotheses=1).camera
    encoded = model.encode([model.crop(photo, detection, camera)], second_look=True)
    layout, region = model.encoder.layout, encoded.crops[0].region
    assert encoded.flipped is not None
    for output, mirrored in ((encoded.output, False), (encoded.flipped, True)):
        tokens = output.features[:, layout.tokens("movenet")][..., layout.blocks[-1].first :]
        for seen in (keypoints_of(tokens)[0], output.keypoints[0]):
            if mirrored:
                seen = (seen * (-1, 1, 1) + (256, 0, 0))[list(COCO_17.mirror_order)]
            places = region.to_image(seen[:, :2])
            np.testing.assert_allclose(places, gaps[:, :2], atol=0.01)
        assert np.isnan(tokens[0]).all(-1).sum() == 2


def test_what_is_not_given_is_less_sure(model, photo, marks):
    legs = [COCO_17.index(f"{side}_{joint}") for side in ("left", "right") for joint in ("knee", "ankle")]
    gaps = marks.copy()
    gaps[legs] = np.nan
    whole, cut = (model(photo, keypoints=each[None]).people[0] for each in (marks, gaps))
    assert cut["left_ankle"].r90_mm > 1.3 * whole["left_ankle"].r90_mm


def test_files_and_lists(model, photo, marks, tmp_path):
    photo.save(tmp_path / "a.png")
    entry = {"category_id": 1, "score": 1.0, "keypoints": marks.ravel().tolist()}
    (tmp_path / "all.json").write_text(json.dumps([{"image_id": "a.png", **entry}] * 2))
    wanted = model(photo, keypoints=marks, hypotheses=2).people[0].joints_mm
    one = model(tmp_path / "a.png", keypoints=tmp_path / "all.json", hypotheses=2)
    many = model([tmp_path / "a.png", photo, photo], keypoints=[tmp_path / "all.json", marks, None], hypotheses=2)
    assert [len(each.people) for each in (one, *many)] == [2, 2, 1, 1]
    for found in (one.people[0], many[0].people[0], many[1].people[0]):
        np.testing.assert_allclose(found.joints_mm, wanted, atol=0.01)


@pytest.mark.parametrize(
    ("keypoints", "says"),
    [
        (np.full((1, 17, 3), 5000.0), "no keypoint of person 0 lies in the picture"),
        (np.zeros((1, 12, 3)), "17 joints"),
        ("none.json", "none.json"),
    ],
)
def test_what_is_wrong_is_said(model, photo, keypoints, says):
    with pytest.raises(InputError, match=says):
        model(photo, keypoints=keypoints)


def test_boxes_or_keypoints_and_as_many_as_pictures(model, photo, marks):
    with pytest.raises(InputError, match="not both"):
        model(photo, keypoints=marks, boxes=[(0, 0, 100, 100)])
    with pytest.raises(InputError, match="2 images need as many"):
        model([photo, photo], keypoints=[marks])
