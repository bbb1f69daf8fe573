"""2D overlay on the photo: right side green, left side blue, as in the paper. A joint that is not in sight is hollow, a
bone whose place is not sure is dashed."""

import base64
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from di2pose.data.frames import Video
from di2pose.errors import InputError
from di2pose.image.read import read_image
from di2pose.pose.skeleton import Skeleton
from di2pose.result import Files, Person, Result, numbered

Colour = tuple[int, int, int] | tuple[int, int, int, int]
Point = tuple[float, float]

LARGE_PIXELS = (2_500_000, 9_000_000)
"""Pictures up to the first are drawn three times as large, up to the second twice, larger ones as they are."""
UNSURE_MM = 300.0
"""A bone is dashed where the 90 % radius of an end is larger: in 43 people of photos that of 8 % of the joints in sight
and of 61 % of the others. static/viewer_draw.js has the same."""
RIGHT, LEFT, MIDDLE = (38, 200, 90), (62, 134, 255), (250, 200, 60)
EDGE, PAPER = (16, 18, 22), (255, 255, 255)
MOST_SIDE = 6000
"""Pixels of the longer side of an overlay; a larger photo is shrunk to save memory."""


class Pen:
    """Draws smooth lines and discs on a layer of `size` pixels; `over` puts the layer onto a picture.

    Pillow does not smooth, so the layer is drawn larger and shrunk.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        pixels = size[0] * size[1]
        self.size = size
        self.zoom = 3 - sum(pixels > limit for limit in LARGE_PIXELS)
        self.layer = Image.new("RGBA", (size[0] * self.zoom, size[1] * self.zoom), (0, 0, 0, 0))
        self.draw = ImageDraw.Draw(self.layer)

    def line(self, a: Point, b: Point, width: float, colour: Colour, edge: Colour | None = None) -> None:
        """With round ends, and an outline in the colour `edge`."""
        ends = [(x * self.zoom, y * self.zoom) for x, y in (a, b)]
        for thick, fill in ((1.7 * width, edge), (width, colour)):
            if fill is not None:
                self.draw.line(ends, fill=fill, width=max(1, round(thick * self.zoom)))
                self.disc(a, thick / 2, fill)
                self.disc(b, thick / 2, fill)

    def dashes(self, a: Point, b: Point, width: float, colour: Colour, edge: Colour | None = None) -> None:
        """Dashes of two and a half widths, about five from one to the next; one at either end, with a gap between."""
        length = math.dist(a, b)
        count = max(2, round(length / width / 5))
        dash = min(2.5 * width, max(0.0, length / 2 - 1.25 * width))
        for k in range(count):
            start = k * (length - dash) / (count - 1)
            shares = (start / length, (start + dash) / length) if length else (0.0, 1.0)
            ends = [(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])) for t in shares]
            self.line(ends[0], ends[1], width, colour, edge)

    def disc(self, at: Point, radius: float, colour: Colour) -> None:
        x, y, r = at[0] * self.zoom, at[1] * self.zoom, radius * self.zoom
        self.draw.ellipse([x - r, y - r, x + r, y + r], fill=colour)

    def panel(self, box: tuple[float, float, float, float], radius: float, colour: Colour) -> None:
        """A filled rectangle with round corners."""
        self.draw.rounded_rectangle([v * self.zoom for v in box], radius * self.zoom, fill=colour)

    def text(self, at: Point, text: str, size: float, colour: Colour, anchor: str = "lm") -> None:
        self.draw.text((at[0] * self.zoom, at[1] * self.zoom), text, colour, font(size * self.zoom), anchor)

    def width(self, text: str, size: float) -> float:
        """Of the text, in pixels."""
        return font(size * self.zoom).getlength(text) / self.zoom

    def over(self, picture: Image.Image) -> Image.Image:
        """A copy of the picture with the layer on it."""
        layer = self.layer.convert("RGBa")  # colours times alpha: edges must not darken when shrunk
        layer = layer.resize(self.size, Image.Resampling.BOX).convert("RGBA")
        return Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")


@lru_cache(maxsize=32)
def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font."""
    return ImageFont.load_default(max(6.0, size))


def side_colour(skeleton: Skeleton, *joints: int) -> tuple[int, int, int]:
    """Colour of a joint, or of a bone by its joints."""
    names = " ".join(skeleton.joints[joint] for joint in joints)
    return RIGHT if "right_" in names else LEFT if "left_" in names else MIDDLE


def draw_overlay(image: Image.Image, people: Sequence[Person], legend: bool = True) -> Image.Image:
    """The picture with everybody's joints drawn on; several people get a number above the head."""
    pen = Pen(image.size)
    for number, person in numbered(people):
        width = _width(person, image.size)
        draw_bones(pen, person, person.joints_2d, width)
        if len(people) > 1 or person.track is not None:
            _label(pen, person, str(number), width)
    if legend and people:
        hidden = any(person.guessed.any() for person in people)
        _legend(pen, image.size, hidden, any((person.r90_mm > UNSURE_MM).any() for person in people))
    return pen.over(image)


def draw_bones(pen: Pen, person: Person, points: np.ndarray, width: float) -> None:
    """Bones and joints of one person at `points` (J, 2), without those that are NaN."""
    skeleton, unsure = person.skeleton, person.r90_mm > UNSURE_MM
    ready = np.isfinite(points).all(1)
    at: list[Point] = [(float(x), float(y)) for x, y in points]
    for child, parent in skeleton.bones:
        if ready[child] and ready[parent]:
            stroke = pen.dashes if unsure[child] or unsure[parent] else pen.line
            stroke(at[child], at[parent], width, side_colour(skeleton, child, parent), EDGE)
    for joint in np.flatnonzero(ready):
        colour = side_colour(skeleton, int(joint))
        pen.disc(at[joint], 1.45 * width, EDGE)
        pen.disc(at[joint], 1.1 * width, colour)
        if person.guessed[joint]:
            pen.disc(at[joint], 0.55 * width, PAPER)


def moved(person: Person, left: float, top: float, scale: float | tuple[float, float]) -> Person:
    """The person in pixels of a photo that was cropped at (left, top), then resized by `scale`."""
    corner, scales = np.array([left, top]), np.broadcast_to(scale, 2)
    x0, y0, x1, y1 = ((np.reshape(person.box, (2, 2)) - corner) * scales).ravel().tolist()
    return dataclasses.replace(person, joints_2d=(person.joints_2d - corner) * scales, box=(x0, y0, x1, y1))


def overlay_of(result: Result, most: int = MOST_SIDE) -> Image.Image | None:
    """The overlay on the result's photo, its longer side at most `most` pixels; None without a photo."""
    photo, people = photo_of(result), result.people
    if photo is None:
        return None
    if max(photo.size) > most:
        scale = most / max(photo.size)
        photo = photo.resize([max(1, round(side * scale)) for side in photo.size])
        people = [moved(person, 0, 0, scale) for person in people]
    return draw_overlay(photo, people)


def as_overlay(name: str, results: list[Result], fps: float | None) -> Files:
    """One JPEG of a photo or of one frame."""
    if len(results) != 1:
        raise InputError(f"{name}: an overlay shows one picture: save a single frame, motion[12].save(...)")
    drawn = overlay_of(results[0])
    if drawn is None:
        raise InputError(f"{name}: an overlay needs the photo, and this result has neither its path nor pixels")
    file = io.BytesIO()
    drawn.save(file, "JPEG", quality=92, subsampling=0)
    return {name: file.getvalue()}


def _width(person: Person, size: tuple[int, int]) -> float:
    """Width of a bone in pixels: about a hundredth of the person."""
    x0, y0, x1, y1 = person.box
    tall = min(max(x1 - x0, y1 - y0), 1.2 * max(size))
    return float(np.clip(tall / 90, 1.6, max(size) / 80))


def _label(pen: Pen, person: Person, text: str, width: float) -> None:
    points = person.joints_2d[np.isfinite(person.joints_2d).all(1)]
    x, y = points[points[:, 1].argmin()]
    size = float(np.clip(6 * width, 13, 60))
    half = pen.width(text, size) / 2 + 0.35 * size
    x = float(np.clip(x, half, pen.size[0] - half))
    y = float(np.clip(y - 2.5 * width - 0.7 * size, 0.7 * size, pen.size[1] - 0.7 * size))
    pen.panel((x - half, y - 0.62 * size, x + half, y + 0.62 * size), 0.35 * size, (*EDGE, 220))
    pen.text((x, y), text, size, PAPER, "mm")


def _legend(pen: Pen, size: tuple[int, int], hidden: bool, unsure: bool) -> None:
    """Bottom left, small; what hollow joints and dashed bones are, where there are some."""
    em = float(np.clip(max(size) / 62, 11, 80))
    entries = [("right", RIGHT), ("left", LEFT), *[("hidden", PAPER)] * hidden, *[("unsure", PAPER)] * unsure]
    wide = sum(1.9 * em + pen.width(text, em) for text, _ in entries) + 0.7 * em
    if wide > size[0] - em:
        return
    top = size[1] - 2.3 * em
    pen.panel((0.5 * em, top, 0.5 * em + wide, top + 1.8 * em), 0.5 * em, (*EDGE, 190))
    x, y = 1.5 * em, top + 0.9 * em
    for text, colour in entries:
        if text == "unsure":
            pen.dashes((x - 0.65 * em, y), (x + 0.45 * em, y), 0.14 * em, colour)
        else:
            pen.disc((x, y), 0.42 * em, colour)
        if text == "hidden":
            pen.disc((x, y), 0.22 * em, EDGE)
        pen.text((x + 0.8 * em, y), text, em, PAPER)
        x += 1.9 * em + pen.width(text, em)


def photo_of(result: Result) -> Image.Image | None:
    """Upright RGB: the result's own pixels, else those of its file; None where it has neither."""
    return next(photos_of([result]))


def photos_of(results: list[Result]) -> Iterator[Image.Image | None]:
    """The picture of each result in turn; a video is opened once."""
    videos: dict[str, Video] = {}
    with ExitStack() as opened:
        for result in results:
            picture, source = result.picture, result.image
            if picture is None and source is not None:
                if result.frame_index is None:
                    picture = read_image(source)
                else:
                    if source not in videos:
                        videos[source] = opened.enter_context(closing(Video(Path(source))))
                    picture = videos[source].frame(result.frame_index)
                if picture.size != tuple(result.size):
                    raise InputError(
                        f"{source} has {picture.width}x{picture.height} pixels, the result was made from "
                        f"{result.size[0]}x{result.size[1]}: it is another picture now"
                    )
            yield picture


def data_uri(picture: Image.Image, most: int, quality: int) -> str:
    """The picture as a JPEG data URI, its longer side at most `most` pixels."""
    small = picture.copy()
    small.thumbnail((most, most), Image.Resampling.LANCZOS)
    data = io.BytesIO()
    small.save(data, "JPEG", quality=quality, optimize=True, progressive=True)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()
