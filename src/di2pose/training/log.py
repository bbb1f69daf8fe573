"""The log of a run: metrics.jsonl, metrics.csv, plot.png, a progress bar, and TensorBoard files on request."""

import csv
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from di2pose.errors import require
from di2pose.files import reading, replacing, write_text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 330, 80, 150, 34, 40
COLOURS = ((31, 119, 180), (214, 39, 40), (44, 160, 44), (148, 103, 189), (255, 127, 14), (23, 190, 207))
LOSSES = ("loss", "vlb", "aux", "pose", "held_out_loss")
Row = dict[str, float]
Point = tuple[float, float]


class Log:
    """Rows of numbers, one per line. A run that goes on drops what was logged after its checkpoint."""

    def __init__(self, folder: Path, iteration: int, tensorboard: bool) -> None:
        self.folder, self.path = folder, folder / "metrics.jsonl"
        kept = [row for row in read_rows(self.path) if row["iteration"] <= iteration] if iteration else []
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
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
        with (
            replacing(self.folder / "metrics.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        with replacing(self.folder / "plot.png") as temporary:
            plot(rows).save(temporary)
        if self._board is not None:
            self._board.close()


def read_rows(path: Path) -> list[Row]:
    """The rows of a metrics.jsonl. A last line that a killed process left half written is not one."""
    if not path.is_file():
        return []
    with reading(path, "delete it; the run goes on without what was logged before"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        if not all(isinstance(row["iteration"], int) and all(map(_is_number, row.values())) for row in rows):
            raise ValueError("every line must hold numbers, and the iteration")
    return rows


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def progress_bar(name: str, done: int, total: int, shown: bool) -> tqdm:
    """Seldom redrawn where it goes to a file."""
    interval = 0.5 if sys.stderr.isatty() else 60.0
    return tqdm(
        desc=name, initial=done, total=total, disable=not shown, mininterval=interval, dynamic_ncols=True, unit="it"
    )


def plot(rows: Sequence[Row]) -> Image.Image:
    """Two panels over the iterations, loss above, millimetres below, with logarithmic heights; empty where nothing was
    logged."""
    errors = list(dict.fromkeys(name for row in rows for name in row if name.endswith("mm")))
    picture = Image.new("RGB", (WIDTH, 2 * HEIGHT), "white")
    for place, (title, names) in enumerate([("loss", LOSSES), ("error, mm", errors)]):
        lines = {name: [(row["iteration"], row[name]) for row in rows if row.get(name, 0) > 0] for name in names}
        _panel(ImageDraw.Draw(picture), place * HEIGHT, title, {name: line for name, line in lines.items() if line})
    return picture


def _panel(pen: ImageDraw.ImageDraw, top: int, title: str, lines: dict[str, list[Point]]) -> None:
    font = ImageFont.load_default(15)
    left, right, top, bottom = LEFT, WIDTH - RIGHT, top + TOP, top + HEIGHT - BOTTOM
    pen.text((left, top - 24), title, "black", font)
    if lines:
        last = max(x for line in lines.values() for x, _ in line)
        heights = [math.log10(y) for line in lines.values() for _, y in line]
        margin = 0.05 * (max(heights) - min(heights)) + 0.01
        low, high = min(heights) - margin, max(heights) + margin

        def place(x: float, y: float) -> Point:
            return left + (right - left) * x / last, bottom - (bottom - top) * (math.log10(y) - low) / (high - low)

        steps = (1, 3) if high - low > 1.5 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        for mark in (m * 10.0**d for d in range(math.floor(low), math.ceil(high) + 1) for m in steps):
            if low <= math.log10(mark) <= high:
                height = place(0, mark)[1]
                pen.line((left, height, right, height), fill=(225, 225, 225))
                pen.text((left - 8, height), f"{mark:g}", "black", font, anchor="rm")
        for k in range(5):
            pen.text((left + (right - left) * k / 4, bottom + 6), f"{last * k / 4:.0f}", "black", font, anchor="mt")
        for number, (name, line) in enumerate(lines.items()):
            colour, places = COLOURS[number % len(COLOURS)], [place(*point) for point in line]
            pen.line(places, fill=colour, width=2)
            for x, y in places if len(places) < 40 else ():
                pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=colour)
            pen.text((right + 10, top + 20 * number), name.replace("_", " "), colour, font)
    pen.rectangle((left, top, right, bottom), outline="black")
