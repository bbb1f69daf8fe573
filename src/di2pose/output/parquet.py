"""Parquet: a row for each picture, person and joint, with the columns of `to_pandas`. Described in docs/guide.md.

The file's metadata says how its rows were made.
"""

import io
import json

from di2pose.errors import require
from di2pose.output.tables import about, joint_records
from di2pose.result import Files, Result

TEXT, WHOLE = ("image", "joint", "state"), ("frame", "person")
"""Columns of words and of whole numbers; all others hold floats of 64 bits, null where a number is not known."""


def as_parquet(name: str, results: list[Result], fps: float | None) -> Files:
    """One photo or one video."""
    parquet, arrow = require("pyarrow.parquet", extra="parquet"), require("pyarrow", extra="parquet")
    names, rows = joint_records(results, fps)
    kinds = {name: arrow.string() for name in TEXT} | {name: arrow.int64() for name in WHOLE}
    schema = arrow.schema([(name, kinds.get(name, arrow.float64())) for name in names])
    arrays = []
    for column, field in zip(list(zip(*rows, strict=True)) or [()] * len(names), schema, strict=True):
        if field.name in TEXT:  # bytes of a file name that are not UTF-8 are escaped as in JSON
            column = tuple(text.encode(errors="backslashreplace").decode() for text in map(str, column))
        arrays.append(arrow.array(column, field.type, from_pandas=True))  # NaN becomes null
    notes = json.dumps(about(results[0], fps)).encode()
    table = arrow.Table.from_arrays(arrays, schema=schema.with_metadata({b"di2pose": notes}))
    file = io.BytesIO()
    parquet.write_table(table, file)
    return {name: file.getvalue()}
