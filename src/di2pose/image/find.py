"""Which region of a picture to look at for the person that a record of a dataset is about."""

from functools import cached_property
from typing import Protocol, runtime_checkable

from PIL import Image

from di2pose.errors import InputError
from di2pose.image.blazepose_detector import BlazePoseDetector
from di2pose.image.crop import Roi
from di2pose.image.detect import Detection, given, overlap
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
    """A record's person and their region: the detection whose body lies nearest to the record's box, else the box."""

    def __init__(self, detector: BlazePoseDetector | None = None) -> None:
        self._detector = detector

    @cached_property
    def detector(self) -> BlazePoseDetector:
        """Loaded when it is first asked: records with boxes of their own may never need it."""
        return self._detector or BlazePoseDetector()

    def __call__(self, sample: Record, image: Image.Image) -> Roi:
        return self.find(sample, image).roi

    def find(self, sample: Record, image: Image.Image) -> Detection:
        if sample.box is None:
            people = self.detector.detect(image, tiles=())
            if not people:
                raise InputError(f"record {sample.id} has no box, and the detector finds nobody in its picture")
            return max(people, key=lambda person: person.score)
        for tiles in ((), (2, 4)):  # the quick look first: most pictures show one prominent person
            people = self.detector.detect(image, tiles=tiles)
            close = [person for person in people if overlap(person.box, sample.box) > 0.2]
            if close:
                return max(close, key=lambda person: overlap(person.box, sample.box or person.box))
        return given([sample.box])[0]
