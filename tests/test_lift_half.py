"""A model whose keypoints draw half of the hypotheses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose import recipes
from di2pose.errors import InputError
from di2pose.image.keypoint_encoder import KeypointEncoder
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork, lift_features
from di2pose.noise import hypothesis_generators, share

FEATURES = torch.randn(2, 20, 32, generator=torch.Generator().manual_seed(0))


def network(seed, feature_width=32):
    torch.manual_seed(seed)
    encoder = "keypoints" if feature_width == 68 else "blazepose-heavy+movenet"
    return Di2PoseNetwork(replace(recipes.tiny(feature_width), encoder=encoder)).eval()


@pytest.fixture(scope="module")
def parts():
    image, lift = network(1), network(2, feature_width=68)
    lift.tokenizer.load_state_dict(image.tokenizer.state_dict())
    return image, lift, image.with_lift(lift)


def test_each_denoiser_draws_half(parts):
    image, lift, both = parts
    noise = hypothesis_generators(0, range(2), 5)
    found = both.predict(FEATURES, 5, 4, noise)
    first = image.predict(FEATURES, 3, 4, share(hypothesis_generators(0, range(2), 5), range(3), 5))
    last = lift.predict(lift_features(FEATURES), 2, 4, share(hypothesis_generators(0, range(2), 5), range(3, 5), 5))
    assert torch.equal(found.tokens, torch.cat([first.tokens, last.tokens], dim=1))
    torch.testing.assert_close(found.joints_mm, torch.cat([first.joints_mm, last.joints_mm], dim=1))
    alone = both.predict(FEATURES, 1, 4, hypothesis_generators(0, range(2), 1))
    assert torch.equal(alone.tokens, image.predict(FEATURES, 1, 4, hypothesis_generators(0, range(2), 1)).tokens)


def test_it_is_saved_and_loaded_with_both(parts, tmp_path):
    both = parts[2]
    save_model(both, tmp_path / "model")
    assert (tmp_path / "model" / "lift.safetensors").is_file()
    again = load_model(tmp_path / "model")
    wanted, found = (each.predict(FEATURES, 4, 4, hypothesis_generators(3, range(2), 4)) for each in (both, again))
    assert torch.equal(wanted.tokens, found.tokens)


def test_keypoints_come_out_of_the_last_tokens_as_data_lift_has_them():
    features = FEATURES.clone()
    features[0, -3, -6:] = torch.nan  # a keypoint that is missing
    tokens = features[:, -17:, -6:]
    keypoints = torch.cat([tokens[..., :2], tokens[..., 4:5], torch.ones(2, 17, 1)], -1).nan_to_num(0.0)
    keypoints[0, 14] = 0
    encoder = KeypointEncoder()
    parts = encoder.cache_parts(keypoints.numpy())
    expected = encoder.layout.assemble({name: part.astype(np.float32) for name, part in parts.items()})
    np.testing.assert_allclose(lift_features(features), expected, atol=1e-2)  # stored in 16 bits


def test_another_tokenizer_and_another_size_are_refused(parts):
    with pytest.raises(InputError, match="another tokenizer"):
        parts[0].with_lift(network(3, feature_width=68))
    with pytest.raises(InputError, match="got 'blazepose-heavy\\+movenet' and 'blazepose-heavy\\+movenet'"):
        parts[0].with_lift(parts[0])
    config = parts[2].config
    with pytest.raises(InputError, match="steps must equal 20"):
        replace(config, lift=replace(config.lift, steps=10))
