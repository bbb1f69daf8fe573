"""`di2pose predict`: photos and videos in; 3D poses as files, a page and a picture out.

Photos are read one by one, looked at in batches, and each is written as soon as it is known. Videos and cameras go
frame by frame: the overlay is written as it goes, the numbers are kept to the end.
"""

import dataclasses
import warnings
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from di2pose.commands.inputs import Input, Inputs, sort_inputs
from di2pose.commands.interrupts import HeldInterrupts
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.user_files import fitted_camera, scaled_camera
from di2pose.commands.writing import PARTIAL, RunLog, Written, endings, ready_folder
from di2pose.errors import InputError, require
from di2pose.files import printable
from di2pose.image.boxes import Box
from di2pose.image.read import Photo, read_photo
from di2pose.output.anonymise import without_faces
from di2pose.output.overlay import moved
from di2pose.output.overlay_video import OverlayVideo
from di2pose.output.thumbnails import Thumbnails
from di2pose.pipeline import Di2Pose
from di2pose.result import Motion, Result, count_people
from di2pose.video.body import one_body
from di2pose.video.estimate import video_results
from di2pose.video.fragments import TrackNotes, whole_tracks
from di2pose.video.stream import BrokenVideoWarning, Stream, TimeStampWarning

WIDEST_NAME = 40
BATCH, BATCH_PIXELS = 8, 64_000_000
"""Photos that are in memory at once: at most so many, and not many more pixels than this."""
FILM = ".overlay.mp4"
INPUT_HELP = "photos, videos, folders, patterns like 'a/*.jpg', or a camera's number"


def predict(
    inputs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="INPUT...", help=INPUT_HELP)],
    /,
    options: Annotated[PredictOptions, tyro.conf.arg(name="")],
) -> int:
    """3D poses of everybody in photos and videos, with what was seen, what was guessed and how far off it may be.

    Of a folder its photos and videos are taken, not its subfolders. Files are written whole or not at all; what was
    there under the same name is replaced. Exit code 0: all done; 1: something failed and the rest is done and kept;
    2: nothing could be done.
    """
    found = sort_inputs(inputs)
    if not inputs:
        raise InputError("give a photo, a video, a folder or a camera number: di2pose predict photo.jpg")
    if not found.found:
        raise InputError("; ".join(found.missing))
    if any(item.kind != "photo" for item in found.found):
        require("av", extra="video")
    given = {item.source.resolve() for item in found.found if isinstance(item.source, Path)}
    names = [*(endings()[kind] for kind in options.formats), *([FILM] if "overlay" in options.formats else [])]
    for path in (options.out / f"{item.name}{ending}" for item in found.found for ending in names):
        if path.resolve() in given:
            raise InputError(f"{path} would be written over an input: give another folder with -o")
    device = options.torch_device
    ready_folder(options.out)
    model = Di2Pose.from_pretrained(options.model, device, options.encoder)
    model.detector = options.detector
    model.encoder  # noqa: B018  # what cannot look at pictures says so once, before the first of them
    return run(model, found, options)


def run(model: Di2Pose, inputs: Inputs, options: PredictOptions) -> int:
    """Do every input in turn and say what became of it; the exit code."""
    log = RunLog(options.out, min(WIDEST_NAME, max((len(item.label) for item in inputs.found), default=0)))
    for problem in inputs.missing:
        log.fail(*problem.rsplit(": ", 1))
    room, stopped = True, None
    try:
        for photos, items in groupby(inputs.found, key=lambda item: item.kind == "photo"):
            if photos:
                room = room and predict_photos(model, items, options, log)
            else:
                for item in items:
                    room = room and predict_video(model, item, options, log)
    except KeyboardInterrupt as error:
        stopped = error
        print("stopped: what is done is kept. Run the same command again for the rest", flush=True)
    if not room:
        print("given up: the disk is full. Make room and run the same command again", flush=True)
    if options.box_file is not None and options.box_file.unused:
        print(f"{options.boxes} names what is not among the photos: {printable(', '.join(options.box_file.unused))}")
    print(log.summary(inputs.ignored), flush=True)
    if stopped is not None:
        raise stopped
    return log.exit_code


def predict_photos(model: Di2Pose, items: Iterable[Input], options: PredictOptions, log: RunLog) -> bool:
    """Do all photos; False where it was given up because the disk is full."""
    for batch in _batches(items, options, log):
        for (item, photo), answer in zip(batch, _answers(model, batch, options), strict=True):
            if isinstance(answer, InputError):
                log.fail(item.label, str(answer))
                continue
            shown = dataclasses.replace(answer, image=str(item.source), picture=photo.picture)
            if options.blur_faces:
                shown = without_faces(model, shown)
            with HeldInterrupts():
                written = Written()
                written.save(options.out / item.name, options.formats, enlarged(shown, photo), shown)
                states = [state for person in shown.people for state in person.guessed.tolist()]
                found = f"{count_people(len(shown.people))}, {sum(states)} of {len(states)} joints hidden"
                log.people += len(shown.people)
                log.empty[item.kind] += not shown.people
                lens = shown.camera_source if "EXIF" in shown.camera_source else ""
                told = [found if shown.people else "nobody found", photo.note, lens]
                log.line(item, " · ".join(filter(None, told)), written)
            if written.disk_full:
                return False
    return True


def enlarged(result: Result, photo: Photo) -> Result:
    """A result of a shrunk picture in pixels of the original; 3D does not change."""
    if photo.picture.size == photo.size:
        return result
    people = [moved(person, 0, 0, photo.scale) for person in result.people]
    camera = scaled_camera(result.camera, photo.scale, photo.size)
    return dataclasses.replace(result, size=photo.size, camera=camera, people=people)


def _batches(items: Iterable[Input], options: PredictOptions, log: RunLog) -> Iterator[list[tuple[Input, Photo]]]:
    """Photos that could be read; those that could not are told."""
    batch: list[tuple[Input, Photo]] = []
    pixels = 0
    for item in items:
        try:
            photo = read_photo(str(item.source), options.max_megapixels)
        except InputError as error:
            log.fail(item.label, str(error))
            continue
        batch.append((item, photo))
        pixels += photo.picture.width * photo.picture.height
        if len(batch) == BATCH or pixels > BATCH_PIXELS:
            yield batch
            batch, pixels = [], 0
    if batch:
        yield batch


def _answers(model: Di2Pose, batch: list[tuple[Input, Photo]], options: PredictOptions) -> list[Result | InputError]:
    """An answer for each photo: of all together, or of each alone where a camera is given or something is wrong."""
    camera = options.known_camera
    alone = len(batch) == 1
    if camera is None or alone:
        try:
            if camera is not None:
                photo = batch[0][1]
                across, down = photo.scale
                camera = scaled_camera(fitted_camera(camera, photo.size), (1 / across, 1 / down), photo.picture.size)
            results = model(
                [photo.picture for _, photo in batch],
                boxes=[_boxes(item, photo, options) for item, photo in batch],
                camera=camera,
                field_of_view=options.fov,
                hypotheses=options.hypotheses,
                steps=options.steps,
                seed=options.seed,
                height_m=options.height,
                max_people=options.max_people,
                second_look=options.second_look,
                min_score=options.min_score,
            )
            return list(results)
        except InputError as error:
            if alone:
                return [error]
    return [_answers(model, [one], options)[0] for one in batch]


def _boxes(item: Input, photo: Photo, options: PredictOptions) -> list[Box] | None:
    """The user's boxes of a photo, in pixels of the picture; None: the detector is to find the people."""
    boxes = None if options.box_file is None else options.box_file.of(Path(str(item.source)))
    across, down = photo.scale
    return boxes and [(x0 / across, y0 / down, x1 / across, y1 / down) for x0, y0, x1, y1 in boxes]


class Recording:
    """What is kept of a video while it is looked at. Its pixels are not, but for small ones for the page."""

    def __init__(self, item: Input, options: PredictOptions, fps: float) -> None:
        self.stem, self.formats, self.fps = options.out / item.name, options.formats, fps
        self.same_body, self.height_m = options.same_body, options.height
        self.notes = TrackNotes()
        self.results: list[Result] = []
        self.written = Written()
        self._video = OverlayVideo(Path(f"{self.stem}{FILM}"), fps) if "overlay" in self.formats else None
        self._thumbnails = Thumbnails() if "html" in self.formats else None

    def add(self, result: Result) -> None:
        """The next frame, with its picture."""
        picture = result.picture
        if picture is not None and self._thumbnails is not None:
            self._thumbnails.add(len(self.results), picture)
        if picture is not None and self._video is not None:
            try:
                self._video.add(result, picture)
            except InputError as error:  # without the overlay the rest may still find room
                self.written.fail(error)
                self._video = None
        self.results.append(dataclasses.replace(result, picture=None))

    def write(self, wanted: int | None = None) -> Written:
        """All files of what came so far. `wanted`: about how many frames would have come, where it was stopped before
        the end; then the files have names of their own."""
        if self.results:
            stem = self.stem if wanted is None else Path(f"{self.stem}{PARTIAL}")
            if self._video is not None:
                try:
                    self.written.files += filter(None, [self._video.finish(Path(f"{stem}{FILM}"))])
                except InputError as error:
                    self.written.fail(error)
            self.results = whole_tracks(self.results, notes=self.notes)
            if self.same_body:
                self.results = one_body(self.results, self.height_m)
            motion = Motion(self.results, self.fps)
            shown = motion if self._thumbnails is None else self._thumbnails.on(motion)
            self.written.save(stem, self.formats, motion, shown, wanted)
            self.written.remove_stale(self.stem)
        return self.written

    def describe(self) -> str:
        """'230 frames, 2 people, 12 % of their joints hidden, 1 stray track dropped (3 sightings)'."""
        frames = f"{len(self.results)} frame{'s' * (len(self.results) != 1)}"
        states = [state for result in self.results for person in result.people for state in person.guessed.tolist()]
        parts = [frames, "nobody found"]
        if states:
            parts = [frames, count_people(self.people), f"{sum(states) / len(states):.0%} of their joints hidden"]
        return ", ".join(filter(None, [*parts, str(self.notes)]))

    @property
    def people(self) -> int:
        """Different ones, by their tracks."""
        return len({person.track for result in self.results for person in result.people})


def predict_video(model: Di2Pose, item: Input, options: PredictOptions, log: RunLog) -> bool:
    """Do one video or camera; what a broken one gave is kept. False where the disk is full.

    Ctrl-C ends the recording of a camera. In a video what was done so far is written, under names of its own, before
    the program ends.
    """
    try:
        stream = Stream(item.source)
    except InputError as error:
        log.fail(item.label, str(error))
        return True
    recording = Recording(item, options, stream.fps)
    if stream.note:
        tqdm.write(stream.note)
    if item.kind == "camera":
        tqdm.write(f"{item.label}: recording, Ctrl-C ends it")
    stopped: BaseException | None = None
    with HeldInterrupts() as held, warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenVideoWarning)  # `stream.broken` says it too
        warnings.simplefilter("ignore", TimeStampWarning)  # said above
        try:
            results = _results(model, stream, options, recording.notes)
            for result in held.between(tqdm(results, item.label, stream.expected, unit="frame", disable=None)):
                recording.add(result)
        except InputError as error:
            log.fail(item.label, str(error))
            stopped = error
        except KeyboardInterrupt as error:
            stopped = error
        if stream.broken is not None:
            log.fail(item.label, str(stream.broken))
        whole = stopped is None or item.kind == "camera"
        wanted = max(stream.expected or 0, len(recording.results))
        written = recording.write(None if whole else wanted)
        if recording.results:
            log.people += recording.people
            log.empty[item.kind] += not recording.people
            partial = None if whole else f"{len(recording.results)} of about {wanted} frames"
            log.line(item, recording.describe(), written, partial)
        if isinstance(stopped, KeyboardInterrupt) and item.kind != "camera":
            raise stopped
    return not written.disk_full


def _results(model: Di2Pose, stream: Stream, options: PredictOptions, notes: TrackNotes) -> Iterator[Result]:
    """Of a stream, for the film; the bodies are fitted when the whole is known."""
    camera = options.known_camera
    if camera is not None:
        camera = fitted_camera(camera, next(iter(stream)).picture.size)
    results = video_results(
        model,
        stream,
        hypotheses=options.hypotheses,
        steps=options.steps,
        seed=options.seed,
        smoothed=options.smooth,
        same_body=False,
        max_people=options.max_people,
        camera=camera,
        field_of_view=options.fov,
        height_m=options.height,
        min_score=options.min_score,
        pictures=True,
        notes=notes,
    )
    return (without_faces(model, result) for result in results) if options.blur_faces else results
