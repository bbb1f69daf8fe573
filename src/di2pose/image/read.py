"""Image file -> RGB pixels, the right way up."""

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from di2pose.errors import InputError

LEAST_PIXELS = 16
"""Shorter side; nobody can be seen in less."""


def read_image(path: str | Path) -> Image.Image:
    """RGB, 8 bits, turned as its EXIF tag says. Grey, palette, CMYK and 16 bits are converted, alpha is dropped."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no image file at {path}")
    try:
        with warnings.catch_warnings():
            # PIL warns from 89 megapixels on and refuses from 179: phones make pictures in between.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                opened.load()
                picture = ImageOps.exif_transpose(opened)
    except UnidentifiedImageError as error:
        raise InputError(f"{path} is not an image that can be read (JPEG, PNG, WebP, TIFF, BMP, ...)") from error
    except Image.DecompressionBombError as error:
        raise InputError(f"{path} is too large: {error}. Shrink it first") from error
    except (OSError, SyntaxError, EOFError, ValueError) as error:
        raise InputError(f"{path} is damaged and cannot be decoded: {error}. Export or copy it again") from error
    if min(picture.size) < LEAST_PIXELS:
        width, height = picture.size
        raise InputError(
            f"{path} has {width}x{height} pixels: at least {LEAST_PIXELS} a side are needed to see anybody"
        )
    if picture.mode.startswith("I"):  # 16-bit grey: PIL's own conversion would cut everything above 255 to white
        picture = Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8))
    return picture.convert("RGB")
