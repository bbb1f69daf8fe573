"""Video -> results, frame by frame.

    stream -> frames -> [track: where to look] -> [encoder] -> [track: who it is] -> [diffusion] -> [smooth] -> results

With a warm start the diffusion of a frame begins at the tokens of the same person in the frame before, noised again to
an intermediate step, and not from nothing. Without it the frames' tokens do not depend on each other, and the diffusion
runs over several frames at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import di2pose
from di2pose.errors import InputError
from di2pose.image.detect import Detection
from di2pose.photo import Seen, View, camera_for, people_of
from di2pose.pipeline import Di2Pose
from di2pose.pose.camera import Camera
from di2pose.randomness import hypothesis_generators
from di2pose.result import Motion, Person, Result
from di2pose.video.smooth import smooth
from di2pose.video.stream import Frame, Stream
from di2pose.video.track import Look, Tracker

BATCH = 8
"""Looks that go through the diffusion together, where frames do not wait for each other."""
WARM_SHARE = 0.75
"""Of the diffusion's steps: how far the tokens of the frame before are noised again. Less is quicker and calmer, and
further off: docs/results.md."""
WARM_AGE_S = 0.2
"""Older tokens start nobody: the pose is another one by then."""
TILES: dict[str, tuple[int, ...] | None] = {"all": (2, 4), "quick": (), "none": None}
"""What the tracker asks for -> the detector's tiles; None: it rests."""


class Tracked(NamedTuple):
    """One frame, looked at."""

    frame: Frame
    seen: Seen | None
    """The people who were found, in the order of `numbers`; None for nobody."""
    numbers: list[int]


def results_of(
    model: Di2Pose,
    source: Stream | str | Path | int,
    *,
    hypotheses: int = 8,
    steps: int | None = None,
    seed: int = 0,
    smoothed: bool = True,
    warm: bool = False,
    detect_every: int = 15,
    max_people: int = 8,
    camera: Camera | None = None,
    field_of_view: float | None = None,
    height_m: float | None = None,
    pictures: bool = False,
) -> Iterator[Result]:
    """A result for every frame, in order and one by one; memory does not grow with the length of the video.

    source: a video file, a camera's index, or a `Stream`, which says afterwards whether the video was whole
    hypotheses, steps, camera, field_of_view, height_m, max_people: as for a photo, see `Di2Pose.forward`
    seed: the noise of a hypothesis depends on (seed, track, frame, hypothesis) alone
    smoothed: see `video.smooth`; results then come some frames late
    warm: start from the frame before: quicker and calmer, but mistakes last; False draws every frame from nothing
    detect_every: frames between two searches of the whole picture; also when somebody is lost
    pictures: let the results keep their pixels; those of a file can be read again when a page or an overlay needs them
    """
    if hypotheses < 1 or detect_every < 1 or max_people < 1:
        raise InputError(
            "hypotheses, detect_every and max_people must be 1 or more, "
            f"got {hypotheses}, {detect_every} and {max_people}"
        )
    stream = source if isinstance(source, Stream) else Stream(source)
    count = steps or model.config.sample_steps
    drawing = Drawing(model, hypotheses, count, seed, WARM_SHARE if warm else None)

    def view_of(frame: Frame, detection: Detection) -> View:
        return View(frame.picture, detection, camera_for(frame.picture.size, camera, field_of_view))

    def result(tracked: Tracked, people: list[Person]) -> Result:
        frame = tracked.frame
        return Result(
            image=stream.name,
            size=frame.picture.size,
            camera=camera_for(frame.picture.size, camera, field_of_view),
            people=people,
            seed=seed,
            steps=count,
            hypotheses=hypotheses,
            model=model.config.name,
            version=di2pose.__version__,
            frame_index=frame.index,
            time_s=frame.time_s,
            picture=frame.picture if pictures else None,
        )

    tracked = tracked_frames(model, stream, Tracker(detect_every=detect_every, max_people=max_people), view_of)
    results = (result(each, people) for each, people in drawing.people(tracked, height_m))
    return smooth(results) if smoothed else results


def motion_of(results: Iterable[Result], fps: float) -> Motion:
    """All results of a video at once, e.g. `motion_of(results_of(model, stream), stream.fps)`."""
    return Motion(list(results), fps)


def tracked_frames(
    model: Di2Pose, frames: Iterable[Frame], tracker: Tracker, view_of: Callable[[Frame, Detection], View]
) -> Iterator[Tracked]:
    """Look at every frame, once at everybody who is known, again at whoever is new, and say who is there."""
    for frame in frames:
        tiles = TILES[tracker.search]
        found = [] if tiles is None else model.find(frame.picture, max_people=tracker.max_people, tiles=tiles)
        regions = tracker.regions(frame.time_s, found)
        if not regions:
            tracker.update(frame.time_s, [])
            yield Tracked(frame, None, [])
            continue
        seen = model.look([view_of(frame, detection) for detection, _ in regions])
        seen = model.look_again(seen, [place for place, (_, fresh) in enumerate(regions) if fresh])
        points, person = seen.landmarks_2d.double().cpu().numpy(), seen.person.tolist()
        looks = [
            Look(view.detection.roi.to_image(points[k]), person[k], view.detection, fresh)
            for k, (view, (_, fresh)) in enumerate(zip(seen.views, regions, strict=True))
        ]
        given = tracker.update(frame.time_s, looks)
        places = sorted(given, key=lambda place: given[place])
        yield Tracked(frame, seen.pick(places) if places else None, [given[place] for place in places])


class Drawing:
    """The diffusion of a video: hypotheses for whoever was seen, several frames together or each from the one before.

    `warm_share`: of the diffusion's steps, how far the tokens of the frame before are noised again; the same share of
    `steps` is then enough. None: every frame from nothing.
    """

    def __init__(self, model: Di2Pose, hypotheses: int, steps: int, seed: int, warm_share: float | None) -> None:
        self.model, self.hypotheses, self.steps, self.seed, self.warm_share = model, hypotheses, steps, seed, warm_share
        self._tokens: dict[int, tuple[float, Tensor]] = {}

    def people(
        self, frames: Iterable[Tracked], height_m: float | None = None
    ) -> Iterator[tuple[Tracked, list[Person]]]:
        """Everybody in every frame, with their track's number."""
        waiting: list[Tracked] = []
        for each in frames:
            waiting.append(each)
            if self.warm_share is not None or sum(max(1, len(other.numbers)) for other in waiting) >= BATCH:
                yield from self._estimated(waiting, height_m)
                waiting = []
        yield from self._estimated(waiting, height_m)

    def _estimated(self, frames: list[Tracked], height_m: float | None) -> Iterator[tuple[Tracked, list[Person]]]:
        rows = [
            _Row(each.frame, number, each.seen.pick([place]), self._start(each.frame, number))
            for each in frames
            if each.seen is not None
            for place, number in enumerate(each.numbers)
        ]
        people: dict[tuple[int, int], Person] = {}
        for group in ([row for row in rows if row.start is None], [row for row in rows if row.start is not None]):
            people |= self._drawn(group, height_m) if group else {}
        for each in frames:
            yield each, [people[each.frame.index, number] for number in each.numbers]

    def _start(self, frame: Frame, number: int) -> Tensor | None:
        """Tokens (H, N) of the same person a moment ago."""
        time_s, tokens = self._tokens.get(number, (-float("inf"), None))
        return tokens if frame.time_s - time_s <= WARM_AGE_S else None

    def _drawn(self, rows: list["_Row"], height_m: float | None) -> dict[tuple[int, int], Person]:
        """Persons by (frame, track); the rows all have a start, or none has."""
        seen, steps, warm = Seen.joined([row.seen for row in rows]), self.steps, None
        names = [(row.frame.index, row.number) for row in rows]
        records = [f"track {track}, frame {index}" for index, track in names]
        noise = hypothesis_generators(self.seed, records, self.hypotheses)
        starts = [row.start for row in rows if row.start is not None]
        if starts and self.warm_share is not None:
            warm = torch.stack(starts), max(1, round(self.warm_share * self.model.schedule.steps))
            steps = max(1, round(self.warm_share * self.steps))
        if self.warm_share is None:  # tokens of the frame before mean nothing in the mirror
            seen = self.model.look_mirrored(seen)
        estimate = self.model.estimate(seen, self.hypotheses, steps, noise, warm)
        if self.warm_share is not None:
            now = max(row.frame.time_s for row in rows)
            self._tokens = {track: kept for track, kept in self._tokens.items() if now - kept[0] <= WARM_AGE_S}
            self._tokens |= {row.number: (now, tokens) for row, tokens in zip(rows, estimate.tokens, strict=True)}
        people = people_of(seen, estimate, self.model.calibration, height_m)
        return {name: replace(person, track=name[1]) for name, person in zip(names, people, strict=True)}


class _Row(NamedTuple):
    """One person in one frame, to be drawn."""

    frame: Frame
    number: int
    seen: Seen
    start: Tensor | None
    """Tokens (H, N) to start from; None: from nothing."""
