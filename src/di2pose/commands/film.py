"""A video with the overlay drawn on every frame, written frame by frame."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from PIL import Image

from di2pose.errors import InputError, require
from di2pose.output.files import replacing
from di2pose.output.overlay import draw_overlay, moved
from di2pose.output.photo import photos_of
from di2pose.result import Motion, Person

MOST_SIDE = 1280
"""Pixels of the longer side: enough to see every joint, and twice as quick to draw as full HD."""
CODECS = ("libx264", "libopenh264", "mpeg4")
"""The first that this build of FFmpeg can write; every browser plays the first two."""

Hide = Callable[[Image.Image, Sequence[Person]], Image.Image]


def write_film(path: Path, motion: Motion, hide: Hide | None = None) -> Path:
    """An MP4 of the frames of `motion`, read again from their video; `hide` changes a picture before it is drawn on."""
    av = require("av", extra="video")
    codec = next((name for name in CODECS if name in av.codecs_available), None)
    if codec is None:
        raise InputError(f"this build of PyAV writes none of {', '.join(CODECS)}: leave 'overlay' out of --format")
    with replacing(path) as temporary, av.open(str(temporary), "w", format="mp4") as container:
        stream = container.add_stream(codec, rate=Fraction(motion.fps).limit_denominator(100_000))
        stream.pix_fmt = "yuv420p"
        for k, (result, photo) in enumerate(zip(motion, photos_of(list(motion)), strict=True)):
            if photo is None:
                raise InputError(f"{path.name}: an overlay needs the pictures, and these results have none")
            shown = photo if hide is None else hide(photo, result.people)
            scale = min(1.0, MOST_SIDE / max(result.size))
            size = (_even(result.size[0] * scale), _even(result.size[1] * scale))
            if k == 0:
                stream.width, stream.height = size
            people = [moved(person, 0, 0, scale) for person in result.people]
            drawn = draw_overlay(shown.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0), people)
            if size != (stream.width, stream.height):  # a stream may change its size half-way
                drawn = drawn.resize((stream.width, stream.height))
            container.mux(stream.encode(av.VideoFrame.from_image(drawn)))
        container.mux(stream.encode(None))
    return path


def _even(length: float) -> int:
    """The codecs halve the colour in both directions."""
    return max(2, 2 * round(length / 2))
