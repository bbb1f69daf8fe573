"""Fixtures for all tests."""

import ctypes
import gc
import sys

import jaxtyping
import pytest
import torch

PACKAGES = ["di2pose", "di2pose_people", "di2pose_experiments"]
# Shapes in annotations are checked. Here, for jaxtyping's own option takes one package where the checker has arguments.
jaxtyping.install_import_hook(PACKAGES, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
torch.set_num_threads(1)  # tests are small: threads would only wait for each other


def pytest_collection_finish():
    """What was imported stays: the collector need not walk through it after every module."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _freed():
    """After a module, the memory of its fixtures goes back to the system; glibc would keep most of it."""
    yield
    gc.collect()
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def footage(tmp_path_factory):
    """Real video with 3D truth: 400 records of one man in four views."""
    from di2pose.data.prepare import prepare
    from di2pose.data.sample import Dataset

    out = tmp_path_factory.mktemp("pose2sim") / "set"
    prepare("pose2sim", out=out)
    return Dataset(out)


@pytest.fixture
def as_user(monkeypatch):
    """Switch the test-only shape checker off, so that a test meets the errors that a user would meet."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
