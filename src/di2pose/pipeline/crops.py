"""People to look at, and what an encoder told of them.  B crops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from di2pose.image.boxes import Box, outside
from di2pose.image.crop import Roi
from di2pose.image.detect import Detection
from di2pose.image.encoder import Encoder, EncoderOutput, crop_pixels
from di2pose.interruption import check
from di2pose.pose.camera import Camera

BATCH = 16
"""Crops that are encoded together."""
GREY = (127, 127, 127)
Encode = Callable[[UInt8[np.ndarray, "B H W 3"]], EncoderOutput]
"""A pass of the encoder over the pixels of some crops, or of none, by whatever runs it."""


@dataclass(frozen=True, eq=False)
class PersonCrop:
    """One person to look at."""

    picture: Image.Image
    """The whole picture: upright RGB."""
    detection: Detection
    camera: Camera
    region: Roi
    """The part of the picture that the encoder sees."""
    hidden: tuple[Box, ...] = ()
    """Regions that are not to be looked at."""
    others: tuple[Box, ...] = ()
    """Where other people are."""
    alone: bool = False
    """Whether the others are painted over, as far as they lie outside of this person's box."""
    assumed: bool = False
    """Whether nobody knows the camera, and its field of view is a guess."""

    @property
    def covers(self) -> tuple[Box, ...]:
        """What is painted grey before the crop."""
        others = [part for other in self.others for part in outside(other, self.detection.box)] if self.alone else []
        return (*self.hidden, *others)

    def at(self, region: Roi) -> "PersonCrop":
        """The same person, looked at elsewhere."""
        return replace(self, region=region)


@dataclass(frozen=True, eq=False)
class EncodedCrops:
    """What the encoder told of B crops, one pass each."""

    crops: list[PersonCrop]
    output: EncoderOutput
    flipped: EncoderOutput | None = None
    """What it told of the crops' mirror images, where those were encoded, too; in pixels and axes of the mirror."""

    def pick(self, rows: Sequence[int]) -> "EncodedCrops":
        """Some of the crops."""
        flipped = None if self.flipped is None else self.flipped.pick(rows)
        return EncodedCrops([self.crops[row] for row in rows], self.output.pick(rows), flipped)

    @staticmethod
    def join(parts: Sequence["EncodedCrops"]) -> "EncodedCrops":
        """One after the other; with the mirror images where all have them."""
        crops = [crop for part in parts for crop in part.crops]
        flipped = [part.flipped for part in parts if part.flipped is not None]
        both = EncoderOutput.join(flipped) if len(flipped) == len(parts) else None
        return EncodedCrops(crops, EncoderOutput.join([part.output for part in parts]), both)


def encode_crops(
    encoder: Encoder, crops: Sequence[PersonCrop], encode: Encode, flipped: bool = False
) -> EncoderOutput:
    """One pass of the encoder over each crop, or over its mirror image, in batches."""
    pixels = _pixels(encoder, crops)
    return _in_batches(pixels[:, :, ::-1] if flipped else pixels, encode)


def encode_both(encoder: Encoder, crops: Sequence[PersonCrop], encode: Encode) -> EncodedCrops:
    """The crops and their mirror images, together."""
    pixels, count = _pixels(encoder, crops), len(crops)
    whole = _in_batches(np.concatenate([pixels, pixels[:, :, ::-1]]), encode)
    return EncodedCrops(list(crops), whole.pick(range(count)), whole.pick(range(count, 2 * count)))


def _pixels(encoder: Encoder, crops: Sequence[PersonCrop]) -> UInt8[np.ndarray, "B H W 3"]:
    width, height = encoder.size
    found = [crop_pixels(encoder, painted(each.picture, each.covers), each.region) for each in crops]
    return np.stack(found) if found else np.zeros((0, height, width, 3), np.uint8)


def _in_batches(pixels: UInt8[np.ndarray, "B H W 3"], encode: Encode) -> EncoderOutput:
    parts = [pixels[first : first + BATCH] for first in range(0, len(pixels), BATCH)] or [pixels]
    outputs = []
    for some in parts:
        check()
        outputs.append(encode(np.ascontiguousarray(some)))
    return EncoderOutput.join(outputs)


def painted(picture: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """The picture with grey rectangles over the boxes."""
    if not boxes:
        return picture
    picture = picture.copy()
    pen = ImageDraw.Draw(picture)
    for x0, y0, x1, y1 in boxes:
        # A rectangle of PIL's holds its last pixel; pixel i covers [i, i + 1).
        pen.rectangle((np.floor(x0), np.floor(y0), np.ceil(x1) - 1, np.ceil(y1) - 1), fill=GREY)
    return picture
