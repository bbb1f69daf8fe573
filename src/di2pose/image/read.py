"""Image file -> upright RGB pixels, and the focal length in its EXIF block. Sizes are checked before unpacking."""

import io
import math
import re
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ExifTags import IFD, Base

from di2pose.errors import InputError

LEAST_PIXELS = 16
"""Shorter side."""
MOST_MEGAPIXELS = 178.0
"""Pillow's own limit, 0.7 GB of pixels."""
SHRINK_FROM = 50.0
"""Megapixels above which `read_photo` gives fewer: crops of people have 256x256 pixels, so nothing is lost."""
BATCH_PIXELS = 64_000_000
"""Photos that are in memory at once have not many more pixels than this."""
MOST_SCANS = 100
"""Of a JPEG. Encoders write about ten; a scan may have a hundred bytes, and each is a pass over all pixels."""
SIDEWAYS = (5, 6, 7, 8)
"""The EXIF orientations that swap width and height."""

FILM_DIAGONAL_MM = 43.27
"""Of the 36 x 24 mm that "35 mm equivalent" speaks of; equivalent is what sees the same along the diagonal."""
FOCAL_MM = (5.0, 1200.0)
"""Plausible 35 mm equivalents."""
CAMERA_SHAPES = (1.2, 1.85)
"""Longer by shorter side of what cameras take (4:3, 3:2, 16:9): a square or a panorama was cut or stitched."""
SAME_SHAPE = 0.03
CUT = "the picture was cut or stitched"
FOCAL = "di2pose_focal"
"""Where a picture's `info` keeps its ExifFocal."""
_UNIT_MM = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
"""FocalPlaneResolutionUnit: inch, cm, mm, um."""

DAMAGE = (
    OSError, SyntaxError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError,
    RuntimeError, struct.error, zlib.error,
)  # fmt: skip
"""What Pillow raises for files that are not whole, or were made to mislead it."""

_HEIC = re.compile(rb"....ftyp.*(hei[cmsx]|hev[cmsx])", re.DOTALL)
"""The first bytes of a HEIC, with its brands."""
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")
"""The JPEG markers that begin a segment, or end the picture; in coded data none of them occurs."""


class ExifFocal(NamedTuple):
    """The lens of a picture by its EXIF block."""

    mm_35: float
    """35 mm equivalent of the focal length."""
    shape: float
    """Longer by shorter side of the picture that it is of."""
    trouble: str = ""
    """Why it does not hold for these pixels; empty where it does."""

    def pixels(self, size: tuple[int, int]) -> float:
        """The focal length in pixels of a picture of that size, whole or shrunk."""
        return self.mm_35 / FILM_DIAGONAL_MM * math.hypot(*size)


class Photo(NamedTuple):
    """An upright RGB picture, and its size in the file."""

    picture: Image.Image
    """All pixels, or fewer: see `scale`."""
    size: tuple[int, int]
    """(width, height) of the upright original, pixels."""
    note: str = ""
    """What a user should know about the reading, e.g. 'first of 12 frames'."""

    @property
    def scale(self) -> tuple[float, float]:
        """Original pixels for each pixel of the picture, across and down: they may differ by a rounded row."""
        return self.size[0] / self.picture.width, self.size[1] / self.picture.height


def count_frames(path: Path) -> int:
    """Of a picture file, 1 of what cannot be read; nothing is unpacked."""
    try:
        with _opened(path, str(path)) as image:
            return int(getattr(image, "n_frames", 1))
    except InputError:
        return 1


def read_image(path: str | Path) -> Image.Image:
    """All pixels of the first frame: RGB, 8 bits, turned as the EXIF tag says.

    Grey, palette and CMYK are converted, 16 bits are scaled, and what is transparent is put on white, as viewers do.
    """
    path = Path(path)
    with _opened(path, str(path)) as image:
        _check_size(path, image, MOST_MEGAPIXELS)
        return upright_rgb(image)


def decode_image(content: bytes, formats: tuple[str, ...], name: str = "the picture") -> Image.Image:
    """As `read_image`, of the bytes of an upload, which must be HEIC or of one of Pillow's formats by these names. The
    caller has checked `header_size`."""
    with _opened(io.BytesIO(content), name, formats) as image:
        _check_scans(content, image, name)
        return upright_rgb(image)


def header_size(content: bytes, formats: tuple[str, ...], name: str = "the picture") -> tuple[int, int]:
    """(width, height) in the header; nothing is unpacked."""
    with _opened(io.BytesIO(content), name, formats) as image:
        return image.size


def read_photo(path: str | Path, most_megapixels: float = MOST_MEGAPIXELS) -> Photo:
    """As `read_image`, but a very large picture is shrunk; a JPEG as it is decoded, which takes less memory."""
    path = Path(path)
    with _opened(path, str(path)) as image:
        _check_size(path, image, most_megapixels)
        size = image.size[::-1] if image.getexif().get(Base.Orientation) in SIDEWAYS else image.size
        factor = math.ceil(math.sqrt(_megapixels(image) / SHRINK_FROM))
        if factor > 1:
            image.draft(None, (image.width // factor, image.height // factor))
        frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # an MPO is a photo and its previews
        picture = upright_rgb(image)
    if _megapixels(picture) > SHRINK_FROM:
        picture = picture.reduce(factor)
    notes = [f"first of {frames} frames"] if frames > 1 else []
    if picture.size != size:
        notes.append(f"{size[0]}x{size[1]} shrunk to {picture.width}x{picture.height}")
    return Photo(picture, size, ", ".join(notes))


@contextmanager
def _opened(source: Path | io.BytesIO, name: str, formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """The file, its header read and its pixels not yet; InputError for what is wrong with it, then or later."""
    if isinstance(source, Path) and not source.is_file():
        raise InputError(f"no image file at {source}")
    try:
        if _is_heic(source):
            formats = _with_heic(formats, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged EXIF blocks, a palette's transparency, many pixels
            with Image.open(source, formats=formats) as image:
                yield image
    except UnidentifiedImageError as error:
        raise InputError(f"{name} is not an image that can be read (JPEG, PNG, WebP, TIFF, BMP, ...)") from error
    except (Image.DecompressionBombError, MemoryError) as error:
        raise InputError(f"{name} is too large to be unpacked ({error}): save it smaller") from error
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{name} is damaged and cannot be decoded: {error}. Export or copy it again") from error


def _is_heic(source: Path | io.BytesIO) -> bool:
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source.getvalue()[:64]) as file:
        return _HEIC.match(file.read(64)) is not None


def _with_heic(formats: tuple[str, ...] | None, name: str) -> tuple[str, ...] | None:
    """The formats and HEIC, which Pillow reads with the extra `heic`; InputError without it."""
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError as error:
        advice = "pip install 'di2pose[heic]', or share or export it as JPEG"
        raise InputError(f"{name} is HEIC, which needs the Python package 'pillow_heif': {advice}") from error
    return None if formats is None else (*formats, "HEIF")


def _megapixels(image: Image.Image) -> float:
    return image.width * image.height / 1e6


def _check_size(path: Path, image: Image.Image, most_megapixels: float) -> None:
    width, height = image.size
    if min(image.size) < LEAST_PIXELS:
        raise InputError(f"{path} has {width}x{height} pixels: at least {LEAST_PIXELS} a side are needed")
    if _megapixels(image) > most_megapixels:
        raise InputError(
            f"{path} is too large: {width}x{height} are {_megapixels(image):.0f} megapixels, {most_megapixels:g} are "
            "allowed. Save it smaller"
        )


def _check_scans(content: bytes, image: Image.Image, name: str) -> None:
    """Walk from marker to marker, as the decoder will, to the end of the first JPEG: of an MPO no other is decoded."""
    if image.format not in ("JPEG", "MPO"):
        return
    scans, marker = 0, _MARKER.search(content, 2)
    while marker is not None and marker[1] != b"\xd9":
        scans += marker[1] == b"\xda"
        if scans > MOST_SCANS:
            raise InputError(
                f"{name} is a JPEG of more than {MOST_SCANS} scans, which would take too long to decode (about ten are "
                "usual). Save it again as a plain (not progressive) JPEG"
            )
        length = int.from_bytes(content[marker.end() : marker.end() + 2], "big")
        marker = _MARKER.search(content, marker.end() + length)


def exif_focal(image: Image.Image) -> ExifFocal | None:
    """The focal length in the EXIF block, by the 35 mm equivalent or by the sensor's own pixels a mm; None where there
    is none or nonsense. Turning and converting a picture loses some formats' tags."""
    long, short = max(image.size), min(image.size)
    kept = image.info.get(FOCAL)
    if isinstance(kept, ExifFocal):
        return kept if _same_shape(long / short, kept.shape) else kept._replace(trouble=CUT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged EXIF blocks
            tags = image.getexif().get_ifd(IFD.Exif)
    except DAMAGE:
        return None
    sides = sorted(_number(tags, tag) for tag in (Base.ExifImageWidth, Base.ExifImageHeight))
    mm_35 = _number(tags, Base.FocalLengthIn35mmFilm)
    if not mm_35 and sides[0]:
        unit = _UNIT_MM.get(int(_number(tags, Base.FocalPlaneResolutionUnit)) or 2, 0.0)
        a_mm = _number(tags, Base.FocalPlaneXResolution) / unit if unit else 0.0
        mm_35 = _number(tags, Base.FocalLength) * a_mm / math.hypot(*sides) * FILM_DIAGONAL_MM
    if not FOCAL_MM[0] <= mm_35 <= FOCAL_MM[1]:
        return None
    whole = not sides[0] or _same_shape(long / short, sides[1] / sides[0])
    taken = CAMERA_SHAPES[0] <= long / short <= CAMERA_SHAPES[1]
    return ExifFocal(mm_35, long / short, "" if whole and taken else CUT)


def _same_shape(one: float, other: float) -> bool:
    return abs(one / other - 1) <= SAME_SHAPE


def _number(tags: Mapping[int, Any], tag: int) -> float:
    """A tag's value, 0 where there is none or no number."""
    try:
        value = float(tags.get(tag, 0))
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return 0.0
    return value if 0 < value < 1e9 else 0.0


def upright_rgb(image: Image.Image) -> Image.Image:
    """A copy: 8-bit RGB, turned as the EXIF tag says. `info[FOCAL]` keeps its ExifFocal."""
    focal = exif_focal(image)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would cut everything above 255 to white
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    elif image.mode == "F":  # no stated range: from the darkest to the brightest
        values = np.nan_to_num(np.asarray(image))
        image = Image.fromarray(np.uint8(255 * (values - values.min()) / max(float(np.ptp(values)), 1e-12)))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    image = image if image.mode == "RGB" else image.convert("RGB")
    if focal is not None:
        image.info[FOCAL] = focal
    return image
