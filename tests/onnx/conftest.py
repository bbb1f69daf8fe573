"""The shipped model as an ONNX folder, by the command; the same model in PyTorch alone; real pictures."""

import subprocess
import sys
from contextlib import closing

import pytest
from PIL import Image

from di2pose import Di2Pose
from di2pose.assets import extract, fetch
from di2pose.data.frames import Video
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.encoder import load_encoder
from di2pose.image.movenet import MultiPose
from di2pose.image.people_detector import PeopleDetector
from di2pose.image.read import read_image
from di2pose.onnx import OnnxPredictor

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
CLIP = "Sports2D/Demo/demo.mp4"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("onnx") / "small"
    subprocess.run([sys.executable, "-m", "di2pose", "export", "small", "--onnx", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def ours(folder):
    return OnnxPredictor(folder, threads=1)


@pytest.fixture(scope="module")
def theirs():
    """PyTorch throughout: Google's runtime has other weights and rounds otherwise."""
    model = Di2Pose.from_pretrained()
    detector = PeopleDetector(EfficientDet("torch"), MultiPose(runtime="torch"))
    encoder = load_encoder(model.config.encoder, runtime="torch")
    return Di2Pose(model.model, encoder, detector, model.calibration).eval()


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
