"""The options of a prediction: names, types, defaults, ranges and checks, for Python, the command line and REST."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypedDict

import numpy as np

from di2pose.errors import InputError
from di2pose.image.boxes import Box
from di2pose.image.detect import Detector
from di2pose.pose.camera import Camera

Boxes = Sequence[Box] | Sequence[Sequence[Box] | None]
"""Of one picture, or of each of several."""
Point = Sequence[float] | np.ndarray


def _within(default: Any, least: float | None, most: float | None = None) -> Any:
    """A field whose metadata hold its range: "least" and "most", None where there is no bound."""
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, eq=False)
class Options:
    """How to predict. Made of the keyword arguments of `Di2Pose.__call__`; `check` says what is wrong with them."""

    hypotheses: int = _within(8, 1)
    """Poses drawn for each person; their mean is the estimate."""
    steps: int | None = _within(None, 1)
    """Reverse steps of the diffusion; None: the model's own default."""
    seed: int = 0
    """The noise of hypothesis h of person p depends on (seed, p, h) alone, so a batch gives what single runs do."""
    boxes: Boxes | None = None
    """Where the people are, a list of (x0, y0, x1, y1) in pixels of the upright picture, instead of a detector; for a
    list of images a list of such lists."""
    camera: Camera | None = None
    """Of the upright picture; None: by `field_of_view`, else by EXIF, else 60 degrees."""
    field_of_view: float | None = _within(None, 1, 170)
    """Degrees across the longer side, where there is no calibrated camera."""
    height_m: float | None = _within(None, 0.3, 3)
    """Everybody's stature in metres, where it is known: it scales the skeleton and the distance."""
    max_people: int = _within(8, 1)
    """At most so many people, the largest ones, largest first."""
    min_score: float | None = _within(None, 0, 1)
    """Leave out people whose score is lower; None: the model's own default."""
    detector: str | Detector | None = None
    """'auto', 'blazepose', or an object with `detect(image, max_people=)` -> list of Detection; None:
    the pipeline's own."""
    second_look: bool = True
    """Add the flip test, and for crops that look wrong try others, upright and where the landmarks suggest; the crop
    with the greatest certainty of the model is used. Two passes of the encoder instead of one, and up to four more."""
    occluded: Boxes = ()
    """Boxes, as `boxes`: regions to ignore; joints that fall into them are 'occluded'."""
    pin: Mapping[str, Point] | None = None
    """Known joints, {"left_wrist": (x, y, z)} in mm from the pelvis, camera axes: the rest of the pose is drawn to
    agree with them. For one person in one picture."""
    keep_tokens: Mapping[int, int] | None = None
    """{position: code} of tokens to keep, e.g. some of an earlier `person.tokens`. For one person in one picture."""

    def check(self) -> "Options":
        """The same options; InputError where a number has the wrong type or lies outside of its range.

        The bounds of `steps` are the model's, those of `field_of_view` are checked with the camera.
        """
        for name in ("hypotheses", "max_people", "seed"):
            value = getattr(self, name)
            if not _is_whole(value):
                raise InputError(f"{name} must be a whole number, got {value!r}")
            if name != "seed" and value < 1:
                raise InputError(f"{name} must be 1 or more, got {value!r}")
        if self.steps is not None and not _is_whole(self.steps):
            raise InputError(f"steps must be a whole number, or None for the model's own, got {self.steps!r}")
        for name, example in (
            ("height_m", "a stature in metres like 1.78"),
            ("field_of_view", "an angle in degrees like 60"),
            ("min_score", "a number from 0 to 1"),
        ):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and not isinstance(value, bool)):
                raise InputError(f"{name} must be {example}, or None, got {value!r}")
        if self.min_score is not None and not 0 <= self.min_score <= 1:
            raise InputError(f"min_score must be a number from 0 to 1, got {self.min_score!r}")
        if self.height_m is not None and not 0.3 <= self.height_m <= 3:
            raise InputError(f"height_m is a stature in metres, 0.3 to 3, got {self.height_m}")
        return self


class CallOptions(TypedDict, total=False):
    """`Options` as keyword arguments, for type checkers."""

    hypotheses: int
    steps: int | None
    seed: int
    boxes: Boxes | None
    camera: Camera | None
    field_of_view: float | None
    height_m: float | None
    max_people: int
    min_score: float | None
    detector: str | Detector | None
    second_look: bool
    occluded: Boxes
    pin: Mapping[str, Point] | None
    keep_tokens: Mapping[int, int] | None


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


VIDEO_OPTIONS = ("hypotheses", "steps", "seed", "max_people", "min_score", "height_m", "field_of_view")
"""The options of `video_results`, too: those that hold for every frame."""
