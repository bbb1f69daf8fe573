"""Learning: the tiny model overfits eight poses, through tokens and through the full reverse process."""

import pytest
import torch
from stick_figures import train_tiny

from di2pose import recipes
from di2pose.errors import InputError
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators, training_generators
from di2pose.pose.metrics import mpjpe


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    return train_tiny(0, tmp_path_factory.mktemp("tiny"))


def test_the_tokenizer_learns_eight_poses_below_five_millimetres(learned):
    model, joints_mm, _ = learned
    assert mpjpe(model.tokenizer.decode(model.tokenizer.encode(joints_mm)), joints_mm).mean() < 5


@pytest.mark.parametrize("steps", [20, 4])
def test_the_reverse_process_recovers_them_below_ten_millimetres(learned, steps):
    model, joints_mm, features = learned
    found = model.predict(features, 2, steps, hypothesis_generators(1, range(8), 2)).joints_mm
    assert found.shape == (8, 2, 17, 3)
    assert mpjpe(found.flatten(0, 1), joints_mm.repeat_interleave(2, 0)).mean() < 10


def test_another_image_gives_another_pose(learned):
    model, joints_mm, features = learned
    swapped = model.predict(features.flip(0), 1, 20, hypothesis_generators(1, range(8), 1)).joints_mm[:, 0]
    assert mpjpe(swapped, joints_mm.flip(0)).mean() < 10
    assert mpjpe(swapped, joints_mm).mean() > 100


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


def test_training_steps_are_drawn_from_one_to_s():
    model = Di2PoseNetwork(recipes.tiny())
    seen = []
    model.denoiser.register_forward_hook(lambda module, inputs, logits: seen.extend(inputs[1].tolist()))
    batch = {"features": torch.randn(400, 2, 32), "joints_mm": torch.randn(400, 17, 3) * 200}
    model.loss(batch, torch.Generator().manual_seed(0))
    assert sorted(set(seen)) == list(range(1, 21))


def test_the_tokenizer_is_frozen_in_stage_two():
    model = Di2PoseNetwork(recipes.tiny())
    batch = {"features": torch.randn(2, 17, 32), "joints_mm": torch.randn(2, 17, 3) * 200}
    model.loss(batch, torch.Generator())["loss"].backward()
    assert all(p.grad is None for p in model.tokenizer.parameters())
    assert any(p.grad is not None for p in model.denoiser.parameters())


def test_bad_batches_are_named(as_user):
    model = Di2PoseNetwork(recipes.tiny())
    with pytest.raises(InputError, match="lacks features"):
        model.loss({"joints_mm": torch.zeros(2, 17, 3)}, torch.Generator())
    with pytest.raises(InputError, match="as many features as poses, got 3 and 2"):
        model.loss({"features": torch.zeros(3, 5, 32), "joints_mm": torch.zeros(2, 17, 3)}, torch.Generator())
    with pytest.raises(InputError, match="hypotheses must be 1 or more"):
        model.predict(torch.zeros(1, 5, 32), 0, 4, torch.Generator())
