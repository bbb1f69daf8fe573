"""/openapi.json and /docs, both made of the tables in `schema`."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from string import Template
from typing import Any

from tabulate import tabulate

from di2pose import __version__
from di2pose.options import VIDEO_OPTIONS
from di2pose.output.tables import FORMAT, FORMAT_VERSION
from di2pose.result import STATES
from di2pose.serve.guard import OPEN
from di2pose.serve.limits import CODES, Limits
from di2pose.serve.media import media_type
from di2pose.serve.schema import LAB, PICTURE, ROUTES, VIDEO, Route, request_model

Schema = dict[str, Any]
OF_UPLOADS = (400, 408, 413, 415, 422, 503, 504)
"""Statuses that the answer to an upload may have, beside those of every answer."""
FILES = {PICTURE: "a JPEG, PNG, WebP, GIF, BMP or AVIF", VIDEO: "an MP4, MOV, WebM, MKV or AVI"}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Schema, count: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({} if count is None else {"minItems": count, "maxItems": count})


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT, WHOLE, NUMBER, OBJECT = ({"type": kind} for kind in ("string", "integer", "number", "object"))
KNOWN: Schema = {"type": ["number", "null"]}
POINT, BOX = _list(KNOWN, 3), _list(NUMBER, 4)
OTHERS = {"example": "image/jpeg", "job_events": "text/event-stream", "metrics": "text/plain"}
"""Endpoint of a route -> media type of its answer, where that is no JSON."""
RAW = {PICTURE: ("image/jpeg", "image/png", "image/webp"), VIDEO: ("video/mp4", "video/webm", "video/quicktime")}
"""Content types of a body that is the file itself; others are taken, too."""
COMPONENTS: dict[str, Schema] = {
    "Error": _object(error=_object(code={"enum": sorted(set(CODES.values()))}, message=TEXT)),
    "Health": _object(status={"const": "ok"}, waiting=WHOLE, busy={"type": "boolean"}),
    "Model": _object(
        name=TEXT, kind=TEXT, version=TEXT, joints=_list(TEXT), bones=_list(_list(TEXT, 2)), defaults=OBJECT,
        limits={"type": "object", "additionalProperties": NUMBER}, formats=_list(TEXT), diffusion_steps=WHOLE,
    ),
    "Examples": _list(_object(name=TEXT, title=TEXT)),
    "Result": _object(
        format={"const": FORMAT}, format_version={"const": FORMAT_VERSION}, units=OBJECT, axes=TEXT,
        skeleton=_object(name=TEXT, joints=_list(TEXT), parents=_list(WHOLE)), model=_object(name=TEXT, version=TEXT),
        seed=WHOLE, steps=WHOLE, hypotheses=WHOLE, fps=KNOWN, frames=_list(_ref("Frame")),
    ),
    "Frame": _object(
        image={"type": ["string", "null"]}, size_px=_list(WHOLE, 2), camera=OBJECT, camera_source=TEXT,
        frame_index={"type": ["integer", "null"]}, time_s=KNOWN, smoothing=TEXT, people=_list(_ref("Person")),
    ),
    "Person": _object(
        track={"type": ["integer", "null"]}, score=NUMBER, box_px=BOX, root_mm=POINT,
        root_std_mm={"anyOf": [POINT, {"type": "null"}]}, angles=OBJECT, samples_mm=_list(_list(POINT)),
        joints={"type": "object", "additionalProperties": _ref("Joint")},
    ),
    "Joint": _object(
        xyz_mm=POINT, std_mm=KNOWN, r90_mm=KNOWN, state={"enum": list(STATES)}, uv_px=_list(KNOWN, 2),
        covariance_mm2=_list(POINT, 3),
    ),
    "Reveal": _object(
        steps=_list(_object(step=WHOLE, joints_mm=_list(POINT), decided=_list({"type": "boolean"}))), box_px=BOX
    ),
    "Job": _object(
        id=TEXT, state={"enum": ["waiting", "running", "done", "failed", "cancelled"]}, frames_done=WHOLE, frames=WHOLE,
        error={"anyOf": [_object(code=TEXT, message=TEXT), {"type": "null"}]},
    ),
    "Workers": _object(
        status={"enum": ["alive", "stuck", "ready", "not_ready"]},
        workers=_list(_object(
            worker=WHOLE, ready={"type": "boolean"}, alive={"type": "boolean"}, problem={"type": ["string", "null"]},
            waiting=WHOLE,
            running={"anyOf": [_object(kind=TEXT, age_s=NUMBER, limit_s=NUMBER), {"type": "null"}]},
        )),
    ),
    "Lab": _object(grid=_list(_list(NUMBER)), boxes=_list(BOX), worst=BOX, worst_mm=NUMBER, box_px=BOX),
}  # fmt: skip
"""Schemas of the answers. docs/guide.md describes the result's keys."""
ANSWERS = {
    "health": _ref("Health"), "about": _ref("Model"), "examples": _ref("Examples"),
    "predict": {"anyOf": [_ref("Result"), _list({"anyOf": [_ref("Result"), _ref("Error")]})]},
    "start_job": _ref("Job"), "job": _ref("Job"), "job_result": _ref("Result"), "livez": _ref("Workers"),
    "readyz": _ref("Workers"),
    "video": _ref("Result"), "files": _ref("Result"), "reveal": _ref("Reveal"),
    "lab": {"anyOf": [_ref("Lab"), _ref("Result")]},
}  # fmt: skip
"""Endpoint of a route -> schema of its JSON answer."""


def document(limits: Limits, formats: Sequence[str]) -> Schema:
    """/openapi.json: OpenAPI 3.1 of all routes."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, limits, formats)
    return {
        "openapi": "3.1.0",
        "info": {"title": "di2pose", "version": __version__, "description": "3D human poses of photos and videos."},
        "paths": paths,
        "components": {"schemas": COMPONENTS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _operation(route: Route, limits: Limits, formats: Sequence[str]) -> Schema:
    operation: Schema = {"operationId": route.endpoint, "summary": route.text}
    names = re.findall(r"{(\w+)}", route.path)
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True,
         "schema": TEXT | ({"enum": list(formats)} if name == "format" else {})}
        for name in names
    ]  # fmt: skip
    if route.files:
        fields = request_model(route.fields_of(route.files[0]), limits).model_json_schema()["properties"]
        operation["requestBody"] = {"required": True, "content": _content(route, fields, limits)}
        for name, schema in fields.items():
            json_text = {"application/json": {"schema": schema}}
            parameters.append({"name": name, "in": "query", "description": schema["description"], "content": json_text})
    if parameters:
        operation["parameters"] = parameters
    if route.path in OPEN:
        operation["security"] = []
    answer: Schema = {"description": route.text}
    if route.status != 204:
        answer["content"] = _answer(route, formats)
    if route.status == 202:
        answer["headers"] = {"Location": {"schema": TEXT, "description": "the job's address"}}
    operation["responses"] = {str(route.status): answer}
    if route.keeps:
        operation["responses"]["304"] = {"description": "the copy with the ETag of If-None-Match is as it was"}
    guard = (403,) if route.path in OPEN else (401, 403)
    errors = {*guard, *route.errors, *(404,) * bool(names), *(OF_UPLOADS if route.files else ()), 500}
    for status in sorted(errors):
        schema = _ref("Workers" if status == 503 and route.endpoint in ("livez", "readyz") else "Error")
        error: Schema = {"description": CODES[status], "content": {"application/json": {"schema": schema}}}
        if status == 503 and schema == _ref("Error"):
            error["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
        operation["responses"][str(status)] = error
    return operation


def _answer(route: Route, formats: Sequence[str]) -> Schema:
    """Media type -> schema; a file that is no JSON has none."""
    if route.endpoint in OTHERS:
        return {OTHERS[route.endpoint]: {}}
    others: Schema = {}
    if route.endpoint == "files":
        others = {media_type(ending): {} for ending in formats} | {"application/zip": {}}
    return others | {"application/json": {"schema": ANSWERS[route.endpoint]}}


def _content(route: Route, others: dict[str, Schema], limits: Limits) -> Schema:
    """The same fields as a form, where each is JSON text, and as JSON, where the file is base64."""
    each = [{"required": [name]} for name in route.files]
    needed: Schema = each[0] if len(each) == 1 else {"oneOf": each}  # generators of clients read the plain form better
    content: Schema = {}
    for kind, coding in (
        ("multipart/form-data", {"format": "binary"}), ("application/json", {"contentEncoding": "base64"}),
    ):  # fmt: skip
        file: Schema = {name: {"type": "string", "description": FILES[name], **coding} for name in route.files}
        if route.several:
            many = {"type": "array", "items": file[PICTURE], "minItems": 1, "maxItems": limits.pictures}
            text = f"{FILES[PICTURE]}; of several a list is answered"
            file[PICTURE] = {"anyOf": [file[PICTURE], many], "description": text}
        schema = {"type": "object", "additionalProperties": False, **needed, "properties": file | others}
        content[kind] = {"schema": schema}
    for kind in (kind for name in route.files for kind in RAW[name]):
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    content["multipart/form-data"]["encoding"] = {name: {"contentType": "application/json"} for name in others}
    return content


def page(limits: Limits) -> str:
    """/docs: the same to read, without a script."""
    routes = [[f"<code>{route.method} {route.path}</code>", route.text, " or ".join(route.files)] for route in ROUTES]
    taken = []
    for name, schema in request_model(LAB, limits).model_json_schema()["properties"].items():
        kind = schema.get("anyOf", [schema])[0]
        values = f"{kind['minimum']} to {kind['maximum']}" if "minimum" in kind else kind["type"]
        of = "photo, video" if name in VIDEO_OPTIONS else "photo"
        taken.append([f"<code>{name}</code>", schema["description"], values, json.dumps(schema["default"]), of])
    template = files("di2pose.serve").joinpath("static/docs.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        version=__version__,
        address="http://127.0.0.1:8000",
        routes=_table(["route", "answer", "file"], routes),
        fields=_table(["field", "meaning", "values", "left out", "of a"], taken),
        limits=_table(["what", "at most"], [[name, f"{value:.10g}"] for name, value in asdict(limits).items()]),
        errors=_table(["status", "code"], [[str(status), code] for status, code in CODES.items()]),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return str(tabulate(rows, head, "unsafehtml", disable_numparse=True))
