"""Photos -> their people -> files. Read one by one, predicted in small batches, each written as soon as it is done."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from di2pose.commands.inputs import Input
from di2pose.commands.interrupts import DeferredSigint
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.user_files import fitted_camera, scaled_camera
from di2pose.commands.writing import OutputFiles, Report, ReportCallback
from di2pose.errors import InputError
from di2pose.image.boxes import Box
from di2pose.image.read import BATCH_PIXELS, Photo, read_photo
from di2pose.options import VIDEO_OPTIONS
from di2pose.output.overlay import moved
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Result, count_people


def predict_photos(model: Di2Pose, items: Iterable[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """Do all photos of a batch; False where it was given up because the disk is full."""
    for item, photo, shown in photo_results(model, items, options, report):
        with DeferredSigint():
            files = OutputFiles()
            files.save(options.out / item.name, options.formats, enlarged(shown, photo), shown)
            report(report_of(item, photo, shown, files))
        if files.disk_full:
            return False
    return True


def photo_results(
    model: Di2Pose, items: Iterable[Input], options: PredictOptions, report: ReportCallback
) -> Iterator[tuple[Input, Photo, Result]]:
    """Each photo and its people, in pixels of the picture that was predicted (`enlarged`: of the file). Failures are
    reported."""
    for batch in _batches(items, options, report):
        for (item, photo), answer in zip(batch, _answers(model, batch, options), strict=True):
            if isinstance(answer, InputError):
                report(Report(item, problems=[str(answer)]))
                continue
            shown = dataclasses.replace(answer, image=str(item.source), picture=photo.picture)
            if options.blur_faces:
                from di2pose.output.media import without_faces

                shown = without_faces(model, shown)
            yield item, photo, shown


def report_of(item: Input, photo: Photo, result: Result, files: OutputFiles) -> Report:
    """'2 people, 5 of 34 joints hidden'."""
    states = [state for person in result.people for state in person.guessed.tolist()]
    found = f"{count_people(len(result.people))}, {sum(states)} of {len(states)} joints hidden"
    lens = result.camera_source if "EXIF" in result.camera_source else ""
    parts = [found if result.people else "nobody found", photo.note, lens]
    return Report(item, " · ".join(filter(None, parts)), files, len(result.people))


def enlarged(result: Result, photo: Photo) -> Result:
    """A result of a shrunk picture in pixels of the original; 3D does not change."""
    if photo.picture.size == photo.size:
        return result
    people = [moved(person, 0, 0, photo.scale) for person in result.people]
    camera = scaled_camera(result.camera, photo.scale, photo.size)
    return dataclasses.replace(result, size=photo.size, camera=camera, people=people)


def _batches(
    items: Iterable[Input], options: PredictOptions, report: ReportCallback
) -> Iterator[list[tuple[Input, Photo]]]:
    """Photos that could be read, of BATCH_PIXELS together."""
    batch: list[tuple[Input, Photo]] = []
    pixels = 0
    for item in items:
        try:
            photo = read_photo(str(item.source), options.max_megapixels)
        except InputError as error:
            report(Report(item, problems=[str(error)]))
            continue
        batch.append((item, photo))
        pixels += photo.picture.width * photo.picture.height
        if pixels > BATCH_PIXELS:
            yield batch
            batch, pixels = [], 0
    if batch:
        yield batch


def _answers(model: Di2Pose, batch: list[tuple[Input, Photo]], options: PredictOptions) -> list[Result | InputError]:
    """An answer for each photo: of all together, or of each alone where a camera is given or something is wrong."""
    camera, alone = options.known_camera, len(batch) == 1
    if camera is None or alone:
        try:
            if camera is not None:
                photo = batch[0][1]
                across, down = photo.scale
                camera = scaled_camera(fitted_camera(camera, photo.size), (1 / across, 1 / down), photo.picture.size)
            boxes = [_boxes(item, photo, options) for item, photo in batch]
            pictures = [photo.picture for _, photo in batch]
            return [*model(pictures, boxes=boxes, camera=camera, **options.call(*VIDEO_OPTIONS, "second_look"))]
        except InputError as error:
            if alone:
                return [error]
    return [_answers(model, [one], options)[0] for one in batch]


def _boxes(item: Input, photo: Photo, options: PredictOptions) -> list[Box] | None:
    """The user's boxes of a photo, in pixels of the picture; None: the detector is used."""
    boxes = None if options.box_file is None else options.box_file.of(Path(str(item.source)))
    across, down = photo.scale
    return boxes and [(x0 / across, y0 / down, x1 / across, y1 / down) for x0, y0, x1, y1 in boxes]
