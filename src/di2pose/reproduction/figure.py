"""A plot for each table: the error of every cell, a panel for each set of test data."""

from statistics import fmean, stdev

from PIL import Image, ImageDraw, ImageFont

from di2pose.reproduction.results import TOKENIZER, Results
from di2pose.training.log import COLOURS

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 330, 70, 150, 40, 44
GRID, INK = (225, 225, 225), (0, 0, 0)
Lines = dict[str, dict[str, list[float]]]
"""Line -> place on it -> a value for each seed."""


def draw(results: Results, metric: str = "mpjpe") -> Image.Image:
    """Means as points, deviations over the seeds as bars; two panels a row."""
    panels = []
    for data, protocol in results.sets():
        lines: Lines = {}
        for cell in results.content["cells"]:
            if values := results.headline(cell["name"], data, protocol, metric):
                lines.setdefault(cell["line"], {})[cell["x"]] = list(values.values())
        if lines:
            what = "lost through tokens" if protocol == TOKENIZER else protocol
            panels.append((f"{data}: {what}, MPJPE in mm", lines))
    places = list(dict.fromkeys(cell["x"] for cell in results.content["cells"]))
    rows = max(1, -(-len(panels) // 2))
    picture = Image.new("RGB", (WIDTH * min(2, max(1, len(panels))), 40 + HEIGHT * rows), "white")
    pen = ImageDraw.Draw(picture)
    pen.text((LEFT, 12), results.content["title"], INK, ImageFont.load_default(18))
    for at, (title, lines) in enumerate(panels):
        _panel(pen, (at % 2) * WIDTH, 40 + (at // 2) * HEIGHT, title, places, lines)
    return picture


def _panel(pen: ImageDraw.ImageDraw, x0: int, y0: int, title: str, places: list[str], lines: Lines) -> None:
    font = ImageFont.load_default(14)
    left, right, top, bottom = x0 + LEFT, x0 + WIDTH - RIGHT, y0 + TOP, y0 + HEIGHT - BOTTOM
    ends = [_bar(values) for line in lines.values() for values in line.values()]
    every = [end for pair in ends for end in pair]
    margin = 0.08 * (max(every) - min(every)) + 0.01 * max(every) + 1e-6
    low, high = min(every) - margin, max(every) + margin

    def height(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    pen.text((left, top - 24), title, INK, font)
    for k in range(5):
        mark = low + (high - low) * k / 4
        pen.line((left, height(mark), right, height(mark)), fill=GRID)
        pen.text((left - 8, height(mark)), f"{mark:.1f}", INK, font, anchor="rm")
    centre = {name: left + (right - left) * (k + 0.5) / len(places) for k, name in enumerate(places)}
    for k, name in enumerate(places):
        shift = 16 * (k % 2) if len(places) > 4 else 0  # long names under each other
        pen.text((centre[name], bottom + 4 + shift), name, INK, font, anchor="mt")
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = {place: (centre[place] + 4 * number, values) for place, values in line.items()}
        if name:
            pen.line([(x, height(fmean(values))) for x, values in points.values()], fill=colour, width=2)
            pen.text((right + 10, top + 20 * number), name, colour, font)
        for x, values in points.values():
            (least, most), y = _bar(values), height(fmean(values))
            pen.line((x, height(least), x, height(most)), fill=colour, width=2)
            pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour)
    pen.rectangle((left, top, right, bottom), outline=INK)


def _bar(values: list[float]) -> tuple[float, float]:
    mean, deviation = fmean(values), stdev(values) if len(values) > 1 else 0.0
    return mean - deviation, mean + deviation
