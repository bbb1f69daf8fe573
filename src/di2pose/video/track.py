"""Person tracking: which observation is which person, and where to crop next.  Pixels of the upright picture.

The next crop comes from the last landmarks, as in BlazePose, so the detector need not run on every frame. Observations
are assigned to tracks by position, shape, 3D pose and size, all pairs at once (least sum). A track moves on at constant
speed sideways and for a moment vertically, or has stopped, or half so; its last pose counts less the longer it is lost.

While a person is hidden, a crop at their place shows the person in front: two observations of one body count once, for
the track that fits better. A detection on a tracked body never starts a track, however badly its landmarks fit.

A new person is a track at once, but is not waited for long before KNOWN observations. `video.fragments` drops short
tracks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from di2pose.image.crop import ROI_MARGIN
from di2pose.image.detect import Detection
from di2pose.image.encoder import PERSON
from di2pose.image.region import body_radius, hips_of, region_round, trunk_angle
from di2pose.pose.fit import FLESH
from di2pose.pose.skeleton import BLAZEPOSE_33

SAME_BODY = 0.25
"""Mean distance of landmarks over the radius, below which two observations are of one body."""
LIMBS = tuple(
    BLAZEPOSE_33.indices(*(f"{side}_{joint}" for side in ("left", "right") for joint in joints))
    for joints in (("shoulder", "knee", "ankle", "elbow", "wrist"), ("hip", "hip", "knee", "shoulder", "elbow"))
)
"""Ends and starts of trunk and limbs."""
ON_BODY, ON_BODY_HIPS = 0.4, 0.5
"""Also of one body: boxes with at least this intersection over union, hips at most so many radii apart."""
GATE, GATE_A_SECOND = 0.65, 0.4
"""Largest misfit of an observation and its track, and its growth per second that the track was lost."""
QUICK_GATE, QUICK_S = 0.5, 0.2
"""Additional gate, reached after QUICK_S: at a low frame rate a jump has few frames."""
POSE_WEIGHT, POSE_MM = 0.5, 1000.0
"""Weight of 3D poses that are POSE_MM apart (mean over the landmarks), relative to one body radius."""
POSE_MEMORY_S = 0.2
"""Time constant of the weight of pose and shape."""
LOST = 0.15
"""Penalty of a lost track."""
SPEED_MEMORY_S = 0.2
"""Time over which a track's speed is averaged."""
RISE_S = 0.25
"""Time constant of the vertical speed."""
TILES_EVERY = 5
"""One search in so many is in tiles: it costs three times as much and finds small people, too."""
KNOWN, NEW_PATIENCE_S = 5, 0.25
"""A track with fewer observations is waited for this long."""


class Observation(NamedTuple):
    """The encoder's output for one crop."""

    points: Float[np.ndarray, "33 2"]
    person: float
    """Probability that the crop shows a person."""
    detection: Detection
    """The crop's region."""
    fresh: bool
    """Whether the region is from the detector; else from a track."""
    pose_mm: Float[np.ndarray, "33 3"] | None = None
    """The encoder's own 3D pose, camera axes, hips in the origin; None where it has none."""


@dataclass(frozen=True)
class Track:
    """One person, as last observed."""

    number: int
    points: Float[np.ndarray, "33 2"]
    speed: Float[np.ndarray, " 2"]
    """Of the hips, pixels a second."""
    radius: float
    angle: float
    time_s: float
    score: float
    """Of the last detection."""
    seen: int = 1
    """Number of observations."""
    pose_mm: Float[np.ndarray, "33 3"] | None = None
    lost: bool = False
    """Whether the last frame had no observation of it."""

    def at(self, time_s: float) -> Float[np.ndarray, "33 2"]:
        """Predicted landmarks."""
        passed = time_s - self.time_s
        return self.points + self.speed * (passed, RISE_S * (1 - math.exp(-passed / RISE_S)))

    def detection(self, time_s: float) -> Detection:
        """The next region: hips in the middle, trunk upright. The box is the body's, like a detector's."""
        points = self.at(time_s)
        (x0, y0), (x1, y1) = points.min(0).tolist(), points.max(0).tolist()
        more, down = (FLESH - 1) / 2 * (x1 - x0), (FLESH - 1) / 2 * (y1 - y0)
        box = (x0 - more, y0 - down, x1 + more, y1 + down)
        return Detection(box, self.score, region_round(hips_of(points), self.radius, self.angle))

    def misfit(self, one: Observation, time_s: float) -> float:
        """Distance from the predicted landmarks in body radii (centre, shape and 3D pose) plus that of log sizes. The
        weight of shape and pose decays with time."""
        centre, own = one.points.mean(0), self.points.mean(0)
        ahead = self.at(time_s).mean(0)
        apart = min(float(np.linalg.norm(centre - place)) for place in (ahead, own, (ahead + own) / 2)) / self.radius
        shape = float(np.linalg.norm(one.points - centre - self.points + own, axis=1).mean()) / self.radius
        if one.pose_mm is not None and self.pose_mm is not None:
            shape += POSE_WEIGHT * float(np.linalg.norm(one.pose_mm - self.pose_mm, axis=1).mean()) / POSE_MM
        size = abs(math.log(_size(one.points, one.pose_mm) / _size(self.points, self.pose_mm)))
        return apart + size + math.exp((self.time_s - time_s) / POSE_MEMORY_S) * shape + LOST * self.lost

    def left(self, time_s: float, width: float) -> bool:
        """Whether the hips went out of the picture sideways."""
        x, speed = float(hips_of(self.at(time_s))[0]), float(self.speed[0])
        return (x < 0 and speed < 0) or (x > width and speed > 0)

    def gate(self, time_s: float) -> float:
        passed = time_s - self.time_s
        return GATE + GATE_A_SECOND * passed + QUICK_GATE * min(1.0, passed / QUICK_S)


class Tracker:
    """Numbers people from 0 in the order of their first appearance.

    patience_s: a track that is lost for longer ends; a person who comes back later gets a new number
    detect_every: frames between two searches of the whole picture, of which one in TILES_EVERY is in tiles
    """

    def __init__(self, patience_s: float = 1.5, detect_every: int = 6, max_people: int = 8) -> None:
        self.patience_s, self.detect_every, self.max_people = patience_s, detect_every, max_people
        self.tracks: list[Track] = []
        self.by_landmarks = True
        """Whether observations have landmarks for the next region; else the detector runs on every frame."""
        self._started = 0
        self._frames = 0

    @property
    def search(self) -> str:
        """The detector's search of the next frame: 'all' (with tiles), 'quick' (without) or 'none'."""
        if len(self.tracks) >= self.max_people and not any(track.lost for track in self.tracks):
            return "none"
        if self._frames % (TILES_EVERY * self.detect_every) == 0:
            return "all"
        due = self._frames % self.detect_every == 0
        return "quick" if due or not self.tracks or any(track.lost for track in self.tracks) else "none"

    def end_tracks(self) -> None:
        """Of the old scene at a cut; the next frame is searched wholly."""
        self.tracks, self._frames = [], 0

    def regions(self, time_s: float, found: Sequence[Detection] = ()) -> list[tuple[Detection, bool]]:
        """Regions to encode in the frame of `time_s`, and whether they are fresh: those of the tracks, then detections
        that are not on a visible track."""
        if not self.by_landmarks:
            return [(detection, True) for detection in found[: self.max_people]]
        tracked = [(track, track.detection(time_s)) for track in self.tracks]
        in_sight = [detection for track, detection in tracked if not track.lost]
        new = [each for each in found if all(_hips_apart(each, other) > 0.4 for other in in_sight)]
        room = max(0, self.max_people - len(in_sight))
        return [(detection, False) for _, detection in tracked] + [(detection, True) for detection in new[:room]]

    def update(self, time_s: float, observations: Sequence[Observation], width: float = math.inf) -> dict[int, int]:
        """Index of an observation -> number of its track; without duplicates and empty crops. Starts, ends tracks: at
        once where somebody left a picture of that width."""
        self._frames += 1
        misfits = np.array([[track.misfit(one, time_s) for track in self.tracks] for one in observations])
        misfits = misfits.reshape(len(observations), len(self.tracks))
        best = misfits.min(axis=1, initial=np.inf)
        kept: list[int] = []
        for place in np.argsort(best, kind="stable").tolist():
            one = observations[place]
            if one.person >= PERSON and not any(_same(one, observations[other]) for other in kept):
                kept.append(place)
        given = self._match(time_s, misfits, kept)
        moved = [_moved(track, time_s, observations, given) for track in self.tracks]
        tracks = [track for track in moved if not (track.lost and track.left(time_s, width))]
        patience = {True: self.patience_s, False: min(self.patience_s, NEW_PATIENCE_S)}
        self.tracks = [track for track in tracks if time_s - track.time_s <= patience[track.seen >= KNOWN]]
        for place in kept:
            in_sight = sum(not track.lost for track in self.tracks)
            new = place not in given and observations[place].fresh and in_sight < self.max_people
            if new and not any(_on_body(observations[place], observations[other]) for other in given):
                given[place] = self._started
                self._started += 1
                self.tracks.append(_start(given[place], observations[place], time_s))
        return given

    def _match(self, time_s: float, misfits: np.ndarray, kept: list[int]) -> dict[int, int]:
        """Observation -> track number: the most pairs within their gates, and of these the least sum of misfits."""
        if not kept or not self.tracks:
            return {}
        gates = np.array([track.gate(time_s) for track in self.tracks])
        cost = np.where(misfits[kept] < gates, misfits[kept] - 2 * gates.max(), 0.0)
        rows, columns = linear_sum_assignment(cost)
        return {kept[row]: self.tracks[k].number for row, k in zip(rows, columns, strict=True) if cost[row, k] < 0}


def _moved(track: Track, time_s: float, observations: Sequence[Observation], given: dict[int, int]) -> Track:
    place = next((place for place, number in given.items() if number == track.number), None)
    if place is None:
        return replace(track, lost=True)
    one, passed = observations[place], time_s - track.time_s
    # Averaged, changing by at most a fifth: one wrong observation must not spoil the next region.
    radius = float(np.clip((track.radius + body_radius(one.points)) / 2, track.radius / 1.2, track.radius * 1.2))
    moved = hips_of(one.points) - hips_of(track.points)
    weight = 1 - math.exp(-passed / SPEED_MEMORY_S)
    speed = track.speed + weight * (moved / passed - track.speed) if passed > 0 else track.speed
    angle = trunk_angle(one.points, radius, track.angle)
    score = one.detection.score if one.fresh else track.score
    return Track(track.number, one.points, speed, radius, angle, time_s, score, track.seen + 1, one.pose_mm)


def _start(number: int, one: Observation, time_s: float) -> Track:
    radius = body_radius(one.points)
    angle = trunk_angle(one.points, radius, one.detection.roi.angle)
    return Track(number, one.points, np.zeros(2), radius, angle, time_s, one.detection.score, pose_mm=one.pose_mm)


def _same(a: Observation, b: Observation) -> bool:
    apart = np.linalg.norm(a.points - b.points, axis=1).mean()
    return bool(apart < SAME_BODY * min(body_radius(a.points), body_radius(b.points)))


def _on_body(a: Observation, b: Observation) -> bool:
    """Whether two observations are of one body, even where their landmarks disagree."""
    radius = max(body_radius(a.points), body_radius(b.points))
    (a0, a1), (b0, b1) = ((each.points.min(0), each.points.max(0)) for each in (a, b))
    shared = float(np.clip(np.minimum(a1, b1) - np.maximum(a0, b0), 0, None).prod())
    whole = float((a1 - a0).prod() + (b1 - b0).prod()) - shared
    apart = float(np.linalg.norm(hips_of(a.points) - hips_of(b.points)))
    return apart < ON_BODY_HIPS * radius and shared > ON_BODY * whole


def _size(points: Float[np.ndarray, "33 2"], pose_mm: Float[np.ndarray, "33 3"] | None) -> float:
    """Size of a body in the picture, independent of its pose: its extent over that of its 3D pose, pixels a metre;
    without a 3D pose the length of trunk and limbs."""
    if pose_mm is None:
        return _mean_length(points[list(LIMBS[0])] - points[list(LIMBS[1])])
    flat = pose_mm[:, :2]
    return 1000 * _mean_length(points - points.mean(0)) / _mean_length(flat - flat.mean(0))


def _mean_length(vectors: Float[np.ndarray, "n 2"]) -> float:
    """Root mean square, at least 1."""
    return max(1.0, float(np.sqrt((vectors**2).sum(-1).mean())))


def _hips_apart(a: Detection, b: Detection) -> float:
    """Distance of the hips over the larger circle's radius."""
    (ax, ay), (bx, by) = a.roi.centre, b.roi.centre
    return math.hypot(ax - bx, ay - by) / (max(a.roi.side, b.roi.side) / (2 * ROI_MARGIN))
