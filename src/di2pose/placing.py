"""From a model's poses to people in a picture: camera axes, where they stand, what was seen, how far off.

B crops, H hypotheses. Poses leave the model in the axes of their crop; a Person is in the axes of the camera.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from di2pose.calibration import Calibration
from di2pose.errors import InputError
from di2pose.image.encoder import Encoder, EncoderOutput, to_picture
from di2pose.model import Pins, Prediction
from di2pose.person_crop import EncodedCrops, PersonCrop
from di2pose.pose.root import place, stature_mm
from di2pose.pose.skeleton import H36M_17, LIMB_12, convert
from di2pose.result import Person

BEYOND = 0.05
"""A joint this share of the crop's side outside the picture is out of the frame, whatever the pixels suggest; and so
far inside it is not."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the model makes of B crops."""

    samples_mm: Float[np.ndarray, "B H 17 3"]
    """Camera axes, root-relative."""
    visibility: Float[np.ndarray, "B 17 4"]
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[Tensor, "B H N"] | None


def in_camera_axes(prediction: Prediction, encoded: EncodedCrops, encoder: Encoder) -> Estimate:
    """A prediction, with poses in the axes of the cameras, and with visibilities where the model has no head."""
    poses = prediction.joints_mm.cpu().double().numpy()
    turned = [
        pose @ encoder.rotation(crop.region, crop.camera) for pose, crop in zip(poses, encoded.crops, strict=True)
    ]
    if prediction.visibility is None:
        visibility = visibility_by_landmarks(encoded.output)
    else:
        visibility = prediction.visibility.double().cpu().numpy()
    return Estimate(np.stack(turned) if turned else poses, visibility, prediction.tokens)


def pins_in_crops(pins: Pins, crops: Sequence[PersonCrop], encoder: Encoder, device: torch.device) -> Pins:
    """Pins in camera axes, the same for every crop -> in the axes of each crop."""
    turned = [pins[0].double() @ torch.from_numpy(encoder.rotation(crop.region, crop.camera)).T for crop in crops]
    return torch.stack(turned).float().to(device), pins[1].expand(len(crops), -1).to(device)


def visibility_by_landmarks(output: EncoderOutput) -> Float[np.ndarray, "B 17 4"]:
    """For a model without a visibility head: seen as the encoder thinks of its own landmarks, else hidden. Without
    landmarks nothing tells what is hidden: all joints count as seen, and only geometry overrules that."""
    if output.landmark_visibility is None or output.skeleton is None:
        seen = np.ones((len(output.features), H36M_17.count))
    else:
        twice = output.landmark_visibility.double().cpu().numpy()[..., None].repeat(2, axis=-1)
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
) -> list[Person]:
    """A person for each crop, in the crops' order. `height_m`, where it is known, is everybody's stature."""
    if height_m is not None and not 0.3 <= height_m <= 3.0:
        raise InputError(f"height_m is a stature in metres, 0.3 to 3, got {height_m}")
    calibration = calibration or Calibration.neutral()
    limbs = _limbs(encoded, encoder)
    return [_person(crop, estimate, row, *limbs[row], calibration, height_m) for row, crop in enumerate(encoded.crops)]


def _person(
    crop: PersonCrop,
    estimate: Estimate,
    row: int,
    landmarks_2d: np.ndarray,
    weights: np.ndarray,
    calibration: Calibration,
    height_m: float | None,
) -> Person:
    samples_mm = estimate.samples_mm[row]
    joints_mm = samples_mm.mean(0)
    root_mm = place(joints_mm, landmarks_2d, weights, crop.detection.box, crop.camera)
    joints_2d = crop.camera.project(joints_mm + root_mm)
    state = _overruled(calibration.state(estimate.visibility[row]), joints_2d, crop)
    covariance_mm2 = calibration.covariance_mm2(samples_mm, state)
    factor = 1.0 if height_m is None else height_m * 1000 / float(stature_mm(samples_mm).mean())
    return Person(
        joints_mm=joints_mm * factor,
        samples_mm=samples_mm * factor,
        covariance_mm2=covariance_mm2 * factor**2,
        r90_mm=calibration.r90_mm(covariance_mm2, state) * factor,
        state=state,
        joints_2d=joints_2d,
        box=crop.detection.box,
        root_mm=root_mm * factor,
        score=crop.detection.score,
        tokens=None if estimate.tokens is None else estimate.tokens[row].cpu().numpy(),
    )


def _limbs(encoded: EncodedCrops, encoder: Encoder) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each crop: the landmarks of the limb joints at their places in H36M order, picture pixels, and their
    visibility, which is 0 where there are no landmarks."""
    output, found = encoded.output, []
    for row, crop in enumerate(encoded.crops):
        points, weights = np.full((H36M_17.count, 2), np.nan), np.zeros(H36M_17.count)
        if output.landmarks_2d is not None and output.landmark_visibility is not None and output.skeleton is not None:
            there, here = list(output.skeleton.indices(*LIMB_12)), list(H36M_17.indices(*LIMB_12))
            points[here] = to_picture(encoder, crop.region, output.landmarks_2d[row, there].double().cpu().numpy())
            weights[here] = output.landmark_visibility[row, there].double().cpu().numpy()
        found.append((points, weights))
    return found


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
