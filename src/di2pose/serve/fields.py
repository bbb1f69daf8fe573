"""The fields of a request: one table, by which they are read and by which /openapi.json describes them."""

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from di2pose.pipeline.pipeline import SPARE
from di2pose.pipeline.request import REACH_MM
from di2pose.pose.skeleton import H36M_17
from di2pose.serve.refusal import PIN_PRICE, Limits, Refusal

Schema = dict[str, Any]
MOST_SEED = 2**63 - 1
MOST_PX = 1e6
"""Of a box's coordinates."""
PICTURE, VIDEO = "image", "video"
"""The fields that hold a file."""


@dataclass(frozen=True)
class Field:
    """One field: what it means, what JSON it takes, and how it is read, with a ValueError or a Refusal for
    anything else."""

    name: str
    text: str
    schema: Schema
    read: Callable[[Any], Any]
    of_videos: bool = False
    """Whether it counts for videos, too."""


def field_table(limits: Limits) -> dict[str, Field]:
    """All fields but the files, by name."""
    box = _numbers(4, MOST_PX)
    boxes = {"type": "array", "items": box}
    drawn = (
        f"poses drawn for each person; people x hypotheses x steps may be {limits.price} at most (people: boxes, or "
        f"max_people + {SPARE}; with pins {PIN_PRICE} times as much; in a lab, places of the patch instead of people); "
        f"of a video, frames x max_people x hypotheses x steps {limits.video_price}"
    )
    shared = [
        Field("hypotheses", drawn, *_whole(1, limits.hypotheses), of_videos=True),
        Field("steps", "reverse steps; null: the model's own", *_or_null(_whole(1, limits.steps)), of_videos=True),
        Field("seed", "the same seed gives the same answer", *_whole(-MOST_SEED, MOST_SEED), of_videos=True),
        Field("max_people", "at most so many, the largest ones", *_whole(1, limits.people), of_videos=True),
        Field("min_score", "least score of a person; null: the model's own", *_or_null(_number(0, 1)), of_videos=True),
        Field("height_m", "stature in metres, where known", *_or_null(_number(*limits.heights_m)), of_videos=True),
        Field(
            "field_of_view", "degrees across the picture's longer side; null: by EXIF, else 60",
            *_or_null(_number(*limits.fields_of_view)), of_videos=True,
        ),
        Field("second_look", "look at everybody again: slower, better", {"type": "boolean"}, _read_bool),
        Field(
            "boxes", "where the people are, x0, y0, x1, y1 in pixels of the upright picture; left out or null: found",
            boxes | {"type": ["array", "null"], "minItems": 1, "maxItems": limits.people},
            lambda value: None if value is None else _read_boxes(value, 1, limits.people),
        ),
        Field(
            "occluded", "regions that are not to be looked at", boxes | {"maxItems": limits.regions},
            lambda value: _read_boxes(value, 0, limits.regions),
        ),
        Field(
            "pin", "joints that are known, x, y, z in mm from the pelvis; for one person",
            {"type": "object", "propertyNames": {"enum": list(H36M_17.joints)},
             "additionalProperties": _numbers(3, REACH_MM)},
            _read_pins,
        ),
        Field(
            "keep_tokens", "tokens that are to stay, position to code; for one person",
            {"type": "object", "propertyNames": {"pattern": "^[0-9]{1,6}$"},
             "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}}, _read_tokens,
        ),
    ]  # fmt: skip
    lab = [
        Field("patch", "side of the patch over the picture's shorter side", *_number(*limits.patches)),
        Field("grid", "placements a side", *_whole(2, limits.grid)),
        Field("at", "one patch, x0, y0, x1, y1: the answer is predict's", box, _read_box),
    ]
    return {field.name: field for field in (*shared, *lab)}


SHARED = (
    "hypotheses", "steps", "seed", "max_people", "min_score", "height_m", "field_of_view", "second_look", "boxes",
    "occluded", "pin", "keep_tokens",
)  # fmt: skip
REVEAL = tuple(name for name in SHARED if name not in ("pin", "keep_tokens"))
LAB = (*SHARED, "patch", "grid", "at")


def read_fields(given: Mapping[str, Any], known: Mapping[str, Field], video: bool = False) -> dict[str, Any]:
    """JSON values -> options of a call; a Refusal says which field is wrong."""
    options = {}
    for name, value in given.items():
        field = known.get(name)
        if field is None:
            raise Refusal(400, f"no field '{name[:40]}': a request has {', '.join((PICTURE, *known))}")
        if video and not field.of_videos:
            takes = ", ".join(other.name for other in known.values() if other.of_videos)
            raise Refusal(400, f"'{name}' is for photos; a video takes {takes}")
        try:
            options[name] = field.read(value)
        except ValueError as error:
            meaning = field.text.partition(";")[0]
            raise Refusal(400, f"'{name}' ({meaning}) {error}, got {reprlib.repr(value)}") from error
    boxes = options.get("boxes")
    if boxes is not None and len(boxes) > 1 and (options.get("pin") or options.get("keep_tokens")):
        raise Refusal(400, f"'pin' and 'keep_tokens' are for one person: give one box in 'boxes', got {len(boxes)}")
    return options


def _whole(low: int, high: int) -> tuple[Schema, Callable[[Any], int]]:
    def read(value: Any) -> int:
        if not _is_whole(value) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return {"type": "integer", "minimum": low, "maximum": high}, read


def _number(low: float, high: float) -> tuple[Schema, Callable[[Any], float]]:
    def read(value: Any) -> float:
        if not _finite(value) or not low <= value <= high:
            raise ValueError(f"must be a number from {low:g} to {high:g}")
        return float(value)

    return {"type": "number", "minimum": low, "maximum": high}, read


def _or_null(field: tuple[Schema, Callable[[Any], Any]]) -> tuple[Schema, Callable[[Any], Any]]:
    schema, read = field
    return schema | {"type": [schema["type"], "null"]}, lambda value: None if value is None else read(value)


def _finite(value: Any) -> bool:
    """Whether it is a number that a double can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _is_whole(value: Any) -> bool:
    """2 and, as JSON Schema has it, 2.0."""
    return _finite(value) and value == int(value)


def _numbers(count: int, most: float) -> Schema:
    """A list of so many numbers from -most to most."""
    items = {"type": "number", "minimum": -most, "maximum": most}
    return {"type": "array", "items": items, "minItems": count, "maxItems": count}


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _read_box(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 4 or not all(map(_finite, value)):
        raise ValueError("must be four numbers x0, y0, x1, y1 in pixels")
    if not (value[0] < value[2] and value[1] < value[3]):
        raise ValueError("needs x0 < x1 and y0 < y1 (left, top, right, bottom)")
    if min(value[2] - value[0], value[3] - value[1]) < 1:
        raise ValueError("must be a pixel wide and high at least")
    if max(map(abs, value)) > MOST_PX:
        raise ValueError("must lie in the picture")
    return tuple(float(each) for each in value)


def _read_boxes(value: Any, least: int, most: int) -> list[tuple[float, ...]]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ValueError(f"must be a list of {least} to {most} boxes [x0, y0, x1, y1]")
    return [_read_box(box) for box in value]


def _read_pins(value: Any) -> dict[str, tuple[float, ...]]:
    if not isinstance(value, dict):
        raise ValueError('must be an object like {"left_wrist": [x, y, z]}')
    if wrong := [name for name in value if name not in H36M_17.joints]:
        raise ValueError(f"knows no joint '{wrong[0][:40]}', but {', '.join(H36M_17.joints)}")
    for name, point in value.items():
        if not isinstance(point, list) or len(point) != 3 or not all(map(_finite, point)):
            wanted = "three finite numbers x, y, z in mm from the pelvis"
        elif math.hypot(*point) > REACH_MM:
            wanted = f"within {REACH_MM:g} mm of the pelvis, as far as a body reaches"
        else:
            continue
        raise Refusal(400, f"the pin '{name}' must be {wanted}, got {reprlib.repr(point)}")
    return {name: tuple(map(float, point)) for name, point in value.items()}


def _read_tokens(value: Any) -> dict[int, int]:
    wanted = 'must be an object of positions and codes like {"3": 17}'
    if not isinstance(value, dict) or len(value) > 10_000:
        raise ValueError(wanted)
    codes = {}
    for position, code in value.items():
        if not (position.isascii() and position.isdecimal() and len(position) <= 6):
            raise ValueError(wanted)
        if not _is_whole(code) or not 0 <= code < 2**31:
            raise ValueError(wanted)
        codes[int(position)] = int(code)
    return codes
