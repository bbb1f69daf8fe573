"""From hypotheses to people: camera axes, bodies fitted to the picture, states, spread, score, duplicates suppressed.

B crops, H hypotheses, J joints of the model's skeleton, K bones. A body keeps its bones, left and right alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from di2pose.calibration import Calibration
from di2pose.image.encoder import Encoder, EncoderOutput
from di2pose.model import Pins, Prediction
from di2pose.options import Height
from di2pose.pipeline.crops import EncodedCrops, PersonCrop
from di2pose.pipeline.observations import BOX_TRUST, CUT_BOX_TRUST, PersonView, inside_any
from di2pose.pipeline.second_look import mirrored_back
from di2pose.pose.bones import adult_range, even, rebuild, stature_mm
from di2pose.pose.camera import Camera
from di2pose.pose.fit import Evidence, FittedPose, fit_poses, place, place_by_box, shrunken_precision
from di2pose.pose.skeleton import H36M_17, LIMB_12, Skeleton, bone_lengths, convert
from di2pose.result import Person, numbered

BEYOND = 0.05
"""A joint this share of the crop's side outside the picture is out of the frame, whatever the model says; and so far
inside it is not."""
SIZE_STD, KNOWN_SIZE_STD = 0.07, 0.02
"""Relative error of a body's size, where its height is guessed and where it is given."""
ASSUMED_STD = 0.25
"""Relative error of an assumed focal length."""
SAME_PLACE = 0.2
"""Two upper bodies nearer than this part of their length are one person."""
UPPER_BODY = ("pelvis", "spine", "thorax", "nose", "head", "left_shoulder", "right_shoulder")
CLEAR = 14 / 256
"""Largest spread of a visible joint's hypotheses in the picture, over the side of the crop: half of the joints that
spread more are 11 pixels of 256 off or farther."""
FAR = 2.0
"""Standard deviations that an observation may lie off its fitted joint."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A prediction of B crops in camera axes."""

    samples_mm: Float[np.ndarray, "B H J 3"]
    """Root-relative."""
    visibility: Float[np.ndarray, "B J 4"]
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""
    tokens: Int[np.ndarray, "B H N"] | None

    def pick(self, rows: Sequence[int]) -> "Estimate":
        """Of some of the crops."""
        tokens = None if self.tokens is None else self.tokens[list(rows)]
        return Estimate(self.samples_mm[list(rows)], self.visibility[list(rows)], tokens)


def in_camera_axes(
    prediction: Prediction, encoded: EncodedCrops, encoder: Encoder, skeleton: Skeleton = H36M_17
) -> Estimate:
    """A prediction, with poses in the axes of the cameras, and with visibilities where the model has none."""
    poses = np.asarray(prediction.joints_mm, np.float64)
    turned = [
        pose @ encoder.rotation(crop.region, crop.camera) for pose, crop in zip(poses, encoded.crops, strict=True)
    ]
    if prediction.visibility is None:
        visibility = visibility_by_landmarks(encoded.output, skeleton)
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


def visibility_by_landmarks(output: EncoderOutput, skeleton: Skeleton) -> Float[np.ndarray, "B J 4"]:
    """For a model without a visibility head: seen by the encoder's visibility of its landmarks, else hidden. Without
    landmarks all joints count as seen, and only geometry overrules that."""
    if output.landmark_visibility is None or output.skeleton is None:
        seen = np.ones((len(output.features), skeleton.count))
    else:
        twice = output.landmark_visibility[..., None].repeat(2, axis=-1)
        seen = convert(twice, output.skeleton, skeleton)[0][..., 0]
        seen[:, skeleton.index("head")] = seen[:, skeleton.index("nose")]  # no landmark lies on top of the head
        seen = np.nan_to_num(seen, nan=0.0)  # joints without a landmark
    none = np.zeros_like(seen)
    return np.stack([seen, none, 1 - seen, none], axis=-1)


@dataclass(frozen=True)
class BodyFit:
    """A body and its place in the camera frame, before a stated stature scales it."""

    pose: FittedPose
    """The estimate."""
    samples_mm: Float[np.ndarray, "H J 3"]
    """The hypotheses, each fitted in the same way with the same bones: they agree on what the picture shows, and differ
    in what it does not."""
    unclear: Bool[np.ndarray, " J"]
    """Joints whose place in the picture is not known, whatever their visibility: the hypotheses spread too far across
    the view, or the observation lies elsewhere."""
    apart_mm: Float[np.ndarray, " J"]
    """How far the observers of each joint are apart, at the joint's depth."""
    scale: float = 1.0
    """By which a stated stature scales everything; it moves no pixel."""
    pins: Pins | None = None
    """As they were fitted: over `scale`."""

    @property
    def depth_mm(self) -> float:
        return float(self.pose.root_mm[2]) * self.scale


def mean_body(
    samples_mm: Float[np.ndarray, "*B H J 3"], skeleton: Skeleton = H36M_17
) -> tuple[Float[np.ndarray, "*B J 3"], Float[np.ndarray, "*B K"]]:
    """The mean of the hypotheses with the bones of an adult, left and right alike, and their lengths.

    Bones of the mean are too short where hypotheses disagree; their own mean length is right for a body, but a long
    bone in an uncertain direction costs more than a short one: half way between is as near to the truth as the mean.
    """
    mean = samples_mm.mean(-3)
    lengths = (bone_lengths(samples_mm, skeleton).mean(-2) + bone_lengths(mean, skeleton)) / 2
    lengths = np.clip(even(lengths, skeleton), *adult_range(skeleton).T)
    return rebuild(mean, lengths, skeleton), lengths


def fit_bodies(
    samples_mm: Float[np.ndarray, "B H J 3"],
    seen: Sequence[Float[np.ndarray, " J"]] | Float[np.ndarray, "B J"],
    views: Sequence[PersonView],
    single_mm2: Float[np.ndarray, " J"],
    pins: Pins | None = None,
    height_m: float | None = None,
    only_mean: bool = False,
) -> list[BodyFit]:
    """For each person the body that fits best, and where it stands. `only_mean`: without the hypotheses.

    seen: the probability that each joint is seen, by the model
    single_mm2: each joint's variance along an axis, for a single hypothesis, which has no spread
    pins: known joints of a single person, in camera axes
    height_m: the stature of all, where it is known
    """
    if not len(views):
        return []
    skeleton, hypotheses = views[0].skeleton, samples_mm.shape[1]
    poses, lengths = mean_body(samples_mm, skeleton)                                        # B J 3, B K
    scales = np.ones(len(poses)) if height_m is None else height_m * 1000 / stature_mm(poses, skeleton)
    pins = None if pins is None else (pins[0] / scales[0], pins[1])
    starts, rays, noise, depths, trust = [], [], [], [], []
    for pose, own, view in zip(poses, seen, views, strict=True):
        points, spread, shown = view.fused(own)
        trust.append(CUT_BOX_TRUST if view.cut else BOX_TRUST)
        starts.append(place(pose, points, shown, view.box, view.camera, trust[-1]))
        depths.append(float(place_by_box(pose, view.box, view.camera)[2]))
        rays.append(view.camera.unproject_ray(points)[:, :2])
        noise.append(spread / float(np.mean(view.camera.focal)))
    evidence = Evidence(np.stack(rays), np.stack(noise), np.array(depths), np.array(trust))
    bodies = poses[:, None]                                                                 # B 1 J 3
    if not only_mean and hypotheses > 1:  # a single hypothesis is the mean
        bodies = np.concatenate([bodies, rebuild(samples_mm, lengths[:, None], skeleton)], axis=1)
    precision = np.stack([shrunken_precision(samples, single_mm2) for samples in samples_mm])
    person = np.arange(len(bodies)).repeat(bodies.shape[1])
    fitted = fit_poses(
        bodies.reshape(-1, *poses.shape[1:]), precision, lengths, evidence, np.stack(starts), pins, skeleton, person
    )
    found = []
    for row, (samples, view) in enumerate(zip(samples_mm, views, strict=True)):
        place_of = row * bodies.shape[1]
        best, others = fitted[place_of], fitted.joints_mm[place_of + 1 : place_of + bodies.shape[1]]
        others = best.joints_mm[None] if hypotheses == 1 and not only_mean else others
        depth = np.maximum(best.joints_mm[:, 2] + best.root_mm[2], 1.0)
        apart_mm = view.apart * depth / float(np.mean(view.camera.focal))
        found.append(BodyFit(best, others, unclear(samples, best, view), apart_mm, float(scales[row]), pins))
    return found


def unclear(samples_mm: Float[np.ndarray, "H J 3"], pose: FittedPose, view: PersonView) -> Bool[np.ndarray, " J"]:
    """See `BodyFit.unclear`."""
    far = np.nan_to_num(pose.miss) > FAR
    if len(samples_mm) < 2:
        return far
    spread = np.sqrt(samples_mm[..., :2].var(0, ddof=1).sum(-1))
    depth = np.maximum(pose.joints_mm[:, 2] + pose.root_mm[2], 1.0)
    return far | (spread / depth * float(np.mean(view.camera.focal)) > CLEAR * view.side)


def fit_people(
    views: Sequence[PersonView],
    estimate: Estimate,
    calibration: Calibration,
    height_m: float | None = None,
    pins: Pins | None = None,
    only_mean: bool = False,
) -> list[BodyFit]:
    """A body for each view: `fit_bodies`; with pins, which are for all alike, one by one."""
    single_mm2 = np.asarray(calibration.trace_mm2[0]) / 3
    every = range(len(views))
    groups = [[row] for row in every] if pins is not None else [list(every)]
    return [
        fit
        for rows in groups
        for fit in fit_bodies(
            estimate.samples_mm[rows], estimate.visibility[rows, :, 0], [views[row] for row in rows], single_mm2, pins,
            height_m, only_mean,
        )
    ]  # fmt: skip


def make_person(
    crop: PersonCrop,
    fit: BodyFit,
    visibility: Float[np.ndarray, "J 4"],
    tokens: Int[np.ndarray, "H N"] | None,
    score: float,
    calibration: Calibration,
    known_height: bool,
    skeleton: Skeleton = H36M_17,
) -> Person:
    """The person of a fitted body, with the states and the calibrated spread of the joints."""
    pose, scale = fit.pose, fit.scale
    joints_2d = crop.camera.project(pose.joints_mm + pose.root_mm)
    state = _overruled(calibration.state(visibility), joints_2d, crop)
    uncertain = (state != "visible") | fit.unclear
    covariance_mm2 = calibration.covariance_mm2(fit.samples_mm, uncertain, fit.apart_mm)
    r90_mm = calibration.r90_mm(covariance_mm2, uncertain)
    if fit.pins is not None:
        pinned = fit.pins[1]
        state = np.where(pinned, "pinned", state)
        covariance_mm2, r90_mm = np.where(pinned[:, None, None], 0.0, covariance_mm2), np.where(pinned, 0.0, r90_mm)
    return Person(
        joints_mm=pose.joints_mm * scale,
        samples_mm=fit.samples_mm * scale,
        covariance_mm2=covariance_mm2 * scale**2,
        r90_mm=r90_mm * scale,
        state=state,
        joints_2d=joints_2d,
        box=crop.detection.box,
        root_mm=pose.root_mm * scale,
        root_std_mm=_root_std_mm(pose, known_height, crop.assumed) * scale,
        score=score,
        tokens=None if tokens is None else np.asarray(tokens, np.int64),
        skeleton=skeleton,
    )


def with_heights(people: Sequence[Person], height_m: Height) -> list[Person]:
    """The people scaled to the heights of a mapping by track number, or by position in a photo; others stay."""
    return [
        _scaled(person, height_m[number]) if isinstance(height_m, Mapping) and number in height_m else person
        for number, person in numbered(people)
    ]


def _scaled(person: Person, height_m: float) -> Person:
    """The person as tall, at the distance of the same size in the picture."""
    scale = height_m * 1000 / float(stature_mm(person.joints_mm, person.skeleton))
    root_std = person.root_std_mm
    if root_std is not None:
        surer = (SIZE_STD**2 - KNOWN_SIZE_STD**2) * person.root_mm.astype(np.float64) ** 2
        root_std = np.sqrt(np.maximum(root_std**2 - surer, 0)) * scale
    return replace(
        person, joints_mm=person.joints_mm * scale, samples_mm=person.samples_mm * scale,
        covariance_mm2=person.covariance_mm2 * scale**2, r90_mm=person.r90_mm * scale,
        root_mm=person.root_mm * scale, root_std_mm=root_std,
    )  # fmt: skip


def _root_std_mm(pose: FittedPose, known_height: bool, assumed: bool) -> Float[np.ndarray, " 3"]:
    """By the fit, and by what it takes for granted: the body's size, which moves the root along its ray, and the focal
    length, which moves it away."""
    size = pose.root_mm * (KNOWN_SIZE_STD if known_height else SIZE_STD)
    lens = np.array([0.0, 0.0, ASSUMED_STD * pose.root_mm[2] * assumed])
    return np.sqrt(np.diag(pose.root_covariance_mm2) + size**2 + lens**2)


def _overruled(state: np.ndarray, joints_2d: np.ndarray, crop: PersonCrop) -> np.ndarray:
    """The states, corrected by geometry: in a region that the user calls occluded, or clearly outside or inside of the
    picture."""
    state = np.where(inside_any(joints_2d, crop.hidden), "occluded", state)
    slack = BEYOND * crop.region.side
    half = np.array(crop.picture.size) / 2
    near, inside = ((np.abs(joints_2d - half) <= half + reach).all(-1) for reach in (slack, -slack))
    state = np.where(inside & (state == "out_of_frame"), "occluded", state)
    return np.where(near, state, "out_of_frame")


def suppress_duplicates(people: Sequence[Person]) -> list[Person]:
    """The same people; of two in one place only the one with more joints in its own box."""
    kept: list[Person] = []
    for person in sorted(people, key=lambda each: -_inside_box(each)):
        if all(_apart(person, other) > SAME_PLACE for other in kept):
            kept.append(person)
    return [person for person in people if any(person is each for each in kept)]


def _inside_box(person: Person) -> float:
    """The share of the upper body's joints that lie in the box."""
    return float(inside_any(_upper_body(person), [person.box]).mean())


def _apart(a: Person, b: Person) -> float:
    """Mean distance of the upper body's joints in the picture, over the upper body's length."""
    one, other = _upper_body(a), _upper_body(b)
    size = max(float(np.ptp(each, axis=0).max()) for each in (one, other))
    return float(np.linalg.norm(one - other, axis=-1).mean()) / max(size, 1.0)


def _upper_body(person: Person) -> Float[np.ndarray, "7 2"]:
    return np.asarray(person.joints_2d[list(person.skeleton.indices(*UPPER_BODY))])


def person_scores(
    encoded: EncodedCrops, estimate: Estimate, encoder: Encoder, calibration: Calibration
) -> Float[np.ndarray, " B"]:
    """The probability that each crop shows a person; the detector's score where the calibration or the encoder has
    none."""
    features = person_features(encoded, estimate.samples_mm, encoder.size[0])
    if calibration.person is None or features is None:
        return np.array([crop.detection.score for crop in encoded.crops])
    return calibration.person.score(features)


def person_features(
    encoded: EncodedCrops, samples_mm: Float[np.ndarray, "B H J 3"], width: float
) -> Float[np.ndarray, "B E"] | None:
    """`calibration.PERSON_FEATURES` of each crop of that width; None where the encoder has no landmarks, or a pose no
    spread."""
    skeleton = encoded.output.skeleton
    if skeleton is None or samples_mm.shape[1] < 2:
        return None
    points, visible, person = [], [], []
    limbs = list(skeleton.indices(*LIMB_12))
    for output in encoded.outputs:
        places, shown = output.landmarks_2d, output.landmark_visibility
        if places is None or shown is None or output.person is None:
            return None
        if output is encoded.flipped:
            places, shown = mirrored_back(places, skeleton, width), shown[:, list(skeleton.mirror_order)]
        points.append(places[:, limbs])
        visible.append(shown[:, limbs])
        person.append(output.person)
    probability = np.clip(np.mean(person, axis=0), 1e-3, 1 - 1e-3)
    weight = np.mean(visible, axis=0) + 0.05
    gap = np.linalg.norm(points[0] - points[-1], axis=-1) / width
    apart = (gap * weight).sum(-1) / weight.sum(-1)
    spread = np.sqrt(samples_mm.var(1, ddof=1).sum(-1)).mean(-1)
    logit = np.log(probability / (1 - probability))
    return np.stack([logit, np.mean(visible, axis=(0, 2)), np.log(spread + 1), np.log(apart + 0.003)], axis=-1)
