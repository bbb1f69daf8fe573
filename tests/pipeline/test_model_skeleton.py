"""A model with more joints than Human3.6M's 17 goes through the whole pipeline: here with heels and toes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from output.people import standing

from di2pose import Di2Pose, Result
from di2pose.calibration import Calibration
from di2pose.data.demo_footage import walker
from di2pose.errors import InputError
from di2pose.image.encoder import to_picture
from di2pose.model import PoseModel, Prediction
from di2pose.pose.bones import impossible, stature_mm
from di2pose.pose.skeleton import BLAZEPOSE_33, COCO_17, H36M_17, H36M_21, bone_lengths

HEELS_AND_TOES = ((0.0, 60.0, 50.0), (30.0, 70.0, -130.0), (0.0, 60.0, 50.0), (-30.0, 70.0, -130.0))
FEET = list(H36M_21.indices("left_heel", "left_toe", "right_heel", "right_toe"))
MARKS = list(BLAZEPOSE_33.indices("left_heel", "left_foot_index", "right_heel", "right_foot_index"))


class Standing(torch.nn.Module):
    """Everybody stands; the hypotheses are so far apart that the picture decides."""

    kind, skeleton = "standing", H36M_21
    config = SimpleNamespace(
        name="standing", encoder="blazepose-heavy+movenet", sample_steps=1, feature_size=(0, 302), tokenizer=None
    )

    def __init__(self):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(1))

    def predict(self, features, hypotheses, steps, generator, constraints=None):
        body = standing()
        ankles = body[list(H36M_17.indices("left_ankle", "left_ankle", "right_ankle", "right_ankle"))]
        body = np.concatenate([body, ankles + HEELS_AND_TOES])
        noise = np.random.default_rng(0).normal(scale=200, size=(len(features), hypotheses, 21, 3))
        noise[..., 0, :] = 0
        return Prediction(torch.from_numpy(body + noise))

    def loss(self, batch, generator):
        raise NotImplementedError

    def point_estimates(self, features):
        return {}

    def certainty(self, features):
        return None

    def tokens_of(self, joints_mm):
        return None

    def parts(self):
        return {}


@pytest.fixture(scope="module")
def model():
    return Di2Pose(Standing())


@pytest.fixture(scope="module")
def photo():
    return walker()


@pytest.fixture(scope="module")
def person(model, photo):
    assert isinstance(model.model, PoseModel)
    (found,) = model(photo, hypotheses=8).people
    return found


def test_people_have_the_models_joints_with_bones_left_and_right_alike(person):
    assert person.skeleton == H36M_21
    assert person.samples_mm.shape == (8, 21, 3)
    lengths = dict(zip(H36M_21.joints[1:], bone_lengths(person.joints_mm, H36M_21), strict=True))
    assert lengths["left_toe"] == pytest.approx(lengths["right_toe"])
    assert lengths["left_heel"] == pytest.approx(lengths["right_heel"])
    poses = np.concatenate([person.joints_mm[None], person.samples_mm])
    assert not impossible(poses, bone_lengths(person.joints_mm, H36M_21), H36M_21).any()
    for side in ("left", "right"):  # no foot is folded at the ankle
        heel, toe = H36M_21.indices(f"{side}_heel", f"{side}_toe")
        apart = np.linalg.norm(poses[:, heel] - poses[:, toe], axis=-1)
        assert (apart > 0.83 * (lengths["left_heel"] + lengths["left_toe"])).all()


def test_heels_and_toes_are_fitted_to_their_landmarks(model, photo, person):
    seen = model.encode([model.crop(photo, model.find(photo)[0], model(photo, hypotheses=1).camera)])
    marks = to_picture(model.encoder, seen.crops[0].region, seen.output.landmarks_2d[0])[MARKS]
    assert np.linalg.norm(person.joints_2d[FEET] - marks, axis=1).max() < 0.06 * seen.crops[0].region.side


def test_pins_statures_and_files_know_them(model, photo, tmp_path):
    toe = (150.0, 850.0, -200.0)
    result = model(photo, hypotheses=2, pin={"left_toe": toe}, height_m=1.8, max_people=1)
    (person,) = result.people
    np.testing.assert_allclose(person["left_toe"].xyz_mm, toe)
    assert person["left_toe"].state == "pinned"
    result.save(tmp_path / "walker.json")
    again = Result.load(tmp_path / "walker.json").people[0]
    assert again.skeleton.joints == H36M_21.joints
    np.testing.assert_allclose(again.joints_mm, person.joints_mm, atol=0.06)
    assert stature_mm(person.joints_mm, H36M_21) == pytest.approx(1800, rel=0.02)
    assert person.convert("h36m_17").joints_mm.shape == (17, 3)


def test_calibration_and_skeleton_must_fit_the_model(photo):
    with pytest.raises(InputError, match="calibration is of 17 joints, the model has 21"):
        Di2Pose(Standing(), calibration=Calibration.neutral())(photo, hypotheses=1)
    stranger = Standing()
    stranger.skeleton = COCO_17
    with pytest.raises(InputError, match="needs the joints of h36m_17"):
        Di2Pose(stranger)
