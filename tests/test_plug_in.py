"""How to add an encoder and a model: one file and one line each, done here as a newcomer would.

Datasets and outputs: tests/data/test_add_a_dataset.py and tests/output/test_add_an_output.py.
"""

import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch

import di2pose.model
from di2pose import Di2Pose
from di2pose.errors import InputError
from di2pose.image import encoder as encoders
from di2pose.image.detect import load_detector
from di2pose.image.encoder import Encoder, load_encoder
from di2pose.model import GROUP, KINDS, PoseModel, kind_of, load_model, save_model

ENCODER_FILE = '''
"""Mean colours of an 8x8 grid: the smallest encoder."""

import numpy as np

from di2pose.image.crop import crop_rotation
from di2pose.image.encoder import EncoderOutput, FeatureLayout, TokenBlock


class Grid:
    name, size = "grid", (64, 64)
    layout = FeatureLayout((TokenBlock("grid", 64, 3, 0),))

    def region(self, detection):
        return detection.roi

    def matrix(self, region):
        return region.matrix(64)

    def rotation(self, region, camera):
        return crop_rotation(camera, region)

    def encode(self, crops):
        cells = crops.reshape(-1, 8, 8, 8, 8, 3).mean((2, 4), dtype=np.float32)
        return EncoderOutput(cells.reshape(-1, 64, 3) / 255)

    def detect(self, image, max_people=8):
        return []

    def cache_parts(self, crops):
        return {"grid": self.encode(crops).features}


def load(name, device):
    return Grid()
'''

MODEL_FILE = '''
"""The mean pose of the training data, whatever the picture: the smallest model."""

from dataclasses import dataclass

import torch

from di2pose.config import TrainingConfig
from di2pose.model import Prediction
from di2pose.pose.skeleton import H36M_17


@dataclass(frozen=True)
class MeanConfig:
    name: str
    encoder: str
    tokens: int
    width: int
    training: TrainingConfig
    sample_steps: int = 1

    @property
    def feature_size(self):
        return self.tokens, self.width


class MeanPose(torch.nn.Module):
    kind, config_type, skeleton = "mean", MeanConfig, H36M_17

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.pose = torch.nn.Linear(1, 51)

    @classmethod
    def recipe(cls, encoder, feature_tokens, feature_width):
        training = TrainingConfig(0.3, (0.9, 0.99), weight_decay=0.0, batch=4, epochs=5, warmup=0)
        return MeanConfig("mean", encoder, feature_tokens, feature_width, training)

    def joints(self, count):
        joints = self.pose(torch.ones(count, 1)).unflatten(1, (17, 3))
        return (joints - joints[:, :1]) * 1000

    def loss(self, batch, generator):
        return {"loss": (self.joints(len(batch["joints_mm"])) - batch["joints_mm"]).abs().mean() / 1000}

    def predict(self, features, hypotheses, steps, generator, constraints=None):
        return Prediction(self.joints(len(features)).detach()[:, None].repeat(1, hypotheses, 1, 1))

    def point_estimates(self, features):
        return {}

    def certainty(self, features):
        return None

    def tokens_of(self, joints_mm):
        return None

    def parts(self):
        return {"pose": self.pose}
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The two files, and the two lines."""
    (tmp_path / "my_encoder.py").write_text(ENCODER_FILE)
    (tmp_path / "my_model.py").write_text(MODEL_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(encoders.ENCODERS, "grid", "my_encoder:load")
    monkeypatch.setitem(KINDS, "mean", "my_model:MeanPose")
    yield tmp_path
    for name in ("my_encoder", "my_model"):
        sys.modules.pop(name, None)


def test_an_encoder_and_a_model_of_ones_own_go_from_a_picture_to_a_person(added):
    encoder = load_encoder("grid")
    assert isinstance(encoder, Encoder)
    cls = kind_of("mean")
    model = cls(cls.recipe("grid", 64, 3))
    assert isinstance(model, PoseModel)
    pipeline = Di2Pose.from_pretrained(save_model(model, added / "model"))
    picture = np.random.default_rng(0).integers(0, 256, (200, 160, 3), dtype=np.uint8)
    result = pipeline(picture, boxes=[(20.0, 10.0, 140.0, 190.0)])
    assert result.people[0].joints_mm.shape == (17, 3)
    assert result.model == "mean"


def test_a_kind_of_another_distribution_comes_by_its_entry_point(added, monkeypatch):
    monkeypatch.delitem(KINDS, "mean")
    with pytest.raises(InputError, match="no model is of kind 'mean': choose from di2pose, regression, gaussian, pct"):
        kind_of("mean")
    point = EntryPoint("mean", "my_model:MeanPose", GROUP)
    monkeypatch.setattr(di2pose.model, "entry_points", lambda group: [point] if group == GROUP else [])
    assert kind_of("mean").kind == "mean"


@pytest.mark.parametrize("value", ["my_encoder:load", "my_encoder"])
def test_an_encoder_of_an_installed_distribution_is_found_by_its_entry_point(added, monkeypatch, value):
    """A function, or what has one called `load`."""
    about = added / "my_package-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    groups = (f"[di2pose.{kind}]\nmosaic = {value}\n" for kind in ("encoders", "detectors"))
    (about / "entry_points.txt").write_text("".join(groups))
    assert load_encoder("mosaic:8x8").size == (64, 64)
    assert load_detector("mosaic").name == "grid"
    with pytest.raises(InputError, match=r"no encoder is called 'other': choose from blazepose-heavy, .*, mosaic"):
        load_encoder("other")


def test_it_is_trained_and_evaluated_by_the_ordinary_commands(added, tmp_path):
    from di2pose.data.feature_cache import write_features
    from di2pose.evaluation.run import evaluate
    from di2pose.training.command import train_model

    poses = np.random.default_rng(0).normal(0, 200, (17, 3)).astype(np.float32)
    poses -= poses[:1]

    class Crops:
        """Twelve noisy crops of one pose."""

        def __init__(self, split):
            self.about, self.split = {"source": "noise", "skeleton": "h36m_17"}, split

        def __len__(self):
            return 12

        def crop(self, i):
            pixels = np.random.default_rng(i).integers(0, 256, (64, 64, 3), dtype=np.uint8)
            texts = {"id": f"{self.split}{i}", "subject": "a", "action": "b", "sequence": "c", "split": self.split}
            return pixels, {"joints_mm": poses}, texts

    for split in ("train", "test"):
        source = Crops(split)
        write_features(source, load_encoder("grid"), tmp_path / split, source.about)
    train_model("mean", features=(tmp_path / "train", tmp_path / "test"), out=tmp_path / "run")
    assert load_model(tmp_path / "run").kind == "mean"
    torch.manual_seed(0)
    evaluate((str(tmp_path / "run"),), data=tmp_path / "test", out=tmp_path / "eval", protocol="all-17", hypotheses="2")
    assert (tmp_path / "eval" / "report.md").read_text().count("all-17")
