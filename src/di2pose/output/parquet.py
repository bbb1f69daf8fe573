"""Parquet: a row for each picture, person and joint, with the columns of `to_pandas`. Described in docs/guide.md.

The file's metadata says how its rows were made and which pictures they are from: a picture without people has no rows.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path

from di2pose.errors import InputError, require
from di2pose.files import Json, write_bytes
from di2pose.output.tables import JOINT_COLUMNS, PERSON_COLUMNS, Cell, about, joint_records
from di2pose.result import Files, Result

KEY = b"di2pose"
"""Of the JSON in a file's metadata."""
TEXT, WHOLE = ("image", "joint", "state"), ("frame", "person")
"""Columns of words and of whole numbers; all others hold floats of 64 bits, null where a number is not known."""


def as_parquet(name: str, results: list[Result], fps: float | None) -> Files:
    """One photo or one video."""
    return {name: row_bytes(joint_records(results, fps)[1], about(results[0], fps))}


def write_rows(path: Path, rows: Sequence[Sequence[Cell]], notes: Json) -> Path:
    """A whole file of `row_bytes`."""
    return write_bytes(path, row_bytes(rows, notes))


def row_bytes(rows: Sequence[Sequence[Cell]], notes: Json) -> bytes:
    """Rows of `joint_records`, of one picture or of many, and notes for the file's metadata."""
    parquet, arrow = require("pyarrow.parquet", extra="parquet"), require("pyarrow", extra="parquet")
    kinds = {name: arrow.string() for name in TEXT} | {name: arrow.int64() for name in WHOLE}
    names = (*PERSON_COLUMNS, "joint", *JOINT_COLUMNS)
    schema = arrow.schema([(name, kinds.get(name, arrow.float64())) for name in names])
    arrays = []
    for column, field in zip(list(zip(*rows, strict=True)) or [()] * len(names), schema, strict=True):
        if field.name in TEXT:  # bytes of a file name that are not UTF-8 are escaped as in JSON
            column = tuple(text.encode(errors="backslashreplace").decode() for text in map(str, column))
        arrays.append(arrow.array(column, field.type, from_pandas=True))  # NaN becomes null
    table = arrow.Table.from_arrays(arrays, schema=schema.with_metadata({KEY: json.dumps(notes).encode()}))
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def read_notes(path: Path) -> Json:
    """The notes of `write_rows`; the rows are not read."""
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        with path.open("rb") as file:
            return dict(json.loads(parquet.read_schema(file).metadata[KEY]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a Parquet file of this program: remove it, or give another folder") from error
