"""One body for a track: nobody's bones change their length in a video.  J joints, K bones, n sightings; mm.

A sighting tells the length of a bone by the mean over its hypotheses (the bones of the mean pose are too short), and
how sure that is by the calibrated covariance of both ends along the bone and by the spread of the hypotheses' own
lengths. The body's length is the median over the sightings, weighted by certainty, left and right together: a limb
that is hidden for a while takes its length from the frames, and from the side, that show it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from di2pose.pose.bones import even, mirrored, rebuild
from di2pose.pose.camera import Camera
from di2pose.pose.joint_pairs import impossible, make_possible
from di2pose.pose.root import place, stature_mm
from di2pose.pose.skeleton import H36M_17, Skeleton, bone_lengths
from di2pose.result import Person, Result

SETTLED = 300
"""Sightings after which a body is known well enough: the lengths of a stream change no more."""
LEAST_STD_MM = 15.0
"""No sighting is surer of a length than this."""
HIDDEN_WEIGHT = 0.2
"""Of a joint that was not seen, where the body is put back in its place in the picture; 1 for one that was."""


class Body:
    """The bone lengths of one person, from all sightings that were added."""

    def __init__(self, height_m: float | None = None, most: float = math.inf) -> None:
        """height_m: the stature, where it is known; the lengths add up to it. most: sightings that count, the first
        ones."""
        self.height_m, self.most = height_m, most
        self._lengths: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        self._known: tuple[int, np.ndarray] | None = None

    def add(self, person: Person) -> None:
        """A sighting, as it was drawn: hypotheses that have a body's lengths already would only confirm them."""
        if len(self._lengths) < self.most:
            lengths, variance = measured(person)
            self._lengths.append(lengths)
            self._weights.append(1 / variance)

    def refit(self, person: Person, camera: Camera) -> Person:
        """The person with this body: bones keep their directions, but where joints would come nearer or farther apart
        than a body's can; and the pelvis is put where the body covers the same pixels. `joints_mm`, `samples_mm`,
        `root_mm` and `joints_2d` change."""
        lengths = self._lengths_of(person)
        joints = _rebuilt(person.joints_mm[None], lengths, person.skeleton)[0]
        weights = np.where(person.guessed, HIDDEN_WEIGHT, 1.0)
        root = place(joints, person.joints_2d, weights, person.box, camera)
        return replace(
            person,
            joints_mm=joints,
            samples_mm=_rebuilt(person.samples_mm, lengths, person.skeleton),
            root_mm=root,
            joints_2d=camera.project(joints + root),
        )

    def _lengths_of(self, person: Person) -> Float[np.ndarray, " K"]:
        if self._known is None or self._known[0] < len(self._lengths):
            here, weights = np.stack(self._lengths), np.stack(self._weights)
            there, as_sure = (mirrored(each, person.skeleton) for each in (here, weights))
            lengths = weighted_median(np.concatenate([here, there]), np.concatenate([weights, as_sure]))
            lengths = even(lengths, person.skeleton)  # equal lengths of different weights come in any order
            if self.height_m is not None:
                lengths = lengths * (self.height_m * 1000 / float(stature_mm(rebuild(person.joints_mm, lengths))))
            self._known = len(self._lengths), lengths
        return self._known[1]


def measured(person: Person) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """The length of every bone by one sighting, and its variance, mm^2."""
    lengths = bone_lengths(person.samples_mm.astype(np.float64), person.skeleton)  # H K
    children, parents = (list(side) for side in zip(*person.skeleton.bones, strict=True))
    way = (person.joints_mm[children] - person.joints_mm[parents]).astype(np.float64)
    along = way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-9)
    ends = person.covariance_mm2[children] + person.covariance_mm2[parents]
    variance = np.einsum("ka,kab,kb->k", along, ends, along)
    return lengths.mean(0), variance + lengths.var(0) + LEAST_STD_MM**2


def weighted_median(values: Float[np.ndarray, "n K"], weights: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " K"]:
    """Of every column: where half of the weight lies to either side, in between two values by their weights."""
    order = np.argsort(values, axis=0)
    values, weights = (np.take_along_axis(each, order, axis=0) for each in (values, weights))
    middle = np.cumsum(weights, axis=0) - weights / 2
    half = weights.sum(0) / 2
    return np.array([np.interp(half[k], middle[:, k], values[:, k]) for k in range(values.shape[1])])


def bodies(results: Iterable[Result], height_m: float | None = None) -> dict[int, Body]:
    """Track -> the body that all its sightings tell of."""
    found: dict[int, Body] = {}
    for result in results:
        for person in result.people:
            if person.track is not None:
                found.setdefault(person.track, Body(height_m)).add(person)
    return found


def one_body(results: Sequence[Result], height_m: float | None = None) -> list[Result]:
    """The results with everybody refitted to one body a track, estimated over the whole of it."""
    known = bodies(results, height_m)
    return [_refitted(result, known) for result in results]


def growing_body(results: Iterable[Result], height_m: float | None = None) -> Iterator[Result]:
    """The same as the frames come: a body is what the sightings so far tell of it. Its lengths settle with time, and
    change no more after SETTLED sightings."""
    known: dict[int, Body] = {}
    for result in results:
        for person in result.people:
            if person.track is not None:
                known.setdefault(person.track, Body(height_m, SETTLED)).add(person)
        yield _refitted(result, known)


def _rebuilt(
    joints_mm: Float[np.ndarray, "H J 3"], lengths_mm: Float[np.ndarray, " K"], skeleton: Skeleton
) -> Float[np.ndarray, "H J 3"]:
    built = rebuild(joints_mm, np.tile(lengths_mm, (len(joints_mm), 1)), skeleton)
    if skeleton == H36M_17:
        for row in np.flatnonzero(impossible(built, lengths_mm)):
            built[row] = make_possible(built[row], lengths_mm)
    return built


def _refitted(result: Result, known: dict[int, Body]) -> Result:
    people = [
        person if person.track is None else known[person.track].refit(person, result.camera) for person in result.people
    ]
    return replace(result, people=people)
