"""One self-contained HTML file: photo with overlay, 3D view, hypotheses, table of joints, and time for a video.

The page is static/viewer.html with the data put in as JSON. It loads nothing, and its own security policy forbids it.
"""

import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.files import write_bytes
from di2pose.output.photo import data_uri, photos_of
from di2pose.output.tables import plain
from di2pose.output.timeline import moment
from di2pose.pose.skeleton import H36M_17
from di2pose.result import STATES, Person, Result

PHOTO_SIDE, PHOTO_QUALITY = 1280, 85
FRAME_SIDE, FRAME_QUALITY = 560, 72
"""A video's pictures are smaller, for there are many."""
MOST_FRAMES = 400
"""Of a longer video every second, third, ... frame is on the page, so that it stays below some 20 MB."""


def write_page(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """The page of a photo or a video."""
    every = -(-len(results) // MOST_FRAMES)
    data = page_data(results, fps, every)
    # "<" inside a script element could end it.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    title = Path(results[0].image).name if results[0].image else "3D pose"
    template = files("di2pose.output").joinpath("static/viewer.html").read_text(encoding="utf-8")
    head, tail = template.split("__DATA__")
    page = head.replace("__TITLE__", html.escape(title)) + text + tail
    return [write_bytes(path, page.encode())]


def page_data(results: list[Result], fps: float | None, every: int = 1) -> dict[str, Any]:
    """What the page shows, of every `every`-th frame: mm (the hypotheses rounded to 1 mm), pixels, seconds."""
    first = results[0]
    skeleton = next((person.skeleton for result in results for person in result.people), H36M_17)
    numbers = range(0, len(results), every)
    side, quality = (PHOTO_SIDE, PHOTO_QUALITY) if len(results) == 1 else (FRAME_SIDE, FRAME_QUALITY)
    frames: list[dict[str, Any]] = []
    for k, photo in zip(numbers, photos_of([results[k] for k in numbers]), strict=True):
        people = [_person(person, place) for place, person in enumerate(results[k].people)]
        frames.append(
            {
                "index": k if results[k].frame_index is None else results[k].frame_index,
                "time": round(moment(results, fps, k), 4),
                "photo": None if photo is None else data_uri(photo, side, quality),
                "people": people,
            }
        )
    ids = sorted({person["id"] for frame in frames for person in frame["people"]})
    people_text = "1 person" if len(ids) == 1 else f"{len(ids)} people"
    hypotheses = "1 hypothesis" if first.hypotheses == 1 else f"{first.hypotheses} hypotheses"
    about = [people_text, hypotheses, f"{first.steps} steps", f"seed {first.seed}", f"{first.model} {first.version}"]
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


def _person(person: Person, place: int) -> dict[str, Any]:
    return {
        "id": place if person.track is None else person.track,
        "root": plain(person.root_mm, 1),
        "joints": plain(person.joints_mm, 1),
        "r90": plain(np.nan_to_num(person.r90_mm), 1),
        "state": [STATES.index(state) for state in person.state.tolist()],
        "px": plain(person.joints_2d, 1),
        "samples": plain(person.samples_mm, 0),
    }
