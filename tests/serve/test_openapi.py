"""/openapi.json is what the service does: every route, every field, every bound."""

import re

import pytest
from serve.running import QUICK

from di2pose.options import VIDEO_OPTIONS, Options
from di2pose.result import WRITERS
from di2pose.serve import openapi
from di2pose.serve.limits import CODES, ApiError, Limits
from di2pose.serve.schema import LAB, ROUTES, SHARED, read_fields

ERROR = "#/components/schemas/Error"
BOX = [1, 2, 30, 40]


@pytest.fixture(scope="module")
def document(service):
    return service.get("/openapi.json").json


def properties(document, path, kind="application/json"):
    return document["paths"][path]["post"]["requestBody"]["content"][kind]["schema"]["properties"]


def read(**given):
    options = read_fields(given, LAB, Limits())
    return {name: options[name] for name in given}


def test_routes_and_fields_are_those_of_the_tables(document):
    listed = {(route.method.lower(), route.path) for route in ROUTES}
    assert {(method, path) for path, each in document["paths"].items() for method in each} == listed
    for each in document["paths"].values():
        for operation in each.values():
            assert set(operation["responses"]) <= {"200", *map(str, CODES)}
            for status, response in operation["responses"].items():
                if status != "200":
                    assert response["content"] == {"application/json": {"schema": {"$ref": ERROR}}}
                elif "application/json" in response["content"]:
                    assert response["content"]["application/json"]["schema"]
    for route in ROUTES:
        for kind in ("multipart/form-data", "application/json") if route.files else ():
            fields = route.fields if "image" in route.files else VIDEO_OPTIONS
            assert set(properties(document, route.path, kind)) == {*route.files, *fields}
    formats = document["paths"]["/v1/files/{format}"]["post"]["parameters"][0]["schema"]["enum"]
    assert formats == [ending[1:] for ending in WRITERS]


def test_defaults_are_those_of_a_call():
    options = read_fields({}, SHARED, Limits())
    assert options == {name: getattr(Options(), name) for name in SHARED}


def test_bounds_are_those_that_are_held(document):
    for name, schema in properties(document, "/v1/lab").items():
        kind = schema.get("anyOf", [schema])[0]
        if "minimum" in kind:
            step = 1 if kind["type"] == "integer" else 1e-6
            for good in (kind["minimum"], kind["maximum"]):
                assert read(**{name: good}) == {name: good}
            if "anyOf" in schema:
                assert read(**{name: None}) == {name: None}
            wrong = [kind["minimum"] - step, kind["maximum"] + step, "1", True, [], float("nan")]
            for bad in wrong if "anyOf" in schema else [*wrong, None]:
                with pytest.raises(ApiError, match=f"^'{name}' must be a .*number from"):
                    read(**{name: bad})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("boxes", [BOX], [tuple(BOX)]),
        ("boxes", None, None),
        ("occluded", [], []),
        ("pin", {"nose": [1, 2, 3]}, {"nose": (1, 2, 3)}),
        ("keep_tokens", {"3": 17}, {3: 17}),
        ("at", BOX, tuple(BOX)),
        ("hypotheses", 2.0, 2),
        ("second_look", False, False),
    ],
)
def test_values_that_are_read(name, value, wanted):
    assert read(**{name: value}) == {name: wanted}


WRONG = {
    "boxes": [[], [BOX] * 17, [[1, 2, 3]], [[1, 2, 1, 4]], {"a": BOX}, [[1, 2, 3, "4"]], [[0, 0, 1e7, 1]]],
    "occluded": [None, [BOX] * 33, "x"],
    "pin": [[], {"hand": [1, 2, 3]}],
    "keep_tokens": [[], {"-1": 3}, {"x": 3}, {"3": -1}, {"3": 1.5}, {"3": True}, {"٣": 1}],
    "second_look": [None, 1, "true"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_values_that_are_refused(name, value):
    with pytest.raises(ApiError, match=f"^'{name}' must be .*, got "):
        read(**{name: value})


@pytest.mark.parametrize(
    "point", [[1, 2], [1, 2, None], [1, 2, 10**400], [5000, 0, 0], [1400, 1400, 0], [1e308, 1e308, 1e308]]
)
def test_pins_that_are_refused(point):
    wanted = "the pin 'nose' must be within 1500 mm of the pelvis, as x, y, z in mm from it, got \\["
    with pytest.raises(ApiError, match=wanted):
        read(pin={"nose": point})


def test_the_page_of_the_api_stands_alone(service):
    text = service.get("/docs").body.decode()
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=.(?:https?:)?/", text)
    assert all(route.path in text for route in ROUTES)
    assert all(f"<code>{name}</code>" in text for name in LAB)


def test_the_price_limit_stands_in_the_api_description():
    limits = Limits(price=4321, video_price=87654)
    described = openapi.document(limits, [])
    for route in ("/v1/predict", "/v1/video", "/v1/files/{format}", "/v1/reveal", "/v1/lab"):
        text = properties(described, route)["hypotheses"]["description"]
        assert "people x hypotheses x steps may be 4321 at most" in text
        assert "frames x max_people x hypotheses x steps 87654" in text
    page = openapi.page(limits)
    assert "people x hypotheses x steps may be 4321 at most" in page
    assert "<td>price</td><td>4321</td>" in page


def test_the_model_tells_what_a_page_needs(service, model):
    about = service.get("/v1/model").json
    assert (about["name"], about["kind"], about["diffusion_steps"]) == ("small", "di2pose", 100)
    assert about["defaults"] == {"hypotheses": 8, "steps": model.config.sample_steps, "seed": 0, "max_people": 8}
    assert (len(about["joints"]), len(about["bones"])) == (17, 16)
    assert about["limits"] == Limits().public()
    assert about["formats"] == [ending[1:] for ending in WRITERS]


def test_examples_can_be_predicted(service):
    found = service.get("/v1/examples").json
    assert "astronaut" in [each["name"] for each in found]  # the tests fetched it
    for each in found:
        answer = service.get(f"/v1/examples/{each['name']}")
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.body.startswith(b"\xff\xd8")
    answer = service.post("/v1/predict", service.get("/v1/examples/astronaut").body, **QUICK)
    assert len(answer.json["frames"][0]["people"]) == 1
    assert service.get("/v1/examples/nobody").error == "not_found"
