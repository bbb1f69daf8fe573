"""The service with the model inside the package, and real pictures."""

import pytest
from PIL import Image
from serve.running import file_of, running

from di2pose import Di2Pose
from di2pose.assets import fetch


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="module")
def service(model):
    with running(model, hosts=("pose.example",)) as service:
        yield service


@pytest.fixture(scope="session")
def astronaut():
    with Image.open(fetch("astronaut")) as picture:
        return picture.convert("RGB")


@pytest.fixture(scope="session")
def photos(astronaut):
    """Files of two small pictures: of somebody, and of nobody."""
    return [file_of(picture) for picture in (astronaut.resize((256, 256)), Image.new("RGB", (200, 160), "grey"))]
