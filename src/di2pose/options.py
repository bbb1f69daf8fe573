"""The options of a prediction: names, types, defaults, ranges and checks, for Python, the command line and REST."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
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
Height = float | Mapping[int, float] | None
"""Metres: of everybody, or by the number of the person."""


def _within(default: Any, least: float | None = None, most: float | None = None) -> Any:
    """A number, or None where that is the default; the metadata hold its range, None where there is no bound."""
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, eq=False)
class Options:
    """How to predict. Made of the keyword arguments of `Di2Pose.__call__`; `check` says what is wrong with them."""

    hypotheses: int = _within(8, 1)
    """Poses drawn for each person; their mean is the estimate."""
    steps: int | None = _within(None, 1)
    """Reverse steps of the diffusion; None: the model's own default."""
    seed: int = _within(0)
    """The noise of hypothesis h of person p depends on (seed, p, h) alone, so a batch gives what single runs do."""
    boxes: Boxes | None = None
    """Where the people are, a list of (x0, y0, x1, y1) in pixels of the upright picture, instead of a detector; for a
    list of images a list of such lists."""
    keypoints: Any = None
    """2D keypoints of another program, instead of a detector: an array (people, 17, 3) of x, y in pixels of the upright
    picture and score, COCO order, missing joints NaN or with score 0; or a file or folder that `image.keypoints` reads
    (OpenPose, COCO, AlphaPose, MMPose, npz, ...). For a list of images a list of these, or one file of all."""
    camera: Camera | None = None
    """Of the upright picture; None: by `field_of_view`, else by EXIF, else 60 degrees."""
    field_of_view: float | None = _within(None, 1, 170)
    """Degrees across the longer side, where there is no calibrated camera."""
    height_m: float | Mapping[int, float] | None = _within(None, 0.3, 3)
    """Everybody's stature in metres, where it is known: it scales the skeleton and the distance. In Python also
    {number: metres} of some people: the track in a video, the position in the list in a photo."""
    max_people: int = _within(8, 1)
    """At most so many people, the largest ones, largest first."""
    min_score: float | None = _within(None, 0, 1)
    """Leave out people whose score is lower; None: the model's own default."""
    detector: str | Detector | None = None
    """'auto', 'blazepose', 'rtdetr:FOLDER', or an object with `detect(image, max_people=)` -> list of Detection; None:
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

        The upper bound of `steps` is the model's.
        """
        for each in fields(Options):
            value = getattr(self, each.name)
            if isinstance(value, Mapping) and each.name == "height_m":
                if wrong := [key for key in value if not isinstance(key, Integral) or key < 0]:
                    raise InputError(f"height_m must be metres by the person's number, {{0: 1.78}}, got {wrong[0]!r}")
                for one in value.values():
                    Options(height_m=math.nan if one is None else one).check()
            elif each.metadata and not (value is None and each.default is None):
                whole = is_whole(each)
                if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
                    kind = "a whole number" if whole else "a number"
                    null = ", or None" * (each.default is None)
                    raise InputError(f"{each.name} must be {kind}{null}, got {value!r}")
                least, most = each.metadata["least"], each.metadata["most"]
                if least is not None and not least <= value <= (math.inf if most is None else most):
                    bounds = f"{least} or more" if most is None else f"from {least} to {most}"
                    raise InputError(f"{each.name} must be {bounds}, got {value!r}")
        return self


class CallOptions(TypedDict, total=False):
    """`Options` as keyword arguments, for type checkers."""

    hypotheses: int
    steps: int | None
    seed: int
    boxes: Boxes | None
    keypoints: Any
    camera: Camera | None
    field_of_view: float | None
    height_m: Height
    max_people: int
    min_score: float | None
    detector: str | Detector | None
    second_look: bool
    occluded: Boxes
    pin: Mapping[str, Point] | None
    keep_tokens: Mapping[int, int] | None


def is_whole(option: Field[Any]) -> bool:
    """Whether an option with a range is a whole number."""
    return option.type in (int, int | None)


VIDEO_OPTIONS = ("hypotheses", "steps", "seed", "max_people", "min_score", "height_m", "field_of_view")
"""The options of `video_results`, too: those that hold for every frame."""
