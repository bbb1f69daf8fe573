"""Simulated observers: tokens as MoveNet's have them, errors as published, everything else untouched."""

import numpy as np
import pytest
import torch

from di2pose.data.feature_cache import FeatureCache
from di2pose.errors import InputError
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.image.movenet import CROP, keypoint_tokens
from di2pose.noise import generator_of, training_generators
from di2pose.pipeline.observations import keypoint_noise
from di2pose.pose.skeleton import COCO_17, H36M_21, LIMB_12
from di2pose.recipes import small
from di2pose.training.command import adopt
from di2pose.training.observers import LIMBS, observed, with_simulated_observers

LENGTH, WIDTH, CROPS = 20, 9, 4000
OF_21 = list(H36M_21.indices(*LIMB_12))


@pytest.fixture(scope="module")
def people():
    """Features that end with MoveNet's tokens, true joints within the crop, and their visibility."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(CROPS, LENGTH, WIDTH, generator=random)
    points = 40 + 170 * torch.rand(CROPS, 21, 2, generator=random)
    return features, points, torch.randint(0, 4, (CROPS, 21), generator=random)


def simulated(people, share=1.0, seed=1):
    return with_simulated_observers(*people, H36M_21, share, generator_of(seed))


def limb_tokens(features):
    return features[:, LENGTH - 17 :, -6:][:, LIMBS]


def test_only_limb_tokens_of_a_share_of_the_crops_change(people):
    features, after = people[0], simulated(people, share=0.5)
    changed = (after != features) | (after.isnan() & ~features.isnan())
    rows = changed.flatten(1).any(1)
    assert 0.45 < rows.float().mean() < 0.55
    tokens = torch.zeros(LENGTH, WIDTH, dtype=torch.bool)
    tokens[[LENGTH - 17 + joint for joint in LIMBS], -6:] = True
    assert not changed[:, ~tokens].any()
    assert torch.equal(features, people[0])  # a copy


def test_joints_that_are_not_known_keep_the_observers_token(people):
    features, points, visibility = people
    unknown = points.clone()
    unknown[:, OF_21[0]] = torch.nan
    after = with_simulated_observers(features, unknown, visibility, H36M_21, 1.0, generator_of(1))
    assert torch.equal(limb_tokens(after)[:, 0], limb_tokens(features)[:, 0])
    assert not torch.equal(limb_tokens(after)[:, 1], limb_tokens(features)[:, 1])


def test_hidden_joints_are_missing_or_farther_off_and_those_outside_always_missing(people):
    tokens, state = limb_tokens(simulated(people)), people[2][:, OF_21]
    missing = tokens[..., 0].isnan()
    assert missing[state == 3].all()
    assert 0.47 < missing[state == 2].float().mean() < 0.53
    assert missing[state < 2].float().mean() < 0.15
    truth = people[1][:, OF_21] * 2 / CROP - 1
    error = (tokens[..., :2] - truth).norm(dim=-1)
    medians = [float(error[(state == kind) & ~missing].median()) for kind in (0, 1, 2)]
    assert medians[0] < medians[1] < medians[2]
    assert 0.005 < medians[0] / 2 / (170 / CROP) < 0.06  # half a token's unit is the crop; bodies fill 170 pixels


def test_tokens_are_those_of_a_given_keypoint(people):
    tokens = simulated(people)[:, LENGTH - 17 :, -6:].double().numpy()
    there = np.isfinite(tokens[..., 0])
    places, score = (tokens[..., :2] + 1) * CROP / 2, tokens[..., 4]
    expected = keypoint_tokens(np.concatenate([places, score[..., None]], -1), keypoint_noise(score, CROP), CROP)
    there[:, [joint for joint in range(17) if joint not in LIMBS]] = False
    np.testing.assert_allclose(tokens[there], expected[there], atol=1e-5)
    assert ((score[there] >= 0.05) & (score[there] <= 1)).all()


def test_a_crop_is_drawn_by_its_own_generator_alone(people):
    some = [part[:6] for part in people]
    whole = with_simulated_observers(*some, H36M_21, 0.8, training_generators(3, 5, 0, 6))
    halves = [
        with_simulated_observers(*(part[i : i + 3] for part in some), H36M_21, 0.8, training_generators(3, 5, i, 3))
        for i in (0, 3)
    ]
    assert torch.equal(whole.nan_to_num(9), torch.cat(halves).nan_to_num(9))


def test_features_without_a_second_observer_are_left_alone():
    class Cache(FeatureCache):
        layout = FeatureLayout((TokenBlock("map", 30, 8, 0),))

        def __init__(self):
            self.header = {"encoder": "blazepose-heavy"}

    assert adopt(small(), Cache()).denoiser.simulated_observers == 0
    Cache.layout = FeatureLayout((TokenBlock("map", 30, 8, 0), TokenBlock("movenet", 17, 6, 8)))
    assert adopt(small(), Cache()).denoiser.simulated_observers == small().denoiser.simulated_observers > 0


def test_a_batch_changes_as_its_configuration_asks():
    config = small()
    batch = {"features": torch.zeros(8, 134, 302), "joints_mm": torch.zeros(8, 21, 3)}
    assert observed(batch, config, generator_of(0)) is batch  # no true 2D joints
    batch |= {"joints_2d": torch.rand(8, 21, 2) * CROP, "visibility": torch.zeros(8, 21, dtype=torch.long)}
    after = observed(batch, config, generator_of(0))
    assert not torch.equal(after["features"].nan_to_num(9), batch["features"])
    assert COCO_17.count == config.denoiser.observer_tokens
    with pytest.raises(InputError, match=r"\+movenet"):
        with_simulated_observers(torch.zeros(1, 9, 302), batch["joints_2d"][:1], batch["visibility"][:1],
                                 H36M_21, 1.0, generator_of(0))  # fmt: skip
