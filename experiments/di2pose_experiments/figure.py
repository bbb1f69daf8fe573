"""A plot for each table: the error of every cell, a panel for each set of test data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from PIL import Image, ImageDraw, ImageFont

from di2pose_experiments.results import ESTIMATORS, MEAN, RECONSTRUCTION, SAMPLE, TOKENIZER, Results

COLOURS = ((0, 114, 178), (230, 159, 0), (0, 158, 115), (213, 94, 0), (204, 121, 167), (86, 180, 233))
"""Okabe and Ito's, distinct for colour-blind readers, too."""
INK, GREY, GRID, STRIPE = (40, 40, 40), (110, 110, 110), (222, 222, 222), (247, 247, 247)
SCALE = 3
"""Drawn so many times larger, then made small: smooth edges."""
WIDTH, RIGHT, TOP, BOTTOM, ROW, TALL, TITLE = (SCALE * size for size in (620, 24, 74, 40, 30, 240, 44))
DOT = 5 * SCALE
SMALL, LARGE, LARGEST = (ImageFont.load_default(SCALE * size) for size in (12, 14, 18))
Points = dict[str, list[float]]
"""Place -> a value for each seed."""


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    places: Sequence[str]
    series: dict[str, Points]
    joined: bool
    """Places along x, joined by lines; else a row for each place, values along x."""

    @property
    def height(self) -> int:
        return TOP + BOTTOM + (TALL if self.joined else ROW * len(self.places))


def draw(results: Results) -> Image.Image:
    """A dot for each seed and a larger one for their mean; two panels a row."""
    panels = [panel for pair in results.sets() if (panel := _panel(results, *pair)).series]
    across = min(2, max(1, len(panels)))
    rows = [panels[k : k + across] for k in range(0, len(panels), across)]
    heights = [max(panel.height for panel in row) for row in rows]
    picture = Image.new("RGB", (WIDTH * across, TITLE + sum(heights)), "white")
    pen = ImageDraw.Draw(picture, "RGBA")
    pen.text((16 * SCALE, 12 * SCALE), results.content["title"], INK, LARGEST)
    for number, row in enumerate(rows):
        for k, panel in enumerate(row):
            _draw(pen, k * WIDTH, TITLE + sum(heights[:number]), panel)
    return picture.resize((picture.width // SCALE, picture.height // SCALE), Image.Resampling.LANCZOS)


def _panel(results: Results, data: str, protocol: str) -> Panel:
    cells, joined = results.content["cells"], any(cell["line"] for cell in results.content["cells"])
    what = "lost through tokens" if protocol == TOKENIZER else protocol
    shown = [each for each in ESTIMATORS if each.judged or each.name.startswith("encoder")]
    if joined:  # one estimator for all lines
        shown = [each for each in (MEAN, RECONSTRUCTION, SAMPLE) if results.counts(data, protocol, each)][:1]
        what += "".join(f", {each.name.format(results.counts(data, protocol, each)[-1])}" for each in shown)
    series: dict[str, Points] = {}
    for estimator in shown:
        name = estimator.name.format(max(results.counts(data, protocol, estimator), default=0))
        for cell in cells:
            if values := results.values(cell["name"], data, protocol, estimator):
                series.setdefault(cell["line"] if joined else name, {})[cell["x"]] = list(values.values())
    places = [x for x in dict.fromkeys(cell["x"] for cell in cells) if any(x in points for points in series.values())]
    return Panel(f"{data}: {what}, mm", places, series, joined)


def _draw(pen: ImageDraw.ImageDraw, x0: int, y0: int, panel: Panel) -> None:
    joined, size = panel.joined, len(panel.places)
    left, right = x0 + SCALE * (70 if joined else 150), x0 + WIDTH - RIGHT
    top, bottom = y0 + TOP, y0 + panel.height - BOTTOM
    marks = _marks([value for points in panel.series.values() for values in points.values() for value in values])

    def place(value: float, position: float, aside: float = 0) -> tuple[float, float]:
        """Of a value, and of a position from 0 to 1 along the other axis."""
        share = (value - marks[0]) / (marks[-1] - marks[0])
        if joined:
            return left + (right - left) * position + aside, bottom - (bottom - top) * share
        return left + (right - left) * share, top + (bottom - top) * position + aside

    pen.text((x0 + 16 * SCALE, y0 + 6 * SCALE), panel.title, INK, LARGE)
    for k in range(0, 0 if joined else size, 2):
        pen.rectangle((x0 + 8 * SCALE, top + ROW * k, right, top + ROW * (k + 1)), STRIPE)
    for mark in marks:
        pen.line([place(mark, 0), place(mark, 1)], GRID, SCALE)
        x, y = place(mark, 0 if joined else 1)
        offset = (-8 * SCALE, 0) if joined else (0, 8 * SCALE)
        pen.text((x + offset[0], y + offset[1]), f"{mark:g}", GREY, SMALL, anchor="rm" if joined else "ma")
    for k, name in enumerate(panel.places):
        x, y = place(marks[0], (k + 0.5) / size)
        offset = (0, 8 * SCALE) if joined else (-10 * SCALE, 0)
        pen.text((x + offset[0], y + offset[1]), name, INK, SMALL, anchor="ma" if joined else "rm")
    legend = x0 + 16.0 * SCALE
    for number, (name, points) in enumerate(panel.series.items()):
        colour, aside = COLOURS[number % len(COLOURS)], 4 * SCALE * (number - (len(panel.series) - 1) / 2)
        _dot(pen, (legend + DOT, y0 + 42 * SCALE), DOT, colour)
        pen.text((legend + 16 * SCALE, y0 + 42 * SCALE), name, INK, SMALL, anchor="lm")
        legend += 34 * SCALE + pen.textlength(name, SMALL)
        means = []
        for k, values in ((k, points[x]) for k, x in enumerate(panel.places) if x in points):
            mean, deviation, position = fmean(values), stdev(values) if len(values) > 1 else 0.0, (k + 0.5) / size
            ends = [place(mean + sign * deviation, position, aside) for sign in (-1, 1)]
            pen.line(ends, (*colour, 150), 2 * SCALE)
            for value in values:
                _dot(pen, place(value, position, aside), DOT / 2, (*colour, 110))
            means.append(place(mean, position, aside))
        if joined and len(means) > 1:
            pen.line(means, colour, 2 * SCALE, "curve")
        for at in means:
            _dot(pen, at, DOT, colour)


def _dot(pen: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, colour: tuple[int, ...]) -> None:
    pen.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), colour)


def _marks(values: Sequence[float]) -> list[float]:
    """Round numbers around all values."""
    low, high = min(values), max(values)
    room = max(high - low, 0.02 * abs(high), 1e-6)
    power = 10.0 ** math.floor(math.log10(room / 4))
    step = next(power * k for k in (1, 2, 5, 10) if room / (power * k) <= 6)
    return [step * k for k in range(math.floor(low / step), math.ceil(high / step) + 1 + (low == high))]
