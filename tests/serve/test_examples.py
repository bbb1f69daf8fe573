"""Example people on a new machine: fetched in the background, and the service runs without them."""

import logging
import os
import time

import pytest

pytest.importorskip("av")
pytest.importorskip("starlette", reason="the service needs the extra serve")
from serve.running import running

from di2pose.serve.media import Examples


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    return tmp_path


def test_a_new_service_fetches_its_examples_once(cache, model):
    with running(model) as service:
        end = time.monotonic() + 300
        while len(found := service.get("/v1/examples").json) < 3 and time.monotonic() < end:
            time.sleep(0.1)
        assert [each["name"] for each in found] == ["walker", "walker-hidden", "astronaut"]
        assert service.get("/v1/examples/walker").body.startswith(b"\xff\xd8")
    assert sorted(path.name for path in cache.iterdir()) == ["assets", "extracted"]
    again = Examples()
    assert again.fetching.ident is None  # never started
    assert len(again.all()) == 3


def test_offline_there_are_no_examples_and_that_is_logged(cache, monkeypatch, caplog):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with caplog.at_level(logging.WARNING):
        examples = Examples()
        examples.fetching.join(300)
    assert examples.all() == []
    assert "the page has no examples, or not all of them: could not download asset 'sports2d-demo'" in caplog.text
