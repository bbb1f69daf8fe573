"""Fixtures for all tests."""

import jaxtyping
import pytest
import torch

from di2pose.data.prepare import prepare
from di2pose.data.sample import Dataset

torch.set_num_threads(1)  # tests are small: threads would only wait for each other


@pytest.fixture(scope="session")
def footage(tmp_path_factory):
    """Real video with 3D truth: 400 records of one man in four views."""
    out = tmp_path_factory.mktemp("pose2sim") / "set"
    prepare("pose2sim", out=out)
    return Dataset(out)


@pytest.fixture
def as_user(monkeypatch):
    """Switch the test-only shape checker off, so that a test meets the errors that a user would meet."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
