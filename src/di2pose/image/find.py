"""Which region of a picture to look at for the person that a record of a dataset is about."""

from collections.abc import Iterator
from functools import cached_property
from typing import Protocol, runtime_checkable

from PIL import Image

from di2pose.errors import InputError
from di2pose.image.blazepose_detector import BlazePoseDetector
from di2pose.image.boxes import iou
from di2pose.image.crop import Roi
from di2pose.image.detect import Detection, Detector, given, overlap
from di2pose.pose.camera import Camera


@runtime_checkable
class Record(Protocol):
    """What of a dataset's record (`data.sample.Sample`) may be known when its picture is looked at."""

    @property
    def id(self) -> str: ...

    @property
    def box(self) -> tuple[float, float, float, float] | None: ...

    @property
    def camera(self) -> Camera | None: ...


class Finder:
    """A record's person and their region: the detection whose body lies nearest to the record's box, else the box.
    Without a detector of its own it is BlazePose's, whatever the default for photos is: feature caches and peers stay
    what they are."""

    def __init__(self, detector: Detector | None = None) -> None:
        self._detector = detector

    @cached_property
    def detector(self) -> Detector:
        """Loaded when it is first asked: records with boxes of their own may never need it."""
        return self._detector or BlazePoseDetector()

    def __call__(self, sample: Record, image: Image.Image) -> Roi:
        return self.find(sample, image).roi

    def find(self, sample: Record, image: Image.Image) -> Detection:
        box = sample.box
        for people in self._looks(image):
            if box is None and people:
                return max(people, key=lambda person: person.score)
            close = [person for person in people if box is not None and overlap(person.box, box) > 0.2]
            if box is not None and close:
                return max(close, key=lambda person: (round(overlap(person.box, box), 1), iou(person.box, box)))
        if box is None:
            raise InputError(f"record {sample.id} has no box, and the detector finds nobody in its picture")
        return given([box])[0]

    def _looks(self, image: Image.Image) -> Iterator[list[Detection]]:
        """BlazePose's detector first takes a quick look: most pictures show one prominent person."""
        if isinstance(self.detector, BlazePoseDetector):
            yield self.detector.detect(image, tiles=())
            yield self.detector.detect(image)
        else:
            yield self.detector.detect(image)


def boxed(sample: Record, image: Image.Image) -> Detection:
    """The person in the record's own box, without looking."""
    if sample.box is None:
        raise InputError(f"record {sample.id} has no box to crop by: leave --true-boxes out")
    return given([sample.box])[0]
