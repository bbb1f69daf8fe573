"""Stick figures as a prepared dataset and as cached features, small enough to train on in a test."""

import numpy as np
import pytest
import torch
from stick_figures import stick_figures, write_set

from di2pose.data.feature_cache import write_features
from di2pose.data.sample import Sample
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.noise import generator_of

POSES = 60
WIDTH = 6


def split_of(i):
    return "test" if i % 4 == 0 else "train"


class Crops:
    """A source and an encoder in one: the picture of figure i holds i, its features are the figure's joints."""

    name = "none"
    layout = FeatureLayout((TokenBlock("tokens", 17, WIDTH, 0),))

    def __init__(self, joints_mm):
        self.joints_mm = joints_mm

    def __len__(self):
        return len(self.joints_mm)

    def crop(self, i):
        text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence")} | {"split": split_of(i)}
        return np.full((2, 2, 3), i, np.uint8), {"joints_mm": self.joints_mm[i]}, text

    def cache_parts(self, crops):
        seen = self.joints_mm[crops[:, 0, 0, 0]] / 1000
        return {"tokens": np.concatenate([seen, seen**2], -1).astype(np.float16)}


def write_cache(crops, folder):
    write_features(crops, crops, folder, {"skeleton": "h36m_17"}, rows=16)
    return folder


@pytest.fixture(scope="session")
def figures():
    """(60, 17, 3) mm."""
    return stick_figures(POSES, generator_of(0, "test figures")).numpy()


@pytest.fixture(scope="session")
def poses(figures, tmp_path_factory):
    """A prepared dataset of the figures; every fourth is held out."""
    samples = (Sample(f"f{i}", joints_mm, split=split_of(i)) for i, joints_mm in enumerate(figures))
    return write_set(tmp_path_factory.mktemp("poses") / "set", samples)


@pytest.fixture(scope="session")
def features(figures, tmp_path_factory):
    """A feature cache of the same figures."""
    return write_cache(Crops(figures), tmp_path_factory.mktemp("features") / "cache")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def vitpose(tmp_path_factory):
    """A folder with a small ViTPose of random weights: 192 tokens of width 32."""
    transformers = pytest.importorskip("transformers", reason="the extra 'vitpose' is not installed")
    folder = tmp_path_factory.mktemp("vitpose")
    torch.manual_seed(0)
    backbone = transformers.VitPoseBackboneConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    transformers.VitPoseForPoseEstimation(transformers.VitPoseConfig(backbone_config=backbone)).save_pretrained(folder)
    return folder
