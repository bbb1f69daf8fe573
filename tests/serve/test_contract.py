"""Schemathesis asks the service, in-process and with an untrained model, what /openapi.json allows and what not."""

import base64
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks, openapi
from serve.running import file_of
from video.films import write_film

from di2pose import Di2Pose, recipes
from di2pose.image.blazepose import BlazePose
from di2pose.serve.app import Service, build_app
from di2pose.serve.limits import Limits
from di2pose.serve.schema import ROUTES
from di2pose.serve.worker import Worker

VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
SETTINGS = settings(
    max_examples=6, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def files(tmp_path_factory, astronaut):
    """A picture and a video of somebody, by the fields that hold them."""
    small = astronaut.resize((96, 96))
    film = write_film(tmp_path_factory.mktemp("film") / "a.mp4", [np.asarray(small)] * 2, rate=10)
    return {"image": file_of(small), "video": film.read_bytes()}


@pytest.fixture(scope="module")
def api():
    torch.manual_seed(0)
    config = recipes.tiny(feature_width=BlazePose("lite").layout.width)
    model = Di2Pose(dataclasses.replace(config, encoder="blazepose-lite"))
    worker = Worker(64, 64)
    limits = Limits(hypotheses=2, steps=2, people=2, grid=2)
    yield openapi.from_asgi("/openapi.json", build_app(Service(model, worker, limits), ("testserver",)))
    worker.close()


def base64_of(content):
    return base64.b64encode(content).decode()


@pytest.mark.parametrize("entry", ROUTES, ids=lambda entry: entry.endpoint)
def test_a_plain_request_is_answered_as_the_document_says(api, files, entry):
    operation = api[entry.path][entry.method]
    path = {"name": "astronaut", "format": "json"}
    path = {name: value for name, value in path.items() if f"{{{name}}}" in entry.path}
    sent = {}
    if entry.files:
        quick = {"grid": 2} if entry.endpoint == "lab" else {"steps": 1}
        body = {entry.files[0]: base64_of(files[entry.files[0]]), **quick}
        sent = {"body": body, "media_type": "application/json"}
    assert operation.Case(path_parameters=path, **sent).call_and_validate(timeout=120).status_code == 200


@pytest.mark.filterwarnings("ignore:Do not use the .random. module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize("mode", [VALID, INVALID], ids=["valid", "invalid"])
@pytest.mark.parametrize("entry", [entry for entry in ROUTES if entry.files], ids=lambda entry: entry.endpoint)
def test_answers_are_what_the_document_says(api, files, entry, mode):
    """Status, content type, headers and schema of every answer; what the document forbids is refused. A request that it
    allows may be refused, too: no schema says that a box has x0 < x1, or that somebody is in the picture."""

    @given(case=api[entry.path][entry.method].as_strategy(generation_mode=mode))
    @SETTINGS
    def ask(case):
        if isinstance(case.body, dict):
            for name in files.keys() & case.body.keys():
                if isinstance(case.body[name], str | bytes):  # else it is wrong on purpose
                    as_json = case.media_type == "application/json"
                    case.body[name] = base64_of(files[name]) if as_json else files[name]
            if entry.endpoint == "lab" and "at" not in case.body:
                case.body.setdefault("grid", 2)
        case.call_and_validate(timeout=120, excluded_checks=[checks.positive_data_acceptance])

    ask()
