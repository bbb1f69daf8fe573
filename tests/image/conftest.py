"""Real pictures for the image tests."""

import numpy as np
import pytest
import torch
from PIL import Image

from di2pose.assets import extract, fetch
from di2pose.image.crop import Roi, crop
from di2pose.image.read import read_image


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """The tests compare numbers, not speed; more threads would only fight with those of other test processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def astronaut():
    return read_image(fetch("astronaut"))


@pytest.fixture(scope="session")
def walker():
    """Frame 100 of the Sports2D demo: a walker in front of a low building, and somebody standing on its roof."""
    av = pytest.importorskip("av")
    video = extract("sports2d-demo", "Sports2D/Demo/demo.mp4") / "Sports2D" / "Demo" / "demo.mp4"
    with av.open(str(video)) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index == 100:
                return Image.fromarray(frame.to_ndarray(format="rgb24"))
    raise AssertionError("the demo has fewer than 101 frames")


@pytest.fixture(scope="session")
def crops(astronaut, walker):
    """(3, 256, 256, 3) uint8: a walker upright and turned, and a portrait."""
    regions = [(walker, Roi((1030.0, 735.0), 590.0, 0.1)), (walker, Roi((1030.0, 735.0), 590.0, -0.6))]
    regions.append((astronaut, Roi((250.0, 300.0), 620.0)))
    return np.stack([crop(image, roi) for image, roi in regions])
