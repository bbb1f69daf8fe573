"""2D overlay on the photo: right side green, left side blue, as in the paper; guessed joints hollow, bones dashed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from di2pose.errors import InputError
from di2pose.files import replacing
from di2pose.output.pen import Pen, Point
from di2pose.output.photo import photo_of
from di2pose.pose.skeleton import Skeleton
from di2pose.result import Person, Result

RIGHT, LEFT, MIDDLE = (38, 200, 90), (62, 134, 255), (250, 200, 60)
EDGE, PAPER = (16, 18, 22), (255, 255, 255)
FACE_MM = 170.0
"""Radius of the disc that hides a face: a head is about 230 mm high, and the estimate may be some cm off."""


MOST_SIDE = 6000
"""Pixels of the longer side of an overlay; a larger photo is shrunk, for its overlay would need gigabytes."""


def side_colour(skeleton: Skeleton, *joints: int) -> tuple[int, int, int]:
    """Of a joint, or of a bone by its joints."""
    names = " ".join(skeleton.joints[joint] for joint in joints)
    return RIGHT if "right_" in names else LEFT if "left_" in names else MIDDLE


def draw_overlay(image: Image.Image, people: Sequence[Person], legend: bool = True) -> Image.Image:
    """The picture with everybody's joints drawn on; several people get their number at the head."""
    pen = Pen(image.size)
    for place, person in enumerate(people):
        width = _width(person, image.size)
        draw_bones(pen, person, person.joints_2d, width)
        if len(people) > 1 or person.track is not None:
            _number(pen, person, place if person.track is None else person.track, width)
    if legend and people:
        _legend(pen, image.size, any(person.guessed.any() for person in people))
    return pen.over(image)


def draw_bones(pen: Pen, person: Person, points: np.ndarray, width: float) -> None:
    """Bones and joints of one person at `points` (J, 2), nothing where a point is not known."""
    skeleton = person.skeleton
    ready = np.isfinite(points).all(1)
    at: list[Point] = [(float(x), float(y)) for x, y in points]
    bones = [(c, p) for c, p in skeleton.bones if ready[c] and ready[p]]
    for child, parent in bones:
        stroke = pen.dashes if person.guessed[child] or person.guessed[parent] else pen.line
        stroke(at[child], at[parent], width, side_colour(skeleton, child, parent), EDGE)
    for joint in np.flatnonzero(ready):
        colour = side_colour(skeleton, int(joint))
        pen.disc(at[joint], 1.45 * width, EDGE)
        pen.disc(at[joint], 1.1 * width, colour)
        if person.guessed[joint]:
            pen.disc(at[joint], 0.55 * width, PAPER)


def blur_faces(image: Image.Image, people: Sequence[Person]) -> Image.Image:
    """The picture with a disc round every head made of coarse blocks. A head that was not found is not hidden."""
    return pixelated(image, [face_disc(person) for person in people])


def pixelated(image: Image.Image, discs: Sequence[tuple[np.ndarray, float]]) -> Image.Image:
    """The picture with coarse blocks, six across, in place of each disc (centre, radius) in pixels."""
    hidden = image.copy()
    for centre, radius in discs:
        box = [int(np.floor(v)) for v in (*(centre - radius), *(centre + radius + 1))]
        box = [max(0, box[0]), max(0, box[1]), min(image.width, box[2]), min(image.height, box[3])]
        if box[2] <= box[0] or box[3] <= box[1]:
            continue
        part = image.crop((box[0], box[1], box[2], box[3]))
        block = max(2.0, radius / 3)
        coarse = part.resize([max(1, round(side / block)) for side in part.size], Image.Resampling.BOX)
        disc = Image.new("L", part.size, 0)
        x, y = centre - box[:2]
        ImageDraw.Draw(disc).ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
        hidden.paste(coarse.resize(part.size, Image.Resampling.NEAREST), (box[0], box[1]), disc)
    return hidden


def face_disc(person: Person) -> tuple[np.ndarray, float]:
    """Centre and radius of a disc that hides the head, in pixels."""
    names = [name for name in ("nose", "head", "head_top", "left_ear", "right_ear") if name in person.skeleton.joints]
    head = person.joints_2d[list(person.skeleton.indices(*names))]
    return np.nanmean(head, 0), FACE_MM * pixels_a_mm(person)


def pixels_a_mm(person: Person) -> float:
    """At the person: by all bones, as if without perspective."""
    children, parents = (list(side) for side in zip(*person.skeleton.bones, strict=True))
    flat = person.joints_2d[children] - person.joints_2d[parents]
    real = (person.joints_mm[children] - person.joints_mm[parents])[:, :2]
    return float(np.sqrt(np.nansum(flat**2) / np.nansum(real**2)))


def moved(person: Person, left: int, top: int, scale: float) -> Person:
    """The person in the pixels of a photo that was cut at (left, top), then resized."""
    x0, y0, x1, y1 = person.box
    box = ((x0 - left) * scale, (y0 - top) * scale, (x1 - left) * scale, (y1 - top) * scale)
    return dataclasses.replace(person, joints_2d=(person.joints_2d - (left, top)) * scale, box=box)


def write_overlay(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """One JPEG of a photo or of one frame."""
    if len(results) != 1:
        raise InputError(f"{path.name}: an overlay shows one picture: save a single frame, motion[12].save(...)")
    photo = photo_of(results[0])
    if photo is None:
        raise InputError(f"{path.name}: an overlay needs the photo, and this result has neither its path nor pixels")
    people = results[0].people
    if max(photo.size) > MOST_SIDE:
        scale = MOST_SIDE / max(photo.size)
        photo = photo.resize((max(1, round(photo.width * scale)), max(1, round(photo.height * scale))))
        people = [moved(person, 0, 0, scale) for person in people]
    drawn = draw_overlay(photo, people)
    with replacing(path) as temporary:
        drawn.save(temporary, "JPEG", quality=92, subsampling=0)
    return [path]


def _width(person: Person, size: tuple[int, int]) -> float:
    """Of a bone in pixels: a hundredth of the person."""
    x0, y0, x1, y1 = person.box
    tall = min(max(x1 - x0, y1 - y0), 1.2 * max(size))
    return float(np.clip(tall / 90, 1.6, max(size) / 80))


def _number(pen: Pen, person: Person, number: int, width: float) -> None:
    points = person.joints_2d[np.isfinite(person.joints_2d).all(1)]
    x, y = points[points[:, 1].argmin()]
    size = float(np.clip(6 * width, 13, 60))
    text = str(number)
    half = pen.width(text, size) / 2 + 0.35 * size
    x = float(np.clip(x, half, pen.size[0] - half))
    y = float(np.clip(y - 2.5 * width - 0.7 * size, 0.7 * size, pen.size[1] - 0.7 * size))
    pen.panel((x - half, y - 0.62 * size, x + half, y + 0.62 * size), 0.35 * size, (*EDGE, 220))
    pen.text((x, y), text, size, PAPER, "mm")


def _legend(pen: Pen, size: tuple[int, int], guessed: bool) -> None:
    """Bottom left, small."""
    em = float(np.clip(max(size) / 62, 11, 80))
    entries = [("right", RIGHT), ("left", LEFT)] + ([("guessed", PAPER)] if guessed else [])
    wide = sum(1.9 * em + pen.width(text, em) for text, _ in entries) + 0.7 * em
    if wide > size[0] - em:
        return
    top = size[1] - 2.3 * em
    pen.panel((0.5 * em, top, 0.5 * em + wide, top + 1.8 * em), 0.5 * em, (*EDGE, 190))
    x, y = 1.5 * em, top + 0.9 * em
    for text, colour in entries:
        pen.disc((x, y), 0.42 * em, colour)
        if text == "guessed":
            pen.disc((x, y), 0.22 * em, EDGE)
        pen.text((x + 0.8 * em, y), text, em, PAPER)
        x += 1.9 * em + pen.width(text, em)
