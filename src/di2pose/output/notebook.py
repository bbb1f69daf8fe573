"""What a notebook shows of a result: the overlay where there is a picture, and a small table. Never an error."""

from html import escape

from tabulate import tabulate

from di2pose.errors import InputError, MissingExtra
from di2pose.output.overlay import data_uri, overlay_of
from di2pose.result import Motion, Person, Result, numbered

SIDE, QUALITY = 640, 85
"""Pixels of the picture's longer side, and of its JPEG."""


def person_html(person: Person) -> str:
    """A row for each joint."""
    rows = []
    for j, name in enumerate(person.skeleton.joints):
        numbers = [f"{value:.0f}" for value in (*person.joints_mm[j], person.r90_mm[j])]
        rows.append([name.replace("_", " "), *numbers, str(person.state[j]).replace("_", " ")])
    return _titled(person) + _table(["joint", "x mm", "y mm", "z mm", "r90 mm", "state"], rows)


def result_html(result: Result) -> str:
    """The overlay, and a row for each person."""
    rows = [
        [str(number), f"{person.score:.2f}", f"{person.guessed.sum()} of {len(person.state)}",
         f"{person.root_mm[2] / 1000:.1f}", f"{person.r90_mm[person.state != 'unknown'].mean():.0f}"]
        for number, person in numbered(result.people)
    ]  # fmt: skip
    head = ["person", "score", "joints hidden", "metres away", "mean r90 mm"]
    return _titled(result) + _picture(result) + _table(head, rows)


def motion_html(motion: Motion) -> str:
    """The overlay of the frame in the middle, and a row for each track."""
    rows = []
    for number in motion.tracks:
        there = [k for k, person in enumerate(motion.track(number)) if person is not None]
        rows.append([str(number), str(len(there)), str(there[0]), str(there[-1])])
    return _titled(motion) + _picture(motion[len(motion) // 2]) + _table(["track", "frames", "first", "last"], rows)


def _titled(shown: Person | Result | Motion) -> str:
    return f"<div><code>{escape(repr(shown))}</code></div>"


def _picture(result: Result) -> str:
    try:
        drawn = overlay_of(result, SIDE)
    except (InputError, MissingExtra, OSError):  # the file is gone, another one by now, or needs an extra
        return "<div>the picture cannot be read any more</div>"
    return "" if drawn is None else f'<img alt="overlay" src="{data_uri(drawn, SIDE, QUALITY)}">'


def _table(head: list[str], rows: list[list[str]]) -> str:
    return str(tabulate(rows, head, "html", disable_numparse=True)) if rows else ""
