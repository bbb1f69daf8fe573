"""What all baselines do as models: predict, learn, save and load, refuse, run in the pipeline."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stick_figures import seen_from_the_front, stick_figures

from di2pose import Di2Pose, recipes
from di2pose.baselines.gaussian import Gaussian
from di2pose.baselines.pct import PCT
from di2pose.baselines.regression import Regression
from di2pose.errors import InputError
from di2pose.model import Constraints, PoseModel, TorchModel, load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators, training_generators
from di2pose.pipeline.second_look import predict_both
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import H36M_17, mirror
from di2pose.training.options import overridden

SIZES = {"adapter_width": 64, "adapter_channels": 8}
TRUNK = {"width": 32, "layers": 1, "heads": 2, "adapter_tokens": 4} | SIZES
TOKENIZER = replace(recipes.tiny().tokenizer, quantiser="vq", vq_channels=8, block="mixer", levels=(64,))
KINDS = ("regression", "gaussian", "pct")
FEATURES = torch.randn(3, 17, 32, generator=torch.Generator().manual_seed(0))


def recipe(kind, *size):
    if kind == "pct":
        return PCT.token_recipe(*size, TOKENIZER)
    return (Regression if kind == "regression" else Gaussian).recipe(*size)


def made(kind, trunk=None, **changes):
    """An untrained model of a small size; `trunk`: changes of the trunk, or of the regression's adapter."""
    torch.manual_seed(0)
    config = recipe(kind, "none", 17, 32)
    if kind == "regression":
        return Regression(replace(config, **SIZES, **(trunk or {}), **changes))
    config = replace(config, trunk=replace(config.trunk, **TRUNK | (trunk or {})), **changes)
    return Gaussian(config) if kind == "gaussian" else PCT(config)


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    """One of each kind; "fresh": a gaussian that draws fresh noise in every step."""
    return (made("gaussian", eta=1.0) if request.param == "fresh" else made(request.param)).eval()


def steps_of(model):
    return 4 if model.kind == "gaussian" else 1


def fit(parameters, loss, after=lambda: None, steps=250, rate=3e-3):
    optimiser = torch.optim.Adam(parameters, rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        optimiser.zero_grad()
        loss(step).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        after()


def test_it_is_a_pose_model(model):
    assert isinstance(model, PoseModel)
    found = model.predict(FEATURES, 4, steps_of(model), torch.Generator().manual_seed(0))
    assert found.joints_mm.shape == (3, 4, 17, 3)
    assert (found.joints_mm[:, :, 0] == 0).all()
    assert (found.joints_mm.std(1)[:, 1:] > 0).all() == (model.kind != "regression")
    torch.testing.assert_close(found.visibility.sum(-1), torch.ones(3, 17))
    assert found.tokens is None
    estimates = {"regression": [], "gaussian": ["regression"], "pct": ["regression", "soft decode"]}
    assert list(model.point_estimates(FEATURES)) == estimates[model.kind]
    assert (model.certainty(FEATURES) is None) == (model.kind != "pct")


@pytest.mark.parametrize("model", [*KINDS, "fresh"], indirect=True)
def test_a_prediction_does_not_depend_on_its_batch(model):
    whole = model.predict(FEATURES, 2, steps_of(model), hypothesis_generators(0, "abc", 2)).joints_mm
    alone = model.predict(FEATURES[1:2], 2, steps_of(model), hypothesis_generators(0, "b", 2)).joints_mm
    torch.testing.assert_close(alone[0], whole[1], atol=1e-2, rtol=0)


def test_it_has_no_constraints(model):
    pins = (torch.zeros(1, 17, 3), torch.ones(1, 17, dtype=torch.bool))
    with pytest.raises(InputError, match=f"pins and kept tokens .*, this model is of kind '{model.kind}'"):
        model.predict(FEATURES[:1], 2, 1, torch.Generator(), Constraints(pins=pins))
    with pytest.raises(InputError, match="hypotheses must be 1 or more"):
        model.predict(FEATURES[:1], 0, 1, torch.Generator())


@pytest.mark.parametrize(("kind", "most_mm"), [("regression", 30), ("gaussian", 40), ("pct", 45)])
def test_it_learns_poses_and_comes_back_from_its_folder(kind, most_mm, tmp_path, as_user):
    """Poses lie 300 mm from their mean."""
    without = {"adapter_dropout": 0.0} | ({} if kind == "regression" else {"hint_dropout": 0.0})
    model = made(kind, without | ({"steps": 20} if kind == "gaussian" else {}))
    joints = stick_figures(8, torch.Generator().manual_seed(0))
    features, twice = seen_from_the_front(joints, 32), 2 if kind == "gaussian" else 1
    batch = {"features": features.repeat(twice, 1, 1), "joints_mm": joints.repeat(twice, 1, 1)}
    if kind == "pct":
        coder = model.tokenizer.requires_grad_(True).train()
        fit(list(coder.parameters()), lambda step: coder.loss(joints)["loss"], coder.update_codebook, 300)
        coder.requires_grad_(False).eval()
        assert mpjpe(coder.decode(coder.encode(joints)), joints).mean() < 30
    before = [p.clone() for p in model.state_dict().values()] if kind == "pct" else []
    model.prepare(batch["features"])
    noise = [training_generators(0, step, 0, 8 * twice) for step in range(300)]
    learned = [p for p in model.parameters() if p.requires_grad]
    rate, steps = {"regression": (1e-3, 200), "gaussian": (3e-3, 250), "pct": (5e-3, 300)}[kind]
    fit(learned, lambda step: model.train().loss(batch, noise[step])["loss"], steps=steps, rate=rate)
    again = load_model(save_model(model, tmp_path / "model", data="stick figures"))
    assert (again.kind, again.config) == (kind, model.config)
    draws = [each.eval().predict(features, 2, 10 if kind == "gaussian" else 1, hypothesis_generators(0, range(8), 2))
             for each in (model, again)]  # fmt: skip
    torch.testing.assert_close(draws[0].joints_mm, draws[1].joints_mm)
    assert mpjpe(draws[1].joints_mm[:, 0], joints).mean() < most_mm
    if kind == "pct":
        frozen = zip(before, model.state_dict().items(), strict=True)
        assert all(torch.equal(old, new) for old, (name, new) in frozen if name.startswith("tokenizer."))
        assert again.loss(batch, noise[0])["accuracy"] > 0.95
        assert mpjpe(again.point_estimates(features)["soft decode"], joints).mean() < 30


@pytest.mark.parametrize("kind", KINDS)
def test_it_predicts_from_pictures(kind, tmp_path):
    torch.manual_seed(0)
    model = {"regression": Regression, "gaussian": Gaussian, "pct": PCT}[kind](recipe(kind, "blazepose-lite", 117, 200))
    pipeline = Di2Pose.from_pretrained(save_model(model, tmp_path / "model"))
    picture = np.random.default_rng(0).integers(0, 256, (200, 160, 3), dtype=np.uint8)
    (person,) = pipeline(picture, boxes=[(20.0, 10.0, 140.0, 190.0)], hypotheses=3).people
    assert person.samples_mm.shape == (3, 17, 3)
    assert person.tokens is None
    with pytest.raises(InputError, match="this one has none" if kind != "pct" else "pins and kept tokens are for"):
        pipeline(picture, boxes=[(20.0, 10.0, 140.0, 190.0)], keep_tokens={0: 1})


def test_all_kinds_of_the_comparison_have_as_many_trainable_parameters():
    compare = recipes.compare()
    size = ("blazepose-heavy+movenet", compare.denoiser.feature_tokens, compare.denoiser.feature_width)
    vq = overridden(compare, ["tokenizer.quantiser=vq"]).tokenizer
    with torch.device("meta"):
        models = (
            Di2PoseNetwork(compare),
            Gaussian(Gaussian.recipe(*size)),
            PCT(PCT.token_recipe(*size, vq)),
            Regression(overridden(Regression.recipe(*size), ["adapter_width=480", "adapter_channels=16"])),
        )
    counts = {model.kind: sum(p.numel() for p in model.parameters() if p.requires_grad) for model in models}
    assert max(counts.values()) < 1.1 * min(counts.values()), counts


def test_the_flip_test_is_the_mean_of_both_ways():
    model, (features, flipped) = made("regression").eval(), torch.randn(2, 2, 17, 32)
    both = predict_both(TorchModel(model), features.numpy(), flipped.numpy(), 8, 1, torch.Generator())
    one, other = (model.predict(each, 1, 1, torch.Generator()).joints_mm[:, 0] for each in (features, flipped))
    found = torch.from_numpy(both.joints_mm).mean(1)
    torch.testing.assert_close(found, (one + mirror(other, H36M_17)) / 2, atol=1e-3, rtol=0)


def test_pct_draws_by_the_classifiers_probabilities(monkeypatch):
    model, drawn = made("pct").eval(), {}
    decode = model.tokenizer.decode
    monkeypatch.setattr(model.tokenizer, "decode", lambda tokens: decode(drawn.setdefault("tokens", tokens)))
    model.predict(FEATURES[:1], 4000, 1, torch.Generator().manual_seed(0))
    share = torch.nn.functional.one_hot(drawn["tokens"], 64).float().mean(0)
    torch.testing.assert_close(share, model(model.condition(FEATURES[:1])).softmax(-1)[0].detach(), atol=0.03, rtol=0)
    certainty = model.certainty(FEATURES)
    assert ((-torch.log(torch.tensor(64.0)) <= certainty) & (certainty < 0)).all()
    with pytest.raises(InputError, match=r"trunk.tokens must be the tokenizer's 16, trunk.steps 1"):
        replace(model.config, trunk=replace(model.config.trunk, steps=2))
