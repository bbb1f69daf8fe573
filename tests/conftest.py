"""Fixtures for all tests."""

import jaxtyping
import pytest
import torch

torch.set_num_threads(1)  # tests are small: threads would only wait for each other


@pytest.fixture
def as_user(monkeypatch):
    """Switch the test-only shape checker off, so that a test meets the errors that a user would meet."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
