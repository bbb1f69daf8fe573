"""A video or a camera -> its people -> files: the overlay is written frame by frame, the numbers at the end."""

import dataclasses
import multiprocessing
import warnings
from pathlib import Path

from PIL import Image

from di2pose.commands.inputs import Input, fitted_camera
from di2pose.commands.predict import PredictOptions
from di2pose.commands.writing import (
    FILM,
    PARTIAL,
    Report,
    ReportCallback,
    floor_words,
    print_line,
    progress_bar,
    remove_partial,
)
from di2pose.errors import InputError
from di2pose.interruption import check, deferred_sigint
from di2pose.options import VIDEO_OPTIONS
from di2pose.output.media import OverlayVideo, Thumbnails, without_faces
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion, Result, count_people
from di2pose.video.estimate import check_heights, video_results, whole_motion
from di2pose.video.fragments import TrackNotes
from di2pose.video.stream import BrokenVideoWarning, Stream


class Recording:
    """The results of a video so far. Pictures are not kept, but for thumbnails for the page."""

    def __init__(self, item: Input, options: PredictOptions, model: Di2Pose, stream: Stream) -> None:
        self.stem, self.options, self.model, self.stream = options.out / item.name, options, model, stream
        self.notes = TrackNotes()
        self.results: list[Result] = []
        self.report = Report(item)
        self._video = OverlayVideo(Path(f"{self.stem}{FILM}"), stream.fps) if "overlay" in options.formats else None
        self._thumbnails = Thumbnails() if "html" in options.formats else None

    def add(self, result: Result) -> None:
        """The next frame, with its picture."""
        picture = result.picture
        if picture is not None and self._thumbnails is not None:
            self._thumbnails.add(len(self.results), picture)
        if picture is not None and self.options.person is None:
            self._draw(result, picture)
        self.results.append(dataclasses.replace(result, picture=None))

    def _draw(self, result: Result, picture: Image.Image) -> None:
        try:
            if self._video is not None:
                self._video.add(result, picture)
        except InputError as error:  # without the overlay the rest may still find room
            self.report.fail(error)
            self._video = None

    def _draw_chosen(self, everybody: Motion, chosen: Motion) -> None:
        """The overlay of some people, who are known when the whole video is: it is read again."""
        for frame, result, drawn in zip(self.stream, everybody, chosen, strict=False):
            whole = dataclasses.replace(result, picture=frame.picture)
            hidden = without_faces(self.model, whole) if self.options.blur_faces else whole
            self._draw(drawn, hidden.picture or frame.picture)

    def write(self, wanted: int | None) -> None:
        """All files of the results so far. `wanted`: about how many frames the whole video has, where it was stopped
        before the end; then the files have names of their own."""
        if not self.results:
            return
        stem = self.stem if wanted is None else Path(f"{self.stem}{PARTIAL}")
        remove_partial(self.stem)
        how = self.options.same_body, self.options.hold_feet, self.options.height_m
        motion = everybody = whole_motion(self.results, self.stream.fps, self.notes, False, *how)  # smoothed already
        try:  # the files are written all the same: only the named people have their height
            check_heights(self.options.height_m, everybody)
        except InputError as error:
            self.report.fail(error)
        try:
            if self.options.person is not None:
                motion = everybody.only(self.options.person)
                if self._video is not None:
                    self._draw_chosen(everybody, motion)
        except InputError as error:
            self.report.fail(error)
            return
        if self._video is not None:
            try:
                self.report.add("overlay", self._video.finish(Path(f"{stem}{FILM}")))
            except InputError as error:
                self.report.fail(error)
        shown = motion if self._thumbnails is None else self._thumbnails.on(motion)
        self.report.save(stem, self.options.formats, motion, shown, wanted, self.options.up)
        self.report.people, self.report.text = len(motion.tracks), self._in_words(motion)
        self.report.partial = "" if wanted is None else f"{len(motion)} of about {wanted} frames"

    def _in_words(self, motion: Motion) -> str:
        """'230 frames, 2 people, 12 % of their joints hidden, 1 stray track dropped (3 sightings)'."""
        states = [state for result in motion for person in result.people for state in person.guessed.tolist()]
        parts = [f"{len(motion)} frame{'s' * (len(motion) != 1)}", "nobody found"]
        if states:
            parts[1:] = [count_people(len(motion.tracks)), f"{sum(states) / len(states):.0%} of their joints hidden"]
        words = ", ".join(filter(None, [*parts, str(self.notes)]))
        return " · ".join([words, *floor_words(motion, self.options.up)])


def predict_video(model: Di2Pose, item: Input, options: PredictOptions, report: ReportCallback) -> bool:
    """Do one video or camera; the results of a broken one are kept. False where the disk is full.

    Ctrl-C ends the recording of a camera. In a video the results so far are written, under names of their own, before
    the program ends.
    """
    try:
        stream = Stream(item.source, **options.call("start_s", "end_s", "fps"))
    except InputError as error:
        report(Report(item, problems=[str(error)]))
        return True
    recording = Recording(item, options, model, stream)
    outcome = recording.report
    if item.kind == "camera":
        print_line(f"{item.label}: recording, Ctrl-C ends it")
    stopped: BaseException | None = None
    hidden = multiprocessing.parent_process() is not None  # the parent has a bar of its own
    with deferred_sigint(), warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenVideoWarning)  # `stream.broken` says it too
        with progress_bar(item.label, stream.expected, "frame", hidden) as bar:
            try:
                camera = options.known_camera
                if camera is not None:
                    camera = fitted_camera(camera, next(iter(stream)).picture.size)
                for result in video_results(
                    model, stream, smoothed=options.smooth, same_body=False, camera=camera, pictures=True,
                    notes=recording.notes, **options.call(*VIDEO_OPTIONS),
                ):  # fmt: skip
                    recording.add(without_faces(model, result) if options.blur_faces else result)
                    bar.update()
                    check()
            except InputError as error:
                outcome.problems.append(str(error))
                stopped = error
            except KeyboardInterrupt as error:
                stopped = error
        if stream.broken:
            outcome.problems.append(stream.broken)
        whole = stopped is None or item.kind == "camera"
        recording.write(None if whole else max(stream.expected or 0, len(recording.results)))
        report(outcome)
        if isinstance(stopped, KeyboardInterrupt) and item.kind != "camera":
            raise stopped
    return not outcome.disk_full
