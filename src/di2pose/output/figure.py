"""A figure for papers: the photo with its overlay beside two views of the 3D poses and their hypotheses."""

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from PIL import Image
from scipy.spatial.transform import Rotation

from di2pose.errors import InputError
from di2pose.output.overlay import Pen, draw_bones, draw_overlay, moved, photo_of, side_colour
from di2pose.output.tables import main_people
from di2pose.result import Files, Person, Result

HEIGHT, GAP, CAPTION = 900, 24, 52
"""Pixels: of the panels, between them, and of the line of text below."""
DPI = 300
WHITE, INK, GRID = (255, 255, 255), (40, 44, 52), (222, 226, 232)
GHOST = 40
"""Strength of a hypothesis's colour on white, in per cent."""
VIEWS = (("as the camera sees it", 0.0, 6.0), ("from the camera's left", 90.0, 6.0))
"""Caption, yaw and pitch of each view in degrees."""


def as_figure(name: str, results: list[Result], fps: float | None) -> Files:
    """One PNG of a photo or of one frame, at 300 dots an inch."""
    if len(results) != 1:
        raise InputError(f"{name}: a figure shows one picture: save a single frame, motion[12].save(...)")
    file = io.BytesIO()
    draw_figure(results[0]).save(file, "PNG", dpi=(DPI, DPI))
    return {name: file.getvalue()}


def draw_figure(result: Result) -> Image.Image:
    """The photo (if there is one) cut to the main people, and two views of these; a line says how many are left out."""
    people = [person for person, main in zip(result.people, main_people(result.people), strict=True) if main]
    panels = [(draw_view(people, yaw, pitch), caption) for caption, yaw, pitch in VIEWS]
    photo = photo_of(result)
    if photo is not None:
        panels.insert(0, (_photo(photo, people, result.people), "photo"))
    width = sum(panel.width for panel, _ in panels) + GAP * (len(panels) - 1)
    left_out = len(result.people) - len(people)
    pen = Pen((width, CAPTION * (2 if left_out else 1)))
    figure = Image.new("RGB", (width, HEIGHT + pen.size[1]), WHITE)
    x = 0
    for panel, caption in panels:
        figure.paste(panel, (x, 0))
        pen.text((x + panel.width / 2, CAPTION / 2), caption, 26, INK, "mm")
        x += panel.width + GAP
    if left_out:
        shown = f"{len(people)} of {len(result.people)} people shown: the others are small and far away"
        pen.text((width / 2, 1.4 * CAPTION), shown, 26, INK, "mm")
    figure.paste(pen.over(Image.new("RGB", pen.size, WHITE)), (0, HEIGHT))
    return figure


def draw_view(people: list[Person], yaw: float, pitch: float) -> Image.Image:
    """The people in parallel projection, from `yaw` degrees to the camera's left and `pitch` degrees higher; hypotheses
    faint, a floor of quarter-metre squares under the lowest joint."""
    turn = _turn(yaw, pitch)
    shown = [(joints + p.root_mm).reshape(-1, 3) for p in people for joints in (p.joints_mm, p.samples_mm)]
    points = np.concatenate(shown) if people else np.zeros((1, 3))
    points = points[np.isfinite(points).all(1)]
    floor = _floor(points.min(0), points.max(0))
    flat = np.concatenate([points, floor.reshape(-1, 3)]) @ turn.T
    least, most = flat.min(0)[:2], flat.max(0)[:2]
    scale = 0.94 * HEIGHT / max(most[1] - least[1], (most[0] - least[0]) / 1.6)
    size = (round(max((most[0] - least[0]) * scale + 0.06 * HEIGHT, 0.5 * HEIGHT)), HEIGHT)

    def project(place: np.ndarray) -> np.ndarray:
        return ((place @ turn.T)[..., :2] - (least + most) / 2) * scale + np.array(size) / 2

    pen = Pen(size)
    for a, b in project(floor):
        pen.line((a[0], a[1]), (b[0], b[1]), 1.6, GRID)
    width = float(np.clip(scale * 16, 3.0, 9.0))
    farthest_first = sorted(people, key=lambda person: -float(turn[2] @ person.root_mm))
    for person in farthest_first:
        for at in project(person.samples_mm + person.root_mm):
            for child, parent in person.skeleton.bones:
                if np.isfinite(at[[child, parent]]).all():
                    r, g, b = (255 - (255 - v) * GHOST // 100 for v in side_colour(person.skeleton, child, parent))
                    pen.line(tuple(at[child]), tuple(at[parent]), 0.4 * width, (r, g, b))
    for person in farthest_first:
        draw_bones(pen, person, project(person.joints_mm + person.root_mm), width)
    return pen.over(Image.new("RGB", size, WHITE))


def _photo(photo: Image.Image, main: Sequence[Person], people: Sequence[Person]) -> Image.Image:
    """The overlay, cut to the main people's boxes with a margin; drawn after resizing, so that lines are sharp."""
    x0, y0, x1, y1 = 0.0, 0.0, float(photo.width), float(photo.height)
    if main:
        boxes = np.array([person.box for person in main])
        (x0, y0), (x1, y1) = boxes[:, :2].min(0), boxes[:, 2:].max(0)
    high = min(1.15 * max(y1 - y0, (x1 - x0) / 1.5), photo.height)
    wide = min(max(1.15 * (x1 - x0), 0.66 * high), 1.5 * high, photo.width)
    left = round(float(np.clip((x0 + x1 - wide) / 2, 0, photo.width - wide)))
    top = round(float(np.clip((y0 + y1 - high) / 2, 0, photo.height - high)))
    scale = HEIGHT / max(1, round(high))
    region = (left, top, left + max(1, round(wide)), top + max(1, round(high)))
    part = photo.resize((max(1, round((region[2] - left) * scale)), HEIGHT), Image.Resampling.LANCZOS, box=region)
    x0, y0, x1, y1 = region
    shown = [p for p in people if p.box[0] < x1 and p.box[2] > x0 and p.box[1] < y1 and p.box[3] > y0]
    return draw_overlay(part, [moved(person, left, top, scale) for person in shown])


def _turn(yaw: float, pitch: float) -> Float[np.ndarray, "3 3"]:
    """Rotation from camera axes to the viewer's (x right, y down, z away): first about y, then about x."""
    return np.asarray(Rotation.from_euler("XY", (pitch, -yaw), degrees=True).as_matrix())


def _floor(low: np.ndarray, high: np.ndarray) -> Float[np.ndarray, "L 2 3"]:
    """Lines every 250 mm at the height of the lowest point, 50 mm or more beyond the people."""
    step = 250.0
    x0, z0 = np.floor((low[[0, 2]] - 50) / step) * step
    x1, z1 = np.ceil((high[[0, 2]] + 50) / step) * step
    lines = [((x, high[1], z0), (x, high[1], z1)) for x in np.arange(x0, x1 + 1, step)]
    lines += [((x0, high[1], z), (x1, high[1], z)) for z in np.arange(z0, z1 + 1, step)]
    return np.array(lines)
