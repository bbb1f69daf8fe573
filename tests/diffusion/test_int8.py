import pytest
import torch
from torch import nn

from di2pose import recipes
from di2pose.diffusion.int8 import Int8Linear
from di2pose.errors import InputError
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators


def test_a_rounded_layer_gives_nearly_the_same_and_rows_do_not_disturb_each_other():
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48), torch.randn(3, 5, 64)
    rounded = Int8Linear(linear)
    wanted = linear(x)
    assert (rounded(x) - wanted).norm() / wanted.norm() < 0.02
    loud = x.clone()
    loud[0] *= 1000
    assert torch.equal(rounded(loud)[1:], rounded(x)[1:])
    assert torch.equal(rounded(torch.zeros(1, 64))[0], linear.bias)


def test_a_model_in_8_bits_draws_nearly_the_same_poses_and_is_not_saved_or_trained():
    torch.manual_seed(0)
    model = Di2PoseNetwork(recipes.tiny()).eval()
    features = torch.randn(4, 17, 32)
    logits = model.denoiser(torch.full((4, 16), 125), torch.full((4,), 20), model.condition(features))
    model.to_int8()
    rounded = model.denoiser(torch.full((4, 16), 125), torch.full((4,), 20), model.condition(features))
    assert (rounded - logits).norm() / logits.norm() < 0.05
    assert not torch.equal(rounded, logits)
    assert model.predict(features, 2, 5, hypothesis_generators(0, range(4), 2)).joints_mm.shape == (4, 2, 17, 3)
    assert isinstance(model.denoiser.blocks[0].mlp[1], Int8Linear)
    with pytest.raises(InputError, match="8 bits"):
        model.parts()
