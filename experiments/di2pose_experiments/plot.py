"""A plot of each table: the error of every cell, a panel for each set of test data."""

import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure

from di2pose.files import replacing
from di2pose_experiments.results import ESTIMATORS, MEAN, RECONSTRUCTION, SAMPLE, TOKENIZER, Results

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")
"""Okabe and Ito's, distinct for colour-blind readers, too."""


def save_plot(results: Results, path: Path) -> None:
    """A panel for each set of test data: a dot for each seed, a larger one with the deviation for their mean."""
    pairs = [pair for pair in results.sets() if _series(results, *pair)]
    rows = max(1, math.ceil(len(pairs) / 2))
    picture = Figure((6.2 * min(2, max(1, len(pairs))), 0.5 + 3.6 * rows), layout="constrained")
    picture.suptitle(results.content["title"])
    for number, pair in enumerate(pairs, start=1):
        _panel(picture.add_subplot(rows, min(2, len(pairs)), number), results, *pair)
    with replacing(path) as temporary:
        picture.savefig(temporary, dpi=100)


def _series(results: Results, data: str, protocol: str) -> dict[str, dict[str, list[float]]]:
    """Line or estimator -> place -> a value for each seed. Tables with lines have one estimator for all of them."""
    cells, found = results.content["cells"], dict[str, dict[str, list[float]]]()
    lines = any(cell["line"] for cell in cells)
    shown = [each for each in ESTIMATORS if each.judged or each.name.startswith("encoder")]
    if lines:
        shown = [each for each in (MEAN, RECONSTRUCTION, SAMPLE) if results.counts(data, protocol, each)][:1]
    for estimator in shown:
        name = estimator.name.format(max(results.counts(data, protocol, estimator), default=0))
        values = results.values(data, protocol, estimator)
        for cell in (cell for cell in cells if cell["name"] in values):
            points = found.setdefault(cell["line"] if lines else name, {})
            points[cell["x"]] = list(values[cell["name"]].values())
    return found


def _panel(axes: Any, results: Results, data: str, protocol: str) -> None:
    series, cells = _series(results, data, protocol), results.content["cells"]
    places = list(dict.fromkeys(cell["x"] for cell in cells if any(cell["x"] in points for points in series.values())))
    style = "-o" if any(cell["line"] for cell in cells) else "o"
    for number, (name, points) in enumerate(series.items()):
        colour, aside = COLOURS[number % len(COLOURS)], 0.06 * (number - (len(series) - 1) / 2)
        x = [places.index(place) + aside for place in points]
        deviations = [stdev(values) if len(values) > 1 else 0.0 for values in points.values()]
        axes.errorbar(x, [fmean(v) for v in points.values()], deviations, fmt=style, color=colour, label=name)
        for at, values in zip(x, points.values(), strict=True):
            axes.plot([at] * len(values), values, ".", color=colour, alpha=0.5)
    long = max(map(len, places)) > 8
    turn = 60 if long and len(places) > 6 else 20 if long else 0
    axes.set_xticks(range(len(places)), places, rotation=turn, ha="right" if turn else "center")
    axes.set_title(f"{data}: {'lost through tokens' if protocol == TOKENIZER else protocol}, mm", fontsize=10)
    axes.grid(axis="y", alpha=0.4)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
