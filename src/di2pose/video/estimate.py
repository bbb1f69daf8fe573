"""Video -> results, frame by frame.

    stream -> [cuts: scenes] -> frames -> [track: regions] -> [encoder] -> [track: numbers] -> [diffusion]
           -> [fragments: drop short tracks] -> [smooth] -> [body: one for each track] -> [feet] -> results

The diffusion runs over several frames at once. What it sees of a frame besides the picture are the 2D keypoints of the
frames round it (`video.windows`), which come half a second later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from di2pose import __version__
from di2pose.errors import InputError
from di2pose.image.encoder import Encoder, to_picture
from di2pose.image.keypoint_encoder import KeypointEncoder
from di2pose.image.region import points_of
from di2pose.noise import hypothesis_generators
from di2pose.options import Height, Options
from di2pose.pipeline.assemble import with_heights
from di2pose.pipeline.crops import EncodedCrops
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pipeline.request import camera_and_source
from di2pose.pose.camera import Camera
from di2pose.result import Motion, Person, Result
from di2pose.video.body import growing_body, one_body
from di2pose.video.cuts import scenes
from di2pose.video.feet import hold_feet
from di2pose.video.fragments import LEAST_S, TORSO, TrackNotes, confirmed, whole_tracks
from di2pose.video.smooth import smooth
from di2pose.video.stream import Frame, Source, Stream
from di2pose.video.track import Observation, Tracker
from di2pose.video.windows import TrackedFrame, windowed

BATCH = 8
"""Crops that go through the diffusion together; of keypoints alone, so many poses of eight hypotheses."""


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
    height_m: Height = None,
    start_s: float | None = None,
    end_s: float | None = None,
    fps: float | None = None,
    pictures: bool = False,
    notes: TrackNotes | None = None,
    most_frames: int | None = None,
) -> Iterator[Result]:
    """A result for every frame, in order; memory does not grow with the length of the video.

    The bones of a track are estimated from its frames so far; `estimate_video` uses the whole track. For independent
    frames: smoothed=False, same_body=False, least_s=0.

    source: a video file, its bytes (`VideoBytes`), a camera's index, or a `Stream`
    start_s, end_s, fps: only this part of the video, and at most so many frames a second, see `Stream`
    hypotheses, steps, camera, field_of_view, height_m, max_people, min_score: as for a photo, see `Di2Pose.__call__`
    seed: the noise of a hypothesis depends on (seed, track, hypothesis) alone: it is the same in all frames of a track
    smoothed: see `video.smooth`; results come some frames late
    same_body: constant bones for a track, see `video.body`; with `height_m` scaled to it
    least_s: tracks shorter than this (and than 5 frames) are dropped, see `video.fragments`; frames with new people
        come so much later. 0 keeps all
    detect_every: frames between two searches of the whole picture; also when somebody is lost
    pictures: keep the pixels in the results; those of a file can also be read again later
    notes: filled with scene cuts, and with what was dropped
    most_frames: of the window of 2D keypoints that a model of several frames sees; 1: each frame by itself
    """
    Options(
        hypotheses=hypotheses, steps=steps, seed=seed, max_people=max_people, height_m=height_m,
        field_of_view=field_of_view, min_score=min_score,
    ).check()  # fmt: skip
    if detect_every < 1:
        raise InputError(f"detect_every must be 1 or more, got {detect_every}")
    stream = _stream(source, start_s=start_s, end_s=end_s, fps=fps)
    count = steps or model.config.sample_steps

    def camera_of(frame: Frame) -> Camera:
        return camera_and_source(frame.picture.size, camera, field_of_view)[0]

    def result(tracked: TrackedFrame, people: list[Person]) -> Result:
        frame, picture = tracked.frame, tracked.frame.picture
        made = (seed, count, hypotheses, str(model.config.name), __version__, frame.index, frame.time_s)
        own, source = camera_and_source(picture.size, camera, field_of_view)
        kept = picture if pictures else None
        return Result(stream.name, picture.size, own, people, *made, picture=kept, camera_source=source)

    tracker = Tracker(detect_every=detect_every, max_people=max_people)
    assumed = camera is None and field_of_view is None
    notes = notes or TrackNotes()
    tracked = tracked_frames(model, stream, tracker, camera_of, assumed, notes)
    model = model.for_videos
    seen = windowed(tracked, model.encoder, model.window, most_frames)
    drawn = drawn_people(model, seen, hypotheses, count, seed, height_m)
    results: Iterator[Result] = (result(each, people) for each, people in drawn)
    if least_s > 0:
        results = confirmed(results, least_s, notes, model.least_score if min_score is None else min_score)
    if smoothed:
        results = smooth(results)
    return growing_body(results, height_m) if same_body else results


def estimate_video(
    model: Di2Pose,
    source: Stream | Source,
    *,
    smoothed: bool = True,
    same_body: bool = True,
    held_feet: bool = True,
    least_s: float = LEAST_S,
    min_score: float | None = None,
    height_m: Height = None,
    notes: TrackNotes | None = None,
    **options: Any,
) -> Motion:
    """All results of a video. The options are those of `video_results`; but a track has one body from its first frame
    to its last, and fragments of one person are joined. held_feet: feet stay where they stand and roots are smoothed,
    see `video.feet`; False as well for independent frames."""
    stream = _stream(source, **{name: options.pop(name, None) for name in ("start_s", "end_s", "fps")})
    notes = notes or TrackNotes()
    options |= {"smoothed": False, "same_body": False, "least_s": 0.0, "min_score": min_score, "height_m": height_m}
    results = list(video_results(model, stream, notes=notes, **options))
    least = model.least_score if min_score is None else min_score
    motion = whole_motion(results, stream.fps, notes, smoothed, same_body, held_feet, height_m, least_s, least)
    check_heights(height_m, motion)
    return motion


def whole_motion(
    results: Sequence[Result],
    fps: float,
    notes: TrackNotes,
    smoothed: bool,
    same_body: bool,
    held_feet: bool,
    height_m: Height,
    least_s: float = LEAST_S,
    least_score: float = 0.0,
) -> Motion:
    """All results of a video, of `video_results` without bodies; the options are those of `estimate_video`."""
    if least_s > 0:
        results = whole_tracks(results, least_s, notes, least_score)
    if smoothed:
        results = list(smooth(results))
    if same_body:
        results = one_body(results, height_m)
    return Motion(hold_feet(results) if held_feet else results, fps)


def check_heights(height_m: Height, motion: Motion) -> None:
    """InputError where there is a height of a person who is not there."""
    for number in height_m if isinstance(height_m, Mapping) else ():
        motion.only([number])


def _stream(source: Stream | Source, **part: Any) -> Stream:
    if not isinstance(source, Stream):
        return Stream(source, **part)
    if any(value is not None for value in part.values()):
        raise InputError(f"give {', '.join(part)} to the Stream: Stream(source, start_s=...)")
    return source


def tracked_frames(
    model: Di2Pose,
    frames: Iterable[Frame],
    tracker: Tracker,
    camera_of: Callable[[Frame], Camera],
    assumed: bool = False,
    notes: TrackNotes | None = None,
) -> Iterator[TrackedFrame]:
    """Detect, encode and track people in every frame; new people get a second look where needed. All tracks end at a
    scene cut, which `notes` lists. `assumed`: the camera is not known. Without landmarks to follow people by, the
    detector runs on every frame.
    """
    notes = notes or TrackNotes()
    for frame, cut in scenes(frames):
        if cut:
            tracker.end_tracks()
            notes.cuts_s.append(frame.time_s)
        search = tracker.search if tracker.by_landmarks else "all"
        found = []
        if search != "none":
            found = model.find(frame.picture, max_people=tracker.max_people, quick=search == "quick")
        regions = tracker.regions(frame.time_s, found)
        if not regions:
            tracker.update(frame.time_s, [], frame.picture.width)
            yield TrackedFrame(frame, None, [])
            continue
        picture, camera = frame.picture, camera_of(frame)
        fresh = [is_fresh for _, is_fresh in regions]
        crops = [model.crop(picture, person, camera, (), assumed) for person, _ in regions]
        rows = [place for place, is_fresh in enumerate(fresh) if is_fresh]
        encoded = model.encode(crops, True, True if rows else "on_disagreement", rows)
        tracker.by_landmarks = encoded.output.landmarks_2d is not None
        seen = _observations(encoded, model.encoder, fresh)
        given = tracker.update(frame.time_s, seen, picture.width)
        for place, number in given.items() if tracker.by_landmarks else ():
            notes.add_look(number, picture, seen[place].points[TORSO])
        places = sorted(given, key=lambda place: given[place])
        yield TrackedFrame(frame, encoded.pick(places) if places else None, [given[place] for place in places])


def _observations(encoded: EncodedCrops, encoder: Encoder, fresh: Sequence[bool]) -> list[Observation]:
    """The tracker's input of each crop."""
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
        found.append(Observation(points, person, replace(crop.detection, roi=crop.region), fresh[row], pose))
    return found


def drawn_people(
    model: Di2Pose, frames: Iterable[TrackedFrame], hypotheses: int, steps: int, seed: int, height_m: Height = None
) -> Iterator[tuple[TrackedFrame, list[Person]]]:
    """The people of every frame with their track numbers; the diffusion runs on about BATCH crops at once."""
    size = BATCH * max(1, 8 // hypotheses) if isinstance(model.encoder, KeypointEncoder) else BATCH
    for batch in _batches(frames, size):
        people: dict[tuple[int, int], Person] = {}
        for mirrored in (False, True):  # the flip test is of some frames only
            some = [(k, each.numbers, each.encoded) for k, each in enumerate(batch) if each.encoded is not None
                    and (each.encoded.flipped is not None) == mirrored]  # fmt: skip
            keys = [(k, number) for k, numbers, _ in some for number in numbers]
            if keys:
                encoded = EncodedCrops.join([each for *_, each in some])
                noise = hypothesis_generators(seed, [f"track {number}" for _, number in keys], hypotheses)
                estimate = model.estimate(encoded, hypotheses, steps, noise)  # a sample is a motion
                placed = model.place(encoded, estimate, None if isinstance(height_m, Mapping) else height_m)
                people |= zip(keys, placed, strict=True)
        for k, each in enumerate(batch):
            found_here = [replace(people[k, number], track=number) for number in each.numbers]
            yield each, with_heights(found_here, height_m)


def _batches(frames: Iterable[TrackedFrame], size: int) -> Iterator[list[TrackedFrame]]:
    waiting: list[TrackedFrame] = []
    for each in frames:
        waiting.append(each)
        if sum(max(1, len(other.numbers)) for other in waiting) >= size:
            yield waiting
            waiting = []
    yield waiting
