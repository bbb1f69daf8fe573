"""Who is who from frame to frame, and where to look next.  All positions in pixels of the upright picture.

The next region to look at comes from the landmarks of the last look, as in BlazePose, so the detector need not run on
every frame. What a look shows is matched to the tracks by where it is, by its shape and its 3D pose, and by its size
(of two people who pass each other the nearer one is larger); all pairs at once, so that the sum is least. Sideways a
track moves on at constant speed; up and down it does so for a moment only, for nobody keeps rising. They may also have
stopped, or half so; and the longer they were missed the less their last pose says.

While somebody is hidden, a look at their place shows whoever hides them: two looks at the same body count once, for the
track that fits better, and the other track is missed, not swapped. A fresh look at a body that is tracked is that body,
however ill its landmarks fit: it starts nobody.

A new person is a track at once, without waiting for confirmation; but until they were seen for a while they are not
waited for long, so that stray looks do not add up to somebody. `video.fragments` drops what stays short.
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
from di2pose.pose.root import FLESH
from di2pose.pose.skeleton import BLAZEPOSE_33

SAME_BODY = 0.25
"""Mean distance of landmarks over the radius, below which two looks show one body."""
LIMBS = tuple(
    BLAZEPOSE_33.indices(*(f"{side}_{joint}" for side in ("left", "right") for joint in joints))
    for joints in (("shoulder", "knee", "ankle", "elbow", "wrist"), ("hip", "hip", "knee", "shoulder", "elbow"))
)
"""Where trunk and limbs end and start, left and right."""
ON_BODY, ON_BODY_HIPS = 0.4, 0.5
"""Least intersection over union of two bodies' boxes, and most distance of their hips in radii, where two looks whose
landmarks disagree are at one body."""
GATE, GATE_A_SECOND = 0.65, 0.4
"""Most that a look may differ from its track, and how much more for each second that the track was missed."""
QUICK_GATE, QUICK_S = 0.5, 0.2
"""How much more it may differ after this time: of a jump there are few frames at a low rate."""
POSE_WEIGHT, POSE_MM = 0.5, 1000.0
"""What 3D poses that are this far apart (mean over the landmarks) count beside a body radius in the picture."""
POSE_MEMORY_S = 0.2
"""Time for which a pose, and with it the shape in the picture, tells who it is."""
LOST = 0.15
"""By so much better must a look fit a track that was missed than one that is in sight."""
SPEED_MEMORY_S = 0.2
"""Time over which a track's speed is averaged."""
RISE_S = 0.25
"""Time for which somebody keeps their vertical speed."""
TILES_EVERY = 5
"""Searches of the whole picture, of which one is in tiles: it costs three times as much, and finds small people beside
those that a glance finds. In a video they stay small for longer than a second; a photo has no next frame."""
KNOWN, NEW_PATIENCE_S = 5, 0.25
"""Whoever was seen less often is waited for this long."""


class Sighting(NamedTuple):
    """One pass of the encoder over one region."""

    points: Float[np.ndarray, "33 2"]
    person: float
    """Probability that somebody is there."""
    detection: Detection
    """What was looked at."""
    fresh: bool
    """Whether the detector pointed there; else a track did."""
    pose_mm: Float[np.ndarray, "33 3"] | None = None
    """The encoder's own 3D pose, camera axes, hips in the origin; None where it has none."""


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
    seen: int = 1
    """How often they were."""
    pose_mm: Float[np.ndarray, "33 3"] | None = None
    lost: bool = False
    """Whether the last frame did not show them."""

    def at(self, time_s: float) -> Float[np.ndarray, "33 2"]:
        """Where the landmarks should be."""
        passed = time_s - self.time_s
        return self.points + self.speed * (passed, RISE_S * (1 - math.exp(-passed / RISE_S)))

    def detection(self, time_s: float) -> Detection:
        """Where to look: the hips in the middle, the trunk upright. The box is that of the body, as a detector's is."""
        points = self.at(time_s)
        (x0, y0), (x1, y1) = points.min(0).tolist(), points.max(0).tolist()
        more, down = (FLESH - 1) / 2 * (x1 - x0), (FLESH - 1) / 2 * (y1 - y0)
        box = (x0 - more, y0 - down, x1 + more, y1 + down)
        return Detection(box, self.score, region_round(hips_of(points), self.radius, self.angle))

    def misfit(self, look: Sighting, time_s: float) -> float:
        """Distance of the look's landmarks from where they should be, in body radii: of their centre, of their shape
        round it, and of the 3D pose; plus the log of the sizes. The older a shape is, the less it says."""
        centre, own = look.points.mean(0), self.points.mean(0)
        ahead = self.at(time_s).mean(0)
        apart = min(float(np.linalg.norm(centre - place)) for place in (ahead, own, (ahead + own) / 2)) / self.radius
        shape = float(np.linalg.norm(look.points - centre - self.points + own, axis=1).mean()) / self.radius
        if look.pose_mm is not None and self.pose_mm is not None:
            shape += POSE_WEIGHT * float(np.linalg.norm(look.pose_mm - self.pose_mm, axis=1).mean()) / POSE_MM
        size = abs(math.log(_size(look.points, look.pose_mm) / _size(self.points, self.pose_mm)))
        return apart + size + math.exp((self.time_s - time_s) / POSE_MEMORY_S) * shape + LOST * self.lost

    def gate(self, time_s: float) -> float:
        passed = time_s - self.time_s
        return GATE + GATE_A_SECOND * passed + QUICK_GATE * min(1.0, passed / QUICK_S)

    def patience_s(self, most: float) -> float:
        """How long to wait for them."""
        return most if self.seen >= KNOWN else min(most, NEW_PATIENCE_S)


class Tracker:
    """Numbers people from 0 in the order of their first appearance.

    `patience_s`: a track that is missed for longer ends; whoever comes back later gets a new number. `detect_every`:
    frames between two searches of the whole picture, of which one in TILES_EVERY is in tiles.
    """

    def __init__(self, patience_s: float = 1.5, detect_every: int = 6, max_people: int = 8) -> None:
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
        if self._frames % (TILES_EVERY * self.detect_every) == 0:
            return "all"
        due = self._frames % self.detect_every == 0
        return "quick" if due or not self.tracks or any(track.lost for track in self.tracks) else "none"

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
        self.tracks = [track for track in tracks if time_s - track.time_s <= track.patience_s(self.patience_s)]
        for place in kept:
            in_sight = sum(not track.lost for track in self.tracks)
            new = place not in given and looks[place].fresh and in_sight < self.max_people
            if new and not any(_on_body(looks[place], looks[other]) for other in given):
                given[place] = self._born
                self._born += 1
                self.tracks.append(_start(given[place], looks[place], time_s))
        return given

    def _match(self, time_s: float, misfits: np.ndarray, kept: list[int]) -> dict[int, int]:
        """Look -> track number: as many pairs inside their gates as there can be, and of these the best fitting."""
        if not kept or not self.tracks:
            return {}
        gates = np.array([track.gate(time_s) for track in self.tracks])
        cost = np.where(misfits[kept] < gates, misfits[kept] - 2 * gates.max(), 0.0)
        rows, columns = linear_sum_assignment(cost)
        return {kept[row]: self.tracks[k].number for row, k in zip(rows, columns, strict=True) if cost[row, k] < 0}

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
            seen=track.seen + 1,
            pose_mm=look.pose_mm,
        )


def _start(number: int, look: Sighting, time_s: float) -> Track:
    radius = body_radius(look.points)
    angle = trunk_angle(look.points, radius, look.detection.roi.angle)
    return Track(number, look.points, np.zeros(2), radius, angle, time_s, look.detection.score, pose_mm=look.pose_mm)


def _same(a: Sighting, b: Sighting) -> bool:
    apart = np.linalg.norm(a.points - b.points, axis=1).mean()
    return bool(apart < SAME_BODY * min(body_radius(a.points), body_radius(b.points)))


def _on_body(a: Sighting, b: Sighting) -> bool:
    """Whether two looks are at one body, even where their landmarks disagree."""
    radius = max(body_radius(a.points), body_radius(b.points))
    (a0, a1), (b0, b1) = ((each.points.min(0), each.points.max(0)) for each in (a, b))
    shared = float(np.clip(np.minimum(a1, b1) - np.maximum(a0, b0), 0, None).prod())
    whole = float((a1 - a0).prod() + (b1 - b0).prod()) - shared
    apart = float(np.linalg.norm(hips_of(a.points) - hips_of(b.points)))
    return apart < ON_BODY_HIPS * radius and shared > ON_BODY * whole


def _size(points: Float[np.ndarray, "33 2"], pose_mm: Float[np.ndarray, "33 3"] | None) -> float:
    """Of a body in the picture: its extent over that of its 3D pose seen from the front, pixels a metre, which does not
    change when it bends. Without a 3D pose the length of trunk and limbs, which changes less than the extent."""
    if pose_mm is not None:
        return 1000 * _extent(points) / _extent(pose_mm[:, :2])
    ends, starts = points[list(LIMBS[0])], points[list(LIMBS[1])]
    return max(1.0, float(np.sqrt(((ends - starts) ** 2).sum(-1).mean())))


def _extent(points: Float[np.ndarray, "33 2"]) -> float:
    return max(1.0, float(np.sqrt(((points - points.mean(0)) ** 2).sum(-1).mean())))


def _hips_apart(a: Detection, b: Detection) -> float:
    """Over the larger circle's radius."""
    (ax, ay), (bx, by) = a.roi.centre, b.roi.centre
    return math.hypot(ax - bx, ay - by) / (max(a.roi.side, b.roi.side) / (2 * ROI_MARGIN))
