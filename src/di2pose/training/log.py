"""What a run tells: metrics.jsonl as it goes, metrics.csv and a plot of it, a progress bar, TensorBoard if asked."""

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from di2pose.errors import require
from di2pose.training.plot import plot

Row = dict[str, float]


class Log:
    """Rows of numbers, one per line. A run that goes on drops what was logged after its checkpoint."""

    def __init__(self, folder: Path, iteration: int, tensorboard: bool) -> None:
        self.folder, self.path = folder, folder / "metrics.jsonl"
        kept = [row for row in read_rows(self.path) if row["iteration"] <= iteration] if iteration else []
        _replace(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self._board: Any = None
        if tensorboard:
            require("tensorboard", extra="tensorboard")
            self._board = require("torch.utils.tensorboard", extra="tensorboard").SummaryWriter(
                str(folder / "tensorboard"), purge_step=iteration
            )

    def write(self, row: Row) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._board is not None:
            for name, value in row.items():
                self._board.add_scalar(name, value, int(row["iteration"]))

    def finish(self) -> None:
        """metrics.csv and plot.png of all rows."""
        rows = read_rows(self.path)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        temporary = self.folder / ".metrics.csv.tmp"
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, self.folder / "metrics.csv")
        temporary = self.folder / ".plot.tmp.png"
        plot(rows).save(temporary)
        os.replace(temporary, self.folder / "plot.png")
        if self._board is not None:
            self._board.close()


def read_rows(path: Path) -> list[Row]:
    """The rows of a metrics.jsonl. A last line that a killed process left half written is not one."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


def progress_bar(name: str, done: int, total: int, shown: bool) -> "tqdm[Any]":
    """Seldom redrawn where it goes to a file."""
    interval = 0.5 if sys.stderr.isatty() else 60.0
    return tqdm(
        desc=name, initial=done, total=total, disable=not shown, mininterval=interval, dynamic_ncols=True, unit="it"
    )


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
