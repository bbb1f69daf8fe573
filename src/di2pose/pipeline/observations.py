"""Where each person's joints were observed in the picture: landmarks, keypoints, and their fusion.

B crops, J joints of the model's skeleton; a joint that no observer has is unobserved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from di2pose.image.boxes import Box, intersection
from di2pose.image.detect import SURE_KEYPOINT
from di2pose.image.encoder import Encoder, to_picture
from di2pose.image.movenet import DOUBT, SURE, SURE_NOISE
from di2pose.pipeline.crops import EncodedCrops, PersonCrop
from di2pose.pipeline.second_look import mirrored_back
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import COCO_17, H36M_17, LIMB_12, Skeleton, convert, same_points

LANDMARK_NOISE = 6 / 256
"""Standard deviation of a visible landmark, over the side of the crop."""
FACE_NOISE = 2.0
"""Factor for nose and top of the head, which are not landmarks themselves."""
HIDDEN_NOISE = 30.0
"""Factor for a hidden landmark, plus 1."""
KEYPOINT_NOISE = 0.7
"""Noise of a detector's keypoint, which saw the picture at 256 pixels, over that of a landmark of such a crop."""
AGREE = 3.0
"""Standard deviations by which two observers of a joint may differ."""
CONTRARY = 0.08
"""Distance of a landmark from that of the mirror image, over the side of the crop, from which on they contradict."""
SURE_LIMB, OWN_LIMB, THEIR_LIMB, NEARER = 0.03, 0.06, 0.05, 0.5
"""An observed joint of less noise than the first is a neighbour's where it is farther from the person's other
observations than the second, nearer to the neighbour's than the third, all over the side of the smaller crop, and than
the fourth of the way to the own."""
LIMB_ENDS = [name for name in LIMB_12 if "shoulder" not in name and "hip" not in name]
CROWN = 0.6
"""From between the ears to the top of the head, over the way from between the shoulders to between the ears."""
BORDER = 0.03
"""A box that comes nearer to the picture's border, as a share of its side, is cut by it."""
BOX_TRUST, CUT_BOX_TRUST = 0.25, 1.0
"""Standard deviation (log) of the depth by the size of a box; of one that is cut by the picture's border."""

Observation = tuple[Float[np.ndarray, "*B J 2"], Float[np.ndarray, "*B J"]]
"""Where one observer has the joints, in pixels, and the standard deviation; NaN and infinity where it has none."""


@dataclass(frozen=True)
class PersonView:
    """All observations of one person through a camera."""

    camera: Camera
    box: Box
    cut: bool
    """Whether the box is cut by the picture's border."""
    side: float
    """Of the crop, in the pixels of the camera."""
    points: Float[np.ndarray, "J 2"]
    """The joints by the encoder's landmarks, in pixels of the camera; NaN where there is no landmark."""
    visibility: Float[np.ndarray, " J"]
    """The encoder's visibility of its landmarks, 0 to 1."""
    others: tuple[Observation, ...] = ()
    """Of other observers: keypoints of the crop, of the detector."""
    skeleton: Skeleton = H36M_17
    gap: Float[np.ndarray, " J"] | None = None
    """Distance of the landmarks from those of the mirror image, in pixels of the camera, as `look_gap` gives it."""

    @property
    def apart(self) -> Float[np.ndarray, " J"]:
        """How far the observers of each joint are apart at most, in pixels of the camera; 0 where there is one."""
        places = np.stack([self.points, *(points for points, _ in self.others)])
        pairs = np.nan_to_num(np.linalg.norm(places[:, None] - places, axis=-1)).max((0, 1))
        return pairs if self.gap is None else np.maximum(pairs, self.gap)

    def sources(self) -> list[Observation]:
        """The observation of each observer, the landmarks first, with more noise where they are not seen."""
        plain = landmark_noise(self.side, self.skeleton)
        return [(self.points, plain * (1 + HIDDEN_NOISE * (1 - self.visibility) ** 2)), *self.others]

    def without(self, number: int, joints: Bool[np.ndarray, " J"]) -> "PersonView":
        """The same, but for some joints of one of the `sources`."""
        if number == 0:
            return replace(self, points=np.where(joints[:, None], np.nan, self.points))
        points, noise = self.others[number - 1]
        others = list(self.others)
        others[number - 1] = points, np.where(joints, np.inf, noise)
        return replace(self, others=tuple(others))

    def fused(self, seen: Float[np.ndarray, " J"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All observations as one: points, noise, and visibility by that noise, 0 to 1. `seen`: the probability that
        each joint is seen, by the model."""
        plain = landmark_noise(self.side, self.skeleton)
        hidden = 1 - np.minimum(self.visibility, seen)
        points, noise = fuse([(self.points, plain * (1 + HIDDEN_NOISE * hidden**2)), *self.others])
        return points, noise, 1 - np.sqrt(np.clip((noise / plain - 1) / HIDDEN_NOISE, 0, 1))


def observe(encoded: EncodedCrops, encoder: Encoder, skeleton: Skeleton = H36M_17) -> list[PersonView]:
    """A view of each person: by the encoder's landmarks and its second observer, in the mean with the mirror images
    where those were encoded, too, and by the detector, where it has keypoints. Occluded regions are left out."""
    points, visibility, gap = _landmarks(encoded, encoder, skeleton)
    keypoints = [each.keypoints for each in encoded.outputs if each.keypoints is not None]
    looks = [(each[..., :2], each[..., 2]) for each in keypoints]
    second = observed_joints(looks, encoder.size[0], COCO_17, skeleton) if looks else None
    views = []
    for row, crop in enumerate(encoded.crops):
        in_picture = to_picture(encoder, crop.region, points[row])
        shown = np.where(inside_any(in_picture, crop.hidden), 0.0, visibility[row])
        others = []
        if second is not None:
            marks = to_picture(encoder, crop.region, second[0][row])
            marks, noise = keypoint_observation(marks, second[1][row], crop.region.side, skeleton)
            others.append((marks, np.where(inside_any(marks, crop.hidden), np.inf, noise)))
        if crop.detection.keypoints is not None and not crop.detection.given and not crop.hidden:
            others.append(_by_detector(crop, crop.detection.keypoints, skeleton))
        box, size = crop.detection.box, crop.picture.size
        seen = crop.region.side, in_picture, shown, tuple(others)
        far = gap[row] * crop.region.side / encoder.size[0]
        views.append(PersonView(crop.camera, box, is_cut(box, size), *seen, skeleton, far))
    return without_neighbour_limbs(views, encoded.crops)


def without_neighbour_limbs(views: Sequence[PersonView], crops: Sequence[PersonCrop]) -> list[PersonView]:
    """The views without what lies on a limb of somebody else in the picture: an observation of an elbow, wrist, knee or
    ankle that is far from the person's other observations of it, and near to the neighbour's, left or right. What the
    user gave stays."""
    sources, found = [view.sources() for view in views], list(views)
    mine = [row for row, crop in enumerate(crops) if not crop.detection.given]
    for a, b in product(mine, range(len(views))):
        if a == b or crops[a].picture is not crops[b].picture or not intersection(views[a].box, views[b].box):
            continue
        theirs, side, skeleton = fuse(sources[b])[0], min(views[a].side, views[b].side), views[a].skeleton
        both = np.stack([theirs, theirs[list(skeleton.mirror_order)]])
        limbs = np.isin(np.arange(skeleton.count), skeleton.indices(*LIMB_ENDS))
        for number, (points, noise) in enumerate(sources[a]):
            rest = [each for k, each in enumerate(sources[a]) if k != number]
            if rest:
                own = np.linalg.norm(points - fuse(rest)[0], axis=-1)  # NaN where they have none: kept
                near = np.nan_to_num(np.linalg.norm(points - both, axis=-1), nan=np.inf).min(0)
                sure = limbs & (noise < SURE_LIMB * side)
                wrong = sure & (own > OWN_LIMB * side) & (near < np.minimum(NEARER * own, THEIR_LIMB * side))
                found[a] = found[a].without(number, wrong) if wrong.any() else found[a]
    return found


def observed_joints(
    looks: Sequence[tuple[Float[np.ndarray, "*B L 2"], Float[np.ndarray, "*B L"]]],
    width: float,
    skeleton: Skeleton,
    target: Skeleton = H36M_17,
) -> tuple[Float[np.ndarray, "*B J 2"], Float[np.ndarray, "*B J"]]:
    """Landmarks of a skeleton and their visibility, in the pixels of a crop of that width -> the target's joints and
    their visibility; NaN and 0 for joints without a landmark.

    The second entry, if there is one, is of the mirror image: the mean of both, and the first where they contradict.
    Limb joints are landmarks; nose and top of the head are derived of ears, mouth and shoulders, if there are any; the
    joints that Human3.6M does not have are landmarks of the same point.
    """
    points, shown = looks[0]
    for there, shown_there in looks[1:]:
        other, shown_there = mirrored_back(there, skeleton, width), shown_there[..., list(skeleton.mirror_order)]
        agree = np.linalg.norm(other - points, axis=-1) < CONTRARY * width
        points = np.where(agree[..., None], (points + other) / 2, points)
        shown = np.where(agree, (shown + shown_there) / 2, np.minimum(shown, shown_there))
    found = np.full((*points.shape[:-2], target.count, 2), np.nan)
    weights = np.zeros(found.shape[:-1])

    def middle(*names: str) -> tuple[np.ndarray, np.ndarray]:
        rows = list(skeleton.indices(*names))
        return points[..., rows, :].mean(-2), np.asarray(shown[..., rows].mean(-1))

    source, limbs = list(skeleton.indices(*LIMB_12)), list(target.indices(*LIMB_12))
    found[..., limbs, :], weights[..., limbs] = points[..., source, :], shown[..., source]
    mouth = ("left_mouth", "right_mouth") if "left_mouth" in skeleton.joints else ("nose", "nose")
    if {"left_ear", "right_ear", *mouth} <= set(skeleton.joints):
        nose, head = target.indices("nose", "head")
        found[..., nose, :], weights[..., nose] = middle("left_ear", "right_ear", *mouth)
        (ears, heard), (shoulders, _) = middle("left_ear", "right_ear"), middle("left_shoulder", "right_shoulder")
        found[..., head, :], weights[..., head] = ears + CROWN * (ears - shoulders), heard
    if further := [joint for joint, name in enumerate(target.joints) if name not in H36M_17.joints]:
        found[..., further, :] = convert(points, skeleton, target)[0][..., further, :]
        twice = np.repeat(np.asarray(shown, np.float64)[..., None], 2, -1)
        weights[..., further] = np.nan_to_num(convert(twice, skeleton, target)[0][..., further, 0])
    return found, weights


def look_gap(
    looks: Sequence[tuple[Float[np.ndarray, "*B L 2"], np.ndarray]], width: float, skeleton: Skeleton, target: Skeleton
) -> Float[np.ndarray, "*B J"]:
    """Distance of the target's joints by the landmarks of the first look from those of the second, which is of the
    mirror image; 0 where there is no second, and for joints without a landmark."""
    found = np.zeros((*looks[0][0].shape[:-2], target.count))
    if len(looks) > 1:
        there, here = same_points(skeleton, target)
        gap = np.linalg.norm(mirrored_back(looks[1][0], skeleton, width) - looks[0][0], axis=-1)
        found[..., here] = gap[..., there]
    return found


def landmark_noise(side: float, skeleton: Skeleton = H36M_17) -> Float[np.ndarray, " J"]:
    """Standard deviations of visible joints in a crop of that side."""
    noise = np.full(skeleton.count, LANDMARK_NOISE * side)
    noise[list(skeleton.indices("nose", "head"))] *= FACE_NOISE
    return noise


def keypoint_observation(
    points: Float[np.ndarray, "*B J 2"], scores: Float[np.ndarray, "*B J"], side: float, skeleton: Skeleton = H36M_17
) -> Observation:
    """A second observer's joints, as `observed_joints` gives them, with their noise; `side` of the crop in the points'
    pixels."""
    noise = landmark_noise(side, skeleton) * (SURE_NOISE / LANDMARK_NOISE) * _doubt(scores)
    return points, np.where(np.isfinite(points).all(-1), noise, np.inf)


def keypoint_noise(scores: Float[np.ndarray, "*B J"], side: float) -> Float[np.ndarray, "*B J"]:
    """Standard deviation of a second observer's keypoints in a crop of that side."""
    return SURE_NOISE * side * _doubt(scores)


def _doubt(scores: Float[np.ndarray, "*B J"]) -> Float[np.ndarray, "*B J"]:
    factor: np.ndarray = np.exp(DOUBT * np.clip(SURE - scores, 0, None) ** 2)
    return factor


def fuse(observations: Sequence[Observation]) -> Observation:
    """Inverse-variance fusion with outlier gating: of each joint the observation of least noise, and those that agree
    with it."""
    points = np.stack([each for each, _ in observations])
    noise = np.stack([np.where(np.isfinite(each).all(-1), spread, np.inf) for each, spread in observations])
    best = noise.argmin(0)
    joints = np.arange(points.shape[1])
    apart = np.linalg.norm(points - points[best, joints], axis=-1)
    agree = np.isfinite(noise) & (np.nan_to_num(apart, nan=np.inf) <= AGREE * np.hypot(noise, noise[best, joints]))
    weight = np.where(agree, noise**-2.0, 0.0)
    total = weight.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.nan_to_num(points) * weight[..., None]).sum(0) / total[:, None]
        return np.where(total[:, None] > 0, mean, np.nan), total**-0.5


def inside_any(points: Float[np.ndarray, "J 2"], boxes: Sequence[Box]) -> Bool[np.ndarray, " J"]:
    """Which points lie in one of the boxes."""
    x, y = points.T
    found = np.zeros(len(points), bool)
    for x0, y0, x1, y1 in boxes:
        found |= (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
    return found


def is_cut(box: Box, size: tuple[int, int]) -> bool:
    """Whether a box reaches a border of the picture."""
    (x0, y0, x1, y1), (width, height) = box, size
    near = BORDER * max(size)
    return x0 <= near or y0 <= near or x1 >= width - near or y1 >= height - near


def _landmarks(encoded: EncodedCrops, encoder: Encoder, skeleton: Skeleton) -> tuple[np.ndarray, ...]:
    """`observed_joints` and `look_gap` of the encoder's landmarks, in crop pixels; NaN and 0 where it has none."""
    looks = [
        (each.landmarks_2d, each.landmark_visibility)
        for each in encoded.outputs
        if each.landmarks_2d is not None and each.landmark_visibility is not None
    ]
    if looks and encoded.output.skeleton is not None:
        seen = looks, encoder.size[0], encoded.output.skeleton, skeleton
        return *observed_joints(*seen), look_gap(*seen)
    shape = (len(encoded.crops), skeleton.count)
    return np.full((*shape, 2), np.nan), np.zeros(shape), np.zeros(shape)


def _by_detector(crop: PersonCrop, marks: Float[np.ndarray, "17 3"], skeleton: Skeleton) -> Observation:
    """The joints by the detector's keypoints that are sure."""
    sure = np.where(marks[:, 2] >= SURE_KEYPOINT, 1.0, np.nan)  # an unsure one spoils what is derived of it
    points, _ = observed_joints([(marks[:, :2] + 0 * sure[:, None], np.nan_to_num(sure))], 0.0, COCO_17, skeleton)
    return points, landmark_noise(max(crop.picture.size), skeleton) * KEYPOINT_NOISE
