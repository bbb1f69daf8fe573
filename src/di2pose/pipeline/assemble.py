"""From a model's poses to people in a picture: camera axes, where they stand, what was seen, how far off.

B crops, H hypotheses. Poses leave the model in the axes of their crop; a Person is in the axes of the camera.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from di2pose.arrays import to_numpy
from di2pose.calibration import Calibration
from di2pose.errors import InputError
from di2pose.image.encoder import Encoder, EncoderOutput
from di2pose.pipeline.crops import EncodedCrops, PersonCrop
from di2pose.pipeline.fit import HeldJoints, View, fit_body, fit_mean, mean_body, unclear
from di2pose.pipeline.observations import views_of
from di2pose.pipeline.person_score import evidence
from di2pose.pose.bones import stature_mm
from di2pose.pose.camera import Camera
from di2pose.pose.fit import FittedPose
from di2pose.pose.skeleton import H36M_17, convert
from di2pose.prediction import Pins, Prediction
from di2pose.result import Person

BEYOND = 0.05
"""A joint this share of the crop's side outside the picture is out of the frame, whatever the pixels suggest; and so
far inside it is not."""
SIZE_STD, KNOWN_SIZE_STD = 0.07, 0.02
"""What a body's size is off by, as a share, where its height is guessed and where it is given."""
SAME_PLACE = 0.2
"""Two upper bodies nearer than this part of their length are one."""
UPPER_BODY = H36M_17.indices("pelvis", "spine", "thorax", "nose", "head", "left_shoulder", "right_shoulder")
ASSUMED_STD = 0.25
"""What an assumed focal length is off by, as a share."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the model makes of B crops."""

    samples_mm: Float[np.ndarray, "B H 17 3"]
    """Camera axes, root-relative."""
    visibility: Float[np.ndarray, "B 17 4"]
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[Any, "B H N"] | None

    def pick(self, rows: Sequence[int]) -> "Estimate":
        """Of some of the crops."""
        tokens = None if self.tokens is None else self.tokens[list(rows)]
        return Estimate(self.samples_mm[list(rows)], self.visibility[list(rows)], tokens)


def in_camera_axes(prediction: Prediction, encoded: EncodedCrops, encoder: Encoder) -> Estimate:
    """A prediction, with poses in the axes of the cameras, and with visibilities where the model has no head."""
    poses = to_numpy(prediction.joints_mm)
    turned = [
        pose @ encoder.rotation(crop.region, crop.camera) for pose, crop in zip(poses, encoded.crops, strict=True)
    ]
    if prediction.visibility is None:
        visibility = visibility_by_landmarks(encoded.output)
    else:
        visibility = to_numpy(prediction.visibility)
    return Estimate(np.stack(turned) if turned else poses, visibility, prediction.tokens)


def through(
    cameras: Sequence[Camera], encoded: EncodedCrops, estimate: Estimate, encoder: Encoder
) -> tuple[EncodedCrops, Estimate]:
    """The same crops and poses, taken by other cameras: a crop's axes turn with the angle under which it is seen."""
    crops = [replace(crop, camera=camera) for crop, camera in zip(encoded.crops, cameras, strict=True)]
    turns = [
        encoder.rotation(before.region, before.camera).T @ encoder.rotation(after.region, after.camera)
        for before, after in zip(encoded.crops, crops, strict=True)
    ]
    samples_mm = np.stack([poses @ turn for poses, turn in zip(estimate.samples_mm, turns, strict=True)])
    return replace(encoded, crops=crops), replace(estimate, samples_mm=samples_mm)


def pins_in_crops(pins: Pins, crops: Sequence[PersonCrop], encoder: Encoder) -> Pins:
    """Pins in camera axes, the same for every crop -> in the axes of each crop."""
    turned = [pins[0] @ encoder.rotation(crop.region, crop.camera).T for crop in crops]
    return np.stack(turned).astype(np.float32), np.tile(pins[1], (len(crops), 1))


def visibility_by_landmarks(output: EncoderOutput) -> Float[np.ndarray, "B 17 4"]:
    """For a model without a visibility head: seen as the encoder thinks of its own landmarks, else hidden. Without
    landmarks nothing tells what is hidden: all joints count as seen, and only geometry overrules that."""
    if output.landmark_visibility is None or output.skeleton is None:
        seen = np.ones((len(output.features), H36M_17.count))
    else:
        twice = to_numpy(output.landmark_visibility)[..., None].repeat(2, axis=-1)
        seen = convert(twice, output.skeleton, H36M_17)[0][..., 0]
        seen[:, H36M_17.index("head")] = seen[:, H36M_17.index("nose")]  # no landmark lies on top of the head
    none = np.zeros_like(seen)
    return np.stack([seen, none, 1 - seen, none], axis=-1)


def place_people(
    encoded: EncodedCrops,
    estimate: Estimate,
    encoder: Encoder,
    calibration: Calibration | None,
    height_m: float | None = None,
    pins: Pins | None = None,
) -> list[Person]:
    """A person for each crop, in the crops' order. `height_m`, where it is known, is everybody's stature; pins in
    camera axes, the same for everybody."""
    calibration = calibration or Calibration.neutral()
    scores = person_scores(encoded, estimate, encoder, calibration).tolist()
    people = []
    for row, (crop, view) in enumerate(zip(encoded.crops, views_of(encoded, encoder), strict=True)):
        fit = _Fit(view, estimate, row, calibration, height_m, pins)
        people.append(_person(crop, scores[row], estimate, row, calibration, fit))
    return people


def depths_mm(
    encoded: EncodedCrops,
    estimate: Estimate,
    encoder: Encoder,
    calibration: Calibration | None,
    height_m: float | None = None,
    pins: Pins | None = None,
) -> list[float]:
    """How far away the people of `place_people` stand, for less."""
    calibration = calibration or Calibration.neutral()
    views = views_of(encoded, encoder)
    fits = [_Fit(view, estimate, row, calibration, height_m, pins) for row, view in enumerate(views)]
    return [float(fit_mean(*fit.known).root_mm[2]) * fit.factor for fit in fits]


class _Fit:
    """What one person's body is fitted to, before a stated height scales it."""

    def __init__(
        self,
        view: View,
        estimate: Estimate,
        row: int,
        calibration: Calibration,
        height_m: float | None,
        pins: Pins | None,
    ) -> None:
        if height_m is not None and not 0.3 <= height_m <= 3.0:
            raise InputError(f"height_m is a stature in metres, 0.3 to 3, got {height_m}")
        samples_mm, seen = estimate.samples_mm[row], estimate.visibility[row][:, 0]
        self.view, self.known_height = view, height_m is not None
        # A stated height scales everything, and moves no pixel.
        self.factor = 1.0 if height_m is None else height_m * 1000 / float(stature_mm(mean_body(samples_mm)[0]))
        self.pins: HeldJoints | None = None
        if pins is not None:
            self.pins = pins[0] / self.factor, pins[1]
        self.known = samples_mm, seen, view, np.asarray(calibration.trace_mm2[0]) / 3, self.pins


def _person(
    crop: PersonCrop, score: float, estimate: Estimate, row: int, calibration: Calibration, fit: _Fit
) -> Person:
    samples_mm, visibility, factor, pins = estimate.samples_mm[row], estimate.visibility[row], fit.factor, fit.pins
    fitted, bodies_mm = fit_body(*fit.known)
    joints_2d = crop.camera.project(fitted.joints_mm + fitted.root_mm)
    state = _overruled(calibration.state(visibility, unclear(samples_mm, fitted, fit.view)), joints_2d, crop)
    covariance_mm2 = calibration.covariance_mm2(bodies_mm, state)
    r90_mm = calibration.r90_mm(covariance_mm2, state)
    if pins is not None:
        state = np.where(pins[1], "pinned", state)
        covariance_mm2, r90_mm = np.where(pins[1][:, None, None], 0.0, covariance_mm2), np.where(pins[1], 0.0, r90_mm)
    return Person(
        joints_mm=fitted.joints_mm * factor,
        samples_mm=bodies_mm * factor,
        covariance_mm2=covariance_mm2 * factor**2,
        r90_mm=r90_mm * factor,
        state=state,
        joints_2d=joints_2d,
        box=crop.detection.box,
        root_mm=fitted.root_mm * factor,
        root_std_mm=_root_std_mm(fitted, fit.known_height, crop.assumed) * factor,
        score=score,
        tokens=None if estimate.tokens is None else to_numpy(estimate.tokens[row], np.int64),
    )


def _root_std_mm(fitted: FittedPose, known_height: bool, assumed: bool) -> Float[np.ndarray, " 3"]:
    """By the fit, and by what it takes for granted: the body's size, which moves the root along its ray, and the focal
    length, which moves it away."""
    size = fitted.root_mm * (KNOWN_SIZE_STD if known_height else SIZE_STD)
    lens = np.array([0.0, 0.0, ASSUMED_STD * fitted.root_mm[2] * assumed])
    return np.sqrt(np.diag(fitted.root_covariance_mm2) + size**2 + lens**2)


def distinct(people: Sequence[Person]) -> list[Person]:
    """The same people, without poses that lie on somebody else's: of two in one place the one stays whose joints are in
    its own box."""
    kept: list[Person] = []
    for person in sorted(people, key=lambda each: -_inside_box(each)):
        if all(_apart(person, other) > SAME_PLACE for other in kept):
            kept.append(person)
    return [person for person in people if any(person is each for each in kept)]


def _inside_box(person: Person) -> float:
    """The share of the upper body's joints that lie in the box."""
    x0, y0, x1, y1 = person.box
    x, y = person.joints_2d[list(UPPER_BODY)].T
    return float(((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)).mean())


def _apart(a: Person, b: Person) -> float:
    """Mean distance of the upper body's joints in the picture, over the upper body's length."""
    upper = list(UPPER_BODY)
    size = max(float(np.ptp(each.joints_2d[upper], axis=0).max()) for each in (a, b))
    return float(np.linalg.norm(a.joints_2d[upper] - b.joints_2d[upper], axis=-1).mean()) / max(size, 1.0)


def person_scores(
    encoded: EncodedCrops, estimate: Estimate, encoder: Encoder, calibration: Calibration | None
) -> Float[np.ndarray, " B"]:
    """How likely each crop shows a person at all; the detector's score where the calibration or the encoder cannot
    tell."""
    told = evidence(encoded.output, encoded.flipped, estimate.samples_mm, encoder.size[0])
    if calibration is None or calibration.person is None or told is None:
        return np.array([crop.detection.score for crop in encoded.crops])
    return calibration.person.score(told)


def _overruled(state: np.ndarray, joints_2d: np.ndarray, crop: PersonCrop) -> np.ndarray:
    """The states, where geometry knows better: behind what the user calls hidden, or clearly outside or inside of the
    picture."""
    x, y = joints_2d.T
    for x0, y0, x1, y1 in crop.hidden:
        state = np.where((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1), "occluded", state)
    slack = BEYOND * crop.region.side
    half = np.array(crop.picture.size) / 2
    near, inside = ((np.abs(joints_2d - half) <= half + reach).all(-1) for reach in (slack, -slack))
    state = np.where(inside & (state == "out_of_frame"), "occluded", state)
    return np.where(near, state, "out_of_frame")
