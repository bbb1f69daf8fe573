"""People in a picture: what a detection is, detectors by name, boxes of the user, the person of a dataset's record."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.boxes import Box, area, intersection, iou
from di2pose.image.crop import Roi, roi_from_box
from di2pose.pose.camera import Camera

SURE_KEYPOINT, FEW_KEYPOINTS = 0.3, 3
"""Least score of a keypoint that is relied on, and how many of those a person has at least."""


@dataclass(frozen=True)
class Detection:
    """One person, in image pixels. `box` is x0, y0, x1, y1; from BlazePose the square round the body's circle.
    `roi` is the first region to crop."""

    box: Box
    score: float
    roi: Roi
    hip: tuple[float, float] | None = None
    """Between the hips, from BlazePose's detector."""
    keypoints: Float[np.ndarray, "17 3"] | None = field(default=None, compare=False)
    """x, y, score in COCO order, from detectors that find them; scores of 0 where they found none."""
    given: bool = False
    """Whether the keypoints are the user's; missing ones are NaN, with score 0."""

    @property
    def has_few_keypoints(self) -> bool:
        """Whether the detector finds keypoints and found hardly any: often a hand, or no person at all."""
        return self.keypoints is not None and int((self.keypoints[:, 2] >= SURE_KEYPOINT).sum()) < FEW_KEYPOINTS


def from_boxes(boxes: Sequence[Sequence[float]]) -> list[Detection]:
    """Boxes (x0, y0, x1, y1) that the user knows, each with its upright crop."""
    known = [(float(x0), float(y0), float(x1), float(y1)) for x0, y0, x1, y1 in boxes]
    return [Detection(box, 1.0, roi_from_box(box)) for box in known]


@runtime_checkable
class Detector(Protocol):
    """Anything that finds people: a detector of this package, or a user's own. At most `max_people`; those of this
    package give the largest of all they find, largest first."""

    def detect(self, image: Image.Image, max_people: int = 8) -> list[Detection]: ...


def largest(people: Sequence[Detection], size: tuple[int, int], count: int) -> list[Detection]:
    """The `count` people with the largest boxes, as far as they lie in the picture (width, height); largest first."""
    return sorted(people, key=lambda each: -intersection(each.box, (0.0, 0.0, *size)))[:count]


def load_detector(name: str, device: Any = "cpu") -> Detector:
    """'auto' (`PeopleDetector`), 'blazepose', 'rtdetr:FOLDER' (a hub name or a folder of RT-DETR, RT-DETRv2 or D-FINE),
    or the name of an entry point in the group `di2pose.detectors`; what stands behind ':' is the entry point's own."""
    kind, _, place = name.partition(":")
    if name == "auto":
        from di2pose.image.people_detector import PeopleDetector

        return PeopleDetector()
    if name == "blazepose":
        from di2pose.image.blazepose import BlazePoseDetector

        return BlazePoseDetector()
    if kind == "rtdetr" and place:
        from di2pose.image.rtdetr import RtDetr

        return RtDetr(place).to(device)
    if (load := plug_in("di2pose.detectors", kind)) is not None:
        return load(name, device)
    raise InputError(f"the detector is 'auto', 'blazepose', 'rtdetr:FOLDER' or an object with detect(), got '{name}'")


def plug_in(group: str, name: str) -> Callable[[str, Any], Any] | None:
    """load(name, device) of the entry point of that name in an installed distribution: its object, or the object's
    `load`."""
    for entry in entry_points(group=group, name=name):
        found = entry.load()
        return getattr(found, "load", found)
    return None


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection of two boxes (x0, y0, x1, y1) over the smaller one's area."""
    return intersection(a, b) / min(area(a), area(b))


@runtime_checkable
class Record(Protocol):
    """The fields of a dataset's record (`data.sample.Sample`) that say where its person is."""

    @property
    def id(self) -> str: ...

    @property
    def box(self) -> Box | None: ...

    @property
    def camera(self) -> Camera | None: ...


class PersonMatcher:
    """A record's person: the detection nearest to the record's box, else the box.

    The default detector is BlazePose's, whatever that of photos is, so that feature caches stay what they are.
    """

    def __init__(self, detector: Detector | None = None) -> None:
        self._detector = detector

    @cached_property
    def detector(self) -> Detector:
        """Loaded when it is first used: records with boxes of their own may never need it."""
        from di2pose.image.blazepose import BlazePoseDetector

        return self._detector or BlazePoseDetector()

    def __call__(self, sample: Record, image: Image.Image) -> Roi:
        return self.find(sample, image).roi

    def find(self, sample: Record, image: Image.Image) -> Detection:
        box = sample.box
        for people in self._detections(image):
            if box is None and people:
                return max(people, key=lambda person: person.score)
            close = [person for person in people if box is not None and overlap(person.box, box) > 0.2]
            if box is not None and close:
                return max(close, key=lambda person: (round(overlap(person.box, box), 1), iou(person.box, box)))
        if box is None:
            raise InputError(f"record {sample.id} has no box, and the detector finds no person in its picture")
        return from_boxes([box])[0]

    def _detections(self, image: Image.Image) -> Iterator[list[Detection]]:
        """BlazePose's detector runs without tiles first: most pictures show one prominent person."""
        from di2pose.image.blazepose import BlazePoseDetector

        if isinstance(self.detector, BlazePoseDetector):
            yield self.detector.detect(image, tiles=())
        yield self.detector.detect(image)


def from_record_box(sample: Record, image: Image.Image) -> Detection:
    """The person in the record's own box, without a detector."""
    if sample.box is None:
        raise InputError(f"record {sample.id} has no box to crop by: leave --true-boxes out")
    return from_boxes([sample.box])[0]
