"""Learning: a tiny model of another skeleton, Human3.6M's with feet, learns eight poses, through tokens and through the
full reverse process; it is saved, loaded and exported."""

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch
from stick_figures import train_tiny

from di2pose import Di2Pose, recipes
from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePose
from di2pose.model import NumpyModel, TorchModel, load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators, training_generators
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import H36M_21


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    width = BlazePose("lite").layout.width
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # twice as fast
        return train_tiny(0, tmp_path_factory.mktemp("tiny"), H36M_21, "blazepose-lite", width)


def test_the_tokenizer_and_the_reverse_process_recover_the_poses(learned):
    model, joints_mm, features = learned
    assert mpjpe(model.tokenizer.decode(model.tokenizer.encode(joints_mm)), joints_mm).mean() < 5
    for steps in (20, 4):
        found = model.predict(features, 2, steps, hypothesis_generators(1, range(8), 2)).joints_mm
        assert found.shape == (8, 2, 21, 3)
        assert mpjpe(found.flatten(0, 1), joints_mm.repeat_interleave(2, 0)).mean() < 10
    swapped = model.predict(features.flip(0), 1, 20, hypothesis_generators(1, range(8), 1)).joints_mm[:, 0]
    assert mpjpe(swapped, joints_mm.flip(0)).mean() < 10
    assert mpjpe(swapped, joints_mm).mean() > 100


def test_it_comes_back_from_its_folder_and_from_onnx_with_its_skeleton(learned, tmp_path):
    pytest.importorskip("onnxruntime")
    from di2pose.onnx import OnnxModel
    from di2pose.onnx.export import export_onnx

    model, layout = learned[0], BlazePose("lite").layout
    features = torch.randn(2, layout.length, layout.width)
    folder = save_model(model, tmp_path / "model")
    about = export_onnx(Di2Pose.from_pretrained(folder), tmp_path / "onnx")
    assert (about["joints"], about["calibration"]) == (list(H36M_21.joints), None)
    wanted = model.predict(features, 2, 4, hypothesis_generators(1, range(2), 2)).joints_mm.numpy()
    for again in (TorchModel(load_model(folder)), OnnxModel(tmp_path / "onnx")):
        assert isinstance(again, NumpyModel)
        assert again.skeleton == model.skeleton == H36M_21
        found = again.predict(features.numpy(), 2, 4, hypothesis_generators(1, range(2), 2))
        np.testing.assert_allclose(found.joints_mm, wanted, atol=0.05)
        assert found.visibility is None  # it has no adapter, as in the paper
        assert again.certainty(features.numpy()).shape == (2,)


def test_batching_changes_nothing_but_rounding(learned):
    model, _, features = learned
    together = model.predict_tokens(features, 3, 20, hypothesis_generators(5, range(8), 3))
    alone = [model.predict_tokens(features[i : i + 1], 3, 20, hypothesis_generators(5, [i], 3)) for i in range(8)]
    assert torch.equal(together, torch.cat(alone))


def test_ranks_draw_the_noise_of_one_process():
    """Two halves of a global batch, seeded by their place in it, average to the loss of the whole."""
    torch.manual_seed(0)
    model = Di2PoseNetwork(recipes.tiny())
    batch = {"features": torch.randn(6, 17, 32), "joints_mm": torch.randn(6, 17, 3) * 200}
    whole = model.loss(batch, training_generators(3, 17, 0, 6))
    halves = [
        model.loss({k: v[i : i + 3] for k, v in batch.items()}, training_generators(3, 17, i, 3)) for i in (0, 3)
    ]
    for key in ("loss", "vlb", "aux"):
        torch.testing.assert_close(whole[key], (halves[0][key] + halves[1][key]) / 2)


def test_stage_two_draws_steps_from_one_to_s_and_leaves_the_tokenizer_frozen():
    model = Di2PoseNetwork(recipes.tiny())
    seen = []
    model.denoiser.register_forward_hook(lambda module, inputs, logits: seen.extend(inputs[1].tolist()))
    batch = {"features": torch.randn(400, 2, 32), "joints_mm": torch.randn(400, 17, 3) * 200}
    model.loss(batch, torch.Generator().manual_seed(0))["loss"].backward()
    assert sorted(set(seen)) == list(range(1, 21))
    assert all(p.grad is None for p in model.tokenizer.parameters())
    assert any(p.grad is not None for p in model.denoiser.parameters())


def test_what_does_not_fit_is_named(as_user):
    model = Di2PoseNetwork(recipes.tiny())
    with pytest.raises(InputError, match="lacks features"):
        model.loss({"joints_mm": torch.zeros(2, 17, 3)}, torch.Generator())
    with pytest.raises(InputError, match="as many features as poses, got 3 and 2"):
        model.loss({"features": torch.zeros(3, 5, 32), "joints_mm": torch.zeros(2, 17, 3)}, torch.Generator())
    with pytest.raises(InputError, match="hypotheses must be 1 or more"):
        model.predict(torch.zeros(1, 5, 32), 0, 4, torch.Generator())
    config = model.config
    with pytest.raises(InputError, match="denoiser's joints must equal 21"):
        replace(config, tokenizer=replace(config.tokenizer, skeleton="h36m_21"))
    with pytest.raises(InputError, match=r"skeleton must be one of h36m_17, h36m_21, .*, got 'body_25'"):
        replace(config.tokenizer, skeleton="body_25")
