"""/openapi.json and /docs, both out of the table of routes and the table of fields."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from di2pose import __version__
from di2pose.serve.fields import PICTURE, VIDEO, Field
from di2pose.serve.guard import OPEN
from di2pose.serve.media import media_type
from di2pose.serve.refusal import CODES, Limits
from di2pose.serve.schemas import ANSWERS, COMPONENTS
from di2pose.serve.table import ROUTES, Entry

OF_UPLOADS = (400, 408, 413, 415, 422, 503, 504)
"""Statuses that the answer to an upload may have, beside those of every answer."""
FILES = {PICTURE: "a JPEG, PNG, WebP, GIF, BMP or AVIF", VIDEO: "an MP4, MOV, WebM, MKV or AVI"}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0}"
    "tr{border-bottom:1px solid #8884}code,pre{font-family:ui-monospace,monospace}pre{overflow-x:auto}"
)


def document(fields: Mapping[str, Field], formats: Sequence[str]) -> dict[str, Any]:
    """OpenAPI 3.1 of all routes that are part of the API."""
    paths: dict[str, Any] = {}
    for entry in ROUTES:
        if entry.listed:
            paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry, fields, formats)
    return {
        "openapi": "3.1.0",
        "info": {"title": "di2pose", "version": __version__, "description": "3D human poses of photos and videos."},
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(entry: Entry, fields: Mapping[str, Field], formats: Sequence[str]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": entry.endpoint, "summary": entry.text}
    if names := re.findall(r"{(\w+)}", entry.path):
        schema: dict[str, Any] = {"type": "string"}
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True,
             "schema": schema | ({"enum": list(formats)} if name == "format" else {})}
            for name in names
        ]  # fmt: skip
    if entry.files:
        operation["requestBody"] = {"required": True, "content": _content(entry, fields)}
    if entry.path in OPEN:
        operation["security"] = []
    operation["responses"] = {"200": {"description": entry.text, "content": _answer(entry, formats)}}
    for status in _refused(entry):
        refused: dict[str, Any] = {"description": CODES[status]}
        refused["content"] = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        if status == 503:
            refused["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
        operation["responses"][str(status)] = refused
    return operation


def _answer(entry: Entry, formats: Sequence[str]) -> dict[str, Any]:
    """Media type -> schema; a file that is no JSON has none."""
    if entry.endpoint in ANSWERS:
        return {entry.answer: {"schema": ANSWERS[entry.endpoint]}}
    if entry.endpoint != "files":
        return {entry.answer: {}}
    kinds: dict[str, Any] = {media_type(ending): {} for ending in formats} | {"application/zip": {}}
    return kinds | {"application/json": {"schema": ANSWERS["predict"]}}


def _refused(entry: Entry) -> list[int]:
    """Statuses of errors: of the guard, of names in the path, of uploads, of bugs."""
    guard = (403,) if entry.path in OPEN else (401, 403)
    return sorted((*guard, *(404,) * ("{" in entry.path), *(OF_UPLOADS if entry.files else ()), 500))


def _content(entry: Entry, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The same fields as a form, where each is JSON text, and as JSON, where the file is base64."""
    known = [fields[name] for name in entry.fields if fields[name].of_videos or PICTURE in entry.files]
    others = {field.name: field.schema | {"description": field.text} for field in known}
    files = {name: {"type": "string", "description": FILES[name]} for name in entry.files}
    needed = {"oneOf": [{"required": [name]} for name in entry.files]}
    form = {name: schema | {"format": "binary"} for name, schema in files.items()}
    text = {name: schema | {"contentEncoding": "base64"} for name, schema in files.items()}
    whole = {"type": "object", "additionalProperties": False, **needed}
    encoding = {name: {"contentType": "application/json"} for name in others}
    return {
        "multipart/form-data": {"schema": whole | {"properties": form | others}, "encoding": encoding},
        "application/json": {"schema": whole | {"properties": text | others}},
    }


def page(fields: Mapping[str, Field], limits: Limits) -> str:
    """The same to read, without a script."""
    rows = [
        [f"<code>{entry.method} {html.escape(entry.path)}</code>", html.escape(entry.text), _files_cell(entry)]
        for entry in ROUTES
        if entry.listed
    ]
    taken = [
        [f"<code>{field.name}</code>", html.escape(field.text), f"<code>{html.escape(_short(field.schema))}</code>",
         "photo, video" if field.of_videos else "photo"]
        for field in fields.values()
    ]  # fmt: skip
    bounds = [[name, f"{value:g}" if value < 1e5 else f"{value:.0f}"] for name, value in limits.public().items()]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>di2pose API</title><style>{STYLE}</style><h1>di2pose {__version__}: the API</h1>"
        "<p>Send <code>multipart/form-data</code> with the file and every other field as JSON text, or "
        "<code>application/json</code> with the file as base64, never compressed. "
        "<a href='openapi.json'>openapi.json</a> has the same for programs.</p>"
        "<pre>curl -F image=@photo.jpg -F hypotheses=4 http://127.0.0.1:8000/v1/predict</pre>"
        f"<h2>Routes</h2>{_table(['route', 'answer', 'file'], rows)}"
        f"<h2>Fields, all optional</h2>{_table(['field', 'meaning', 'JSON', 'of a'], taken)}"
        f"<h2>Limits</h2>{_table(['what', 'at most'], bounds)}"
        "<h2>Refusals</h2><p>Every refusal is <code>"
        '{"error": {"code": "...", "message": "..."}}'
        "</code>; 503 says in <code>Retry-After</code> when to come again.</p>"
        f"{_table(['status', 'code'], [[str(status), code] for status, code in CODES.items()])}</html>"
    )


def _files_cell(entry: Entry) -> str:
    return " or ".join(f"<code>{name}</code>" for name in entry.files)


def _short(schema: Mapping[str, Any]) -> str:
    kind = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
    bounds = [json.dumps(schema[key]) for key in ("minimum", "maximum") if key in schema]
    return f"{kind} {' to '.join(bounds)}".strip()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{cells}</table>"
