"""Fixtures for all tests."""

import jaxtyping
import pytest


@pytest.fixture
def as_user(monkeypatch):
    """Switch the test-only shape checker off, so that a test meets the errors that a user would meet."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
