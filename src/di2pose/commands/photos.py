"""Photos -> files: read one by one, looked at in batches, each written as soon as it is known."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from di2pose.commands.faces import without_faces
from di2pose.commands.given import Box, fitted_camera, scaled_camera
from di2pose.commands.inputs import Input
from di2pose.commands.options import Options
from di2pose.commands.report import Report
from di2pose.commands.writing import write_result
from di2pose.errors import InputError
from di2pose.image.read import Photo, read_photo
from di2pose.pipeline import Di2Pose
from di2pose.result import Result

BATCH, BATCH_PIXELS = 8, 64_000_000
"""Photos that are in memory at once: at most so many, and not many more pixels than this."""


class Work(NamedTuple):
    """One photo on its way."""

    item: Input
    path: Path
    photo: Photo


def predict_photos(model: Di2Pose, items: Iterable[Input], options: Options, report: Report) -> bool:
    """Do all photos; False where it was given up because the disk is full."""
    for batch in _batches(items, options, report):
        for work, answer in zip(batch, _look(model, batch, options), strict=True):
            if isinstance(answer, InputError):
                report.fail(work.item.label, str(answer))
                continue
            shown = dataclasses.replace(answer, image=str(work.path), picture=work.photo.picture)
            if options.blur_faces:
                shown = without_faces(model, shown)
            written = write_result(options.folder, work.item.name, options.formats, enlarged(shown, work.photo), shown)
            report.people += len(shown.people)
            report.line(work.item, " · ".join(filter(None, [describe(shown), work.photo.note])), written)
            if written.disk_full:
                return False
    return True


def describe(result: Result) -> str:
    """'2 people, 5 of 34 joints hidden'."""
    count = len(result.people)
    if count == 0:
        return "nobody found"
    hidden = sum(int(person.guessed.sum()) for person in result.people)
    joints = sum(len(person.guessed) for person in result.people)
    return f"{count} {'person' if count == 1 else 'people'}, {hidden} of {joints} joints hidden"


def enlarged(result: Result, photo: Photo) -> Result:
    """A result of a shrunk picture in pixels of the original; 3D does not change."""
    if photo.picture.size == photo.size:
        return result
    across, down = photo.scale
    people = [
        dataclasses.replace(
            person,
            joints_2d=person.joints_2d * photo.scale,
            box=(person.box[0] * across, person.box[1] * down, person.box[2] * across, person.box[3] * down),
        )
        for person in result.people
    ]
    camera = scaled_camera(result.camera, photo.scale, photo.size)
    return dataclasses.replace(result, size=photo.size, camera=camera, people=people)


def _batches(items: Iterable[Input], options: Options, report: Report) -> Iterator[list[Work]]:
    """Photos that could be read; a report of those that could not."""
    batch: list[Work] = []
    pixels = 0
    for item in items:
        path = Path(str(item.source))
        try:
            photo = read_photo(path, options.max_megapixels)
        except InputError as error:
            report.fail(item.label, str(error))
            continue
        batch.append(Work(item, path, photo))
        pixels += photo.picture.width * photo.picture.height
        if len(batch) == BATCH or pixels > BATCH_PIXELS:
            yield batch
            batch, pixels = [], 0
    if batch:
        yield batch


def _look(model: Di2Pose, batch: list[Work], options: Options) -> list[Result | InputError]:
    """An answer for each photo: of all together, or of each alone where a camera is given or something is wrong."""
    boxes = [None if options.boxes is None else options.boxes.of(work.path) for work in batch]
    small = [_shrunk(some, work.photo) for some, work in zip(boxes, batch, strict=True)]
    if options.camera is None:
        try:
            return list(model([work.photo.picture for work in batch], boxes=small, **options.drawing))
        except InputError as error:
            return [error] if len(batch) == 1 else [_look(model, [work], options)[0] for work in batch]
    answers: list[Result | InputError] = []
    for work, some in zip(batch, small, strict=True):
        photo = work.photo
        try:
            whole = fitted_camera(options.camera, photo.size)
            camera = scaled_camera(whole, (1 / photo.scale[0], 1 / photo.scale[1]), photo.picture.size)
            answers.append(model(photo.picture, boxes=some, camera=camera, **options.drawing))
        except InputError as error:
            answers.append(error)
    return answers


def _shrunk(boxes: list[Box] | None, photo: Photo) -> list[Box] | None:
    """Boxes of the original in pixels of the picture."""
    across, down = photo.scale
    return boxes and [(x0 / across, y0 / down, x1 / across, y1 / down) for x0, y0, x1, y1 in boxes]
