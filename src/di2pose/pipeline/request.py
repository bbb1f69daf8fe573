"""What the user hands in, checked and opened: pictures, boxes, a camera, pinned joints, kept tokens."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image

from di2pose import __version__
from di2pose.config import TokenizerConfig
from di2pose.errors import InputError
from di2pose.image.boxes import Box, parse_boxes
from di2pose.image.crop import DEFAULT_FIELD_OF_VIEW, assumed_camera
from di2pose.image.detect import overlap
from di2pose.image.keypoint_encoder import BlankPicture
from di2pose.image.keypoints import match_pictures, parse_keypoints, read_keypoints
from di2pose.image.read import LEAST_PIXELS, ExifFocal, exif_focal, read_image, upright_rgb
from di2pose.model import Pins
from di2pose.pipeline.crops import BATCH
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton
from di2pose.result import Person, Result

Picture = str | Path | Image.Image | np.ndarray
"""A path, a PIL image, or RGB pixels (H, W, 3) uint8."""
REACH_MM = 1500.0
"""Largest distance of a joint from the pelvis."""
NEAREST_MM, NARROWEST = 1200.0, 15.0
"""An assumed camera gets a longer lens until the nearest person is so far away, or its field of view so many
degrees."""


class ImageRequest(NamedTuple):
    """One picture as the user handed it in."""

    image: Picture
    boxes: tuple[Box, ...] | None
    """Of the people; None: by the detector."""
    hidden: tuple[Box, ...]
    """Regions to ignore."""
    keypoints: Float[np.ndarray, "P 17 3"] | None = None
    """Of the people, by the user."""

    @property
    def people_given(self) -> bool:
        """Whether the user says where the people are."""
        return self.boxes is not None or self.keypoints is not None


class ImageQuery(NamedTuple):
    """One picture, opened."""

    request: ImageRequest
    picture: Image.Image
    camera: Camera
    camera_source: str
    """As in `Result`."""

    @property
    def assumed(self) -> bool:
        """Whether the camera is unknown."""
        return self.camera_source.startswith("assumed")

    def narrowed(self, nearest_mm: float) -> "ImageQuery":
        """With a longer lens where the camera is assumed and the nearest person, at `nearest_mm` by this camera, would
        stand nearer than NEAREST_MM: a person who fills a picture is seldom photographed from so near."""
        if not self.assumed or nearest_mm >= NEAREST_MM:
            return self
        half, focal = max(self.picture.size) / 2, self.camera.focal[0]
        focal = max(focal, float(min(focal * NEAREST_MM / nearest_mm, half / np.tan(np.radians(NARROWEST / 2)))))
        degrees = 2 * np.degrees(np.arctan(half / focal))
        return self._replace(
            camera=dataclasses.replace(self.camera, focal=(focal, focal)),
            camera_source=f"assumed {degrees:.0f} degrees, as somebody is close",
        )

    def result(self, people: list[Person], seed: int, steps: int, hypotheses: int, model: str) -> Result:
        """The result of the picture; pixels that came without a file stay with it."""
        path = str(self.request.image) if isinstance(self.request.image, str | Path) else None
        size = self.picture.size
        shown = None if path or isinstance(self.picture, BlankPicture) else self.picture
        made = (seed, steps, hypotheses, model, __version__)
        return Result(path, size, self.camera, people, *made, picture=shown, camera_source=self.camera_source)


def parse_pins(joints: Mapping[str, Any] | None, skeleton: Skeleton = H36M_17) -> Pins | None:
    """{"left_wrist": (x, y, z)} -> (joints (J, 3), which are known (J,)); None without pins."""
    if not joints:
        return None
    place, known = np.zeros((skeleton.count, 3)), np.zeros(skeleton.count, dtype=bool)
    for name, xyz in joints.items():
        point = np.array(xyz, dtype=np.float64)  # a copy: the arrays of a result are read-only
        if point.shape != (3,) or not np.isfinite(point).all():
            raise InputError(f"pin['{name}'] must be x, y, z in mm from the pelvis, got {xyz!r}")
        if np.linalg.norm(point) > REACH_MM:
            raise InputError(
                f"pin['{name}'] lies {np.linalg.norm(point):.0f} mm from the pelvis, farther than bodies reach: "
                "pins are relative to the pelvis, in mm"
            )
        place[skeleton.index(name)], known[skeleton.index(name)] = point, True
    return place, known


def parse_tokens(
    codes: Mapping[int, int] | None, config: TokenizerConfig | None
) -> tuple[Int[np.ndarray, "1 N"], Bool[np.ndarray, "1 N"]] | None:
    """{position: code} -> (tokens, which to keep); None without any. `config` None: the model has no tokens."""
    if not codes:
        return None
    if config is None:
        raise InputError("keep_tokens is for models with tokens: this one has none")
    tokens, stay = np.zeros((1, config.tokens), dtype=np.int64), np.zeros((1, config.tokens), dtype=bool)
    for position, code in codes.items():
        if not (0 <= position < config.tokens and 0 <= code < config.codes):
            raise InputError(
                f"keep_tokens maps positions 0..{config.tokens - 1} to codes 0..{config.codes - 1}, "
                f"got {position}: {code}"
            )
        tokens[0, position], stay[0, position] = code, True
    return tokens, stay


def batches(
    images: Picture | Sequence[Picture], boxes: Any, hidden: Any, keypoints: Any = None
) -> Iterator[list[ImageRequest]]:
    """One request a picture, BATCH at a time.

    Boxes are a list for one picture, and a list of such lists for a list of pictures.
    """
    if isinstance(images, list | tuple):
        pictures: list[Any] = list(images)
        boxes = [None] * len(pictures) if boxes is None else boxes
        hidden = hidden if len(hidden) else [()] * len(pictures)
        marks = keypoints_for(pictures, keypoints)
    else:
        pictures, boxes, hidden = [images], [boxes], [hidden]
        marks = keypoints_for(pictures, keypoints if isinstance(keypoints, str | Path) else [keypoints])
    if not len(boxes) == len(hidden) == len(pictures):
        raise InputError(
            f"{len(pictures)} images need as many lists of boxes, got {len(boxes)} (boxes) and {len(hidden)} (occluded)"
        )
    if any(some is not None and points is not None for some, points in zip(boxes, marks, strict=True)):
        raise InputError("give boxes or keypoints, not both: keypoints say where the people are")
    what = "boxes of a picture are a list of (x0, y0, x1, y1)"
    whole = [
        ImageRequest(image, None if some is None else parse_boxes(some, what), parse_boxes(covers, what), points)
        for image, some, covers, points in zip(pictures, boxes, hidden, marks, strict=True)
    ]
    return (whole[first : first + BATCH] for first in range(0, len(whole), BATCH))


def keypoints_for(pictures: Sequence[Any], keypoints: Any) -> list[Float[np.ndarray, "P 17 3"] | None]:
    """The keypoints of each picture: a list of one entry a picture (an array, a file, or None: by the detector), or a
    file of all of them, in which pictures are found by name, else by order. People without any joint are left out."""
    if keypoints is None:
        return [None] * len(pictures)
    found: list[Float[np.ndarray, "P 17 3"] | None] = []
    if isinstance(keypoints, str | Path):
        found += match_pictures(read_keypoints(Path(keypoints)), pictures, keypoints)
    else:
        if len(keypoints) != len(pictures):
            raise InputError(f"{len(pictures)} images need as many entries of keypoints, got {len(keypoints)}")
        for number, (picture, each) in enumerate(zip(pictures, keypoints, strict=True)):
            if isinstance(each, str | Path):
                found += match_pictures(read_keypoints(Path(each)), [picture], each)
            else:
                found.append(None if each is None else parse_keypoints(each, f"keypoints of image {number}"))
    return [None if each is None else each[(each[..., 2] > 0).any(-1)] for each in found]


def open_query(request: ImageRequest, camera: Camera | None, field_of_view: float | None) -> ImageQuery:
    """The picture, opened, and its camera. Boxes outside of the picture are an error."""
    picture = open_picture(request.image)
    camera, source = camera_and_source(picture.size, camera, field_of_view, exif_focal(picture))
    if outside := [b for b in request.boxes or () if not overlap(b, (0, 0, *picture.size))]:
        raise InputError(f"the box {outside[0]} lies outside of the picture of {picture.width}x{picture.height} pixels")
    for number, person in enumerate(() if request.keypoints is None else request.keypoints):
        x, y = person[:, 0], person[:, 1]
        if not ((x >= 0) & (x <= picture.width) & (y >= 0) & (y <= picture.height)).any():
            raise InputError(
                f"no keypoint of person {number} lies in the picture of {picture.width}x{picture.height} pixels: "
                "they must be pixels of this picture, upright"
            )
    return ImageQuery(request, picture, camera, source)


def camera_and_source(
    size: tuple[int, int], camera: Camera | None, field_of_view: float | None, focal: ExifFocal | None = None
) -> tuple[Camera, str]:
    """The camera of a picture (width, height), and its source: the given one, else a centred one of the given field of
    view, of the file's focal length, or of 60 degrees across the longer side."""
    if camera is not None and field_of_view is not None:
        raise InputError("give the camera or its field_of_view, not both")
    if field_of_view is not None:
        return assumed_camera(size, field_of_view), "field of view given"
    if camera is None:
        if focal is not None and not focal.trouble:
            pixels = focal.pixels(size)
            centred = Camera(focal=(pixels, pixels), centre=(size[0] / 2, size[1] / 2), size=size)
            return centred, f"EXIF focal length ({focal.mm_35:.0f} mm equivalent)"
        unused = "" if focal is None else f" (EXIF focal length not used: {focal.trouble})"
        return assumed_camera(size), f"assumed {DEFAULT_FIELD_OF_VIEW:g} degrees{unused}"
    if camera.size is not None and tuple(camera.size) != tuple(size):
        raise InputError(
            f"the camera is of pictures of {camera.size[0]}x{camera.size[1]} pixels, this one has {size[0]}x{size[1]} "
            "(upright): give the camera of this size"
        )
    return camera, "given"


def open_picture(image: Picture) -> Image.Image:
    """Upright RGB pixels of what the user handed in."""
    if isinstance(image, str | Path):
        return read_image(image)
    if isinstance(image, BlankPicture):
        return image
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise InputError(
                f"pixels must be RGB, uint8, of shape (height, width, 3), got {image.dtype} of shape {image.shape}; "
                "several pictures come as a list"
            )
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise InputError(f"a picture is a path, a PIL image or an array of pixels, got {type(image).__name__}")
    if min(image.size) < LEAST_PIXELS:
        size = f"{image.width}x{image.height}"
        raise InputError(f"a picture needs at least {LEAST_PIXELS} pixels a side, got {size}")
    return upright_rgb(image)
