"""Stick figures as a small feature cache."""

import numpy as np
import pytest
from stick_figures import stick_figures

from di2pose.data.feature_cache import write_features
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.noise import generator_of

COUNT, WIDTH = 40, 6


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
        text["split"] = "test" if i % 4 == 0 else "train"
        return np.full((2, 2, 3), i, np.uint8), {"joints_mm": self.joints_mm[i]}, text

    def cache_parts(self, crops):
        seen = self.joints_mm[crops[:, 0, 0, 0]] / 1000
        return {"tokens": np.concatenate([seen, seen**2], -1).astype(np.float16)}


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features") / "figures"
    crops = Crops()
    write_features(crops, crops, folder, {"skeleton": "h36m_17", "source": "figures"})
    return folder
