"""The camera token: told, or said to be unknown, and nothing else changed."""

import math

import pytest
import torch

from di2pose.errors import InputError
from di2pose.image.camera_token import with_camera


def test_the_focal_length_stands_in_channels_of_its_own_behind_the_image():
    y = torch.randn(3, 5, 7)
    told = with_camera(y, torch.tensor([2.0, math.nan, 0.5]))
    assert told.shape == (3, 6, 9)
    assert torch.equal(told[:, :5, :7], y)
    assert (told[:, :5, 7:] == 0).all()
    assert (told[:, 5, :7] == 0).all()
    torch.testing.assert_close(told[:, 5, 7:], torch.tensor([[math.log(2), 1], [0, 0], [-math.log(2), 1]]))


def test_a_focal_length_of_nothing_is_refused():
    with pytest.raises(InputError, match="above 0, got -1"):
        with_camera(torch.zeros(2, 3, 4), torch.tensor([1.0, -1.0]))
