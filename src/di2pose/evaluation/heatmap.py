"""A picture of one AdvOcc search: the error that each placement caused, and the pose under the worst of them."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageOps

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.drawn_pose import bones, projected
from di2pose.evaluation.record_log import RecordLine, RecordResult
from di2pose.evaluation.runs import Work
from di2pose.evaluation.scoring import Scorer, headline
from di2pose.files import replacing
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import (
    CROP_HEIGHT,
    CROP_WIDTH,
    STRIDE,
    Placement,
    advocc_image,
    advocc_placements,
    person_crop,
)  # fmt: skip
from di2pose.output.overlay import EDGE, LEFT, RIGHT, Pen, font, side_colour

ZOOM, MARGIN, HEADER, BAR, STRIP = 2, 16, 78, 92, 18
"""Pixels: crops are drawn ZOOM times as large; between them the scale, BAR wide, of which STRIP is coloured."""
INK, FAINT, PAPER = (30, 30, 30), (105, 105, 105), (255, 255, 255)
RAMP = np.array([(12, 8, 38), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], float)
"""Colours from the least to the greatest error, brighter all the way."""
COVER = 0.6
"""Of the colours over the grey photo."""


def write_heatmaps(work: Work, scorer: Scorer, lines: Sequence[RecordLine], folder: Path, name: str) -> None:
    """A JPEG of the search on each record, but of those that were left out."""
    key = scorer.protocol.id
    for line in (line for line in lines if "pose" in line.get("results", {}).get(key, {})):
        picture = search_picture(work, scorer, work.dataset[line["row"]], line["results"][key], name)
        with replacing(folder / f"{key}-{re.sub(r'[^A-Za-z0-9._-]+', '_', line['id'])}.jpg") as temporary:
            picture.save(temporary, "JPEG", quality=92, subsampling=0)


def search_picture(work: Work, scorer: Scorer, sample: Sample, result: RecordResult, name: str = "") -> Image.Image:
    """The search on one record, by its greatest number of hypotheses; `name`: whose it is."""
    occlusion, image = scorer.protocol.occlusion, work.dataset.read_image(sample)
    assert occlusion is not None
    assert sample.box is not None  # or it would have been left out
    region, most = person_crop(sample.box), max(result["worst_placement"], key=int)
    placement = advocc_placements(occlusion.size)[result["worst_placement"][most]]
    occluded = advocc_image(image, sample.id, region, placement, work.seeds[0], work.textures)
    key = f"{most}/{headline(int(most))}"
    worst_mm, clean_mm = (result["values"][f"{key}/{metric}"][0] for metric in ("mpjpe", "clean_mpjpe"))
    said = projected(scorer, sample, np.array(result["pose"]))
    title = f"{name + ', ' if name else ''}{scorer.protocol.id}: {sample.id}"
    return draw_heatmap(
        image,
        _with_poses(_view(occluded, region), scorer, region, scorer.points(sample), said),
        region,
        occlusion.size,
        np.array(result["placement_errors_mm"], float),
        title,
        clean_mm,
        worst_mm,
    )


def draw_heatmap(
    clean: Image.Image,
    worst_view: Image.Image,
    crop: Rectangle,
    size: int,
    errors_mm: Float[np.ndarray, " P"],
    title: str = "",
    clean_mm: float | None = None,
    worst_mm: float | None = None,
) -> Image.Image:
    """Left the clean crop with each placement's error drawn at its patch's centre, and the scale; right `worst_view`,
    the crop with the worst patch, at ZOOM.

    `errors_mm`: one per placement of `advocc_placements(size)`; NaN where no joint was visible (left unpainted).
    `worst_mm`: that of the worst, where it was predicted again with more steps.
    """
    placements = advocc_placements(size)
    if len(errors_mm) != len(placements) or np.isnan(errors_mm).all():
        raise InputError(f"advocc-{size} needs {len(placements)} placement errors, not all NaN; got {len(errors_mm)}")
    worst, low, high = int(np.nanargmax(errors_mm)), float(np.nanmin(errors_mm)), float(np.nanmax(errors_mm))
    width, height = CROP_WIDTH * ZOOM, CROP_HEIGHT * ZOOM
    second = MARGIN + width + BAR
    canvas = Image.new("RGB", (second + width + MARGIN, HEADER + height + MARGIN), PAPER)
    levels = (errors_mm - low) / max(high - low, 1e-9)
    canvas.paste(_painted(_view(clean, crop), placements, levels), (MARGIN, HEADER))
    canvas.paste(worst_view, (second, HEADER))
    strip = np.repeat(colour(np.linspace(1, 0, height))[:, None], STRIP, axis=1)
    canvas.paste(Image.fromarray(strip), (MARGIN + width + 10, HEADER))

    pen = ImageDraw.Draw(canvas)
    box = placements[worst].patch(Rectangle(0, 0, CROP_WIDTH, CROP_HEIGHT))
    for left in (MARGIN, second):
        x0, y0 = left + ZOOM * box.x0, HEADER + ZOOM * box.y0
        x1, y1 = left + ZOOM * box.x1 - 1, HEADER + ZOOM * box.y1 - 1
        pen.rectangle((x0 - 1, y0 - 1, x1 + 1, y1 + 1), outline=EDGE, width=1)
        pen.rectangle((x0, y0, x1, y1), outline=PAPER, width=2)
    x, y = MARGIN + ZOOM * (placements[worst].x + size / 2), HEADER + ZOOM * (placements[worst].y + size / 2)
    for reach, ink in ((7, EDGE), (5, PAPER)):
        for a, b in (((x - reach, y), (x + reach, y)), ((x, y - reach), (x, y + reach))):
            pen.line([a, b], fill=ink, width=2 if ink == PAPER else 4)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = (MARGIN + width + 10 + STRIP + 6, HEADER + 7 + (1 - share) * (height - 14))
        pen.text(at, f"{low + share * (high - low):.0f} mm", INK, font(13), anchor="lm")
    against = "" if clean_mm is None else f", of the same joints without a patch {clean_mm:.1f} mm"
    worst_is = f"Worst of {len(placements)} placements: {worst_mm or high:.1f} mm{against}"
    for text, y, points, ink in ((title, 18, 16, INK), (worst_is, 41, 14, INK)):
        pen.text((MARGIN, y), _fitting(text, canvas.width - 2 * MARGIN, points), ink, font(points), anchor="lm")
    pen.text((MARGIN, 64), "error by the patch's centre (visible joints)", FAINT, font(13), anchor="lm")
    pen.text((second, 64), "the worst patch, and the pose under it", FAINT, font(13), anchor="lm")
    return canvas


def colour(level: Float[np.ndarray, "*B"]) -> np.ndarray:
    """RGB uint8 (..., 3) of levels in [0, 1]."""
    at = np.clip(level, 0, 1) * (len(RAMP) - 1)
    channels = [np.interp(at, np.arange(len(RAMP)), RAMP[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def _fitting(text: str, width: float, points: int) -> str:
    """Cut where it is too long for a line."""
    while font(points).getlength(text) > width:
        text = text[:-2].rstrip(".") + "…"
    return text


def _view(image: Image.Image, crop: Rectangle) -> Image.Image:
    """The crop at ZOOM; black where it reaches out of the picture."""
    size = (CROP_WIDTH * ZOOM, CROP_HEIGHT * ZOOM)
    scale = (crop.x1 - crop.x0) / size[0]
    matrix = (scale, 0, crop.x0, 0, scale, crop.y0)
    return image.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _painted(view: Image.Image, placements: tuple[Placement, ...], levels: Float[np.ndarray, " P"]) -> Image.Image:
    pixels = np.array(ImageOps.grayscale(view).convert("RGB"))
    half = STRIDE / 2
    for placement, level in zip(placements, levels, strict=True):
        if np.isnan(level):
            continue
        x, y = placement.x + placement.size / 2, placement.y + placement.size / 2
        rows = slice(round(ZOOM * (y - half)), round(ZOOM * (y + half)))
        columns = slice(round(ZOOM * (x - half)), round(ZOOM * (x + half)))
        cell = pixels[rows, columns]
        pixels[rows, columns] = ((1 - COVER) * cell + COVER * colour(np.asarray(level))).astype(np.uint8)
    return Image.fromarray(pixels)


def _with_poses(
    view: Image.Image,
    scorer: Scorer,
    crop: Rectangle,
    truth: Float[np.ndarray, "K 2"],
    said: Float[np.ndarray, "K 2"] | None,
) -> Image.Image:
    """The truth thin and white, the pose in the colours of its sides; points in pixels of the picture."""
    pen, scale = Pen(view.size), view.width / (crop.x1 - crop.x0)
    skeleton, columns = scorer.protocol.skeleton, scorer.columns
    for points, width in ((truth, 2.0), (said, 4.0)):
        if points is None:
            continue
        at = [((x - crop.x0) * scale, (y - crop.y0) * scale) for x, y in points.tolist()]
        for a, b in bones(scorer):
            if np.isfinite((at[a], at[b])).all():
                tint = PAPER if points is truth else side_colour(skeleton, columns[a], columns[b])
                pen.line(at[a], at[b], width, tint, EDGE)
        for joint in np.flatnonzero(np.isfinite(points).all(1)).tolist() if points is said else ():
            pen.disc(at[joint], 5, EDGE)
            pen.disc(at[joint], 4, side_colour(skeleton, columns[joint]))
    entries = [("truth", PAPER), ("right", RIGHT), ("left", LEFT)][: 1 if said is None else 3]
    wide = sum(26 + pen.width(text, 13) for text, _ in entries) + 6
    pen.panel((6, view.height - 30, 6 + wide, view.height - 6), 6, (*EDGE, 200))
    x, y = 18.0, view.height - 18.0
    for text, tint in entries:
        pen.disc((x, y), 5, tint)
        pen.text((x + 9, y), text, 13, PAPER)
        x += 26 + pen.width(text, 13)
    return pen.over(view)
