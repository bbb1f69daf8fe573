"""The plain baseline: a second kind of model, by the same joints as Di2Pose."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stick_figures import seen_from_the_front, stick_figures

from di2pose import Di2Pose
from di2pose.baselines.regression import Regression
from di2pose.errors import InputError
from di2pose.model import Constraints, PoseModel, TorchModel, load_model, save_model
from di2pose.pipeline.flip import predict_both
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import H36M_17, mirror


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Regression(Regression.recipe("none", 17, 32)).eval()


def test_it_is_a_pose_model_that_says_one_thing(model):
    assert isinstance(model, PoseModel)
    found = model.predict(torch.randn(2, 17, 32), 5, 1, torch.Generator())
    assert found.joints_mm.shape == (2, 5, 17, 3)
    assert (found.joints_mm == found.joints_mm[:, :1]).all()
    assert (found.joints_mm[:, :, 0] == 0).all()
    torch.testing.assert_close(found.visibility.sum(-1), torch.ones(2, 17))
    assert found.tokens is None
    assert model.certainty(torch.randn(2, 17, 32)) is None


def test_the_flip_test_is_the_mean_of_both_ways(model):
    features, flipped = torch.randn(2, 17, 32), torch.randn(2, 17, 32)
    both = predict_both(TorchModel(model), features.numpy(), flipped.numpy(), 8, 1, torch.Generator())
    one, other = (model.predict(each, 1, 1, torch.Generator()).joints_mm[:, 0] for each in (features, flipped))
    wanted = (one + mirror(other, H36M_17)) / 2
    torch.testing.assert_close(torch.from_numpy(both.joints_mm.mean(1)), wanted, atol=1e-3, rtol=0)


def test_it_learns_poses_and_comes_back_from_its_folder(tmp_path):
    torch.manual_seed(0)
    model = Regression(replace(Regression.recipe("none", 17, 32), adapter_dropout=0.0))
    joints = stick_figures(8, torch.Generator().manual_seed(0))
    features = seen_from_the_front(joints, 32)
    model.prepare(features)
    optimiser = torch.optim.Adam(model.parameters(), 3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 150)
    for step in range(150):
        optimiser.zero_grad()
        loss = model.loss({"features": features, "joints_mm": joints}, torch.Generator().manual_seed(step))["loss"]
        loss.backward()
        optimiser.step()
        schedule.step()
    again = load_model(save_model(model, tmp_path / "model", data="stick figures"))
    assert (again.kind, again.config) == ("regression", model.config)
    found = again.predict(features, 1, 1, torch.Generator()).joints_mm[:, 0]
    assert mpjpe(found, joints).mean() < 30
    torch.testing.assert_close(found, model.eval().predict(features, 1, 1, torch.Generator()).joints_mm[:, 0])


def test_what_needs_draws_is_refused(model):
    pins = (torch.zeros(1, 17, 3), torch.ones(1, 17, dtype=torch.bool))
    with pytest.raises(InputError, match="draws nothing"):
        model.predict(torch.randn(1, 17, 32), 2, 1, torch.Generator(), Constraints(pins=pins))
    with pytest.raises(InputError, match="hypotheses must be 1 or more"):
        model.predict(torch.randn(1, 17, 32), 0, 1, torch.Generator())


def test_it_looks_at_pictures_like_any_other(tmp_path):
    torch.manual_seed(0)
    model = Regression(Regression.recipe("blazepose-lite", 117, 200))
    pipeline = Di2Pose.from_pretrained(save_model(model, tmp_path / "model"))
    picture = np.random.default_rng(0).integers(0, 256, (200, 160, 3), dtype=np.uint8)
    (person,) = pipeline(picture, boxes=[(20.0, 10.0, 140.0, 190.0)], hypotheses=3).people
    assert person.samples_mm.shape == (3, 17, 3)
    assert person.tokens is None
    with pytest.raises(InputError, match="this one has none"):
        pipeline(picture, boxes=[(20.0, 10.0, 140.0, 190.0)], keep_tokens={0: 1})
