"""Which region of a picture to look at: by a named detector, or for the person that a record of a dataset is about."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.crop import Roi
from di2pose.image.detect import BlazePoseDetector, Detection, RtDetr, given
from di2pose.pose.camera import Camera


@runtime_checkable
class Detector(Protocol):
    """Anything that finds people, surest first: a detector of ours, or a user's own."""

    def detect(self, image: Image.Image, max_people: int = 8) -> list[Detection]: ...


@runtime_checkable
class Record(Protocol):
    """What of a dataset's record (`data.sample.Sample`) may be known when its picture is looked at."""

    @property
    def id(self) -> str: ...

    @property
    def box(self) -> tuple[float, float, float, float] | None: ...

    @property
    def camera(self) -> Camera | None: ...


def load_detector(name: str, device: torch.device | str = "cpu") -> Detector:
    """'blazepose', or 'rtdetr:FOLDER' (a hub name or a folder of RT-DETR, RT-DETRv2 or D-FINE)."""
    kind, _, place = name.partition(":")
    if name == "blazepose":
        return BlazePoseDetector().to(device)
    if kind == "rtdetr" and place:
        return RtDetr(place).to(device)
    raise InputError(f"the detector is 'blazepose', 'rtdetr:FOLDER' or an object with detect(), got '{name}'")


class Finder:
    """A record's person and their region: the detection whose body lies nearest to the record's box, else the box."""

    def __init__(self, detector: BlazePoseDetector | None = None) -> None:
        self.detector = detector or BlazePoseDetector()

    def __call__(self, sample: Record, image: Image.Image) -> Roi:
        return self.find(sample, image).roi

    def find(self, sample: Record, image: Image.Image) -> Detection:
        if sample.box is None:
            people = self.detector.detect(image, max_people=1, tiles=())
            if not people:
                raise InputError(f"record {sample.id} has no box, and the detector finds nobody in its picture")
            return people[0]
        for tiles in ((), (2, 4)):  # the quick look first: most pictures show one prominent person
            people = self.detector.detect(image, tiles=tiles)
            close = [person for person in people if overlap(person.box, sample.box) > 0.2]
            if close:
                return max(close, key=lambda person: overlap(person.box, sample.box or person.box))
        return given([sample.box])[0]


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection of two boxes (x0, y0, x1, y1) over the smaller one's area."""
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = a, b
    shared = max(0.0, min(ax1, bx1) - max(ax0, bx0)) * max(0.0, min(ay1, by1) - max(ay0, by0))
    return shared / min((ax1 - ax0) * (ay1 - ay0), (bx1 - bx0) * (by1 - by0))
