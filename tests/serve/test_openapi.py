"""/openapi.json is what the service does: every route, every field, every bound."""

import re

import pytest
from serve.running import QUICK

from di2pose.result import WRITERS
from di2pose.serve.fields import field_table, read_fields
from di2pose.serve.refusal import CODES, Limits, Refusal
from di2pose.serve.table import ROUTES

FIELDS = field_table(Limits())
ERROR = "#/components/schemas/Error"


@pytest.fixture(scope="module")
def document(service):
    return service.get("/openapi.json").json


def properties(document, path, kind="application/json"):
    return document["paths"][path]["post"]["requestBody"]["content"][kind]["schema"]["properties"]


def test_every_route_is_in_it(document):
    listed = {(entry.method.lower(), entry.path) for entry in ROUTES if entry.listed}
    assert {(method, path) for path, each in document["paths"].items() for method in each} == listed
    for each in document["paths"].values():
        for operation in each.values():
            assert set(operation["responses"]) <= {"200", *map(str, CODES)}
            for status, response in operation["responses"].items():
                if status != "200":
                    assert response["content"] == {"application/json": {"schema": {"$ref": ERROR}}}
                elif "application/json" in response["content"]:
                    assert response["content"]["application/json"]["schema"]


def test_every_field_is_in_it_and_no_other(document):
    for entry in ROUTES:
        if entry.files:
            for kind in ("multipart/form-data", "application/json"):
                known = [name for name in entry.fields if FIELDS[name].of_videos or "image" in entry.files]
                assert set(properties(document, entry.path, kind)) == {*entry.files, *known}
    assert {name for entry in ROUTES for name in entry.fields} == FIELDS.keys()
    formats = document["paths"]["/v1/files/{format}"]["post"]["parameters"][0]["schema"]["enum"]
    assert formats == [ending[1:] for ending in WRITERS]


def test_bounds_are_those_that_are_held(document):
    for name, schema in properties(document, "/v1/lab").items():
        if "minimum" in schema:
            step = 1 if "integer" in schema["type"] else 1e-6
            for good in (schema["minimum"], schema["maximum"]):
                assert read_fields({name: good}, FIELDS) == {name: good}
            for bad in (schema["minimum"] - step, schema["maximum"] + step, "1", True, [], float("nan"), None):
                if bad is None and "null" in schema["type"]:
                    assert read_fields({name: None}, FIELDS) == {name: None}
                else:
                    with pytest.raises(Refusal, match=f"^'{name}' "):
                        read_fields({name: bad}, FIELDS)
        elif "boolean" in schema.get("type", ()):
            assert read_fields({name: True}, FIELDS) == {name: True}


def test_example_values_of_the_other_fields():
    box = [1, 2, 30, 40]
    given = {"boxes": [box], "occluded": [], "pin": {"nose": [1, 2, 3]}, "keep_tokens": {"3": 17}, "at": box}
    wanted = {
        "boxes": [tuple(box)],
        "occluded": [],
        "pin": {"nose": (1, 2, 3)},
        "keep_tokens": {3: 17},
        "at": tuple(box),
    }
    assert read_fields(given, FIELDS) == wanted
    assert read_fields({"boxes": None}, FIELDS) == {"boxes": None}
    wrong = {
        "boxes": [[], [box] * 17, [[1, 2, 3]], [[1, 2, 1, 4]], {"a": box}, [[1, 2, 3, "4"]], [[0, 0, 1e7, 1]]],
        "occluded": [None, [box] * 33, "x"],
        "pin": [[], {"hand": [1, 2, 3]}, {"nose": [1, 2]}, {"nose": [1, 2, None]}, {"nose": [1, 2, 10**400]}],
        "keep_tokens": [[], {"-1": 3}, {"x": 3}, {"3": -1}, {"3": 1.5}, {"3": True}, {"٣": 1}],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(Refusal):
                read_fields({name: value}, FIELDS)


def test_the_page_of_the_api_stands_alone(service):
    text = service.get("/docs").body.decode()
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=.(?:https?:)?/", text)
    for entry in ROUTES:
        assert entry.path in text or not entry.listed
    assert all(f"<code>{name}</code>" in text for name in FIELDS)


def test_the_model_tells_what_a_page_needs(service, model):
    about = service.get("/v1/model").json
    assert (about["name"], about["kind"], about["diffusion_steps"]) == ("small", "di2pose", 100)
    assert about["defaults"] == {"hypotheses": 8, "steps": model.config.sample_steps, "seed": 0, "max_people": 8}
    assert len(about["joints"]) == 17
    assert len(about["bones"]) == 16
    assert {"bytes", "pixels", "hypotheses", "steps", "people", "video_bytes", "video_seconds"} <= about[
        "limits"
    ].keys()
    assert about["formats"] == [ending[1:] for ending in WRITERS]


def test_examples_can_be_predicted(service):
    found = service.get("/v1/examples").json
    assert "astronaut" in [each["name"] for each in found]  # the tests fetched it
    for each in found:
        answer = service.get(f"/v1/examples/{each['name']}")
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.body.startswith(b"\xff\xd8")
    people = service.post("/v1/predict", service.get("/v1/examples/astronaut").body, **QUICK).json["frames"][0][
        "people"
    ]
    assert len(people) == 1
    assert service.get("/v1/examples/nobody").error == "not_found"
