"""Keypoints that the user gives: they say who is there, place the crops, and replace the second observer's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.image.crop import apply, invert, roi_from_box
from di2pose.image.detect import Detection
from di2pose.image.encoder import Encoder, EncoderOutput
from di2pose.image.keypoint_encoder import BlankPicture, KeypointEncoder
from di2pose.image.keypoints import read_keypoints
from di2pose.image.movenet import OBSERVER, keypoint_tokens
from di2pose.image.region import region_of
from di2pose.pipeline.crops import EncodedCrops
from di2pose.pipeline.observations import keypoint_noise
from di2pose.pose.skeleton import COCO_17

MARGIN = 0.15
"""From the outermost keypoint to the border of a person's box, over the longer side of the keypoints' box: heads, hands
and feet reach beyond them."""


def without_pictures(keypoints: Any, size: Any) -> tuple[Any, Any]:
    """Pictures of which only the size is known, and the keypoints in them: one of each, or a list of each where the
    keypoints are a list of arrays or a file of several pictures."""
    if keypoints is None or size is None:
        raise InputError("without pictures give keypoints=(people, 17, 3) and size=(width, height) in pixels")
    if isinstance(keypoints, str | Path):
        found = [each.people for each in read_keypoints(Path(keypoints))]
        keypoints = found[0] if len(found) == 1 else found
    picture = BlankPicture(size)
    if isinstance(keypoints, list | tuple) and any(np.ndim(each) == 3 for each in keypoints):
        return [picture] * len(keypoints), list(keypoints)
    return picture, keypoints


def detections_of(people: Float[np.ndarray, "P 17 3"]) -> list[Detection]:
    """A detection for each person; in the picture's pixels."""
    found = []
    for person in people:
        low, high = np.nanmin(person[:, :2], axis=0), np.nanmax(person[:, :2], axis=0)
        margin = MARGIN * max(1.0, float((high - low).max()))
        (x0, y0), (x1, y1) = (low - margin).tolist(), (high + margin).tolist()
        box = (x0, y0, x1, y1)
        region = region_of(person, box) or roi_from_box(box)
        found.append(Detection(box, 1.0, region, keypoints=person, given=True))
    return found


def with_given_keypoints(encoded: EncodedCrops, encoder: Encoder) -> EncodedCrops:
    """The same, but what the second observer saw is replaced by the given keypoints, where a person has them; those
    that are not given are missing. In the mirror image it is their mirror image."""
    rows = [row for row, crop in enumerate(encoded.crops) if crop.detection.given]
    if not rows:
        return encoded
    given = np.zeros((len(rows), COCO_17.count, 3))
    for place, row in enumerate(rows):
        crop = encoded.crops[row]
        marks = crop.detection.keypoints
        assert marks is not None
        given[place, :, :2] = apply(invert(encoder.matrix(crop.region)), marks[:, :2])
        given[place, :, 2] = marks[:, 2]
    mirrored = given[:, list(COCO_17.mirror_order)] * (-1, 1, 1) + (encoder.size[0], 0, 0)
    flipped = None if encoded.flipped is None else _replace_observer(encoded.flipped, rows, mirrored, encoder)
    return replace(encoded, output=_replace_observer(encoded.output, rows, given, encoder), flipped=flipped)


def _replace_observer(
    output: EncoderOutput, rows: list[int], given: Float[np.ndarray, "R 17 3"], encoder: Encoder
) -> EncoderOutput:
    keypoints = np.full((len(output.features), 17, 3), np.nan) if output.keypoints is None else output.keypoints.copy()
    keypoints[rows] = given
    if isinstance(encoder, KeypointEncoder):
        features = output.features.copy()
        features[rows] = encoder.features(given)
        return replace(output, features=features, keypoints=keypoints)
    features = output.features
    for block in encoder.layout.blocks:
        if block.name == OBSERVER:
            features = features.copy()
            width = encoder.size[0]
            tokens = keypoint_tokens(given, keypoint_noise(given[..., 2], width), width)
            features[rows, encoder.layout.tokens(OBSERVER), block.first : block.first + block.width] = tokens
    return replace(output, features=features, keypoints=keypoints)


def observed(detection: Detection, person: Float[np.ndarray, "17 3"]) -> Detection:
    """A detection with the keypoints that an observer found in its box; the same, where it found none."""
    if not (person[:, 2] > 0).any():
        return detection
    return replace(detection, keypoints=person, given=True, roi=region_of(person, detection.box) or detection.roi)
