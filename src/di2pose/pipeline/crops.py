"""Person crops, and what an encoder makes of them, in batches.  B crops."""

from collections.abc import Sequence
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


@dataclass(frozen=True, eq=False)
class PersonCrop:
    """One detected person and the region of the picture to encode."""

    picture: Image.Image
    """The whole picture: upright RGB."""
    detection: Detection
    camera: Camera
    region: Roi
    """The part of the picture that the encoder gets."""
    hidden: tuple[Box, ...] = ()
    """Regions that the user calls occluded."""
    assumed: bool = False
    """Whether the camera is unknown and its field of view assumed."""
    others: tuple[Box, ...] = ()
    """Boxes of the other people in the picture."""
    alone: bool = False
    """Whether the others are painted over, as far as they lie outside of this person's box."""
    query: int = 0
    """Index of the picture in its batch."""

    @property
    def covers(self) -> tuple[Box, ...]:
        """Boxes to paint grey before the crop is cut."""
        others = [part for other in self.others for part in outside(other, self.detection.box)] if self.alone else []
        return (*self.hidden, *others)

    def at(self, region: Roi) -> "PersonCrop":
        """The same person with another region."""
        return replace(self, region=region)


@dataclass(frozen=True, eq=False)
class EncodedCrops:
    """B crops and their features and landmarks."""

    crops: list[PersonCrop]
    output: EncoderOutput
    flipped: EncoderOutput | None = None
    """Of the crops' mirror images, for the flip test; in pixels and axes of the mirror."""

    @property
    def outputs(self) -> list[EncoderOutput]:
        """Of the crops, and of their mirror images where those were encoded, too."""
        return [self.output] if self.flipped is None else [self.output, self.flipped]

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


def encode_crops(encoder: Encoder, crops: Sequence[PersonCrop], flip_test: bool = False) -> EncodedCrops:
    """One pass of the encoder over each crop; with `flip_test` over its mirror image, too."""
    pixels, count = _pixels(encoder, crops), len(crops)
    if not flip_test:
        return EncodedCrops(list(crops), _in_batches(encoder, pixels))
    whole = _in_batches(encoder, np.concatenate([pixels, pixels[:, :, ::-1]]))
    return EncodedCrops(list(crops), whole.pick(range(count)), whole.pick(range(count, 2 * count)))


def encode_mirrored(encoder: Encoder, crops: Sequence[PersonCrop]) -> EncoderOutput:
    """One pass of the encoder over the mirror image of each crop."""
    return _in_batches(encoder, _pixels(encoder, crops)[:, :, ::-1])


def _pixels(encoder: Encoder, crops: Sequence[PersonCrop]) -> UInt8[np.ndarray, "B H W 3"]:
    width, height = encoder.size
    if not getattr(encoder, "reads_pixels", True):
        return np.zeros((len(crops), 1, 1, 3), np.uint8)
    found = [crop_pixels(encoder, painted(each.picture, each.covers), each.region) for each in crops]
    return np.stack(found) if found else np.zeros((0, height, width, 3), np.uint8)


def _in_batches(encoder: Encoder, pixels: UInt8[np.ndarray, "B H W 3"]) -> EncoderOutput:
    if not len(pixels):
        return EncoderOutput(np.zeros((0, encoder.layout.length, encoder.layout.width), np.float32))
    outputs = []
    for first in range(0, len(pixels), BATCH):
        check()
        outputs.append(encoder.encode(np.ascontiguousarray(pixels[first : first + BATCH])))
    return EncoderOutput.join(outputs).in_double_precision()


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
