"""The log of a run: metrics.jsonl, metrics.csv, a progress bar."""

import csv
import json
import sys
from pathlib import Path

from tqdm import tqdm

from di2pose.files import reading, replacing, write_text

Row = dict[str, float]


class Log:
    """Rows of numbers, one per line. A run that goes on drops what was logged after its checkpoint."""

    def __init__(self, folder: Path, iteration: int) -> None:
        self.folder, self.path = folder, folder / "metrics.jsonl"
        kept = [row for row in read_rows(self.path) if row["iteration"] <= iteration] if iteration else []
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def write(self, row: Row) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self) -> None:
        """metrics.csv of all rows."""
        rows = read_rows(self.path)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with (
            replacing(self.folder / "metrics.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)


def read_rows(path: Path) -> list[Row]:
    """The rows of a metrics.jsonl. A last line that a killed process left half written is not one."""
    if not path.is_file():
        return []
    with reading(path, "delete it; the run goes on without what was logged before"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        if not all(isinstance(row["iteration"], int) and {*map(type, row.values())} <= {int, float} for row in rows):
            raise ValueError("every line must hold numbers, and the iteration")
    return rows


def progress_bar(name: str, done: int, total: int, shown: bool) -> tqdm:
    """Seldom redrawn where it goes to a file."""
    interval = 0.5 if sys.stderr.isatty() else 60.0
    return tqdm(
        desc=name, initial=done, total=total, disable=not shown, mininterval=interval, dynamic_ncols=True, unit="it"
    )
