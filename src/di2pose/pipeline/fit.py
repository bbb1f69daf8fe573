"""One body out of several hypotheses: bones kept, left and right alike, fitted to its observations in the picture.

H hypotheses, K bones. For a picture's crop (`assemble`) and for a cached one (`evaluation`) alike.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from di2pose.model import Pins
from di2pose.pipeline.observations import PersonView
from di2pose.pose.bones import adult_range, even, rebuild, stature_mm
from di2pose.pose.fit import Evidence, FittedPose, fit_poses, place, place_by_box, shrunken_precision
from di2pose.pose.skeleton import H36M_17, bone_lengths

CLEAR = 14 / 256
"""Largest spread of a visible joint's hypotheses in the picture, over the side of the crop: half of the joints that
spread more are 11 pixels of 256 off or farther."""
FAR = 2.0
"""Standard deviations that an observation may lie off its fitted joint."""


@dataclass(frozen=True)
class BodyFit:
    """A body and its place in the camera frame, before a stated stature scales it."""

    pose: FittedPose
    """The estimate."""
    samples_mm: Float[np.ndarray, "H 17 3"]
    """The hypotheses, each fitted in the same way with the same bones: they agree on what the picture shows, and differ
    in what it does not."""
    unclear: Bool[np.ndarray, " 17"]
    """Joints whose place in the picture is not known, whatever their visibility: the hypotheses spread too far across
    the view, or the observation lies elsewhere."""
    scale: float = 1.0
    """By which a stated stature scales everything; it moves no pixel."""
    pins: Pins | None = None
    """As they were fitted: over `scale`."""

    @property
    def depth_mm(self) -> float:
        return float(self.pose.root_mm[2]) * self.scale


def mean_body(
    samples_mm: Float[np.ndarray, "H 17 3"],
) -> tuple[Float[np.ndarray, "17 3"], Float[np.ndarray, " K"]]:
    """The mean of the hypotheses with the bones of an adult, left and right alike, and their lengths.

    Bones of the mean are too short where hypotheses disagree; their own mean length is right for a body, but a long
    bone in an uncertain direction costs more than a short one: half way between is as near to the truth as the mean.
    """
    mean = samples_mm.mean(0)
    lengths = (bone_lengths(samples_mm, H36M_17).mean(0) + bone_lengths(mean, H36M_17)) / 2
    lengths = np.clip(even(lengths), *adult_range().T)
    return rebuild(mean, lengths), lengths


def fit_body(
    samples_mm: Float[np.ndarray, "H 17 3"],
    seen: Float[np.ndarray, " 17"],
    view: PersonView,
    single_mm2: Float[np.ndarray, " 17"],
    pins: Pins | None = None,
    height_m: float | None = None,
    only_mean: bool = False,
) -> BodyFit:
    """The body that fits best, and where it stands. `only_mean`: without the hypotheses.

    seen: the probability that each joint is seen, by the model
    single_mm2: each joint's variance along an axis, for a single hypothesis, which has no spread
    pins: known joints, in camera axes
    """
    pose, lengths = mean_body(samples_mm)
    scale = 1.0 if height_m is None else height_m * 1000 / float(stature_mm(pose))
    pins = None if pins is None else (pins[0] / scale, pins[1])
    points, noise, shown = view.fused(seen)
    camera, trust = view.camera, view.depth_trust
    start = place(pose, points, shown, view.box, camera, trust)
    depth = float(place_by_box(pose, view.box, camera)[2])
    evidence = Evidence(camera.unproject_ray(points)[:, :2], noise / float(np.mean(camera.focal)), depth, trust)
    bodies = pose[None] if only_mean else np.concatenate([pose[None], rebuild(samples_mm, lengths)])
    fitted = fit_poses(bodies, shrunken_precision(samples_mm, single_mm2), lengths, evidence, start, pins)
    return BodyFit(fitted[0], fitted.joints_mm[1:], unclear(samples_mm, fitted[0], view), scale, pins)


def unclear(samples_mm: Float[np.ndarray, "H 17 3"], pose: FittedPose, view: PersonView) -> Bool[np.ndarray, " 17"]:
    """See `BodyFit.unclear`."""
    far = np.nan_to_num(pose.miss) > FAR
    if len(samples_mm) < 2:
        return far
    spread = np.sqrt(samples_mm[..., :2].var(0, ddof=1).sum(-1))
    depth = np.maximum(pose.joints_mm[:, 2] + pose.root_mm[2], 1.0)
    return far | (spread / depth * float(np.mean(view.camera.focal)) > CLEAR * view.side)
