"""What a run tells: metrics.jsonl as it goes, metrics.csv and a plot of it, a progress bar, TensorBoard if asked."""

import csv
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from di2pose.errors import require
from di2pose.files import replacing, write_text

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
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


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
    box = (LEFT, top + TOP, WIDTH - RIGHT, top + HEIGHT - BOTTOM)
    pen.text((LEFT, top + 10), title, "black", font)
    if lines:
        last = max(x for line in lines.values() for x, _ in line)
        heights = [math.log10(y) for line in lines.values() for _, y in line]
        low, high = min(heights), max(heights)
        low, high = low - 0.05 * (high - low) - 0.01, high + 0.05 * (high - low) + 0.01

        def place(point: Point) -> Point:
            x = box[0] + (box[2] - box[0]) * point[0] / last
            return x, box[3] - (box[3] - box[1]) * (math.log10(point[1]) - low) / (high - low)

        _grid(pen, box, last, 10**low, 10**high, place, font)
        for number, (name, line) in enumerate(lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            places = [place(point) for point in line]
            pen.line(places, fill=colour, width=2)
            if len(places) < 40:
                for x, y in places:
                    pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=colour)
            pen.text((box[2] + 10, box[1] + 20 * number), name.replace("_", " "), colour, font)
    pen.rectangle(box, outline="black")


def _grid(
    pen: ImageDraw.ImageDraw,
    box: tuple[int, int, int, int],
    last: float,
    low: float,
    high: float,
    place: Callable[[Point], Point],
    font: "ImageFont.FreeTypeFont | ImageFont.ImageFont",
) -> None:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > 30
    marks = [m * 10.0**d for d in decades for m in ((1, 3) if wide else (1, 1.5, 2, 3, 4, 5, 6, 8))]
    for y in (mark for mark in marks if low <= mark <= high):
        height = place((0, y))[1]
        pen.line((box[0], height, box[2], height), fill=(225, 225, 225))
        pen.text((box[0] - 8, height), f"{y:g}", "black", font, anchor="rm")
    for k in range(5):
        x = last * k / 4
        pen.text((place((x, low))[0], box[3] + 6), f"{x:.0f}", "black", font, anchor="mt")
