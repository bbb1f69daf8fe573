"""Tracks once they are over: fragments of one person are joined, and sightings too short to be somebody are dropped.

Two fragments are one person if the second begins soon after the end of the first, about where the first should be by
then (2D, constant speed), in about the same pose (3D, round the pelvis) and about as large. A track is stray and
dropped if it has fewer than `least_frames` sightings, or scattered ones on somebody else's body; of a video that is
shorter than that nothing is dropped.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from di2pose.errors import InputError
from di2pose.result import Person, Result

LEAST_FRAMES, LEAST_S = 5, 0.2
"""A track needs so many sightings, and as many as frames in this time."""
SCATTERED, ON_OTHER = 0.75, 0.8
"""A track that is seen in fewer of its frames than this share, and in more than this share of them with as many of its
joints on somebody else, is a stray look at them."""
JOIN_S = 1.0
"""Longest time between two fragments."""
BACK_S = (0.0, 0.15, 0.3)
"""Distance from the end of a fragment of the sightings that are compared."""
MEMORY_S = 0.2
"""Time over which the speed at the end of a fragment is averaged."""
PLACE, PLACE_A_SECOND = 0.4, 0.8
"""Most distance of the centres of two fragments in body radii, and how much more for each second between them."""
POSE_MM, POSE_MM_A_SECOND = 150.0, 2000.0
"""Most distance of their joints round the pelvis: in a somersault it is 750 mm after a third of a second."""
SIZE = math.log(1.4)
"""Most difference of their sizes in the picture."""


@dataclass
class TrackNotes:
    """What became of the tracks of a video: filled while it is looked at."""

    dropped: set[int] = field(default_factory=set)
    """Numbers of the tracks that were too short, scattered on somebody else, or nobody."""
    sightings: int = 0
    """How often they were seen."""
    joined: int = 0
    """Fragments that became part of another track."""

    def __str__(self) -> str:
        """'2 stray tracks dropped (7 sightings), 1 fragment joined'; empty where there is nothing to say."""
        count = len(self.dropped)
        parts = []
        if count:
            seen = f"{self.sightings} sighting{'s' * (self.sightings != 1)}"
            parts.append(f"{count} stray track{'s' * (count != 1)} dropped ({seen})")
        if self.joined:
            parts.append(f"{self.joined} fragment{'s' * (self.joined != 1)} joined")
        return ", ".join(parts)


def least_frames(times_s: Sequence[float], least_s: float = LEAST_S) -> int:
    """Sightings that a track needs in frames of these times; 0 where `least_s` is 0."""
    if least_s <= 0:
        return 0
    step = (times_s[-1] - times_s[0]) / (len(times_s) - 1) if len(times_s) > 1 else math.inf
    return max(LEAST_FRAMES, math.ceil(least_s / step - 1e-6) if step > 0 else 0)


def whole_tracks(
    results: Sequence[Result], least_s: float = LEAST_S, notes: TrackNotes | None = None, least_score: float = 0.0
) -> list[Result]:
    """The results of a whole video with fragments joined under their first number, and without stray tracks: short
    ones, ones that lie on others, and ones whose mean score is below `least_score`."""
    notes = TrackNotes() if notes is None else notes
    times = [_time(result) for result in results]
    numbers = _joined(results, times)
    notes.joined += sum(number != track for track, number in numbers.items())
    results = [
        replace(result, people=[replace(person, track=numbers[_track(person)]) for person in result.people])
        for result in results
    ]
    scores: dict[int, list[float]] = defaultdict(list)
    for person in (person for result in results for person in result.people):
        scores[_track(person)].append(person.score)
    seen = {track: len(each) for track, each in scores.items()}
    nobody = {track for track, each in scores.items() if sum(each) < least_score * len(each)}
    least = least_frames(times, least_s) if results else 0
    if len(results) < least or not least:
        return [_without(result, nobody, notes) for result in results]
    stray = nobody | {track for track, count in seen.items() if count < least}
    stray |= {track for track in seen if track not in stray and _scattered_on_others(track, results)}
    return [_without(result, stray, notes) for result in results]


def confirmed(results: Iterable[Result], least_s: float = LEAST_S, notes: TrackNotes | None = None) -> Iterator[Result]:
    """The results as they come, without short tracks: a frame with somebody new is held back until they were seen
    often enough, or for twice as many frames as that takes."""
    notes = TrackNotes() if notes is None else notes
    waiting: deque[Result] = deque()
    times: list[float] = []  # of the first and the last frame
    seen: Counter[int] = Counter()
    frames, least = 0, LEAST_FRAMES if least_s > 0 else 0

    def unsure(result: Result) -> set[int]:
        return {track for track in map(_track, result.people) if seen[track] < least}

    for result in results:
        waiting.append(result)
        seen.update(map(_track, result.people))
        times, frames = [*times[:1], _time(result)], frames + 1
        if frames > 1:
            step = (times[-1] - times[0]) / (frames - 1)
            least = least_frames([0.0, step], least_s)
        while waiting and (not unsure(waiting[0]) or len(waiting) > 2 * least):
            yield _without(waiting[0], unsure(waiting[0]), notes)
            waiting.popleft()
    for result in waiting:
        yield _without(result, unsure(result) if frames >= least else set(), notes)


def likely(results: Iterable[Result], least: float, notes: TrackNotes | None = None) -> Iterator[Result]:
    """The results as they come, without tracks whose score, its mean so far, is below `least`: those are nobody."""
    notes = TrackNotes() if notes is None else notes
    seen: Counter[int] = Counter()
    total: dict[int, float] = defaultdict(float)
    for result in results:
        for person in result.people:
            seen[_track(person)] += 1
            total[_track(person)] += person.score
        nobody = {track for track in map(_track, result.people) if total[track] < least * seen[track]}
        yield _without(result, nobody, notes)


def _without(result: Result, short: set[int], notes: TrackNotes) -> Result:
    gone = [person for person in result.people if person.track in short]
    if not gone:
        return result
    notes.dropped |= {_track(person) for person in gone}
    notes.sightings += len(gone)
    return replace(result, people=[person for person in result.people if person.track not in short])


def _scattered_on_others(track: int, results: Sequence[Result]) -> bool:
    """Whether somebody is seen now and then only, and nearly always on the body of somebody else."""
    frames = [k for k, result in enumerate(results) if track in map(_track, result.people)]
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
    """The first or the last of a fragment."""

    person: Person
    time_s: float
    speed: Float[np.ndarray, " 2"]
    """Of the centre of the joints, pixels a second, forward in time."""


def _joined(results: Sequence[Result], times: Sequence[float]) -> dict[int, int]:
    """Number of every fragment -> number of the first fragment of the same person."""
    sightings: dict[int, list[tuple[float, Person]]] = {}
    for time_s, result in zip(times, results, strict=True):
        for person in result.people:
            sightings.setdefault(_track(person), []).append((time_s, person))
    tracks = sorted(sightings)
    if len(tracks) < 2:
        return {track: track for track in tracks}
    first = {track: _ends(sightings[track]) for track in tracks}
    last = {track: _ends(sightings[track][::-1]) for track in tracks}
    cost = np.array([[_least_misfit(last[a], first[b]) for b in tracks] for a in tracks])
    before = {tracks[b]: tracks[a] for a, b in zip(*linear_sum_assignment(np.minimum(cost - 1, 0)), strict=True)
              if cost[a, b] < 1}  # fmt: skip
    numbers: dict[int, int] = {}
    for track in sorted(tracks, key=lambda track: first[track][0].time_s):
        numbers[track] = numbers[before[track]] if track in before else track
    return numbers


def _least_misfit(ends: list[_End], starts: list[_End]) -> float:
    """How ill two fragments fit, as a share of what is allowed: 1 or more do not."""
    if not 0 < starts[0].time_s - ends[0].time_s <= JOIN_S:
        return math.inf
    return min(_misfit(end, start) for end in ends for start in starts)


def _misfit(end: _End, start: _End) -> float:
    gap = start.time_s - end.time_s
    a, b = end.person, start.person
    size = min(_radius(a.joints_2d), _radius(b.joints_2d))
    # Nobody knows the way in between: either end may have kept its speed, or have stopped.
    ways = (gap * end.speed, gap * start.speed, gap * (end.speed + start.speed) / 2, np.zeros(2))
    step = (b.joints_2d - a.joints_2d).mean(0)
    apart = min(float(np.linalg.norm(step - way)) for way in ways) / size
    pose = float(np.linalg.norm(b.joints_mm - a.joints_mm, axis=-1).mean())
    larger = abs(math.log(_radius(b.joints_2d, mean=True) / _radius(a.joints_2d, mean=True)))
    shares = (apart / (PLACE + PLACE_A_SECOND * gap), pose / (POSE_MM + POSE_MM_A_SECOND * gap), larger / SIZE)
    return max(shares)


def _ends(sightings: list[tuple[float, Person]]) -> list[_End]:
    """The first of some sightings, and those some time after it: who is about to be lost is often seen wrongly."""
    begin, ends = sightings[0][0], []
    for back in BACK_S:
        time_s, person = min(sightings, key=lambda one: abs(abs(one[0] - begin) - back))
        near = [(when - time_s, other.joints_2d.mean(0)) for when, other in sightings if abs(when - time_s) <= MEMORY_S]
        moments, centres = np.array([when for when, _ in near]), np.stack([point for _, point in near])
        speed = np.polyfit(moments, centres, 1)[0] if len(near) > 2 else np.zeros(2)
        ends.append(_End(person, time_s, speed))
    return ends


def _radius(joints_2d: Float[np.ndarray, "J 2"], mean: bool = False) -> float:
    """Of the body round the pelvis, pixels."""
    far = np.linalg.norm(joints_2d - joints_2d[0], axis=-1)
    return max(1.0, float(far.mean() if mean else far.max()))


def _time(result: Result) -> float:
    if result.time_s is None:
        raise InputError("tracks need the time of every frame: give the results of a video")
    return result.time_s


def _track(person: Person) -> int:
    if person.track is None:
        raise InputError("tracks need people with track numbers: give the results of a video")
    return person.track
