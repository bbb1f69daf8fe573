"""Results as HTML: a self-contained page (photo, overlay, 3D view, hypotheses, tables, time), and notebook previews.

The page is static/viewer.html with the viewer's style and scripts, which `di2pose serve` uses too, and the data put
in. It loads nothing, and its own security policy forbids it.
"""

import html
import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np

from di2pose.errors import InputError, MissingExtra
from di2pose.files import encoded
from di2pose.output.angles import angles_json
from di2pose.output.overlay import data_uri, overlay_of, photos_of
from di2pose.output.tables import frame_and_time, main_people, plain, skeleton_of
from di2pose.result import STATES, Files, Person, Result, count_people, numbered

PHOTO_SIDE, PHOTO_QUALITY = 1280, 85
FRAME_SIDE, FRAME_QUALITY = 560, 72
"""Pixels of the longer side and JPEG quality; a video has many pictures, so they are smaller."""
NOTEBOOK_SIDE, NOTEBOOK_QUALITY = 640, 85
MOST_FRAMES = 400
"""A longer video has every second, third, ... frame on its page, which keeps it below some 20 MB."""
SCRIPTS = ("angles.js", "viewer_draw.js", "viewer.js")


def as_page(name: str, results: list[Result], fps: float | None) -> Files:
    """The page of a photo or a video."""
    data = page_data(results, fps, -(-len(results) // MOST_FRAMES))
    # "<" inside a script element could end it.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    title = Path(results[0].image).name if results[0].image else "3D pose"
    filled = {"TITLE": html.escape(title), "STYLE": _static("viewer.css"), "DATA": text}
    filled["SCRIPT"] = "".join(map(_static, SCRIPTS))
    # Split once, not replaced one after the other: a file name that contains __DATA__ stays as it is.
    pieces = re.split("__([A-Z]+)__", _static("viewer.html"))
    return {name: encoded("".join(filled[piece] if k % 2 else piece for k, piece in enumerate(pieces)))}


def _static(name: str) -> str:
    return files("di2pose.output").joinpath("static", name).read_text(encoding="utf-8")


def page_data(results: list[Result], fps: float | None, every: int = 1) -> dict[str, object]:
    """The page's data, of every `every`-th frame: mm (the hypotheses rounded to 1 mm), pixels, seconds."""
    first, skeleton = results[0], skeleton_of(results)
    numbers = range(0, len(results), every)
    side, quality = (PHOTO_SIDE, PHOTO_QUALITY) if len(results) == 1 else (FRAME_SIDE, FRAME_QUALITY)
    frames: list[dict[str, object]] = []
    for k, photo in zip(numbers, photos_of([results[k] for k in numbers]), strict=True):
        index, time_s = frame_and_time(results, fps, k)
        uri = None if photo is None else data_uri(photo, side, quality)
        main = main_people(results[k].people)
        people = [_person(*each, shown) for each, shown in zip(numbered(results[k].people), main, strict=True)]
        frames.append({"index": index, "time": round(time_s, 4), "photo": uri, "people": people})
    ids = sorted({number for k in numbers for number, _ in numbered(results[k].people)})
    hypotheses = "1 hypothesis" if first.hypotheses == 1 else f"{first.hypotheses} hypotheses"
    about = [count_people(len(ids)), hypotheses, f"{first.steps} steps", f"seed {first.seed}"]
    about.append(f"{first.model} {first.version}")
    if len(results) == 1 and first.people:
        about.append(f"score {', '.join(f'{person.score:.2f}' for person in first.people)}")
    if first.camera_source:
        about.append(f"camera: {first.camera_source}")
    if every > 1:
        about.append(f"1 frame in {every} of {len(results)}")
    return {
        "about": " · ".join(about),
        "size": list(first.size),
        "rate": (fps or 1.0) / every,
        "joints": list(skeleton.joints),
        "parents": list(skeleton.parents),
        "people": ids,
        "frames": frames,
    }


def _person(number: int, person: Person, main: bool) -> dict[str, object]:
    return {
        "id": number,
        "main": main,
        "root": plain(person.root_mm, 1),
        "joints": plain(person.joints_mm, 1),
        "r90": plain(np.nan_to_num(person.r90_mm), 1),
        "state": [STATES.index(state) for state in person.state.tolist()],
        "px": plain(person.joints_2d, 1),
        "angles": angles_json(person),
        "samples": plain(person.samples_mm, 0),
    }


def notebook_html(title: str, result: Result) -> str:
    """The title and the result's overlay. Never an error."""
    try:
        drawn = overlay_of(result, NOTEBOOK_SIDE)
        uri = "" if drawn is None else data_uri(drawn, NOTEBOOK_SIDE, NOTEBOOK_QUALITY)
        picture = uri and f'<img alt="overlay" src="{uri}">'
    except (InputError, MissingExtra, OSError):  # the file is gone, has changed, or needs an extra
        picture = "<div>the picture cannot be read any more</div>"
    return f"<div><code>{html.escape(title)}</code></div>{picture}"
