"""What the user knows of the pose already: pinned joints and kept tokens. Features are random, weights too."""

import pytest
import torch

from di2pose import recipes
from di2pose.errors import InputError
from di2pose.model import Constraints
from di2pose.network import Di2PoseNetwork
from di2pose.noise import generator_of
from di2pose.pipeline.request import parse_pins, parse_tokens


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Di2PoseNetwork(recipes.tiny()).eval()


def draw(model, **known):
    return model.predict_tokens(torch.zeros(2, 5, 32), 4, 10, generator_of(0), constraints=Constraints(**known))


def test_kept_tokens_stand_in_every_hypothesis_and_the_others_are_drawn(model):
    tokens, stay = torch.arange(16).repeat(2, 1), torch.zeros(2, 16, dtype=torch.bool)
    stay[0, 3:9] = True
    found = draw(model, kept=(tokens, stay))
    assert (found[0, :, 3:9] == torch.arange(3, 9)).all()
    free = draw(model)
    assert torch.equal(found[1], free[1])
    assert (found[0, :, 9:] != found[0, :1, 9:]).any()


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"left_wrist": (1.0, 2.0)}, "x, y, z in mm"),
        ({"left_wrist": (0.0, 0.0, 5000.0)}, "5000 mm from the pelvis, farther than bodies reach"),
        ({"left_hand": (0.0, 0.0, 100.0)}, "left_hand"),
    ],
)
def test_a_pin_that_cannot_be_is_named(known, words):
    with pytest.raises(InputError, match=words):
        parse_pins(known)


def test_tokens_outside_of_the_codebook_are_refused():
    with pytest.raises(InputError, match=r"positions 0\.\.15 to codes 0\.\.124, got 16: 3"):
        parse_tokens({16: 3}, recipes.tiny().tokenizer)
    with pytest.raises(InputError, match="this one has none"):
        parse_tokens({1: 3}, None)
    assert parse_tokens({}, None) is None
