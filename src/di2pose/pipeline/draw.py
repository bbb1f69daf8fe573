"""Hypotheses of every crop: the model's poses with the flip test, turned into camera axes.  B crops, H hypotheses.

The flip test takes a crop's mirror image as a second observation, in which an encoder errs differently: every other
pair of hypotheses comes from it and is mirrored back; single poses and visibilities are the means of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from di2pose.image.encoder import Encoder, EncoderOutput
from di2pose.model import Constraints, NumpyModel, Pins, Prediction, TorchModel
from di2pose.pipeline.crops import EncodedCrops, PersonCrop
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, convert, mirror

MIRROR_ORDER = list(H36M_17.mirror_order)


def predict_both(
    model: NumpyModel,
    features: Float[np.ndarray, "B L F"],
    flipped: Float[np.ndarray, "B L F"] | None,
    hypotheses: int,
    steps: int,
    noise: Any,
    constraints: Constraints | None = None,
) -> Prediction:
    """`model.predict`; with `flipped`, the features of the mirror images, the flip test.

    Kept tokens have no meaning in the mirror: they switch the flip test off. The tokens of a mirrored hypothesis are
    those of its pose mirrored back.
    """
    known = constraints or Constraints()
    if flipped is None or known.kept is not None:
        return model.predict(features, hypotheses, steps, noise, constraints)
    here, there = ([h for h in range(hypotheses) if h // 2 % 2 == side] for side in (0, 1))
    if not there:  # too few hypotheses for a pose of the mirror image: drawn in one step for its visibility alone
        found = model.predict(features, hypotheses, steps, noise, constraints)
        if found.visibility is None:
            return found
        other = model.predict(flipped, 1, 1, _share(noise, [0], hypotheses))
        return replace(found, visibility=_mean_visibility(found, other))
    mirrored = known
    if known.pins is not None:
        joints, which = known.pins
        mirrored = replace(known, pins=(mirror(joints, H36M_17), which[:, MIRROR_ORDER]))
    noise_here, noise_there = (_share(noise, rows, hypotheses) for rows in (here, there))
    if len(here) == len(there) and isinstance(noise_here, list) and isinstance(noise_there, list):  # in one pass
        pins = None
        if known.pins is not None and mirrored.pins is not None:
            pins = np.concatenate([known.pins[0], mirrored.pins[0]]), np.concatenate([known.pins[1], mirrored.pins[1]])
        joined = np.concatenate([features, flipped])
        both = model.predict(joined, len(here), steps, noise_here + noise_there, Constraints(pins))
        found, other = _rows(both, slice(0, len(features))), _rows(both, slice(len(features), None))
    else:
        found = model.predict(features, len(here), steps, noise_here, known)
        other = model.predict(flipped, len(there), steps, noise_there, mirrored)
    back = mirror(other.joints_mm, H36M_17)
    order = np.argsort(here + there)
    tokens = None if found.tokens is None else model.tokens_of(back)
    if tokens is not None:
        tokens = np.concatenate([found.tokens, tokens], axis=1)[:, order]
    joints_mm = np.concatenate([found.joints_mm, back], axis=1)[:, order]
    return Prediction(joints_mm, _mean_visibility(found, other), tokens)


def point_estimates(
    model: TorchModel, features: Float[np.ndarray, "B L F"], flipped: Float[np.ndarray, "B L F"] | None
) -> dict[str, Float[np.ndarray, "B 17 3"]]:
    """`PoseModel.point_estimates`; with the mirror images the means of both."""
    found = model.point_estimates(features)
    if flipped is None:
        return found
    there = model.point_estimates(flipped)
    return {name: (pose + mirror(there[name], H36M_17)) / 2 for name, pose in found.items()}


def _rows(both: Prediction, rows: slice) -> Prediction:
    visibility, tokens = (None if part is None else part[rows] for part in (both.visibility, both.tokens))
    return Prediction(both.joints_mm[rows], visibility, tokens)


def _share(noise: Any, rows: Sequence[int], hypotheses: int) -> Any:
    """The noise of some of the hypotheses of every crop."""
    if not isinstance(noise, Sequence):
        return noise  # one for all rows
    return [noise[first + h] for first in range(0, len(noise), hypotheses) for h in rows]


def _mean_visibility(here: Prediction, there: Prediction) -> Any:
    if here.visibility is None or there.visibility is None:
        return None
    return (here.visibility + there.visibility[:, MIRROR_ORDER]) / 2


@dataclass(frozen=True, eq=False)
class Estimate:
    """A prediction of B crops in camera axes."""

    samples_mm: Float[np.ndarray, "B H 17 3"]
    """Root-relative."""
    visibility: Float[np.ndarray, "B 17 4"]
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[np.ndarray, "B H N"] | None

    def pick(self, rows: Sequence[int]) -> "Estimate":
        """Of some of the crops."""
        tokens = None if self.tokens is None else self.tokens[list(rows)]
        return Estimate(self.samples_mm[list(rows)], self.visibility[list(rows)], tokens)


def in_camera_axes(prediction: Prediction, encoded: EncodedCrops, encoder: Encoder) -> Estimate:
    """A prediction, with poses in the axes of the cameras, and with visibilities where the model has none."""
    poses = np.asarray(prediction.joints_mm, np.float64)
    turned = [
        pose @ encoder.rotation(crop.region, crop.camera) for pose, crop in zip(poses, encoded.crops, strict=True)
    ]
    if prediction.visibility is None:
        visibility = visibility_by_landmarks(encoded.output)
    else:
        visibility = np.asarray(prediction.visibility, np.float64)
    return Estimate(np.stack(turned) if turned else poses, visibility, prediction.tokens)


def with_cameras(
    cameras: Sequence[Camera], encoded: EncodedCrops, estimate: Estimate, encoder: Encoder
) -> tuple[EncodedCrops, Estimate]:
    """The same crops and poses with other cameras: a crop's axes turn with the angle under which it is seen."""
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
    """For a model without a visibility head: seen by the encoder's visibility of its landmarks, else hidden. Without
    landmarks all joints count as seen, and only geometry overrules that."""
    if output.landmark_visibility is None or output.skeleton is None:
        seen = np.ones((len(output.features), H36M_17.count))
    else:
        twice = output.landmark_visibility[..., None].repeat(2, axis=-1)
        seen = convert(twice, output.skeleton, H36M_17)[0][..., 0]
        seen[:, H36M_17.index("head")] = seen[:, H36M_17.index("nose")]  # no landmark lies on top of the head
    none = np.zeros_like(seen)
    return np.stack([seen, none, 1 - seen, none], axis=-1)
