"""Who is who from frame to frame, and where to look next.  All positions in pixels of the upright picture.

The next region to look at comes from the landmarks of the last look, as in BlazePose, so the detector need not run on
every frame. What a look shows is matched to the tracks by the distance of its 33 landmarks from where each track should
be by now (it moves on at constant speed), plus the difference in size: of two people who pass each other the nearer one
is larger. While somebody is hidden, a look at their place shows whoever hides them: two looks at the same body count
once, for the track that fits better, and the other track is missed, not swapped.

A new person is a track at once, without waiting for confirmation: detector and encoder have both seen somebody.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from di2pose.image.crop import ROI_MARGIN
from di2pose.image.detect import Detection
from di2pose.image.encoder import PERSON
from di2pose.image.region import body_radius, hips_of, region_round, trunk_angle

SAME_BODY = 0.25
"""Mean distance of landmarks over the radius, below which two looks show one body."""
GATE, GATE_A_SECOND = 0.6, 0.4
"""Most that a look may differ from its track, and how much more for each second that the track was missed."""
SPEED_MEMORY_S = 0.2
"""Time over which a track's speed is averaged."""


class Sighting(NamedTuple):
    """One pass of the encoder over one region."""

    points: Float[np.ndarray, "33 2"]
    person: float
    """Probability that somebody is there."""
    detection: Detection
    """What was looked at."""
    fresh: bool
    """Whether the detector pointed there; else a track did."""


@dataclass(frozen=True)
class Track:
    """One person, as last seen."""

    number: int
    points: Float[np.ndarray, "33 2"]
    speed: Float[np.ndarray, " 2"]
    """Of the hips, pixels a second."""
    radius: float
    angle: float
    time_s: float
    score: float
    """The detector's, when it last pointed here."""
    lost: bool = False
    """Whether the last frame did not show them."""

    def at(self, time_s: float) -> Float[np.ndarray, "33 2"]:
        """Where the landmarks should be."""
        return self.points + self.speed * (time_s - self.time_s)

    def detection(self, time_s: float) -> Detection:
        """Where to look: the hips in the middle, the trunk upright."""
        hips = hips_of(self.at(time_s))
        (x, y), radius = hips.tolist(), self.radius
        box = (x - radius, y - radius, x + radius, y + radius)
        return Detection(box, self.score, region_round(hips, radius, self.angle))

    def misfit(self, look: Sighting, time_s: float) -> float:
        """Mean distance of the look's landmarks from where they should be, in body radii, plus the log of the sizes."""
        apart = np.linalg.norm(look.points - self.at(time_s), axis=1).mean() / self.radius
        return float(apart + abs(math.log(body_radius(look.points) / self.radius)))

    def gate(self, time_s: float) -> float:
        return GATE + GATE_A_SECOND * (time_s - self.time_s)


class Tracker:
    """Numbers people from 0 in the order of their first appearance.

    `patience_s`: a track that is missed for longer ends; whoever comes back later gets a new number. `detect_every`:
    frames between two searches of the whole picture.
    """

    def __init__(self, patience_s: float = 1.5, detect_every: int = 15, max_people: int = 8) -> None:
        self.patience_s, self.detect_every, self.max_people = patience_s, detect_every, max_people
        self.tracks: list[Track] = []
        self.by_landmarks = True
        """Whether sightings have landmarks that tell where to look next; else what the detector finds replaces it."""
        self._born = 0
        self._frames = 0

    @property
    def search(self) -> str:
        """What the detector should do on the next frame: 'all' (with tiles), 'quick' (one glance) or 'none'."""
        if len(self.tracks) >= self.max_people and not any(track.lost for track in self.tracks):
            return "none"
        if self._frames % self.detect_every == 0:
            return "all"
        return "quick" if not self.tracks or any(track.lost for track in self.tracks) else "none"

    def regions(self, time_s: float, found: Sequence[Detection] = ()) -> list[tuple[Detection, bool]]:
        """Where to look in the frame of `time_s`, and whether it is fresh: tracks first, then what the detector found
        and no track in sight explains."""
        if not self.by_landmarks:
            return [(detection, True) for detection in found[: self.max_people]]
        tracked = [(track, track.detection(time_s)) for track in self.tracks]
        in_sight = [detection for track, detection in tracked if not track.lost]
        new = [each for each in found if all(_hips_apart(each, other) > 0.4 for other in in_sight)]
        room = max(0, self.max_people - len(in_sight))
        return [(detection, False) for _, detection in tracked] + [(detection, True) for detection in new[:room]]

    def update(self, time_s: float, looks: Sequence[Sighting]) -> dict[int, int]:
        """Place of a look -> number of its track, for looks that show a person of their own. Starts and ends tracks."""
        self._frames += 1
        misfits = np.array([[track.misfit(look, time_s) for track in self.tracks] for look in looks])
        misfits = misfits.reshape(len(looks), len(self.tracks))
        best = misfits.min(axis=1, initial=np.inf)
        kept: list[int] = []
        for place in np.argsort(best, kind="stable").tolist():
            if looks[place].person >= PERSON and not any(_same(looks[place], looks[other]) for other in kept):
                kept.append(place)
        given = self._match(time_s, misfits, kept)
        tracks = [self._moved(track, time_s, looks, given) for track in self.tracks]
        self.tracks = [track for track in tracks if time_s - track.time_s <= self.patience_s]
        for place in kept:
            in_sight = sum(not track.lost for track in self.tracks)
            if place not in given and looks[place].fresh and in_sight < self.max_people:
                given[place] = self._born
                self._born += 1
                self.tracks.append(_start(given[place], looks[place], time_s))
        return given

    def _match(self, time_s: float, misfits: np.ndarray, kept: list[int]) -> dict[int, int]:
        """Look -> track number, the best fitting pair first."""
        pairs = [
            (float(misfits[place, k]), place, track.number)
            for place in kept
            for k, track in enumerate(self.tracks)
            if misfits[place, k] < track.gate(time_s)
        ]
        given: dict[int, int] = {}
        for _, place, number in sorted(pairs):
            if place not in given and number not in given.values():
                given[place] = number
        return given

    @staticmethod
    def _moved(track: Track, time_s: float, looks: Sequence[Sighting], given: dict[int, int]) -> Track:
        place = next((place for place, number in given.items() if number == track.number), None)
        if place is None:
            return replace(track, lost=True)
        look, passed = looks[place], time_s - track.time_s
        # Averaged, and the size changes by at most a fifth: one wrong look must not throw the next region off.
        radius = float(np.clip((track.radius + body_radius(look.points)) / 2, track.radius / 1.2, track.radius * 1.2))
        moved = hips_of(look.points) - hips_of(track.points)
        weight = 1 - math.exp(-passed / SPEED_MEMORY_S)
        speed = track.speed + weight * (moved / passed - track.speed) if passed > 0 else track.speed
        return Track(
            number=track.number,
            points=look.points,
            speed=speed,
            radius=radius,
            angle=trunk_angle(look.points, radius, track.angle),
            time_s=time_s,
            score=look.detection.score if look.fresh else track.score,
        )


def _start(number: int, look: Sighting, time_s: float) -> Track:
    radius = body_radius(look.points)
    angle = trunk_angle(look.points, radius, look.detection.roi.angle)
    return Track(number, look.points, np.zeros(2), radius, angle, time_s, look.detection.score)


def _same(a: Sighting, b: Sighting) -> bool:
    apart = np.linalg.norm(a.points - b.points, axis=1).mean()
    return bool(apart < SAME_BODY * min(body_radius(a.points), body_radius(b.points)))


def _hips_apart(a: Detection, b: Detection) -> float:
    """Over the larger circle's radius."""
    (ax, ay), (bx, by) = a.roi.centre, b.roi.centre
    return math.hypot(ax - bx, ay - by) / (max(a.roi.side, b.roi.side) / (2 * ROI_MARGIN))
