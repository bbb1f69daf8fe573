"""/openapi.json is what the service does: every route, field and bound; schemathesis asks it, in-process and with an
untrained model, what the document allows and what not."""

import base64
import dataclasses
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import ValidationError
from schemathesis import GenerationMode, checks
from schemathesis import openapi as schemathesis_openapi
from serve.running import file_of, until
from video.films import write_film

from di2pose import Di2Pose, recipes
from di2pose.image.blazepose import BlazePose
from di2pose.options import VIDEO_OPTIONS, Options
from di2pose.result import WRITERS
from di2pose.serve import openapi
from di2pose.serve.app import Service, build_app
from di2pose.serve.background import ENDED
from di2pose.serve.limits import CODES, ApiError, Limits
from di2pose.serve.media import formats
from di2pose.serve.operators import OperatorOptions
from di2pose.serve.schema import LAB, ROUTES, SHARED, read_fields
from di2pose.serve.worker import Worker

ERROR = "#/components/schemas/Error"
BOX = [1, 2, 30, 40]
VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
SETTINGS = settings(
    max_examples=2, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
LIMITS = Limits(price=4321, video_price=87654)
DOCUMENT = openapi.document(LIMITS, formats())


def properties(path, kind="application/json"):
    return DOCUMENT["paths"][path]["post"]["requestBody"]["content"][kind]["schema"]["properties"]


def read(**given):
    options = read_fields(given, LAB, LIMITS)
    return {name: options[name] for name in given}


def test_routes_and_fields_are_those_of_the_tables():
    listed = {(route.method.lower(), route.path) for route in ROUTES}
    assert {(method, path) for path, each in DOCUMENT["paths"].items() for method in each} == listed
    for each in DOCUMENT["paths"].values():
        for operation in each.values():
            assert set(operation["responses"]) <= {"200", "202", "204", "304", *map(str, CODES)}
            for status, response in operation["responses"].items():
                if int(status) >= 400 and operation["operationId"] not in ("livez", "readyz"):
                    assert response["content"] == {"application/json": {"schema": {"$ref": ERROR}}}
                elif status in ("204", "304"):
                    assert "content" not in response
                elif "application/json" in response["content"]:
                    assert response["content"]["application/json"]["schema"]
    for route in ROUTES:
        for kind in ("multipart/form-data", "application/json") if route.files else ():
            fields = route.fields if "image" in route.files else VIDEO_OPTIONS
            assert set(properties(route.path, kind)) == {*route.files, *fields}
            price = properties(route.path, kind)["hypotheses"]["description"]
            assert "people x hypotheses x steps may be 4321 at most" in price
            assert "frames x max_people x hypotheses x steps 87654" in price
        if route.files:
            parameters = DOCUMENT["paths"][route.path]["post"]["parameters"]
            assert {each["name"] for each in parameters if each["in"] == "query"} == set(fields)
    path_parameter = DOCUMENT["paths"]["/v1/files/{format}"]["post"]["parameters"][0]
    assert path_parameter["schema"]["enum"] == [ending[1:] for ending in WRITERS]


def test_the_document_is_valid_openapi():
    schemathesis_openapi.from_dict(DOCUMENT).validate()
    with pytest.raises(ValidationError):
        schemathesis_openapi.from_dict(DOCUMENT | {"paths": {"/a": {"get": 3}}}).validate()


def test_the_page_of_the_api_stands_alone():
    text = openapi.page(LIMITS)
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=.(?:https?:)?/", text)
    assert all(route.path in text for route in ROUTES)
    assert all(f"<code>{name}</code>" in text for name in LAB)
    assert re.search(r"<td>1 to 64 *</td><td>8 *</td>", text)
    assert re.search(r"<td>price *</td><td>4321 *</td>", text)


def test_bounds_and_defaults_are_those_that_are_held():
    assert read_fields({}, SHARED, LIMITS) == {name: getattr(Options(), name) for name in SHARED}
    for name, schema in properties("/v1/lab").items():
        kind = schema.get("anyOf", [schema])[0]
        if "minimum" in kind:
            step = 1 if kind["type"] == "integer" else 1e-6
            good = [kind["minimum"], kind["maximum"], *([None] if "anyOf" in schema else [])]
            assert [read(**{name: value}) for value in good] == [{name: value} for value in good]
            wrong = [kind["minimum"] - step, kind["maximum"] + step, "1", True, [], float("nan")]
            for bad in wrong if "anyOf" in schema else [*wrong, None]:
                with pytest.raises(ApiError, match=f"^400: '{name}': Input should be .*, got "):
                    read(**{name: bad})


def test_values_that_are_read():
    for name, value, wanted in (
        ("boxes", [BOX], [tuple(BOX)]), ("boxes", None, None), ("occluded", [], []),
        ("pin", {"nose": [1, 2, 3]}, {"nose": (1, 2, 3)}), ("keep_tokens", {"3": 17}, {3: 17}),
        ("at", BOX, tuple(BOX)), ("hypotheses", 2.0, 2), ("second_look", False, False),
    ):  # fmt: skip
        assert read(**{name: value}) == {name: wanted}


WRONG = {
    "boxes": [[], [BOX] * 17, [[1, 2, 3]], [[1, 2, 1, 4]], {"a": BOX}, [[1, 2, 3, "4"]], [[0, 0, 1e7, 1]]],
    "occluded": [None, [BOX] * 33, "x"],
    "pin": [[], {"hand": [1, 2, 3]}, {"nose": [1, 2]}, {"nose": [1, 2, None]}, {"nose": [1, 2, 10**400]},
            {"nose": [5000, 0, 0]}, {"nose": [1400, 1400, 0]}, {"nose": [1e308, 1e308, 1e308]}],
    "keep_tokens": [[], {"-1": 3}, {"x": 3}, {"3": -1}, {"3": 1.5}, {"3": True}, {"٣": 1}],
    "second_look": [None, 1, "true"],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_values_that_are_refused(name):
    for value in WRONG[name]:
        with pytest.raises(ApiError, match=rf"^400: '{name}\b.*': .*, got "):
            read(**{name: value})


@pytest.fixture(scope="module")
def files(tmp_path_factory, astronaut):
    """A picture and a video of somebody, by the fields that hold them."""
    small = astronaut.resize((96, 96))
    film = write_film(tmp_path_factory.mktemp("film") / "a.mp4", [np.asarray(small)], rate=10)
    return {"image": file_of(small), "video": film.read_bytes()}


@pytest.fixture(scope="module")
def api():
    torch.manual_seed(0)
    config = recipes.tiny(feature_width=BlazePose("lite").layout.width)
    model = Di2Pose(dataclasses.replace(config, encoder="blazepose-lite"))
    worker = Worker(64, 64)
    limits = Limits(hypotheses=2, steps=2, people=2, grid=2, price=400)  # pins are dear
    service = Service(model, worker, limits, OperatorOptions(metrics=True))
    yield schemathesis_openapi.from_asgi("/openapi.json", build_app(service, ("testserver",)))
    until(lambda: all(job.state in ENDED for job in service.jobs.jobs.values()))
    worker.close()


def started_job(api, files):
    """The name of a job that is done."""
    body = {"image": base64.b64encode(files["image"]).decode(), "hypotheses": 1, "steps": 1}
    name = api["/v1/jobs"]["POST"].Case(body=body, media_type="application/json").call().json()["id"]
    case = api["/v1/jobs/{job}"]["GET"].Case(path_parameters={"job": name})
    until(lambda: case.call().json()["state"] == "done")
    return name


@pytest.mark.parametrize("entry", ROUTES, ids=lambda entry: entry.endpoint)
def test_a_plain_request_is_answered_as_the_document_says(api, files, entry):
    path = {"name": "astronaut", "format": "json", "job": started_job(api, files) if "{job}" in entry.path else ""}
    path = {name: value for name, value in path.items() if f"{{{name}}}" in entry.path}
    sent = {}
    if entry.files:
        body = {entry.files[0]: base64.b64encode(files[entry.files[0]]).decode(), "hypotheses": 1, "steps": 1}
        body |= {"grid": 2} if entry.endpoint == "lab" else {}
        sent = {"body": body, "media_type": "application/json"}
    case = api[entry.path][entry.method].Case(path_parameters=path, **sent)
    assert case.call_and_validate(timeout=120).status_code == entry.status


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
                as_json = case.media_type == "application/json"
                file = base64.b64encode(files[name]).decode() if as_json else files[name]
                if isinstance(case.body[name], list):
                    case.body[name] = [file if isinstance(one, str | bytes) else one for one in case.body[name]]
                elif isinstance(case.body[name], str | bytes):  # else it is wrong on purpose
                    case.body[name] = file
            if mode == VALID and "image" in case.body:
                case.body["second_look"] = False
            if entry.endpoint == "lab" and "at" not in case.body:
                case.body.setdefault("grid", 2)
        case.call_and_validate(timeout=120, excluded_checks=[checks.positive_data_acceptance])

    ask()
