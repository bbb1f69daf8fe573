"""`di2pose predict`: photos and videos in; 3D poses as files, a page and a picture out."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from di2pose.commands.inputs import Input, Inputs, fitted_camera, scaled_camera, sort_inputs, work_batches
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import (
    FILM,
    MOTION_FILES,
    OutputFiles,
    Report,
    ReportCallback,
    RunLog,
    endings,
    progress_bar,
    ready_folder,
)
from di2pose.errors import InputError, require
from di2pose.files import printable
from di2pose.garbage import freeze_gc, gc_disabled
from di2pose.image.boxes import Box
from di2pose.image.keypoints import people_in
from di2pose.image.read import Photo, read_photo
from di2pose.interruption import deferred_sigint
from di2pose.options import VIDEO_OPTIONS
from di2pose.output.overlay import moved
from di2pose.result import Result, count_people

if TYPE_CHECKING:
    from di2pose.pipeline.pipeline import Di2Pose

WIDEST_NAME = 40
INPUT_HELP = "photos, videos, folders, patterns like 'a/*.jpg', or a camera's number"
REST = {
    "local": "The same command begins anew: give it the files that are missing",
    "ray": "Run the same command again for the rest",
}
"""Engine -> what to do after Ctrl-C."""
Work = Callable[[Sequence[Input], PredictOptions, ReportCallback], bool]
"""Does all inputs and reports each; False where it was given up because the disk is full."""


def predict(
    inputs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="INPUT...", help=INPUT_HELP)],
    /,
    options: Annotated[PredictOptions, tyro.conf.arg(name="")],
) -> int:
    """3D poses of everybody in photos and videos: which joints were seen, which were guessed, and how far off each may
    be.

    Of a folder its photos and videos are taken, not its subfolders. Files are written whole or not at all; what was
    there under the same name is replaced. Exit code 0: all done; 1: something failed and the rest is done and kept,
    by this run or by an earlier one; 2: nothing could be done.
    """
    found = sort_inputs(inputs)
    if not inputs:
        raise InputError("give a photo, a video, a folder or a camera number: di2pose predict photo.jpg")
    if not found.found:
        raise InputError("; ".join(found.missing))
    if any(item.kind != "photo" for item in found.found):
        require("av", extra="video")
        if options.keypoint_source is not None:
            raise InputError("--keypoints is of photos: give the videos in a run of their own")
    if options.known_keypoints and all(each.name for each in options.known_keypoints):
        photos = [Path(str(item.source)) for item in found.found]
        if not any(len(people_in(options.known_keypoints, photo, "")) for photo in photos):
            raise InputError(
                f"{options.keypoint_source} has nobody in {', '.join(photo.name for photo in photos[:3])}: it is about "
                f"{', '.join(str(each.name) for each in options.known_keypoints[:3])}"
            )
    if "parquet" in options.formats:
        require("pyarrow", extra="parquet")
    given = {item.source.resolve() for item in found.found if isinstance(item.source, Path)}
    names = [*(endings()[kind] for kind in options.formats), *([FILM] if "overlay" in options.formats else [])]
    for path in (options.out / f"{item.name}{ending}" for item in found.found for ending in names):
        if path.resolve() in given:
            raise InputError(f"{path} would be written over an input: give another folder with -o")
    with gc_disabled():  # it imports torch
        _ = options.torch_device  # one that cannot be used is an error before anything is made
    ready_folder(options.out)
    work: Work
    if options.engine == "ray":
        from di2pose.commands.ray_engine import work_on_ray as work
    elif options.processes > 1:
        from di2pose.commands.workers import work_in_processes as work
    else:
        work = partial(work_in_turn, load(options))
    return run(work, found, options)


def load(options: PredictOptions) -> "Di2Pose":
    """The pipeline of the options, ready for the first picture."""
    with gc_disabled():
        import torch

        from di2pose.pipeline.pipeline import Di2Pose

        if options.workers is not None or options.engine == "ray":  # each has one core, a single one, too
            torch.set_num_threads(1)
        model = Di2Pose.from_pretrained(options.model, options.torch_device, options.encoder, options.observer)
        model.detector = options.detector
        _ = model.encoder, model.observer  # missing ones are errors now, and not once for each picture
    freeze_gc(again=True)
    return model


def run(work: Work, inputs: Inputs, options: PredictOptions) -> int:
    """Do every input, print what became of it, and return the exit code."""
    items = inputs.found if options.engine == "local" else not_done(inputs.found, options)
    width = min(WIDEST_NAME, max((len(item.label) for item in inputs.found), default=0))
    log = RunLog(options.out, width, len(inputs.found) - len(items))
    for problem in inputs.missing:
        log.fail(*problem.rsplit(": ", 1))
    room, stopped = True, None
    with progress_bar(None, len(items), "file", disable=len(items) < 2) as bar:

        def report(outcome: Report) -> None:
            log.add(outcome)
            bar.update()

        try:
            room = not items or work(items, options, report)
        except KeyboardInterrupt as error:
            stopped = error
    if stopped is not None:
        print(f"stopped: what is done is kept. {REST[options.engine]}", flush=True)
    if not room:
        print("given up: the disk is full. Make room and run the same command again", flush=True)
    if options.box_file is not None:
        for item in inputs.found:
            options.box_file.of(Path(str(item.source)))
        if options.box_file.unused:
            unused = printable(", ".join(options.box_file.unused))
            print(f"{options.box_source} names what is not among the photos: {unused}")
    print(log.summary(inputs.ignored), flush=True)
    if stopped is not None:
        raise stopped
    return log.exit_code


def not_done(items: Sequence[Input], options: PredictOptions) -> list[Input]:
    """Inputs that lack a file of some format in the output folder."""
    there = {path.name for path in options.out.iterdir()}

    def lacks(item: Input, kind: str) -> bool:
        ending = FILM if kind == "overlay" and item.kind == "video" else endings()[kind]
        several = [f"{item.name}_p0{ending}"] if kind in MOTION_FILES else []
        return there.isdisjoint([f"{item.name}{ending}", *several])

    return [item for item in items if any(lacks(item, kind) for kind in options.formats)]


def work_in_turn(
    model: "Di2Pose", items: Sequence[Input], options: PredictOptions, report: ReportCallback
) -> bool:
    """One after the other, in this process, until the disk is full."""
    return all(do_batch(model, batch, options, report) for batch in work_batches(items))


def do_batch(model: "Di2Pose", batch: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """Some photos, or one video or camera: False where the disk is full."""
    if batch[0].kind == "photo":
        return predict_photos(model, batch, options, report)
    from di2pose.commands.videos import predict_video

    return predict_video(model, batch[0], options, report)


def predict_photos(
    model: "Di2Pose", items: Sequence[Input], options: PredictOptions, report: ReportCallback
) -> bool:
    """Read, predict and write the photos of a batch; False where the disk is full."""
    room, batch = True, []
    with deferred_sigint():
        for item in items:
            try:
                batch.append((item, read_photo(str(item.source), options.max_megapixels)))
            except InputError as error:
                report(Report(item, problems=[str(error)]))
        for (item, photo), answer in zip(batch, _answers(model, batch, options), strict=True):
            if isinstance(answer, InputError):
                report(Report(item, problems=[str(answer)]))
            elif room:
                files, shown = OutputFiles(), answer
                if options.blur_faces:
                    from di2pose.output.media import without_faces

                    shown = without_faces(model, shown)
                files.save(options.out / item.name, options.formats, enlarged(shown, photo), shown)
                report(Report(item, _in_words(shown, photo), files, len(shown.people)))
                room = not files.disk_full
    return room


def _answers(
    model: "Di2Pose", batch: Sequence[tuple[Input, Photo]], options: PredictOptions
) -> list[Result | InputError]:
    """A result in pixels of the picture, or an error, for each photo: of all together, or of each alone where a camera
    is given or something is wrong."""
    camera, alone = options.known_camera, len(batch) == 1
    if batch and (camera is None or alone):
        try:
            if camera is not None:
                photo = batch[0][1]
                across, down = photo.scale
                camera = scaled_camera(fitted_camera(camera, photo.size), (1 / across, 1 / down), photo.picture.size)
            known = {"camera": camera} | options.call(*VIDEO_OPTIONS, "second_look")
            boxes = [_boxes(item, photo, options) for item, photo in batch]
            marks = [_keypoints(item, photo, options) for item, photo in batch]
            found = model([photo.picture for _, photo in batch], boxes=boxes, keypoints=marks, **known)
            return [
                dataclasses.replace(result, image=str(item.source), picture=photo.picture)
                for result, (item, photo) in zip(found, batch, strict=True)
            ]
        except InputError as error:
            if alone:
                return [error]
    return [_answers(model, [one], options)[0] for one in batch]


def _boxes(item: Input, photo: Photo, options: PredictOptions) -> list[Box] | None:
    """The user's boxes of a photo, in pixels of the picture; None: the detector is used."""
    boxes = None if options.box_file is None else options.box_file.of(Path(str(item.source)))
    across, down = photo.scale
    return boxes and [(x0 / across, y0 / down, x1 / across, y1 / down) for x0, y0, x1, y1 in boxes]


def _keypoints(item: Input, photo: Photo, options: PredictOptions) -> np.ndarray | None:
    """The user's keypoints of a photo, in pixels of the picture; None: the detector is used."""
    if options.known_keypoints is None:
        return None
    people = people_in(options.known_keypoints, Path(str(item.source)), options.keypoint_source)
    return people / np.array([*photo.scale, 1.0])


def enlarged(result: Result, photo: Photo) -> Result:
    """A result of a shrunk picture in pixels of the original; 3D does not change."""
    if photo.picture.size == photo.size:
        return result
    people = [moved(person, 0, 0, photo.scale) for person in result.people]
    camera = scaled_camera(result.camera, photo.scale, photo.size)
    return dataclasses.replace(result, size=photo.size, camera=camera, people=people)


def _in_words(result: Result, photo: Photo) -> str:
    """'2 people, 5 of 34 joints hidden'."""
    states = [state for person in result.people for state in person.guessed.tolist()]
    found = f"{count_people(len(result.people))}, {sum(states)} of {len(states)} joints hidden"
    lens = result.camera_source if "EXIF" in result.camera_source else ""
    return " · ".join(filter(None, [found if result.people else "nobody found", photo.note, lens]))
