"""The shipped model as an ONNX folder, by the command; the same model in PyTorch; real pictures."""

from contextlib import closing

import pytest
from PIL import Image

from di2pose import Di2Pose
from di2pose.assets import extract, fetch
from di2pose.cli import main
from di2pose.data.frames import Video
from di2pose.image.read import read_image
from di2pose.onnx import OnnxPredictor

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
CLIP = "Sports2D/Demo/demo.mp4"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("onnx") / "small"
    assert main(["export", "small", "--onnx", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def ours(folder):
    return OnnxPredictor(folder, threads=1)


@pytest.fixture(scope="module")
def theirs():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="session")
def walker():
    """The picture of `di2pose demo`: one person."""
    pytest.importorskip("av")
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        return video.frame(120).crop((510, 464, 1160, 994))


@pytest.fixture(scope="session")
def group(walker):
    """Two people of different size side by side."""
    portrait = read_image(fetch("astronaut")).crop((0, 0, 400, 512))
    picture = Image.new("RGB", (1050, 530), (90, 120, 60))
    picture.paste(portrait, (0, 18))
    picture.paste(walker, (400, 0))
    return picture
