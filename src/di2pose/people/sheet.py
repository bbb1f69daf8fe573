"""`di2pose people sheet`: a contact sheet of rendered people with their skeletons; hidden joints are hollow."""

from pathlib import Path

import numpy as np
import tyro
from PIL import Image, ImageDraw

from di2pose.data.contact_sheet import bone_colour
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SELF_OCCLUDED
from di2pose.errors import InputError
from di2pose.files import replacing
from di2pose.people.store import People
from di2pose.people.view import SIZE
from di2pose.pose.skeleton import H36M_17

ABOVE = np.radians(35)


def sheet(
    folder: tyro.conf.Positional[Path],
    out: Path,
    count: int = 64,
    only: str = "all",
    seed: int = 0,
    skeletons: bool = True,
) -> None:
    """Draw a contact sheet: right side green, left blue; a joint that is hidden is a ring, dashed lines lead to it.

    Args:
        folder: what `di2pose people render` wrote
        out: the picture to write
        count: how many people
        only: all, a pose class (seated, lying, ...), above, close, occluded, two_people or truncated
        seed: another seed picks other people
        skeletons: draw the joints, or the bare pictures
    """
    people = People(folder)
    rows = chosen(people, only)
    picked = np.sort(np.random.default_rng(seed).permutation(rows)[:count])
    across = max(int(np.ceil(np.sqrt(len(picked)))), 1)
    page = Image.new("RGB", (across * SIZE, -(-len(picked) // across) * SIZE))
    for place, index in enumerate(picked.tolist()):
        tile = people.read_image(people[index])
        if skeletons:
            _draw(tile, people.joints_2d[index], people.visibility[index])
        page.paste(tile, (place % across * SIZE, place // across * SIZE))
    with replacing(out) as temporary:
        page.save(temporary)
    print(f"{len(picked)} of {len(rows)} people ({only}) in {out}")


def chosen(people: People, only: str) -> np.ndarray:
    """Numbers of the records that `only` names."""
    tests = {
        "all": lambda extra: True,
        "above": lambda extra: extra["pitch"] > ABOVE,
        "close": lambda extra: extra["crop"] == "close",
        "occluded": lambda extra: extra["hidden"] > 0.4,
        "two_people": lambda extra: extra["occlusion"] in ("person", "behind"),
        "truncated": lambda extra: extra["truncated"],
    }
    classes = people.header["settings"]["pose_class"]
    if only not in (*tests, *classes):
        raise InputError(f"--only must be one of {', '.join((*tests, *classes))}, got '{only}'")
    wanted = tests.get(only, lambda extra: extra["pose_class"] == only)
    rows = np.flatnonzero([wanted(line["extra"]) for line in people.index])
    if not len(rows):
        raise InputError(f"none of the {len(people)} people in {people.folder} is '{only}'")
    return rows


def _draw(tile: Image.Image, points: np.ndarray, visibility: np.ndarray) -> None:
    pen = ImageDraw.Draw(tile)
    for child, parent in H36M_17.bones:
        a, b = points[child], points[parent]
        hidden = max(visibility[child], visibility[parent]) >= SELF_OCCLUDED
        for part in range(0, 12, 2 if hidden else 1):
            start, end = a + (b - a) * part / 12, a + (b - a) * (part + 1) / 12
            pen.line([*start.tolist(), *end.tolist()], fill=bone_colour(H36M_17, child, parent), width=1)
    for joint, (x, y) in enumerate(points.tolist()):
        if visibility[joint] == OUT_OF_FRAME:
            continue
        box = (x - 2.5, y - 2.5, x + 2.5, y + 2.5)
        side = bone_colour(H36M_17, joint, joint)
        if visibility[joint] in (SELF_OCCLUDED, OCCLUDED):
            pen.ellipse(box, outline=side if visibility[joint] == SELF_OCCLUDED else (255, 255, 255))
        else:
            pen.ellipse(box, fill=side)
