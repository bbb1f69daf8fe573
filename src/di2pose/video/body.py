"""One body for a track: bones of constant length.  J joints, K bones, n observations; mm.

An observation of a bone's length is its mean over the hypotheses (the bones of the mean pose are too short); its
variance comes from the calibrated covariance of both ends along the bone and the hypotheses' own lengths. The body's
length is the weighted median over all observations, left and right together.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from di2pose.options import Height
from di2pose.pose.bones import even, impossible, make_possible, mirrored, rebuild, stature_mm
from di2pose.pose.camera import Camera
from di2pose.pose.fit import place
from di2pose.pose.skeleton import H36M_17, Skeleton, bone_lengths
from di2pose.result import Person, Result

SETTLED = 300
"""Observations after which the body of a stream does not change any more."""
LEAST_STD_MM = 15.0
"""Least standard deviation of an observed length."""
HIDDEN_WEIGHT = 0.2
"""Weight of a guessed joint when the body is put back in its place in the picture; 1 for the others."""


class Body:
    """The bone lengths of one person, from all observations added."""

    def __init__(self, height_m: float | None = None, most: float = math.inf) -> None:
        """height_m: the known stature, to which the lengths are scaled. most: only the first so many count."""
        self.height_m, self.most = height_m, most
        self._lengths: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        self._known: tuple[int, np.ndarray] | None = None

    def add(self, person: Person) -> None:
        """An observation, before any refit."""
        if len(self._lengths) < self.most:
            lengths, variance = measured(person)
            self._lengths.append(lengths)
            self._weights.append(1 / variance)

    def refit(self, person: Person, camera: Camera) -> Person:
        """The person with this body: bones keep their directions, except where the pose becomes impossible, and the
        pelvis moves so that the body covers the same pixels. Changes joints_mm, samples_mm, root_mm and joints_2d."""
        lengths = self._lengths_of(person)
        joints = _rebuilt(person.joints_mm[None], lengths, person.skeleton)[0]
        weights = np.where(person.guessed, HIDDEN_WEIGHT, 1.0)
        root = place(joints, person.joints_2d, weights, person.box, camera, begin_mm=person.root_mm)
        samples = _rebuilt(person.samples_mm, lengths, person.skeleton)
        return replace(
            person, joints_mm=joints, samples_mm=samples, root_mm=root, joints_2d=camera.project(joints + root)
        )

    def _lengths_of(self, person: Person) -> Float[np.ndarray, " K"]:
        if self._known is None or self._known[0] < len(self._lengths):
            here, weights = np.stack(self._lengths), np.stack(self._weights)
            there, its_weights = (mirrored(each, person.skeleton) for each in (here, weights))
            lengths = weighted_median(np.concatenate([here, there]), np.concatenate([weights, its_weights]))
            lengths = even(lengths, person.skeleton)  # equal lengths of different weights come in any order
            if self.height_m is not None:
                built = rebuild(person.joints_mm, lengths, person.skeleton)
                lengths = lengths * (self.height_m * 1000 / float(stature_mm(built, person.skeleton)))
            self._known = len(self._lengths), lengths
        return self._known[1]


class _Bodies(dict[int, Body]):
    """By track number; made when first used."""

    def __init__(self, height_m: Height, most: float = math.inf) -> None:
        self.height_m, self.most = height_m, most

    def __missing__(self, track: int) -> Body:
        height = self.height_m.get(track) if isinstance(self.height_m, Mapping) else self.height_m
        return self.setdefault(track, Body(height, self.most))


def measured(person: Person) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """The length of every bone by one observation, and its variance, mm^2."""
    lengths = bone_lengths(person.samples_mm.astype(np.float64), person.skeleton)  # H K
    children, parents = (list(side) for side in zip(*person.skeleton.bones, strict=True))
    way = (person.joints_mm[children] - person.joints_mm[parents]).astype(np.float64)
    along = way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-9)
    ends = person.covariance_mm2[children] + person.covariance_mm2[parents]
    variance = np.einsum("ka,kab,kb->k", along, ends, along)
    return lengths.mean(0), variance + lengths.var(0) + LEAST_STD_MM**2


def weighted_median(values: Float[np.ndarray, "n K"], weights: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " K"]:
    """Of every column: half of the weight lies on either side; interpolated between two values."""
    order = np.argsort(values, axis=0)
    values, weights = (np.take_along_axis(each, order, axis=0) for each in (values, weights))
    middle = np.cumsum(weights, axis=0) - weights / 2
    half = weights.sum(0) / 2
    return np.array([np.interp(half[k], middle[:, k], values[:, k]) for k in range(values.shape[1])])


def one_body(results: Sequence[Result], height_m: Height = None) -> list[Result]:
    """The results with everybody refitted to one body per track, estimated over the whole track."""
    bodies = _Bodies(height_m)
    for result in results:
        _observe(result, bodies)
    return [_refitted(result, bodies) for result in results]


def growing_body(results: Iterable[Result], height_m: Height = None) -> Iterator[Result]:
    """The same for a stream: a body is estimated from the observations so far, and from the first SETTLED of them."""
    bodies = _Bodies(height_m, SETTLED)
    for result in results:
        _observe(result, bodies)
        yield _refitted(result, bodies)


def _observe(result: Result, bodies: dict[int, Body]) -> None:
    for person in result.people:
        if person.track is not None:
            bodies[person.track].add(person)


def _refitted(result: Result, bodies: dict[int, Body]) -> Result:
    people = [p if p.track is None else bodies[p.track].refit(p, result.camera) for p in result.people]
    return replace(result, people=people)


def _rebuilt(
    joints_mm: Float[np.ndarray, "H J 3"], lengths_mm: Float[np.ndarray, " K"], skeleton: Skeleton
) -> Float[np.ndarray, "H J 3"]:
    """Poses with bones of these lengths; H36M's joints, where the skeleton has them, and feet at distances that a body
    can have, further joints as they stand to their parents."""
    built = rebuild(joints_mm, np.tile(lengths_mm, (len(joints_mm), 1)), skeleton)
    if set(H36M_17.joints) <= set(skeleton.joints):
        for row in np.flatnonzero(impossible(built, lengths_mm, skeleton)):
            built[row] = make_possible(built[row], lengths_mm, skeleton=skeleton)
    return built
