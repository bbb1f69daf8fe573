"""JSON schemas of the answers, for /openapi.json. docs/files.md describes the result's keys."""

from typing import Any

from di2pose.output.tables import FORMAT, FORMAT_VERSION
from di2pose.result import STATES
from di2pose.serve.refusal import CODES

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
OBJECT: Schema = {"type": "object"}
KNOWN: Schema = {"type": ["number", "null"]}
"""A number, or null where it is not known."""


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Schema, count: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({} if count is None else {"minItems": count, "maxItems": count})


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


POINT, BOX = _list(KNOWN, 3), _list(NUMBER, 4)
JOINT = _object(
    xyz_mm=POINT, std_mm=KNOWN, r90_mm=KNOWN, state={"enum": list(STATES)}, uv_px=_list(KNOWN, 2),
    covariance_mm2=_list(POINT, 3),
)  # fmt: skip
PERSON = _object(
    track={"type": ["integer", "null"]}, score=NUMBER, box_px=BOX, root_mm=POINT,
    root_std_mm={"anyOf": [POINT, {"type": "null"}]}, joints={"type": "object", "additionalProperties": _ref("Joint")},
    angles=OBJECT, samples_mm=_list(_list(POINT)),
)  # fmt: skip
FRAME = _object(
    image={"type": ["string", "null"]}, size_px=_list(WHOLE, 2), camera=OBJECT, camera_source=TEXT,
    frame_index={"type": ["integer", "null"]}, time_s=KNOWN, people=_list(_ref("Person")),
)  # fmt: skip
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
    "Frame": FRAME,
    "Person": PERSON,
    "Joint": JOINT,
    "Reveal": _object(
        steps=_list(_object(step=WHOLE, joints_mm=_list(POINT), decided=_list({"type": "boolean"}))), box_px=BOX
    ),
    "Lab": _object(grid=_list(_list(NUMBER)), boxes=_list(BOX), worst=BOX, worst_mm=NUMBER, box_px=BOX),
}  # fmt: skip
"""Name -> schema."""
ANSWERS = {
    "health": _ref("Health"),
    "about": _ref("Model"),
    "examples": _ref("Examples"),
    "predict": _ref("Result"),
    "video": _ref("Result"),
    "reveal": _ref("Reveal"),
    "lab": {"anyOf": [_ref("Lab"), _ref("Result")]},
}
"""Endpoint of `table.ROUTES` -> schema of its JSON answer."""
