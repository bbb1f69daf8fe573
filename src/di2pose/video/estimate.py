"""Video -> results, frame by frame.

    stream -> frames -> [track: where to look] -> [encoder] -> [track: who it is] -> [diffusion]
           -> [fragments: who was seen long enough] -> [smooth] -> [body: one for each track] -> results

The frames' tokens do not depend on each other, and the diffusion runs over several frames at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from di2pose import __version__
from di2pose.call_options import check_call
from di2pose.errors import InputError
from di2pose.image.encoder import Encoder, to_picture
from di2pose.image.region import points_of
from di2pose.noise import hypothesis_generators
from di2pose.pipeline.crops import EncodedCrops
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pipeline.request import camera_and_source, camera_for
from di2pose.pose.camera import Camera
from di2pose.result import Motion, Person, Result
from di2pose.video.body import growing_body, one_body
from di2pose.video.fragments import LEAST_S, TrackNotes, confirmed, likely, whole_tracks
from di2pose.video.smooth import smooth
from di2pose.video.stream import Frame, Source, Stream
from di2pose.video.track import Sighting, Tracker

BATCH = 8
"""Looks that go through the diffusion together."""


class TrackedFrame(NamedTuple):
    """One frame, looked at."""

    frame: Frame
    encoded: EncodedCrops | None
    """The people who were found, in the order of `numbers`; None for nobody."""
    numbers: list[int]


def video_results(
    model: Di2Pose,
    source: Stream | Source,
    *,
    hypotheses: int = 8,
    steps: int | None = None,
    seed: int = 0,
    smoothed: bool = True,
    same_body: bool = True,
    least_s: float = LEAST_S,
    detect_every: int = 6,
    max_people: int = 8,
    min_score: float | None = None,
    camera: Camera | None = None,
    field_of_view: float | None = None,
    height_m: float | None = None,
    pictures: bool = False,
    notes: TrackNotes | None = None,
) -> Iterator[Result]:
    """A result for every frame, in order and one by one; memory does not grow with the length of the video.

    A stream does not know what comes: the bones of a track are what its frames so far tell, and settle within a second
    or so. `estimate_video` knows the whole of a track. Frames on their own: smoothed=False, same_body=False, least_s=0.

    source: a video file, its bytes (`VideoBytes`), a camera's index, or a `Stream`, which says afterwards whether the
        video was whole
    hypotheses, steps, camera, field_of_view, height_m, max_people, min_score: as for a photo, see `Di2Pose.__call__`
    seed: the noise of a hypothesis depends on (seed, track, frame, hypothesis) alone
    smoothed: see `video.smooth`; results then come some frames late
    same_body: bones of a track have one length, see `video.body`; with `height_m` they add up to it
    least_s: who is seen for less than this (and less than 5 frames) is dropped, see `video.fragments`; a frame with
        somebody new comes so much later. 0 keeps everybody
    detect_every: frames between two searches of the whole picture, of which every fifth is in tiles, for small people;
        also when somebody is lost
    pictures: let the results keep their pixels; those of a file can be read again when a page or an overlay needs them
    notes: where to say what was dropped
    """
    check_call(hypotheses, steps, seed, max_people, height_m, field_of_view, min_score)
    if hypotheses < 1 or detect_every < 1 or max_people < 1:
        raise InputError(
            "hypotheses, detect_every and max_people must be 1 or more, "
            f"got {hypotheses}, {detect_every} and {max_people}"
        )
    stream = source if isinstance(source, Stream) else Stream(source)
    count = steps or model.config.sample_steps
    drawing = VideoDrawing(model, hypotheses, count, seed)

    def camera_of(frame: Frame) -> Camera:
        return camera_for(frame.picture.size, camera, field_of_view)

    def result(tracked: TrackedFrame, people: list[Person]) -> Result:
        frame = tracked.frame
        made = (seed, count, hypotheses, str(model.config.name), __version__, frame.index, frame.time_s)
        picture = frame.picture if pictures else None
        size, source = frame.picture.size, camera_and_source(frame.picture.size, camera, field_of_view)[1]
        return Result(stream.name, size, camera_of(frame), people, *made, picture=picture, camera_source=source)

    tracker = Tracker(detect_every=detect_every, max_people=max_people)
    assumed = camera is None and field_of_view is None
    tracked = tracked_frames(model, stream, tracker, camera_of, assumed)
    results: Iterator[Result] = (result(each, people) for each, people in drawing.people(tracked, height_m))
    if least_s > 0:
        results = likely(results, model.least_score if min_score is None else min_score, notes)
        results = confirmed(results, least_s, notes)
    if smoothed:
        results = smooth(results)
    return growing_body(results, height_m) if same_body else results


def estimate_video(model: Di2Pose, source: Stream | Source, **options: Any) -> Motion:
    """Everybody in a video, all at once. The options are those of `video_results`; but a track has one body from its
    first frame to its last, and fragments of one person are joined."""
    stream = source if isinstance(source, Stream) else Stream(source)
    wanted = {"smoothed": True, "same_body": True, "least_s": LEAST_S, "notes": None, "height_m": None} | options
    plain = options | {"smoothed": False, "same_body": False, "least_s": 0.0}
    results = list(video_results(model, stream, **plain))
    if wanted["least_s"] > 0:
        given = options.get("min_score")
        least_score = model.least_score if given is None else given
        results = whole_tracks(results, wanted["least_s"], wanted["notes"], least_score)
    if wanted["smoothed"]:
        results = list(smooth(results))
    return Motion(one_body(results, wanted["height_m"]) if wanted["same_body"] else results, stream.fps)


def tracked_frames(
    model: Di2Pose,
    frames: Iterable[Frame],
    tracker: Tracker,
    camera_of: Callable[[Frame], Camera],
    assumed: bool = False,
) -> Iterator[TrackedFrame]:
    """Look at every frame, once at everybody who is known and at their mirror image, again at whoever is new and
    doubtful, and say who is there. `assumed`: nobody knows the camera.

    Where the encoder has no landmarks to follow people by, the detector looks at every frame.
    """
    for frame in frames:
        search = tracker.search if tracker.by_landmarks else "all"
        found = []
        if search != "none":
            found = model.find(frame.picture, max_people=tracker.max_people, quick=search == "quick")
        regions = tracker.regions(frame.time_s, found)
        if not regions:
            tracker.update(frame.time_s, [])
            yield TrackedFrame(frame, None, [])
            continue
        picture, camera = frame.picture, camera_of(frame)
        fresh = [is_fresh for _, is_fresh in regions]
        crops = [model.crop(picture, person, camera, (), assumed) for person, _ in regions]
        encoded = model.encode(crops, True, rows=[place for place, is_fresh in enumerate(fresh) if is_fresh])
        tracker.by_landmarks = encoded.output.landmarks_2d is not None
        given = tracker.update(frame.time_s, _sightings(encoded, model.encoder, fresh))
        places = sorted(given, key=lambda place: given[place])
        yield TrackedFrame(frame, encoded.pick(places) if places else None, [given[place] for place in places])


def _sightings(encoded: EncodedCrops, encoder: Encoder, fresh: Sequence[bool]) -> list[Sighting]:
    """What the tracker learns of each crop."""
    output, found = encoded.output, []
    for row, crop in enumerate(encoded.crops):
        if output.landmarks_2d is None:
            points = points_of(crop.detection.roi)
        else:
            points = to_picture(encoder, crop.region, output.landmarks_2d[row])
        person = 1.0 if output.person is None else float(output.person[row])
        pose = None
        if output.world_mm is not None and output.skeleton is not None:
            turned = output.world_mm[row] @ encoder.rotation(crop.region, crop.camera)
            pose = turned - turned[list(output.skeleton.indices("left_hip", "right_hip"))].mean(0)
        found.append(Sighting(points, person, replace(crop.detection, roi=crop.region), fresh[row], pose))
    return found


class VideoDrawing:
    """The diffusion of a video: hypotheses for whoever was seen, several frames together."""

    def __init__(self, model: Di2Pose, hypotheses: int, steps: int, seed: int) -> None:
        self.model, self.hypotheses, self.steps, self.seed = model, hypotheses, steps, seed

    def people(
        self, frames: Iterable[TrackedFrame], height_m: float | None = None
    ) -> Iterator[tuple[TrackedFrame, list[Person]]]:
        """Everybody in every frame, with their track's number."""
        waiting: list[TrackedFrame] = []
        for each in frames:
            waiting.append(each)
            if sum(max(1, len(other.numbers)) for other in waiting) >= BATCH:
                yield from self._estimated(waiting, height_m)
                waiting = []
        yield from self._estimated(waiting, height_m)

    def _estimated(
        self, frames: list[TrackedFrame], height_m: float | None
    ) -> Iterator[tuple[TrackedFrame, list[Person]]]:
        found = [each.encoded for each in frames if each.encoded is not None]
        people = iter(self._drawn(EncodedCrops.join(found), frames, height_m) if found else [])
        for each in frames:
            yield each, [replace(next(people), track=number) for number in each.numbers]

    def _drawn(self, encoded: EncodedCrops, frames: list[TrackedFrame], height_m: float | None) -> list[Person]:
        records = [f"track {number}, frame {each.frame.index}" for each in frames for number in each.numbers]
        noise = hypothesis_generators(self.seed, records, self.hypotheses)
        estimate = self.model.estimate(encoded, self.hypotheses, self.steps, noise)
        return self.model.place(encoded, estimate, height_m)
