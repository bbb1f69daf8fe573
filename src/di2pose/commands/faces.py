"""Faces made unrecognisable. Two witnesses say where a head is, and what either points at is hidden."""

import dataclasses

import numpy as np
from PIL import Image

from di2pose.image.detect import given
from di2pose.image.encoder import to_picture
from di2pose.output.overlay import face_disc, pixelated, pixels_a_mm
from di2pose.pipeline import Di2Pose
from di2pose.pose.skeleton import BLAZEPOSE_33
from di2pose.result import Result

FACE = BLAZEPOSE_33.joints[: BLAZEPOSE_33.index("right_mouth") + 1]
"""BlazePose's landmarks of the face come first: nose, eyes, ears, mouth."""
LEAST_PERSON = 0.5
HEAD_MM = 140.0
"""Least radius round the landmarks of a face: hair and chin lie outside of them."""


def hide_faces(model: Di2Pose, result: Result, picture: Image.Image) -> Image.Image:
    """The picture with coarse blocks over the head of everybody in the result, which is in the picture's pixels.

    The heads are where the pose has them (the projected joints), and where the encoder sees the landmarks of a face in
    a second look at each person's box: the pose may be wrong about a head in full view.
    """
    discs = [face_disc(person) for person in result.people]
    crops = [model.crop(picture, given([person.box])[0], result.camera) for person in result.people]
    seen = model.encode(crops).output
    if seen.landmarks_2d is not None and seen.skeleton is not None and seen.person is not None:
        where = list(seen.skeleton.indices(*FACE))
        for person, crop, points, sure in zip(result.people, crops, seen.landmarks_2d, seen.person, strict=True):
            if float(sure) >= LEAST_PERSON:
                face = to_picture(model.encoder, crop.region, points[where].double().cpu().numpy())
                centre = face.mean(0)
                reach = float(np.linalg.norm(face - centre, axis=1).max())
                discs.append((centre, max(1.6 * reach, HEAD_MM * pixels_a_mm(person))))
    return pixelated(picture, discs)


def without_faces(model: Di2Pose, result: Result) -> Result:
    """The same result with a picture that shows no face."""
    if result.picture is None:
        return result
    return dataclasses.replace(result, picture=hide_faces(model, result, result.picture))
