"""Smooth lines and discs on a picture: PIL draws without smoothing, so a layer is drawn larger and shrunk."""

import math
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int] | tuple[int, int, int, int]
Point = tuple[float, float]

LARGE_PIXELS = (2_500_000, 9_000_000)
"""Pictures up to the first are drawn three times as large, up to the second twice, larger ones as they are."""


class Pen:
    """Draws in pixels of a picture of `size`; `over` puts what was drawn onto it."""

    def __init__(self, size: tuple[int, int]) -> None:
        pixels = size[0] * size[1]
        self.size = size
        self.zoom = 3 - sum(pixels > limit for limit in LARGE_PIXELS)
        self.layer = Image.new("RGBA", (size[0] * self.zoom, size[1] * self.zoom), (0, 0, 0, 0))
        self.draw = ImageDraw.Draw(self.layer)

    def line(self, a: Point, b: Point, width: float, colour: Colour, edge: Colour | None = None) -> None:
        """With round ends, and a dark edge where one is given."""
        for thick, fill in ((1.7 * width, edge), (width, colour)):
            if fill is not None:
                z, r = self.zoom, thick * self.zoom / 2
                ends = [(a[0] * z, a[1] * z), (b[0] * z, b[1] * z)]
                self.draw.line(ends, fill=fill, width=max(1, round(2 * r)))
                for x, y in ends:
                    self.draw.ellipse([x - r, y - r, x + r, y + r], fill=fill)

    def dashes(self, a: Point, b: Point, width: float, colour: Colour, edge: Colour | None = None) -> None:
        """Dashes of two and a half widths, about five from one to the next; a whole dash at either end."""
        length = math.dist(a, b)
        count = max(1, round(length / width / 5))
        dash = min(2.5 * width, length) if count > 1 else length
        for k in range(count):
            start = k * (length - dash) / max(1, count - 1)
            ends = (_between(a, b, start / length), _between(a, b, (start + dash) / length)) if length else (a, b)
            self.line(*ends, width, colour, edge)

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
        """What was drawn, on a copy of the picture."""
        layer = self.layer.convert("RGBa")  # colours times alpha: edges must not darken when shrunk
        layer = layer.resize(self.size, Image.Resampling.BOX).convert("RGBA")
        return Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")


@lru_cache(maxsize=32)
def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font inside Pillow."""
    return ImageFont.load_default(max(6.0, size))


def _between(a: Point, b: Point, t: float) -> Point:
    return a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])
