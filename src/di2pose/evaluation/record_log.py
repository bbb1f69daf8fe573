"""What was measured on each record, kept as it is measured.

One JSON line per record, appended to `<way>.rank<k>.jsonl`. A line counts when it ends in a newline: a run that was
killed in the middle of one loses that record only, which is then computed again. Any number of ranks may go on with
what any other number began.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NotRequired, TypedDict

from di2pose.errors import InputError
from di2pose.evaluation.ensemble import EnsembleResult


class RecordResult(TypedDict, total=False):
    """What one protocol measured on one record, with K joints; or why it was left out."""

    skipped: str
    values: dict[str, list[float | None]]
    """'H/estimate/metric' -> one number for each sampling seed, or a single one where nothing is drawn."""
    pose: list[list[float]]
    """The mean of the hypotheses, at the protocol's root, mm."""
    patch: list[float]
    groups: dict[str, int]
    """How many joints count as seen, hidden, ...; left out, as the next two, where nobody knows."""
    visibility: list[int]
    said: list[int]
    """What the model says of the joints: places in STATES."""
    error_mm: list[list[float | None]]
    """Of the mean pose, for each seed and joint; and the spread of the hypotheses."""
    spread_mm: list[list[float]]
    ensembles: dict[str, EnsembleResult]
    """Number of hypotheses, where it is above 1 -> what they are worth."""
    worst_placement: dict[str, int]
    worst_placements: dict[str, list[int]]
    """By MPJPE, by PA-MPJPE, and by MPJPE over that of the clean picture."""
    placement_errors_mm: list[float | None]


class RecordLine(TypedDict):
    """One record: its results by protocol, or why it was left out."""

    row: int
    id: str
    skipped: NotRequired[str]
    results: NotRequired[dict[str, RecordResult]]


class RecordLog:
    """The lines of one way, of which this process writes its own rank's file."""

    def __init__(self, folder: Path, name: str, rank: int) -> None:
        self.folder, self.name = folder, name
        self.own = folder / f"{name}.rank{rank:04d}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if self.own.exists():
            with self.own.open("r+b") as file:  # a torn last line goes
                file.truncate(file.read().rfind(b"\n") + 1)

    def append(self, lines: Iterable[RecordLine]) -> None:
        text = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
        with self.own.open("a", encoding="utf-8") as file:
            file.write(text)

    def read(self) -> dict[int, RecordLine]:
        """Dataset row -> line, over the files of all ranks."""
        found: dict[int, RecordLine] = {}
        for path in sorted(self.folder.glob(f"{self.name}.rank*.jsonl")):
            for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
                try:
                    record: RecordLine = json.loads(line)
                    found.setdefault(int(record["row"]), record)
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{path}, line {number} is damaged: delete the file and run again") from error
        return found
