"""Where the patch goes: the two occlusion protocols, which must not be mixed up, and the sequences of 3DPW-Occ.

`advocc-40/80` (3DPW-AdvOcc, 3DNBF): a square of 40 or 80 px slides over the upright 256x192 (height x width) person-box
crop of the clean image with stride 10; each method is measured at its own worst placement, on the joints still visible.
3DNBF's own sizes are relative to a 224 px square crop (400/256 placements); the Di2Pose paper's to 256x192.

`occ-40/80`: one square of side 40/256 or 80/256 of the clean region of interest, centred on a limb joint; one patch per
record, the same for every method, and all joints count.

In both the patch lies on the ORIGINAL picture and every method makes its own crop of it afterwards.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.image.crop import Roi, roi_from_box
from di2pose.occlusion.patches import Rectangle, keyed_generator, paste
from di2pose.occlusion.textures import REFERENCE_SIDE, ProceduralTextures, TextureSource
from di2pose.pose.skeleton import LIMB_12, Skeleton

CROP_WIDTH, CROP_HEIGHT, STRIDE = 192, 256, 10
SIZES = (40, 80)

OCC_3DPW_SEQUENCES = (
    "courtyard_backpack", "courtyard_basketball", "courtyard_bodyScannerMotions", "courtyard_box", "courtyard_golf",
    "courtyard_jacket", "courtyard_laceShoe", "downtown_stairs", "flat_guitar", "flat_packBags", "outdoors_climbing",
    "outdoors_crosscountry", "outdoors_fencing", "outdoors_freestyle", "outdoors_golf", "outdoors_parcours",
    "outdoors_slalom",
)  # fmt: skip
"""3DPW-Occ (Zhang et al. 2020), as in PARE, ROMP and 3DNBF; taken from all splits."""


def in_3dpw_occ(sequence: str) -> bool:
    """Does a 3DPW sequence name, with or without its trailing _NN, belong to 3DPW-Occ?"""
    return re.sub(r"_\d+$", "", sequence) in OCC_3DPW_SEQUENCES


def check_size(size: int) -> None:
    if size not in SIZES:
        raise InputError(f"the occlusion protocols know patches of {SIZES} px, got {size}")


def person_crop(box: tuple[float, float, float, float]) -> Rectangle:
    """The picture region of the 256x192 crop: the box extended to aspect 3:4 and enlarged by 1.25 (as ViTPose does)."""
    x0, y0, x1, y1 = box
    width = max(x1 - x0, (y1 - y0) * CROP_WIDTH / CROP_HEIGHT) * 1.25
    height = width * CROP_HEIGHT / CROP_WIDTH
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    return Rectangle(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


@dataclass(frozen=True)
class Placement:
    """One position of the sliding square; `x`, `y` its upper left corner in pixels of the 256x192 crop."""

    index: int
    x: int
    y: int
    size: int

    def square(self, crop: Rectangle) -> Rectangle:
        """The whole square in the picture; in the last row and column it reaches over the border of the crop."""
        scale = (crop.x1 - crop.x0) / CROP_WIDTH
        x0, y0 = crop.x0 + scale * self.x, crop.y0 + scale * self.y
        return Rectangle(x0, y0, x0 + scale * self.size, y0 + scale * self.size)

    def patch(self, crop: Rectangle) -> Rectangle:
        """What is left of the square when it is clipped at the border of the crop."""
        square = self.square(crop)
        return Rectangle(square.x0, square.y0, min(square.x1, crop.x1), min(square.y1, crop.y1))


def advocc_placements(size: int) -> tuple[Placement, ...]:
    """All placements, row by row: 23 x 17 = 391 for 40 px, 19 x 13 = 247 for 80 px."""
    check_size(size)
    rows, columns = (math.ceil((side - size) / STRIDE + 1) for side in (CROP_HEIGHT, CROP_WIDTH))
    return tuple(
        Placement(row * columns + column, column * STRIDE, row * STRIDE, size)
        for row in range(rows)
        for column in range(columns)
    )


def advocc_image(
    image: Image.Image,
    record: str,
    crop: Rectangle,
    placement: Placement,
    seed: int,
    textures: TextureSource | None = None,
) -> Image.Image:
    """The original picture with the patch of one placement. The texture depends on (seed, record, placement) only."""
    generator = keyed_generator("advocc", placement.size, seed, record, placement.index)
    source = textures or ProceduralTextures()
    return paste(image, placement.square(crop), placement.size, source, generator, clip=crop)


def advocc_visible(
    joints_2d: Float[np.ndarray, "J 2"], crop: Rectangle, placement: Placement
) -> Bool[np.ndarray, " J"]:
    """Joints that count: inside the 256x192 crop and not strictly inside the patch. Joints without 2D (NaN) do not."""
    return crop.contains(joints_2d) & ~placement.patch(crop).strictly_contains(joints_2d)


@dataclass(frozen=True)
class LimbOcclusion:
    """The `occ` patch of one record."""

    image: Image.Image
    patch: Rectangle
    joint: str
    hidden: Bool[np.ndarray, " J"]
    """Joints of the record's skeleton strictly inside the patch."""


def occlude_limb(
    image: Image.Image,
    sample: Sample,
    skeleton: Skeleton,
    size: int,
    seed: int,
    textures: TextureSource | None = None,
    roi: Roi | None = None,
) -> LimbOcclusion:
    """`occ-40/80`: an upright square, side size/256 of the clean ROI's, on a limb joint drawn by (seed, record id).

    `roi`: the detector's ROI on the clean image; without it the one that follows from the record's box. The joint is
    drawn among the limb joints that lie in the picture, and is the same for both sizes.
    """
    check_size(size)
    if sample.joints_2d is None:
        raise InputError(f"record {sample.id} has no 2D joints, which the occ protocol needs to place its patch")
    if roi is None:
        if sample.box is None:
            raise InputError(f"record {sample.id} has no box, and no ROI was given: the occ patch has no size")
        roi = roi_from_box(sample.box)
    points = sample.joints_2d.astype(np.float64)
    in_picture = Rectangle(0, 0, image.width, image.height).contains(points)
    generator = keyed_generator("occ", seed, sample.id)
    order = [LIMB_12[i] for i in generator.permutation(len(LIMB_12))]
    joint = next((name for name in order if in_picture[skeleton.index(name)]), None)
    if joint is None:
        raise InputError(
            f"record {sample.id}: none of its 12 limb joints lies in the picture, so no patch can be placed"
        )
    x, y = points[skeleton.index(joint)].tolist()
    half = roi.side * size / REFERENCE_SIDE / 2
    patch = Rectangle(x - half, y - half, x + half, y + half)
    occluded = paste(image, patch, size, textures or ProceduralTextures(), generator)
    return LimbOcclusion(occluded, patch, joint, patch.strictly_contains(points))
