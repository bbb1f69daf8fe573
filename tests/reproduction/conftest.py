"""Stick figures as a small feature cache, and a table of two cells that the existing recipe `tiny` can train."""

import numpy as np
import pytest

from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.randomness import generator_of
from di2pose.reproduction.tables import TABLES, Cell, Stage, Table
from di2pose.training.feature_cache import write_features
from di2pose.training.tiny_demo import stick_figures

COUNT, WIDTH = 40, 6
BATCH = "--batch"


class Crops:
    """A source and an encoder in one: the picture of figure i holds i, its features are the figure's joints."""

    name = "none"
    layout = FeatureLayout((TokenBlock("tokens", 17, WIDTH, 0),))

    def __init__(self):
        self.joints_mm = stick_figures(COUNT, generator_of(0, "figures of a table")).numpy()

    def __len__(self):
        return COUNT

    def crop(self, i):
        text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence")}
        return np.full((2, 2, 3), i, np.uint8), {"joints_mm": self.joints_mm[i]}, text | {"split": split_of(i)}

    def cache_parts(self, crops):
        seen = self.joints_mm[crops[:, 0, 0, 0]] / 1000
        return {"tokens": np.concatenate([seen, seen**2], -1).astype(np.float16)}


def split_of(i):
    return "test" if i % 4 == 0 else "train"


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features") / "figures"
    crops = Crops()
    write_features(crops, crops, folder, {"skeleton": "h36m_17", "source": "figures"})
    return folder


def denoiser(*flags):
    return Stage("denoiser", flags, (("--tokenizer", Stage("tokenizer")), ("--adapter", Stage("adapter"))))


@pytest.fixture
def two_cells(monkeypatch):
    """Batches of two sizes; they share a tokenizer."""
    cells = (Cell("batch 8", denoiser(BATCH, "8")), Cell("batch 4", denoiser(BATCH, "4"), steps=3))
    monkeypatch.setitem(TABLES, "batch", Table("Two batches", cells, tokenizers=True))
    return cells


@pytest.fixture
def words(cache, tmp_path):
    """Of `di2pose ablate batch`, into a folder of its own."""
    flags = ["--recipe", "tiny", "--features", cache, "--test", f"figures={cache}", "--seeds", "2", "--hypotheses", "2"]
    flags += ["--iterations", "6", "--train=--learning-rate 0.001", "--evaluate=--batch 8"]
    return ["ablate", "batch", *map(str, flags), "--out", str(tmp_path / "out")]
