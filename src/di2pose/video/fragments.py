"""Complete tracks: fragments of one person are joined, and stray tracks are dropped.

Two fragments are joined if the second begins soon after the end of the first, near its predicted 2D position, in a
similar 3D pose and of similar size; somebody who left the picture sideways must also come back there, in the same
colours. A track is stray if it has fewer than `least_frames` observations, or scattered ones on another person's body;
nothing is dropped from a video shorter than that.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from PIL import Image
from scipy.optimize import linear_sum_assignment

from di2pose.errors import InputError
from di2pose.image.keypoint_encoder import BlankPicture
from di2pose.pose.skeleton import BLAZEPOSE_33
from di2pose.result import Person, Result

LEAST_FRAMES, LEAST_S = 5, 0.2
"""Least observations of a track; also as many as there are frames in LEAST_S."""
SCATTERED, ON_OTHER = 0.75, 0.8
"""A track is stray if it is observed in less than SCATTERED of its frames and lies on another person in more than
ON_OTHER of these, with more than ON_OTHER of its joints."""
JOIN_S = 1.0
"""Longest time between two fragments."""
BACK_S = (0.0, 0.15, 0.3)
"""Observations that are compared, by their distance from the end of a fragment."""
MEMORY_S = 0.2
"""Time over which the speed at the end of a fragment is averaged."""
PLACE, PLACE_A_SECOND = 0.4, 0.8
"""Largest distance of the centres of two fragments in body radii, and its growth per second between them."""
POSE_MM, POSE_MM_A_SECOND = 150.0, 2000.0
"""Largest distance of their joints round the pelvis, likewise; a somersault has 750 mm after a third of a second."""
SIZE = math.log(1.4)
"""Largest difference of their log sizes in the picture."""

TORSO = list(BLAZEPOSE_33.indices("left_shoulder", "right_shoulder", "left_hip", "right_hip"))
"""Landmarks round the colours of a person."""
LOOK = 0.5
"""Largest share of the torso's colours that may differ in somebody who left the picture and came back."""
OUT = 0.25
"""Share of the joints beyond the border of somebody who left there."""


@dataclass
class TrackNotes:
    """Scene cuts of a video, dropped and joined tracks."""

    dropped: set[int] = field(default_factory=set)
    """Numbers of stray tracks."""
    sightings: int = 0
    """Their observations."""
    joined: int = 0
    """Fragments that became part of another track."""
    cuts_s: list[float] = field(default_factory=list)
    """Times of the first frames of new scenes."""
    looks: dict[int, Float[np.ndarray, " 64"]] = field(default_factory=dict)
    """Colours of the torso by track number: pixels of all frames in 4 x 4 x 4 bins."""

    def add_look(self, track: int, picture: Image.Image, torso: Float[np.ndarray, "4 2"]) -> None:
        """The colours inside of the box round these points, unless it reaches out of the picture."""
        low, high = np.floor(torso.min(0)), np.ceil(torso.max(0))
        if (low >= 0).all() and (high <= picture.size).all() and not isinstance(picture, BlankPicture):
            part = picture.crop((*low.astype(int), *high.astype(int))).resize((16, 16), Image.Resampling.BOX)
            bins = np.asarray(part.convert("RGB")).reshape(-1, 3) // 64 @ (16, 4, 1)
            self.looks[track] = self.looks.get(track, 0.0) + np.bincount(bins, minlength=64)

    def __str__(self) -> str:
        """'1 scene cut, 2 stray tracks dropped (7 sightings), 1 fragment joined', or empty."""

        def count(number: int, what: str) -> str:
            return f"{number} {what}{'s' * (number != 1)}"

        stray = f"{count(len(self.dropped), 'stray track')} dropped ({count(self.sightings, 'sighting')})"
        parts = count(len(self.cuts_s), "scene cut"), stray, f"{count(self.joined, 'fragment')} joined"
        there = self.cuts_s, self.dropped, self.joined
        return ", ".join(part for part, some in zip(parts, there, strict=True) if some)


def least_frames(times_s: Sequence[float], least_s: float = LEAST_S) -> int:
    """Least observations of a track in frames of these times; 0 where `least_s` is 0."""
    if least_s <= 0:
        return 0
    step = (times_s[-1] - times_s[0]) / (len(times_s) - 1) if len(times_s) > 1 else math.inf
    return max(LEAST_FRAMES, math.ceil(least_s / step - 1e-6) if step > 0 else 0)


def whole_tracks(
    results: Sequence[Result], least_s: float = LEAST_S, notes: TrackNotes | None = None, least_score: float = 0.0
) -> list[Result]:
    """The results of a whole video with fragments joined under their first number, without stray tracks and tracks
    whose mean score is below `least_score`. Nothing is joined across a cut of the notes."""
    notes = notes or TrackNotes()
    times = [time_of(result) for result in results]
    numbers = _joined(results, times, notes)
    notes.joined += sum(number != track for track, number in numbers.items())
    results = [
        replace(result, people=[replace(person, track=numbers[track_of(person)]) for person in result.people])
        for result in results
    ]
    scores: dict[int, list[float]] = defaultdict(list)
    for person in (person for result in results for person in result.people):
        scores[track_of(person)].append(person.score)
    stray = {track for track, each in scores.items() if sum(each) < least_score * len(each)}
    least = least_frames(times, least_s) if results else 0
    if len(results) >= least > 0:
        stray |= {track for track, each in scores.items() if len(each) < least}
        stray |= {track for track in scores.keys() - stray if _scattered_on_others(track, results)}
    return [_without(result, stray, notes) for result in results]


def confirmed(
    results: Iterable[Result], least_s: float = LEAST_S, notes: TrackNotes | None = None, least_score: float = 0.0
) -> Iterator[Result]:
    """The results of a stream without people whose track has a mean score below `least_score` so far, and without short
    tracks: a frame with a new person waits until the track is long enough, or for twice as many frames as that takes.
    """
    notes = notes or TrackNotes()
    waiting: deque[Result] = deque()
    observed: Counter[int] = Counter()
    total: dict[int, float] = defaultdict(float)
    seen: Counter[int] = Counter()  # without those that were unlikely
    frames, start, least = 0, 0.0, LEAST_FRAMES if least_s > 0 else 0

    def unsure(result: Result) -> set[int]:
        return {track for track in map(track_of, result.people) if seen[track] < least}

    for result in results:
        for person in result.people:
            observed[track_of(person)] += 1
            total[track_of(person)] += person.score
        unlikely = {track for track in map(track_of, result.people) if total[track] < least_score * observed[track]}
        result = _without(result, unlikely, notes)
        waiting.append(result)
        seen.update(map(track_of, result.people))
        frames += 1
        start = time_of(result) if frames == 1 else start
        if frames > 1:
            least = least_frames([0.0, (time_of(result) - start) / (frames - 1)], least_s)
        while waiting and (not unsure(waiting[0]) or len(waiting) > 2 * least):
            yield _without(waiting[0], unsure(waiting[0]), notes)
            waiting.popleft()
    for result in waiting:
        yield _without(result, unsure(result) if frames >= least else set(), notes)


def _without(result: Result, short: set[int], notes: TrackNotes) -> Result:
    gone = [person for person in result.people if person.track in short]
    if not gone:
        return result
    notes.dropped |= {track_of(person) for person in gone}
    notes.sightings += len(gone)
    return replace(result, people=[person for person in result.people if person.track not in short])


def _scattered_on_others(track: int, results: Sequence[Result]) -> bool:
    """Whether a track has gaps and nearly always lies on another person's body."""
    frames = [k for k, result in enumerate(results) if track in map(track_of, result.people)]
    if len(frames) > SCATTERED * (frames[-1] - frames[0] + 1):
        return False
    on_other = 0
    for k in frames:
        own = next(person.joints_2d for person in results[k].people if person.track == track)
        others = [person.joints_2d for person in results[k].people if person.track != track]
        inside = [((own >= other.min(0)) & (own <= other.max(0))).all(-1).mean() for other in others]
        on_other += max(inside, default=0.0) > ON_OTHER
    return bool(on_other > ON_OTHER * len(frames))


class _End(NamedTuple):
    """An observation near the start or the end of a fragment."""

    person: Person
    time_s: float
    speed: Float[np.ndarray, " 2"]
    """Of the centre of the joints, pixels a second, forward in time."""


def _joined(results: Sequence[Result], times: Sequence[float], notes: TrackNotes) -> dict[int, int]:
    """Number of every fragment -> number of the first fragment of the same person."""
    sightings: dict[int, list[tuple[float, Person]]] = {}
    for time_s, result in zip(times, results, strict=True):
        for person in result.people:
            sightings.setdefault(track_of(person), []).append((time_s, person))
    tracks = sorted(sightings)
    first = {track: _ends(sightings[track]) for track in tracks}
    last = {track: _ends(sightings[track][::-1]) for track in tracks}
    cost = np.full((len(tracks), len(tracks)), np.inf)
    for (k, a), (n, b) in product(enumerate(tracks), repeat=2):
        end_s, start_s = last[a][0].time_s, first[b][0].time_s
        if not 0 < start_s - end_s <= JOIN_S or any(end_s < cut <= start_s for cut in notes.cuts_s):
            continue
        if not _another(last[a][0], first[b][0], results[0].size[0], [notes.looks.get(each) for each in (a, b)]):
            cost[k, n] = min(_misfit(end, start) for end, start in product(last[a], first[b]))
    before = {tracks[b]: tracks[a] for a, b in zip(*linear_sum_assignment(np.minimum(cost - 1, 0)), strict=True)
              if cost[a, b] < 1}  # fmt: skip
    numbers: dict[int, int] = {}
    for track in sorted(tracks, key=lambda track: first[track][0].time_s):
        numbers[track] = numbers[before[track]] if track in before else track
    return numbers


def _another(end: _End, start: _End, width: int, looks: Sequence[np.ndarray | None]) -> bool:
    """Whether somebody left the picture sideways, or came in, and the other fragment is not at that border, or of other
    colours."""

    def beyond(one: _End, side: float) -> float:
        x = one.person.joints_2d[:, 0]
        return float((x < 0 if side < 0 else x > width).mean())

    a, b = looks
    recoloured = a is not None and b is not None and np.abs(a / a.sum() - b / b.sum()).sum() / 2 > LOOK
    for one, other, way in ((end, start, 1), (start, end, -1)):
        side = way * float(one.speed[0])
        out = beyond(one, side) if side else 0.0
        if (out > 0 and recoloured) or (out > OUT and beyond(other, side) == 0):
            return True
    return False


def _misfit(end: _End, start: _End) -> float:
    """Of two observations relative to the limits: from 1 on their fragments are not joined."""
    gap = start.time_s - end.time_s
    a, b = end.person, start.person
    size = min(_radius(a), _radius(b))
    # In between, the person may have kept either speed, or stopped.
    ways = (gap * end.speed, gap * start.speed, gap * (end.speed + start.speed) / 2, np.zeros(2))
    step = (b.joints_2d - a.joints_2d).mean(0)
    apart = min(float(np.linalg.norm(step - way)) for way in ways) / size
    pose = float(np.linalg.norm(b.joints_mm - a.joints_mm, axis=-1).mean())
    larger = abs(math.log(_radius(b, mean=True) / _radius(a, mean=True)))
    shares = (apart / (PLACE + PLACE_A_SECOND * gap), pose / (POSE_MM + POSE_MM_A_SECOND * gap), larger / SIZE)
    return max(shares)


def _ends(sightings: list[tuple[float, Person]]) -> list[_End]:
    """The first observation, and those BACK_S after it: a person about to be lost is often observed wrongly."""
    begin, ends = sightings[0][0], []
    for back in BACK_S:
        time_s, person = min(sightings, key=lambda one: abs(abs(one[0] - begin) - back))
        near = [(when - time_s, other.joints_2d.mean(0)) for when, other in sightings if abs(when - time_s) <= MEMORY_S]
        moments, centres = np.array([when for when, _ in near]), np.stack([point for _, point in near])
        speed = np.polyfit(moments, centres, 1)[0] if len(near) > 2 else np.zeros(2)
        ends.append(_End(person, time_s, speed))
    return ends


def _radius(person: Person, mean: bool = False) -> float:
    """Of the body round its root, pixels."""
    far = np.linalg.norm(person.joints_2d - person.joints_2d[person.skeleton.root], axis=-1)
    return max(1.0, float(far.mean() if mean else far.max()))


def time_of(result: Result) -> float:
    if result.time_s is None:
        raise InputError("tracks need the time of every frame: give the results of a video")
    return result.time_s


def track_of(person: Person) -> int:
    if person.track is None:
        raise InputError("tracks need people with track numbers: give the results of a video")
    return person.track
