"""Faces made unrecognisable. Two witnesses say where a head is, and what either points at is hidden."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw

from di2pose.image.detect import given
from di2pose.image.encoder import PERSON, to_picture
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import BLAZEPOSE_33
from di2pose.result import Person, Result

FACE = BLAZEPOSE_33.joints[: BLAZEPOSE_33.index("right_mouth") + 1]
"""BlazePose's landmarks of the face come first: nose, eyes, ears, mouth."""
FACE_MM = 170.0
"""Radius of the disc that hides a face: a head is about 230 mm high, and the estimate may be some cm off."""
HEAD_MM = 140.0
"""Least radius round the landmarks of a face: hair and chin lie outside of them."""


def without_faces(model: Di2Pose, result: Result) -> Result:
    """The same result with a picture that shows no face."""
    if result.picture is None:
        return result
    return dataclasses.replace(result, picture=hide_faces(model, result, result.picture))


def hide_faces(model: Di2Pose, result: Result, picture: Image.Image) -> Image.Image:
    """The picture with coarse blocks over the head of everybody in the result, which is in the picture's pixels.

    The heads are where the pose has them (the projected joints), and where the encoder sees the landmarks of a face in
    a second look at each person's box: the pose may be wrong about a head in full view.
    """
    discs = [face_disc(person) for person in result.people]
    for person, face in _faces_seen(model, result, picture):
        centre = face.mean(0)
        reach = float(np.linalg.norm(face - centre, axis=1).max())
        discs.append((centre, max(1.6 * reach, HEAD_MM * pixels_a_mm(person))))
    return pixelated(picture, discs)


def _faces_seen(model: Di2Pose, result: Result, picture: Image.Image) -> Iterator[tuple[Person, np.ndarray]]:
    """Everybody in whose box the encoder sees a person, with the landmarks of the face (n, 2) in picture pixels."""
    crops = [model.crop(picture, given([person.box])[0], result.camera) for person in result.people]
    seen = model.encode(crops).output
    if seen.landmarks_2d is None or seen.skeleton is None or seen.person is None:
        return
    where = list(seen.skeleton.indices(*FACE))
    for person, crop, points, sure in zip(result.people, crops, seen.landmarks_2d, seen.person, strict=True):
        if float(sure) >= PERSON:
            yield person, to_picture(model.encoder, crop.region, points[where])


def pixelated(image: Image.Image, discs: Sequence[tuple[np.ndarray, float]]) -> Image.Image:
    """The picture with coarse blocks, six across, in place of each disc (centre, radius) in pixels."""
    hidden = image.copy()
    for centre, radius in discs:
        box = [int(np.floor(v)) for v in (*(centre - radius), *(centre + radius + 1))]
        box = [max(0, box[0]), max(0, box[1]), min(image.width, box[2]), min(image.height, box[3])]
        if box[2] <= box[0] or box[3] <= box[1]:
            continue
        part = image.crop((box[0], box[1], box[2], box[3]))
        block = max(2.0, radius / 3)
        coarse = part.resize([max(1, round(side / block)) for side in part.size], Image.Resampling.BOX)
        disc = Image.new("L", part.size, 0)
        x, y = centre - box[:2]
        ImageDraw.Draw(disc).ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
        hidden.paste(coarse.resize(part.size, Image.Resampling.NEAREST), (box[0], box[1]), disc)
    return hidden


def face_disc(person: Person) -> tuple[np.ndarray, float]:
    """Centre and radius of a disc that hides the head, in pixels."""
    names = [name for name in ("nose", "head", "head_top", "left_ear", "right_ear") if name in person.skeleton.joints]
    head = person.joints_2d[list(person.skeleton.indices(*names))]
    return np.nanmean(head, 0), FACE_MM * pixels_a_mm(person)


def pixels_a_mm(person: Person) -> float:
    """At the person: by all bones, as if without perspective."""
    children, parents = (list(side) for side in zip(*person.skeleton.bones, strict=True))
    flat = person.joints_2d[children] - person.joints_2d[parents]
    real = (person.joints_mm[children] - person.joints_mm[parents])[:, :2]
    return float(np.sqrt(np.nansum(flat**2) / np.nansum(real**2)))
