"""A picture of one AdvOcc search: the worst patch on the image, and the error that each placement caused."""

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from di2pose.errors import InputError
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import CROP_HEIGHT, CROP_WIDTH, STRIDE, Placement, advocc_placements

ZOOM, HEADER, BAR, INK, PAPER = 2, 44, 96, (30, 30, 30), (250, 250, 250)
RAMP = np.array([(38, 20, 90), (40, 100, 160), (60, 170, 140), (200, 210, 80), (250, 120, 40), (200, 20, 30)], float)
"""Colours from the least to the greatest error, brighter and then redder."""


def colour(level: Float[np.ndarray, "*B"]) -> np.ndarray:
    """RGB uint8 (..., 3) of levels in [0, 1]."""
    at = np.clip(level, 0, 1) * (len(RAMP) - 1)
    channels = [np.interp(at, np.arange(len(RAMP)), RAMP[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def draw_heatmap(
    clean: Image.Image,
    occluded: Image.Image,
    crop: Rectangle,
    size: int,
    errors_mm: Float[np.ndarray, " P"],
    clean_mm: float | None = None,
) -> Image.Image:
    """Left the crop with the worst patch, right the clean crop with each placement's error drawn at its patch's centre.

    `errors_mm`: one per placement of `advocc_placements(size)`; NaN where no joint was visible (left unpainted).
    """
    placements = advocc_placements(size)
    if len(errors_mm) != len(placements) or np.isnan(errors_mm).all():
        raise InputError(f"advocc-{size} needs {len(placements)} placement errors, not all NaN; got {len(errors_mm)}")
    worst, low, high = int(np.nanargmax(errors_mm)), float(np.nanmin(errors_mm)), float(np.nanmax(errors_mm))
    width, height = CROP_WIDTH * ZOOM, CROP_HEIGHT * ZOOM
    canvas = Image.new("RGB", (2 * width + BAR + 30, height + HEADER + 10), PAPER)
    canvas.paste(_view(occluded, crop), (10, HEADER))
    levels = (errors_mm - low) / max(high - low, 1e-9)
    canvas.paste(_painted(_view(clean, crop), placements, levels), (width + 20, HEADER))

    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(size=14)
    box = placements[worst].patch(Rectangle(0, 0, CROP_WIDTH, CROP_HEIGHT))
    for left in (10, width + 20):
        x0, y0, x1, y1 = (
            left + ZOOM * box.x0,
            HEADER + ZOOM * box.y0,
            left + ZOOM * box.x1 - 1,
            HEADER + ZOOM * box.y1 - 1,
        )
        pen.rectangle((x0, y0, x1, y1), outline=(255, 255, 255), width=3)
        pen.rectangle((x0 + 1, y0 + 1, x1 - 1, y1 - 1), outline=(200, 20, 30), width=1)
    against = "" if clean_mm is None else f"; clean, same joints: {clean_mm:.1f} mm"
    pen.text((10, 4), f"advocc-{size}: worst of {len(placements)} placements {high:.1f} mm{against}", INK, font)
    pen.text((10, 22), "picture with the worst patch", INK, font)
    pen.text((width + 20, 22), "visible-joint error, drawn at the patch's centre", INK, font)
    strip = np.repeat(colour(np.linspace(1, 0, height))[:, None], 18, axis=1)
    canvas.paste(Image.fromarray(strip), (2 * width + 30, HEADER))
    for share in (0.0, 0.5, 1.0):
        place = (2 * width + 54, HEADER + (1 - share) * (height - 16))
        pen.text(place, f"{low + share * (high - low):.0f} mm", INK, font)
    return canvas


def _view(image: Image.Image, crop: Rectangle) -> Image.Image:
    """The crop at ZOOM; black where it reaches out of the picture."""
    size = (CROP_WIDTH * ZOOM, CROP_HEIGHT * ZOOM)
    scale = (crop.x1 - crop.x0) / size[0]
    matrix = (scale, 0, crop.x0, 0, scale, crop.y0)
    return image.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _painted(view: Image.Image, placements: tuple[Placement, ...], levels: Float[np.ndarray, " P"]) -> Image.Image:
    pixels = np.array(view)
    half = STRIDE / 2
    for placement, level in zip(placements, levels, strict=True):
        if np.isnan(level):
            continue
        x, y = placement.x + placement.size / 2, placement.y + placement.size / 2
        rows = slice(round(ZOOM * (y - half)), round(ZOOM * (y + half)))
        columns = slice(round(ZOOM * (x - half)), round(ZOOM * (x + half)))
        cell = pixels[rows, columns]
        pixels[rows, columns] = (0.4 * cell + 0.6 * colour(np.asarray(level))).astype(np.uint8)
    return Image.fromarray(pixels)
