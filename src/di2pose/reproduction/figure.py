"""A plot for each table: the error of every cell, a panel for each set of test data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from PIL import Image, ImageDraw, ImageFont

from di2pose.reproduction.results import ESTIMATORS, MEAN, RECONSTRUCTION, SAMPLE, TOKENIZER, Results

COLOURS = ((0, 114, 178), (230, 159, 0), (0, 158, 115), (213, 94, 0), (204, 121, 167), (86, 180, 233))
"""Okabe and Ito's, which also people see apart who see few colours."""
INK, GREY, GRID, STRIPE = (40, 40, 40), (110, 110, 110), (222, 222, 222), (247, 247, 247)
WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW, TALL = 620, 150, 24, 74, 40, 30, 240
SCALE = 3
"""Drawn so many times larger, then made small: smooth edges."""
Points = dict[str, list[float]]
"""Place -> a value for each seed."""


@dataclass(frozen=True)
class Panel:
    """One set of axes: series of places, in the order of `places`."""

    title: str
    places: Sequence[str]
    series: dict[str, Points]
    lines: bool
    """Places along x, joined; else a row for each place, values along x."""

    @property
    def height(self) -> int:
        return TOP + BOTTOM + (TALL if self.lines else ROW * len(self.places))


def draw(results: Results) -> Image.Image:
    """A dot for each seed and a larger one for their mean; two panels a row."""
    panels = [panel for pair in results.sets() if (panel := _panel(results, *pair)).series]
    across = min(2, max(1, len(panels)))
    rows = [panels[k : k + across] for k in range(0, len(panels), across)]
    heights = [max(panel.height for panel in row) for row in rows]
    picture = Image.new("RGB", (SCALE * WIDTH * across, SCALE * (44 + sum(heights))), "white")
    pen = Pen(picture)
    pen.text((16, 12), results.content["title"], INK, 18)
    top = 44
    for row, height in zip(rows, heights, strict=True):
        for k, panel in enumerate(row):
            pen.panel(k * WIDTH, top, panel)
        top += height
    return picture.resize((picture.width // SCALE, picture.height // SCALE), Image.Resampling.LANCZOS)


def _panel(results: Results, data: str, protocol: str) -> Panel:
    cells, joined = results.content["cells"], any(cell["line"] for cell in results.content["cells"])
    what = "lost through tokens" if protocol == TOKENIZER else protocol
    series: dict[str, Points] = {}
    shown = [each for each in ESTIMATORS if each.judged or each.name.startswith("encoder")]
    if joined:  # one estimator for all lines
        shown = [each for each in (MEAN, RECONSTRUCTION, SAMPLE) if results.counts(data, protocol, each)][:1]
        what += f", {shown[0].name.format(results.counts(data, protocol, shown[0])[-1])}" if shown else ""
    for estimator in shown:
        counts = results.counts(data, protocol, estimator)
        for cell in cells:
            values = list(results.values(cell["name"], data, protocol, estimator).values())
            name = cell["line"] if joined else estimator.name.format(counts[-1] if counts else "")
            if values:
                series.setdefault(name, {})[cell["x"]] = values
    places = [x for x in dict.fromkeys(cell["x"] for cell in cells) if any(x in points for points in series.values())]
    return Panel(f"{data}: {what}", places, series, joined)


class Pen:
    """Draws in the units of the finished picture."""

    def __init__(self, picture: Image.Image) -> None:
        self.draw = ImageDraw.Draw(picture, "RGBA")

    def text(self, at: tuple[float, float], text: str, colour: tuple[int, ...], size: int, anchor: str = "la") -> float:
        font = ImageFont.load_default(SCALE * size)
        self.draw.text((SCALE * at[0], SCALE * at[1]), text, colour, font, anchor=anchor)
        return self.draw.textlength(text, font) / SCALE

    def line(self, points: Sequence[tuple[float, float]], colour: tuple[int, ...], width: float) -> None:
        self.draw.line([(SCALE * x, SCALE * y) for x, y in points], colour, round(SCALE * width), "curve")

    def dot(self, x: float, y: float, radius: float, colour: tuple[int, ...]) -> None:
        self.draw.ellipse(
            [SCALE * (x - radius), SCALE * (y - radius), SCALE * (x + radius), SCALE * (y + radius)], colour
        )

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: tuple[int, ...]) -> None:
        self.draw.rectangle((SCALE * x0, SCALE * y0, SCALE * x1, SCALE * y1), colour)

    def panel(self, x0: int, y0: int, panel: Panel) -> None:
        left, right, top = x0 + (70 if panel.lines else LEFT), x0 + WIDTH - RIGHT, y0 + TOP
        bottom = y0 + panel.height - BOTTOM
        self.text((x0 + 16, y0 + 6), f"{panel.title}, mm", INK, 14)
        x = float(x0 + 16)
        for number, name in enumerate(panel.series):
            colour = COLOURS[number % len(COLOURS)]
            self.dot(x + 6, y0 + 42, 5, colour)
            x += 18 + self.text((x + 16, y0 + 42), name, INK, 12, "lm") + 16
        marks = _marks([value for points in panel.series.values() for values in points.values() for value in values])
        low, high = marks[0], marks[-1]
        size = len(panel.places)
        for k in range(0 if panel.lines else size):
            if k % 2 == 0:
                self.box(x0 + 8, top + ROW * k, right, top + ROW * (k + 1), STRIPE)
        for mark in marks:
            share = (mark - low) / (high - low)
            if panel.lines:
                y = bottom - (bottom - top) * share
                self.line([(left, y), (right, y)], GRID, 1)
                self.text((left - 8, y), f"{mark:g}", GREY, 12, "rm")
            else:
                x = left + (right - left) * share
                self.line([(x, top), (x, bottom)], GRID, 1)
                self.text((x, bottom + 8), f"{mark:g}", GREY, 12, "ma")
        for k, name in enumerate(panel.places):
            if panel.lines:
                self.text((left + (right - left) * (k + 0.5) / size, bottom + 8), name, INK, 12, "ma")
            else:
                self.text((left - 10, top + ROW * (k + 0.5)), name, INK, 12, "rm")
        for number, points in enumerate(panel.series.values()):
            colour, means = COLOURS[number % len(COLOURS)], []
            aside = 4.0 * (number - (len(panel.series) - 1) / 2)
            for k, values in ((k, points[name]) for k, name in enumerate(panel.places) if name in points):
                across = [(value - low) / (high - low) for value in values]
                mean, deviation = fmean(across), stdev(across) if len(across) > 1 else 0.0

                def place(share: float, k: int = k, aside: float = aside) -> tuple[float, float]:
                    if panel.lines:
                        return left + (right - left) * (k + 0.5) / size + aside, bottom - (bottom - top) * share
                    return left + (right - left) * share, top + ROW * (k + 0.5) + aside

                self.line([place(mean - deviation), place(mean + deviation)], (*colour, 150), 2)
                for share in across:
                    self.dot(*place(share), 2.5, (*colour, 110))
                means.append(place(mean))
            if panel.lines and len(means) > 1:
                self.line(means, colour, 2)
            for at in means:
                self.dot(*at, 5, colour)


def _marks(values: Sequence[float]) -> list[float]:
    """Round numbers around all values, four to eight of them."""
    low, high = min(values), max(values)
    room = max(high - low, 0.02 * abs(high), 1e-6)
    power = 10.0 ** math.floor(math.log10(room / 4))
    step = next(power * k for k in (1, 2, 5, 10) if room / (power * k) <= 6)
    return [step * k for k in range(math.floor(low / step), math.ceil(high / step) + 1 + (low == high))]
