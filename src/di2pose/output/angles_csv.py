"""Joint angles as a table, `NAME.angles.csv`: over time for a video. The columns are described in docs/angles.md."""

import csv
import io
from collections.abc import Iterator

from di2pose.files import encoded
from di2pose.output.angles import angles_json
from di2pose.output.tables import moment
from di2pose.pose.angles import DIFFERENCES, NAMES
from di2pose.result import Files, Result, numbered

PARTS = ("deg", "low_deg", "high_deg", "state")
"""Columns of each angle, in the order of the fields of `Angle`."""


def as_angles(name: str, results: list[Result], fps: float | None) -> Files:
    """One row for each frame and person; an empty cell where an angle is open."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    columns = [f"{name}_{part}" for name in NAMES + DIFFERENCES for part in PARTS]
    table.writerow(["image", "frame", "time_s", "person", *columns])
    table.writerows(_rows(results, fps))
    return {name: encoded(text.getvalue())}


def _rows(results: list[Result], fps: float | None) -> Iterator[list[object]]:
    for k, result in enumerate(results):
        frame, time_s = moment(results, fps, k)
        for number, person in numbered(result.people):
            cells = [cell for angle in angles_json(person).values() for cell in angle.values()]
            yield [result.image or "", frame, round(time_s, 6), number, *("" if c is None else c for c in cells)]
