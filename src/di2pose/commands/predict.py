"""`di2pose predict`: photos and videos in; 3D poses as files, a page and a picture out."""

from itertools import groupby
from pathlib import Path
from typing import Annotated

import tyro

from di2pose.commands.given import Boxes, read_camera
from di2pose.commands.inputs import Input, Inputs, sort_inputs
from di2pose.commands.options import Options, find_device
from di2pose.commands.photos import predict_photos
from di2pose.commands.report import Report
from di2pose.commands.videos import predict_video
from di2pose.commands.writing import FORMATS, parse_formats, ready_folder
from di2pose.errors import InputError, require
from di2pose.image.read import MOST_MEGAPIXELS
from di2pose.pipeline import Di2Pose

WIDEST_NAME = 40


def predict(
    inputs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            metavar="INPUT...", help="photos, videos, folders, patterns like 'a/*.jpg', or a camera's number"
        ),
    ],
    /,
    *,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    format: Annotated[
        str, tyro.conf.arg(help=f"what to write, with commas between: {', '.join(FORMATS)}")
    ] = "json,html,overlay",
    model: str | None = None,
    hypotheses: int = 8,
    steps: int | None = None,
    seed: int = 0,
    detector: str = "blazepose",
    boxes: Path | None = None,
    max_people: int = 8,
    height: float | None = None,
    camera: Path | None = None,
    fov: float | None = None,
    second_look: bool = True,
    smooth: bool = True,
    device: str = "auto",
    blur_faces: bool = False,
    max_megapixels: float = MOST_MEGAPIXELS,
) -> int:
    """3D poses of everybody in photos and videos, with what was seen, what was guessed and how far off it may be.

    Of a folder its photos and videos are taken, not its subfolders. Files are written whole or not at all; what was
    there under the same name is replaced. Exit code 0: all done; 1: something failed and the rest is done and kept;
    2: nothing could be done.

    Args:
        out: Folder for the results; made where it is missing.
        model: Name or folder of a model (left out: the one inside the package).
        hypotheses: Poses to draw for each person; their spread says how sure the answer is.
        steps: Reverse steps of the diffusion (left out: as the model recommends).
        seed: The same seed gives the same result.
        detector: Who finds people in photos: blazepose, or rtdetr:FOLDER, weights of an RT-DETR or D-FINE (needs
            the extra vitpose).
        boxes: Where people are in the photos, instead of a detector. JSON {"photo.jpg": [[x0, y0, x1, y1], ...]} or
            CSV with the columns file,x0,y0,x1,y1; pixels of the upright picture. Photos that it does not name are
            searched as usual.
        max_people: At most so many in a picture, the surest ones.
        height: How tall the people are in metres, 1.78: scales skeleton and distance.
        camera: JSON with "K", the 3x3 matrix of a calibration, or "focal" and "centre" in pixels; may hold "size"
            [width, height] and "distortion" in OpenCV's order.
        fov: Field of view in degrees across the longer side, where there is no calibration.
        second_look: Look at everybody in a photo up to four times, keep the crop that the model is surest of, and
            look at its mirror image, too: slower, and much better where something misleads the detector.
        smooth: Smooth videos over time; surer joints weigh more.
        device: auto, cpu, cuda or mps.
        blur_faces: Make faces unrecognisable in everything that is written. Only of people who were found.
        max_megapixels: Refuse larger pictures that have to be unpacked whole (PNG, TIFF); JPEGs may have any size.
    """
    options = Options(
        folder=out,
        formats=parse_formats(format),
        hypotheses=hypotheses,
        steps=steps,
        seed=seed,
        detector=detector,
        boxes=None if boxes is None else Boxes(boxes),
        max_people=max_people,
        height_m=height,
        camera=None if camera is None else read_camera(camera),
        field_of_view=fov,
        second_look=second_look,
        smooth=smooth,
        blur_faces=blur_faces,
        max_megapixels=max_megapixels,
    )
    found = sort_inputs(inputs)
    _check(found, options, inputs)
    where = find_device(device)
    ready_folder(out)
    return run(Di2Pose.from_pretrained(model, device=where), found, options)


def run(model: Di2Pose, inputs: Inputs, options: Options) -> int:
    """Do every input in turn and say what became of it; the exit code."""
    width = min(WIDEST_NAME, max((len(item.label) for item in inputs.found), default=0))
    report = Report(options.folder, width)
    for problem in inputs.missing:
        report.fail(*problem.split(": ", 1))
    room = True
    for kind, group in groupby(inputs.found, key=lambda item: item.kind == "photo"):
        items = list(group)
        if kind:
            room = room and predict_photos(model, items, options, report)
        for item in items if not kind else []:
            room = room and predict_video(model, item, options, report)
    if not room:
        print("given up: the disk is full. Make room and run the same command again", flush=True)
    if options.boxes is not None and options.boxes.unused:
        print(f"{options.boxes.path} names what is not among the photos: {', '.join(options.boxes.unused)}")
    print(report.summary(inputs.ignored))
    return report.exit_code


def _check(found: Inputs, options: Options, words: tuple[str, ...]) -> None:
    """What can be known to fail, before the model is loaded."""
    if not words:
        raise InputError("give a photo, a video, a folder or a camera number: di2pose predict photo.jpg -o out")
    if not found.found:
        raise InputError("; ".join(found.missing))
    if any(item.kind != "photo" for item in found.found):
        require("av", extra="video")
        if options.detector != "blazepose":
            raise InputError("--detector is for photos: videos are searched with blazepose. Give them apart")
    if "c3d" in options.formats:
        require("ezc3d", extra="mocap")
    given = {Path(str(item.source)).resolve(): item for item in found.found if item.kind != "camera"}
    for item in found.found:
        for path in _targets(item, options):
            if path.resolve() in given:
                raise InputError(f"{path} would be written over an input: give another folder with -o")


def _targets(item: Input, options: Options) -> list[Path]:
    return [options.folder / f"{item.name}{FORMATS[kind]}" for kind in options.formats]
