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
from di2pose.pose.fit import Evidence, FittedPose, fit_pose, shrunken_precision
from di2pose.pose.root import place, place_by_box
from di2pose.pose.skeleton import H36M_17, LIMB_12, Skeleton, bone_lengths

LANDMARK_NOISE = 6 / 256
"""Deviation of a landmark in plain sight, over the side of the crop."""
HIDDEN_NOISE = 30.0
"""How much more that of a hidden one is."""
BOX_TRUST, CUT_BOX_TRUST = 0.25, 1.0
"""Deviation (log) of the depth that a box tells; of one that is cut by the picture's border, whose body is longer."""

CLEAR = 14 / 256
"""Most that hypotheses of a joint in plain sight spread in the picture, over the side of the crop: half of the joints
that spread more are 11 pixels of 256 off or farther."""
FAR = 2.0
"""Deviations of its noise that a landmark may lie off the joint it is of."""

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
    """The landmarks of the limb joints in pixels of the camera; NaN for others and where there are none."""
    visibility: Float[np.ndarray, " 17"]
    """What the encoder thinks of its landmarks, 0 to 1."""


def limb_landmarks(
    looks: Sequence[tuple[Float[np.ndarray, "*B J 2"], Float[np.ndarray, "*B J"]]], width: float, skeleton: Skeleton
) -> tuple[Float[np.ndarray, "*B 17 2"], Float[np.ndarray, "*B 17"]]:
    """Landmarks and their visibility, in the pixels of a crop of that width -> those of the limb joints at their places
    in H36M's order; NaN and 0 for other joints. The second look, if there is one, is at the mirror image: the mean of
    both."""
    there, here, order = list(skeleton.indices(*LIMB_12)), list(H36M_17.indices(*LIMB_12)), list(skeleton.mirror_order)
    upright = [looks[0], *((mirrored * (-1, 1) + (width, 0), shown) for mirrored, shown in looks[1:])]
    chosen = [order if look else slice(None) for look in range(len(looks))]
    both = [(points[..., which, :], shown[..., which]) for which, (points, shown) in zip(chosen, upright, strict=True)]
    points, visibility = (np.mean(part, axis=0) for part in zip(*both, strict=True))
    limbs = np.full((*points.shape[:-2], H36M_17.count, 2), np.nan)
    weights = np.zeros(limbs.shape[:-1])
    limbs[..., here, :], weights[..., here] = points[..., there, :], visibility[..., there]
    return limbs, weights


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
) -> FittedPose:
    """The body that fits best, and where it stands.

    seen: the probability that each joint is seen, by the model
    single_mm2: each joint's variance along an axis, where a single hypothesis tells none
    """
    pose, lengths = mean_body(samples_mm)
    start = place(pose, view.points, np.minimum(view.visibility, seen), view.box, view.camera, _box_trust(view))
    hidden = 1 - np.minimum(view.visibility, seen)
    noise = LANDMARK_NOISE * view.side * (1 + HIDDEN_NOISE * hidden**2) / float(np.mean(view.camera.focal))
    depth = float(place_by_box(pose, view.box, view.camera)[2])
    evidence = Evidence(view.camera.unproject_ray(view.points)[:, :2], noise, depth, _box_trust(view))
    return fit_pose(pose, shrunken_precision(samples_mm, single_mm2), lengths, evidence, start, pins)


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
