"""A walker of real footage, whole and half hidden: pictures of `di2pose demo` and of the page's examples."""

from contextlib import closing
from pathlib import Path

from PIL import Image, ImageDraw

from di2pose.assets import extract
from di2pose.data.frames import Video

CLIP = "Sports2D/Demo/demo.mp4"
FRAME, REGION = 120, (510, 464, 1160, 994)
"""The walker well visible from the side, alone in the region (x0, y0, x1, y1)."""
BOARD = (0.06, 0.60, 0.94, 0.97)
"""The board that hides the legs, as shares of the picture's width and height."""


def walker(folder: Path | None = None) -> Image.Image:
    """The walker's picture. `folder`: where the clip was extracted; None: it is fetched once."""
    with closing(Video((folder or extract("sports2d-demo", CLIP)) / CLIP)) as video:
        return video.frame(FRAME).crop(REGION)


def hide_legs(picture: Image.Image) -> Image.Image:
    """The picture with a board painted over the legs."""
    hidden = picture.copy()
    x0, y0, x1, y1 = (share * side for share, side in zip(BOARD, picture.size * 2, strict=True))
    pen = ImageDraw.Draw(hidden)
    pen.rectangle((x0, y0, x1, y1), fill=(124, 98, 70), outline=(84, 64, 44), width=4)
    for x in range(int(x0) + 60, int(x1), 60):
        pen.line((x, y0 + 4, x, y1 - 4), fill=(104, 80, 56), width=3)
    return hidden
