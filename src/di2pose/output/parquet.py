"""Parquet: a row for each picture, person and joint, the columns of `to_pandas`. Described in docs/many.md.

A file's own metadata says how its rows were made and which pictures it is about: a picture in which nobody was found
has no rows, and is known all the same.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from di2pose.errors import InputError, require
from di2pose.files import Json, write_bytes
from di2pose.output.tables import (
    AXES,
    FORMAT,
    FORMAT_VERSION,
    JOINT_COLUMNS,
    PERSON_COLUMNS,
    UNITS,
    Cell,
    joint_records,
)
from di2pose.result import Files, Result

KEY = b"di2pose"
"""Of the JSON in a file's metadata."""
TEXT, WHOLE = ("image", "joint", "state"), ("frame", "person")
"""Columns of words and of whole numbers; all others hold floats of 64 bits, null where a number is not known."""


def as_parquet(name: str, results: list[Result], fps: float | None) -> Files:
    """One photo or one video."""
    return {name: row_bytes(joint_records(results, fps)[1], about(results[0], fps))}


def about(first: Result, fps: float | None = None) -> Json:
    """How rows were made, from any result of the run."""
    run = {"seed": first.seed, "steps": first.steps, "hypotheses": first.hypotheses}
    made = {"model": {"name": first.model, "version": first.version}, **run, "fps": fps}
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "units": UNITS, "axes": AXES, **made}


def write_rows(path: Path, rows: Sequence[Sequence[Cell]], notes: Json) -> Path:
    """A whole file of `row_bytes`."""
    return write_bytes(path, row_bytes(rows, notes))


def row_bytes(rows: Sequence[Sequence[Cell]], notes: Json) -> bytes:
    """Rows of `joint_records`, of one picture or of many, and notes for the file's metadata."""
    parquet = require("pyarrow.parquet", extra="parquet")
    arrow = require("pyarrow", extra="parquet")
    schema = _schema(arrow)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        if field.name in TEXT:  # bytes of a file name that are no UTF-8 are escaped as in JSON
            column = tuple(text.encode(errors="backslashreplace").decode() for text in map(str, column))
        arrays.append(arrow.array(column, field.type, from_pandas=True))  # NaN becomes null
    table = arrow.Table.from_arrays(arrays, schema=schema.with_metadata({KEY: json.dumps(notes).encode()}))
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def read_notes(path: Path) -> Json:
    """What `write_rows` was told about the rows; their own bytes are not read."""
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        with path.open("rb") as file:
            return dict(json.loads(parquet.read_schema(file).metadata[KEY]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a Parquet file of this program: remove it, or give another folder") from error


def _schema(arrow: Any) -> Any:
    kinds = {name: arrow.string() for name in TEXT} | {name: arrow.int64() for name in WHOLE}
    names = (*PERSON_COLUMNS, "joint", *JOINT_COLUMNS)
    return arrow.schema([(name, kinds.get(name, arrow.float64())) for name in names])
