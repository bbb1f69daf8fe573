"""Videos and cameras -> files: frame by frame, the overlay written as it goes, the numbers kept to the end."""

import dataclasses
import warnings
from collections.abc import Iterator

from tqdm import tqdm

from di2pose.commands.faces import without_faces
from di2pose.commands.film import Film
from di2pose.commands.given import fitted_camera
from di2pose.commands.inputs import Input
from di2pose.commands.options import Options
from di2pose.commands.report import Report
from di2pose.commands.stills import Stills
from di2pose.commands.writing import Written, is_disk_full, write_motion
from di2pose.errors import InputError
from di2pose.pipeline import Di2Pose
from di2pose.result import Motion, Result
from di2pose.video.estimate import video_results
from di2pose.video.stream import BrokenVideoWarning, Stream


class Recording:
    """What is kept of a video while it is looked at. Its pixels are not, but for small ones for the page."""

    def __init__(self, item: Input, options: Options, fps: float) -> None:
        self.item, self.options, self.fps = item, options, fps
        self.results: list[Result] = []
        self.written = Written()
        path = options.folder / f"{item.name}.overlay.mp4"
        self._film = Film(path, fps) if "overlay" in options.formats else None
        self._stills = Stills() if "html" in options.formats else None

    def add(self, result: Result) -> None:
        """The next frame, with its picture."""
        picture = result.picture
        self.results.append(dataclasses.replace(result, picture=None))
        if picture is None:
            return
        if self._stills is not None:
            self._stills.add(len(self.results) - 1, picture)
        if self._film is not None:
            try:
                self._film.add(result, picture)
            except InputError as error:  # without the film the rest may still find room
                self._fail(error)
                self._film = None

    def write(self) -> Written:
        """All files of what came so far."""
        if self.results:
            if self._film is not None:
                try:
                    film = self._film.finish()
                    self.written.files += [] if film is None else [film]
                except InputError as error:
                    self._fail(error)
            motion = Motion(self.results, self.fps)
            shown = motion if self._stills is None else self._stills.on(motion)
            write_motion(self.written, self.options.folder, self.item.name, self.options.formats, motion, shown)
        return self.written

    def describe(self) -> str:
        """'230 frames, 2 people, 12 % of their joints hidden'."""
        frames = f"{len(self.results)} frame{'s' * (len(self.results) != 1)}"
        people = [person for result in self.results for person in result.people]
        if not people:
            return f"{frames}, nobody found"
        hidden = sum(int(person.guessed.sum()) for person in people) / sum(len(person.guessed) for person in people)
        count = self.people
        return f"{frames}, {count} {'person' if count == 1 else 'people'}, {hidden:.0%} of their joints hidden"

    @property
    def people(self) -> int:
        """Different ones, by their tracks."""
        return len({person.track for result in self.results for person in result.people})

    def _fail(self, error: InputError) -> None:
        self.written.failed.append(str(error))
        self.written.disk_full |= is_disk_full(error)


def predict_video(model: Di2Pose, item: Input, options: Options, report: Report) -> bool:
    """Do one video or camera; what a broken one gave is kept. False where the disk is full.

    Ctrl-C ends the recording of a camera. In a video what was done so far is written before the program ends.
    """
    try:
        stream = Stream(item.source)
    except InputError as error:
        report.fail(item.label, str(error))
        return True
    recording = Recording(item, options, stream.fps)
    if item.kind == "camera":
        tqdm.write(f"{item.label}: recording, Ctrl-C ends it")
    interrupted: KeyboardInterrupt | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BrokenVideoWarning)  # `stream.broken` says it too
            for result in tqdm(
                _results(model, stream, options), item.label, stream.expected, unit="frame", disable=None
            ):
                recording.add(without_faces(model, result) if options.blur_faces else result)
    except InputError as error:
        report.fail(item.label, str(error))
    except KeyboardInterrupt as error:
        interrupted = error
    if stream.broken is not None:
        report.fail(item.label, str(stream.broken))
    written = recording.write()
    if recording.results:
        report.people += recording.people
        report.line(item, recording.describe(), written)
    if interrupted is not None and item.kind != "camera":
        raise interrupted
    return not written.disk_full


def _results(model: Di2Pose, stream: Stream, options: Options) -> Iterator[Result]:
    camera = options.camera
    if camera is not None:
        camera = fitted_camera(camera, next(iter(stream)).picture.size)
    return video_results(
        model,
        stream,
        hypotheses=options.hypotheses,
        steps=options.steps,
        seed=options.seed,
        smoothed=options.smooth,
        max_people=options.max_people,
        camera=camera,
        field_of_view=options.field_of_view,
        height_m=options.height_m,
        pictures=True,
    )
