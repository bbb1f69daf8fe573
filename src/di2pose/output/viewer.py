"""One self-contained HTML file: photo with overlay, 3D view, hypotheses, table of joints, and time for a video.

The page is static/viewer.html with the viewer's style and scripts, which the page of `di2pose serve` links, and the
data put in. It loads nothing, and its own security policy forbids it.
"""

import html
import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np

from di2pose.files import encoded
from di2pose.output.angles import angles_json
from di2pose.output.framing import main_people
from di2pose.output.overlay import data_uri, photos_of
from di2pose.output.tables import moment, plain
from di2pose.pose.skeleton import H36M_17
from di2pose.result import STATES, Files, Person, Result, count_people, numbered

PHOTO_SIDE, PHOTO_QUALITY = 1280, 85
FRAME_SIDE, FRAME_QUALITY = 560, 72
"""A video's pictures are smaller, for there are many."""
MOST_FRAMES = 400
"""Of a longer video every second, third, ... frame is on the page, so that it stays below some 20 MB."""

SCRIPTS = ("angles.js", "viewer_draw.js", "viewer.js")
"""The viewer's own, in this order."""


def as_page(name: str, results: list[Result], fps: float | None) -> Files:
    """The page of a photo or a video."""
    every = -(-len(results) // MOST_FRAMES)
    data = page_data(results, fps, every)
    # "<" inside a script element could end it.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    title = Path(results[0].image).name if results[0].image else "3D pose"
    filled = {"TITLE": html.escape(title), "STYLE": _static("viewer.css"), "DATA": text}
    filled["SCRIPT"] = "".join(map(_static, SCRIPTS))
    # The pieces are put in side by side: a name or a photo that holds __DATA__ stays what it is.
    pieces = re.split("__([A-Z]+)__", _static("viewer.html"))
    page = "".join(filled[piece] if k % 2 else piece for k, piece in enumerate(pieces))
    return {name: encoded(page)}


def _static(name: str) -> str:
    return files("di2pose.output").joinpath("static", name).read_text(encoding="utf-8")


def page_data(results: list[Result], fps: float | None, every: int = 1) -> dict[str, object]:
    """What the page shows, of every `every`-th frame: mm (the hypotheses rounded to 1 mm), pixels, seconds."""
    first = results[0]
    skeleton = next((person.skeleton for result in results for person in result.people), H36M_17)
    numbers = range(0, len(results), every)
    side, quality = (PHOTO_SIDE, PHOTO_QUALITY) if len(results) == 1 else (FRAME_SIDE, FRAME_QUALITY)
    frames: list[dict[str, object]] = []
    for k, photo in zip(numbers, photos_of([results[k] for k in numbers]), strict=True):
        index, time_s = moment(results, fps, k)
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
