"""`di2pose predict`: photos and videos in; 3D poses as files, a page and a picture out."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from di2pose.commands.inputs import Input, Inputs, sort_inputs, work_batches
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import FILM, ReportCallback, RunLog, endings, ready_folder
from di2pose.errors import InputError, require
from di2pose.files import printable
from di2pose.garbage import freeze_gc, gc_disabled

if TYPE_CHECKING:
    from di2pose.pipeline.pipeline import Di2Pose

WIDEST_NAME = 40
Work = Callable[[Sequence[Input], PredictOptions, ReportCallback], bool]
"""Does all inputs and reports each; False where it was given up because the disk is full."""
INPUT_HELP = "photos, videos, folders, patterns like 'a/*.jpg', or a camera's number"
REST = {
    "local": "The same command begins anew: give it the files that are missing",
    "ray": "Run the same command again for the rest",
}
"""Engine -> what to do after Ctrl-C."""


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

        if options.workers is not None:  # each has one core, a single one, too
            torch.set_num_threads(1)
        model = Di2Pose.from_pretrained(options.model, options.torch_device, options.encoder)
        model.detector = options.detector
        model.encoder  # noqa: B018  # a missing encoder is an error now, and not once for each picture
    freeze_gc(again=True)
    return model


def run(work: Work, inputs: Inputs, options: PredictOptions) -> int:
    """Do every input, print what became of it, and return the exit code."""
    width = min(WIDEST_NAME, max((len(item.label) for item in inputs.found), default=0))
    log = RunLog(options.out, width, len(inputs.found))
    for problem in inputs.missing:
        log.fail(*problem.rsplit(": ", 1))
    room, stopped = True, None
    try:
        room = work(inputs.found, options, log.add)
    except KeyboardInterrupt as error:
        stopped = error
        print(f"stopped: what is done is kept. {REST[options.engine]}", flush=True)
    if not room:
        print("given up: the disk is full. Make room and run the same command again", flush=True)
    if options.box_file is not None and options.box_file.unused:
        unused = printable(", ".join(options.box_file.unused))
        print(f"{options.box_source} names what is not among the photos: {unused}")
    print(log.summary(inputs.ignored), flush=True)
    if stopped is not None:
        raise stopped
    return log.exit_code


def work_in_turn(
    model: "Di2Pose", items: Sequence[Input], options: PredictOptions, report: ReportCallback
) -> bool:
    """One after the other, in this process, until the disk is full."""
    return all(do_batch(model, batch, options, report) for batch in work_batches(items))


def do_batch(
    model: "Di2Pose", batch: Sequence[Input], options: PredictOptions, report: ReportCallback, bar: bool | None = None
) -> bool:
    """Some photos, or one video or camera: False where the disk is full. `bar`: see `predict_video`."""
    if batch[0].kind == "photo":
        from di2pose.commands.photos import predict_photos

        return predict_photos(model, batch, options, report)
    from di2pose.commands.videos import predict_video

    return predict_video(model, batch[0], options, report, bar)
