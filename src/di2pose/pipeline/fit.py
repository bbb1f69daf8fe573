"""One body out of several hypotheses: bones kept, left and right alike, fitted to where the encoder saw the joints.

H hypotheses, K bones. For a picture's crop (`placing`) and for a cached one (`evaluation`) alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from di2pose.image.boxes import Box
from di2pose.pose.bones import adult_range, even, rebuild
from di2pose.pose.camera import Camera
from di2pose.pose.fit import Evidence, FittedPose, fit_pose, fit_poses, place, place_by_box, shrunken_precision
from di2pose.pose.skeleton import H36M_17, LIMB_12, Skeleton, bone_lengths

LANDMARK_NOISE = 6 / 256
"""Deviation of a landmark in plain sight, over the side of the crop."""
FACE_NOISE = 2.0
"""How much more that of nose and top of the head is, which are no landmarks themselves."""
HIDDEN_NOISE = 30.0
"""How much more that of a hidden one is."""
SURE_NOISE, SURE, DOUBT = 4 / 256, 0.9, 4.3
"""Of a second observer's keypoint: its deviation where it is this sure, over the side of the crop; and how fast that
grows below: by exp(DOUBT (SURE - score)^2), to 12 pixels of 256 at 0.4 and 45 at 0.15, as on real crops."""
AGREE = 3.0
"""Deviations by which two observers of a joint may differ."""
CONTRARY = 0.08
"""Two looks that see a joint farther apart, over the side of the crop, contradict each other."""
CROWN = 0.6
"""From between the ears to the top of the head, over the way from between the shoulders to between the ears."""
BOX_TRUST, CUT_BOX_TRUST = 0.25, 1.0
"""Deviation (log) of the depth that a box tells; of one that is cut by the picture's border, whose body is longer."""

CLEAR = 14 / 256
"""Most that hypotheses of a joint in plain sight spread in the picture, over the side of the crop: half of the joints
that spread more are 11 pixels of 256 off or farther."""
FAR = 2.0
"""Deviations of its noise that a landmark may lie off the joint it is of."""

Sighting = tuple[Float[np.ndarray, "17 2"], Float[np.ndarray, " 17"]]
"""Where one observer sees the joints, in pixels of the camera, and how far off that may be; NaN and infinity where it
does not."""
HeldJoints = tuple[Float[np.ndarray, "17 3"], Bool[np.ndarray, " 17"]]
"""Where joints are, relative to the pelvis, and which of them are known."""


@dataclass(frozen=True)
class View:
    """Where a person was seen."""

    camera: Camera
    box: Box
    cut: bool
    """Whether the box is cut by the picture's border."""
    side: float
    """Of the crop, in the pixels of the camera."""
    points: Float[np.ndarray, "17 2"]
    """Where the joints were seen in pixels of the camera; NaN where no landmark tells."""
    visibility: Float[np.ndarray, " 17"]
    """What the encoder thinks of its landmarks, 0 to 1."""
    others: tuple[Sighting, ...] = ()
    """What other observers saw: keypoints of the crop, of the detector."""


def seen_joints(
    looks: Sequence[tuple[Float[np.ndarray, "*B J 2"], Float[np.ndarray, "*B J"]]], width: float, skeleton: Skeleton
) -> tuple[Float[np.ndarray, "*B 17 2"], Float[np.ndarray, "*B 17"]]:
    """Landmarks and their visibility, in the pixels of a crop of that width -> where H36M's joints were seen; NaN and 0
    for joints that no landmark tells of.

    The second look, if there is one, is at the mirror image: the mean of both, and the first where they contradict each
    other. Limb joints are landmarks; nose and top of the head are told by ears, mouth and shoulders, if there are any.
    """
    points, shown = looks[0]
    for mirrored, there in looks[1:]:
        order = list(skeleton.mirror_order)
        other, there = (mirrored * (-1, 1) + (width, 0))[..., order, :], there[..., order]
        agree = np.linalg.norm(other - points, axis=-1) < CONTRARY * width
        points = np.where(agree[..., None], (points + other) / 2, points)
        shown = np.where(agree, (shown + there) / 2, np.minimum(shown, there))
    found = np.full((*points.shape[:-2], H36M_17.count, 2), np.nan)
    weights = np.zeros(found.shape[:-1])

    def middle(*names: str) -> tuple[np.ndarray, np.ndarray]:
        rows = list(skeleton.indices(*names))
        return points[..., rows, :].mean(-2), np.asarray(shown[..., rows].mean(-1))

    source, target = list(skeleton.indices(*LIMB_12)), list(H36M_17.indices(*LIMB_12))
    found[..., target, :], weights[..., target] = points[..., source, :], shown[..., source]
    mouth = ("left_mouth", "right_mouth") if "left_mouth" in skeleton.joints else ("nose", "nose")
    if {"left_ear", "right_ear", *mouth} <= set(skeleton.joints):
        nose, head = H36M_17.indices("nose", "head")
        found[..., nose, :], weights[..., nose] = middle("left_ear", "right_ear", *mouth)
        (ears, heard), (shoulders, _) = middle("left_ear", "right_ear"), middle("left_shoulder", "right_shoulder")
        found[..., head, :], weights[..., head] = ears + CROWN * (ears - shoulders), heard
    return found, weights


def landmark_noise(side: float) -> Float[np.ndarray, " 17"]:
    """Of joints in plain sight in a crop of that side."""
    noise = np.full(H36M_17.count, LANDMARK_NOISE * side)
    noise[list(H36M_17.indices("nose", "head"))] *= FACE_NOISE
    return noise


def keypoint_sighting(
    points: Float[np.ndarray, "*B 17 2"], scores: Float[np.ndarray, "*B 17"], side: float
) -> tuple[Float[np.ndarray, "*B 17 2"], Float[np.ndarray, "*B 17"]]:
    """A second observer's joints, as `seen_joints` gives them, with how far off they may be, given the crop's side in
    the points' pixels."""
    noise = landmark_noise(side) * (SURE_NOISE / LANDMARK_NOISE) * np.exp(DOUBT * np.clip(SURE - scores, 0, None) ** 2)
    return points, np.where(np.isfinite(points).all(-1), noise, np.inf)


def fused(sightings: Sequence[Sighting]) -> Sighting:
    """Several observers' joints as one: the surest observer of a joint is believed, and those who agree with it sharpen
    it; who contradicts it is not heard."""
    points = np.stack([each for each, _ in sightings])
    noise = np.stack([np.where(np.isfinite(each).all(-1), spread, np.inf) for each, spread in sightings])
    best = noise.argmin(0)
    joints = np.arange(points.shape[1])
    apart = np.linalg.norm(points - points[best, joints], axis=-1)
    agree = np.isfinite(noise) & (np.nan_to_num(apart, nan=np.inf) <= AGREE * np.hypot(noise, noise[best, joints]))
    weight = np.where(agree, noise**-2.0, 0.0)
    total = weight.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.nan_to_num(points) * weight[..., None]).sum(0) / total[:, None]
        return np.where(total[:, None] > 0, mean, np.nan), total**-0.5


def mean_body(
    samples_mm: Float[np.ndarray, "H 17 3"],
) -> tuple[Float[np.ndarray, "17 3"], Float[np.ndarray, " K"]]:
    """The mean of the hypotheses with the bones of an adult, left and right alike, and their lengths.

    Bones of the mean are too short where hypotheses disagree; their own mean length is right for a body, but a long
    bone in a doubtful direction costs more than a short one: half way between is as near to the truth as the mean.
    """
    mean = samples_mm.mean(0)
    lengths = (bone_lengths(samples_mm, H36M_17).mean(0) + bone_lengths(mean, H36M_17)) / 2
    lengths = np.clip(even(lengths), *adult_range().T)
    return rebuild(mean, lengths), lengths


def fit_body(
    samples_mm: Float[np.ndarray, "H 17 3"],
    seen: Float[np.ndarray, " 17"],
    view: View,
    single_mm2: Float[np.ndarray, " 17"],
    pins: HeldJoints | None = None,
) -> tuple[FittedPose, Float[np.ndarray, "H 17 3"]]:
    """The body that fits best, and where it stands; and the hypotheses, each fitted to what was seen in the same way,
    with the same bones: what is known of the picture they agree about, and differ in what it does not tell.

    seen: the probability that each joint is seen, by the model
    single_mm2: each joint's variance along an axis, where a single hypothesis tells none
    """
    pose, prior = _prior(samples_mm, seen, view, single_mm2)
    lengths = prior[1]
    every = fit_poses(np.concatenate([pose[None], rebuild(samples_mm, lengths)]), *prior, pins)
    return every[0], every.joints_mm[1:]


def fit_mean(
    samples_mm: Float[np.ndarray, "H 17 3"],
    seen: Float[np.ndarray, " 17"],
    view: View,
    single_mm2: Float[np.ndarray, " 17"],
    pins: HeldJoints | None = None,
) -> FittedPose:
    """The body of `fit_body` alone, for less."""
    pose, prior = _prior(samples_mm, seen, view, single_mm2)
    return fit_pose(pose, *prior, pins)


def _prior(
    samples_mm: Float[np.ndarray, "H 17 3"],
    seen: Float[np.ndarray, " 17"],
    view: View,
    single_mm2: Float[np.ndarray, " 17"],
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, Evidence, np.ndarray]]:
    """The mean body, and what bodies are fitted to: precision, lengths, evidence, and where the search begins."""
    pose, lengths = mean_body(samples_mm)
    plain = landmark_noise(view.side)
    hidden = 1 - np.minimum(view.visibility, seen)
    points, noise = fused([(view.points, plain * (1 + HIDDEN_NOISE * hidden**2)), *view.others])
    shown = 1 - np.sqrt(np.clip((noise / plain - 1) / HIDDEN_NOISE, 0, 1))
    start = place(pose, points, shown, view.box, view.camera, _box_trust(view))
    depth = float(place_by_box(pose, view.box, view.camera)[2])
    rays = view.camera.unproject_ray(points)[:, :2]
    evidence = Evidence(rays, noise / float(np.mean(view.camera.focal)), depth, _box_trust(view))
    return pose, (shrunken_precision(samples_mm, single_mm2), lengths, evidence, start)


def unclear(samples_mm: Float[np.ndarray, "H 17 3"], fitted: FittedPose, view: View) -> Bool[np.ndarray, " 17"]:
    """The joints whose place in the picture is not known, whatever the visibility head says: the hypotheses spread too
    far across the view, or the landmark is elsewhere."""
    far = np.nan_to_num(fitted.miss) > FAR
    if len(samples_mm) < 2:
        return far
    spread = np.sqrt(samples_mm[..., :2].var(0, ddof=1).sum(-1))
    depth = np.maximum(fitted.joints_mm[:, 2] + fitted.root_mm[2], 1.0)
    return far | (spread / depth * float(np.mean(view.camera.focal)) > CLEAR * view.side)


def _box_trust(view: View) -> float:
    return CUT_BOX_TRUST if view.cut else BOX_TRUST
