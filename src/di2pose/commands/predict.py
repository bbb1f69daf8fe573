"""`di2pose predict`: photos and videos in; 3D poses as files, a page and a picture out."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro

from di2pose.commands.inputs import (
    BoxFile,
    Heights,
    Input,
    Inputs,
    People,
    Seconds,
    fitted_camera,
    read_camera,
    scaled_camera,
    sort_inputs,
    work_batches,
)
from di2pose.commands.writing import (
    FILM,
    MOTION_FILES,
    Report,
    ReportCallback,
    RunLog,
    endings,
    floor_words,
    parse_formats,
    progress_bar,
    ready_folder,
)
from di2pose.device import usable_device
from di2pose.errors import InputError, require
from di2pose.files import printable
from di2pose.garbage import freeze_gc, gc_disabled
from di2pose.image.boxes import Box
from di2pose.image.keypoints import PictureKeypoints, people_in, read_keypoints
from di2pose.image.read import MOST_MEGAPIXELS, Photo, read_photo
from di2pose.interruption import deferred_sigint
from di2pose.options import VIDEO_OPTIONS, Boxes, Options, Point
from di2pose.output.overlay import moved
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.camera import Camera
from di2pose.result import Result, count_people

WIDEST_NAME = 40
FORMAT_HELP = f"what to write, with commas between: {', '.join(endings())}"
INPUT_HELP = "photos, videos, folders, patterns like 'a/*.jpg', or a camera's number"
FLAGS = {"height_m": "height", "field_of_view": "fov", "start_s": "start", "end_s": "end"}
"""Options whose flags have other names."""
REST = {
    "local": "The same command begins anew: give it the files that are missing",
    "ray": "Run the same command again for the rest",
}
"""Engine -> what to do after Ctrl-C."""


@dataclass(frozen=True, eq=False)
class SharedOptions(Options):
    """The options of `predict` and `lift`. The fields are the flags; what is read or derived from them is a
    property."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("di2pose-out")
    """Folder for the results; made where it is missing."""
    format: str = "json,html"
    camera_file: Annotated[Path | None, tyro.conf.arg(name="camera")] = None
    """JSON with "K", the 3x3 matrix of a calibration, or "focal" and "centre" in pixels; may hold "size"
    [width, height] and "distortion" in OpenCV's order."""
    height_m: Annotated[Heights, tyro.conf.arg(name="height")] = None
    """Stature in metres, 1.78 of everybody, or 0=1.78,1=1.20 by track number (in photos by position in the list):
    scales skeleton and distance."""
    field_of_view: Annotated[float | None, tyro.conf.arg(name="fov")] = None
    """Field of view in degrees across the longer side, where there is no calibration. Without it: by the focal length
    in a photo's EXIF block, else 60."""
    start_s: Annotated[Seconds, tyro.conf.arg(name="start")] = None
    """Of videos: only from this time on."""
    end_s: Annotated[Seconds, tyro.conf.arg(name="end")] = None
    """Of videos: only until this time."""
    fps: float | None = None
    person: People = None
    """Of videos: only these people in the files, by track number, or the one with the largest median box."""
    smooth: bool = True
    """Smooth videos over time; surer joints weigh more."""
    same_body: bool = True
    """Give everybody in a video bones of one length from their first frame to their last."""
    hold_feet: bool = True
    """Hold feet in videos where they stand on the floor, and smooth people's paths."""
    up: Literal["camera", "floor"] = "camera"
    """What is up in TRC, C3D, BVH and the page: the camera's up, or, where it is found, that of the floor, at height
    0."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    boxes: tyro.conf.Suppress[Boxes | None] = None
    keypoints: tyro.conf.Suppress[Any] = None
    camera: tyro.conf.Suppress[Camera | None] = None
    occluded: tyro.conf.Suppress[Boxes] = ()
    pin: tyro.conf.Suppress[dict[str, Point] | None] = None
    keep_tokens: tyro.conf.Suppress[dict[int, int] | None] = None

    def __post_init__(self) -> None:
        _ = self.formats, self.known_camera  # read now: wrong ones are errors before any work
        try:
            self.check()
            if any(each is not None for each in self.part.values()):
                from di2pose.video.stream import check_part  # photos do without

                check_part(self.start_s, self.end_s, self.fps)
        except InputError as error:
            name, problem = str(error).split(" ", 1)
            height = self.height_m if name == "height_m" and isinstance(self.height_m, float | int) else 0.0
            hint = f": did you mean {height / 100:g} m?" if 30 <= height <= 300 else ""
            raise InputError(f"--{FLAGS.get(name, name).replace('_', '-')} {problem}{hint}") from None
        if self.camera_file is not None and self.field_of_view is not None:
            raise InputError("give --camera or --fov, not both: the camera has a field of view already")

    def call(self, *names: str) -> dict[str, Any]:
        """Keyword arguments of a call of the pipeline, by name."""
        return {name: getattr(self, name) for name in names}

    @property
    def part(self) -> dict[str, Any]:
        """The options that choose a part of a video."""
        return self.call("start_s", "end_s", "fps", "person")

    @cached_property
    def formats(self) -> tuple[str, ...]:
        """The names in `format`, each once."""
        return parse_formats(self.format)

    @cached_property
    def known_camera(self) -> Camera | None:
        return None if self.camera_file is None else read_camera(self.camera_file)


@dataclass(frozen=True, eq=False)
class PredictOptions(SharedOptions):
    """One run."""

    format: Annotated[str, tyro.conf.arg(help=FORMAT_HELP)] = "json,html,overlay"
    model: str | None = None
    """Name or folder of a model (left out: the one inside the package)."""
    encoder: str | None = None
    """Image encoder instead of the model's own, e.g. vitpose:FOLDER where its weights have moved."""
    detector: str = "auto"
    """Person detector: auto, blazepose, or rtdetr:FOLDER-OR-HUB-NAME."""
    box_source: Annotated[Path | None, tyro.conf.arg(name="boxes", metavar="FILE|X0,Y0,X1,Y1")] = None
    """Where people are in the photos, instead of a detector, in pixels of the upright picture. Numbers: X0,Y0,X1,Y1,
    of several people with ; between them, the same in every photo. Or a file: JSON {"photo.jpg": [[x0, y0, x1, y1],
    ...]} or CSV with the columns file,x0,y0,x1,y1; the detector is used for photos that it does not name."""
    keypoint_source: Annotated[Path | None, tyro.conf.arg(name="keypoints", metavar="FILE|FOLDER")] = None
    """2D keypoints of the people in the photos by another program, instead of detector and MoveNet: OpenPose's JSON (or
    a folder of it), COCO results, AlphaPose's, MMPose's, .npz or .npy; photos are found by name."""
    observer: str = "movenet"
    """Network that finds 2D keypoints: movenet, vitpose:FOLDER-OR-HUB-NAME, or rtmlib[:MODE-OR-ONNX]."""
    fps: float | None = None
    """Of videos: at most so many frames a second."""
    blur_faces: bool = False
    """Make faces unrecognisable in everything that is written. Only of people who were found."""
    max_megapixels: float = MOST_MEGAPIXELS
    """Refuse larger pictures that have to be unpacked whole (PNG, TIFF); JPEGs may have any size."""
    workers: int | None = None
    """Processes that share the work, each with a model and one core: the same results, sooner where there are many
    files; 0: one for each core (left out: one process on all cores, and with --engine ray all of the cluster)."""
    engine: Literal["local", "ray"] = "local"
    """local: this machine; ray: a Ray cluster (extra ray), whose machines see the same paths. There the same command
    goes on where a stopped run was."""
    ray_address: str | None = None
    """Of a running cluster, ray://HOST:10001 or HOST:6379 (left out: one is started on this machine)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.box_file, self.known_keypoints
        if self.box_source is not None and self.keypoint_source is not None:
            raise InputError("give --boxes or --keypoints, not both: keypoints say where the people are")
        if self.workers is not None and self.workers < 0:
            raise InputError(f"--workers is a number of processes, or 0 for one a core, got {self.workers}")
        if self.ray_address is not None and self.engine != "ray":
            raise InputError("--ray-address is of --engine ray: give both, or neither")
        if self.max_megapixels <= 0:
            raise InputError(f"--max-megapixels must be above 0, got {self.max_megapixels:g}")

    @property
    def processes(self) -> int:
        """How many share the work on this machine."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cores if self.workers == 0 else self.workers or 1

    @cached_property
    def box_file(self) -> BoxFile | None:
        return None if self.box_source is None else BoxFile(self.box_source)

    @cached_property
    def known_keypoints(self) -> list[PictureKeypoints] | None:
        return None if self.keypoint_source is None else read_keypoints(self.keypoint_source)


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
    if all(item.kind == "photo" for item in found.found) and any(each is not None for each in options.part.values()):
        raise InputError("--start, --end, --fps and --person are of videos, and there are only photos: leave them out")
    if options.person is not None and any(item.kind == "camera" for item in found.found):
        raise InputError("--person is of video files: record the camera first, then give its file")
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
    sources = {item.source.resolve() for item in found.found if isinstance(item.source, Path)}
    names = [*(endings()[kind] for kind in options.formats), *([FILM] if "overlay" in options.formats else [])]
    for path in (options.out / f"{item.name}{ending}" for item in found.found for ending in names):
        if path.resolve() in sources:
            raise InputError(f"{path} would be written over an input: give another folder with -o")
    usable_device(options.device, "--device")  # one that cannot be used is an error before anything is made
    ready_folder(options.out)
    work: Work
    if options.engine == "ray":
        from di2pose.commands.ray_engine import work_on_ray as work
    elif options.processes > 1:
        from di2pose.commands.workers import work_in_processes as work
    else:
        work = partial(work_in_turn, load(options))
    return run(work, found, options)


def load(options: PredictOptions) -> Di2Pose:
    """The pipeline of the options, ready for the first picture."""
    with gc_disabled():
        if options.workers is not None or options.engine == "ray":  # each has one core, a single one, too
            torch.set_num_threads(1)
        device = usable_device(options.device, "--device")
        model = Di2Pose.from_pretrained(options.model, device, options.encoder, options.observer)
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
        unused = options.box_file.unused(Path(str(item.source)) for item in inputs.found)
        if unused:
            print(f"{options.box_source} names what is not among the photos: {printable(', '.join(unused))}")
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


def work_in_turn(model: Di2Pose, items: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """One after the other, in this process, until the disk is full."""
    return all(do_batch(model, batch, options, report) for batch in work_batches(items))


def do_batch(model: Di2Pose, batch: Sequence[Input], options: PredictOptions, report: ReportCallback) -> bool:
    """Read, predict and write some photos, or one video or camera; False where the disk is full."""
    if batch[0].kind != "photo":
        from di2pose.commands.videos import predict_video

        return predict_video(model, batch[0], options, report)
    room, photos = True, []
    with deferred_sigint():
        for item in batch:
            try:
                photos.append((item, read_photo(str(item.source), options.max_megapixels)))
            except InputError as error:
                report(Report(item, problems=[str(error)]))
        for (item, photo), answer in zip(photos, _answers(model, photos, options), strict=True):
            if isinstance(answer, InputError):
                report(Report(item, problems=[str(answer)]))
            elif room:
                if options.blur_faces:
                    from di2pose.output.media import without_faces

                    answer = without_faces(model, answer)
                outcome = Report(item, _in_words(answer, photo, options.up), len(answer.people))
                outcome.save(options.out / item.name, options.formats, enlarged(answer, photo), answer, up=options.up)
                report(outcome)
                room = not outcome.disk_full
    return room


def _answers(
    model: Di2Pose, photos: Sequence[tuple[Input, Photo]], options: PredictOptions
) -> list[Result | InputError]:
    """A result in pixels of the picture, or an error, for each photo: of all together, or of each alone where a camera
    is given or something is wrong."""
    camera, alone = options.known_camera, len(photos) == 1
    if photos and (camera is None or alone):
        try:
            if camera is not None:
                photo = photos[0][1]
                across, down = photo.scale
                camera = scaled_camera(fitted_camera(camera, photo.size), (1 / across, 1 / down), photo.picture.size)
            known = {"camera": camera} | options.call(*VIDEO_OPTIONS, "second_look")
            people = [_known_people(item, photo, options) for item, photo in photos]
            boxes, keypoints = [each for each, _ in people], [each for _, each in people]
            found = model([photo.picture for _, photo in photos], boxes=boxes, keypoints=keypoints, **known)
            return [
                dataclasses.replace(result, image=str(item.source), picture=photo.picture)
                for result, (item, photo) in zip(found, photos, strict=True)
            ]
        except InputError as error:
            if alone:
                return [error]
    return [_answers(model, [one], options)[0] for one in photos]


def _known_people(item: Input, photo: Photo, options: PredictOptions) -> tuple[list[Box] | None, np.ndarray | None]:
    """The user's boxes and keypoints of a photo, in pixels of the picture; both None: the detector is used."""
    path, (across, down) = Path(str(item.source)), photo.scale
    boxes = None if options.box_file is None else options.box_file.of(path)
    keypoints = None
    if options.known_keypoints is not None:
        keypoints = people_in(options.known_keypoints, path, options.keypoint_source) / np.array([across, down, 1.0])
    return boxes and [(x0 / across, y0 / down, x1 / across, y1 / down) for x0, y0, x1, y1 in boxes], keypoints


def enlarged(result: Result, photo: Photo) -> Result:
    """A result of a shrunk picture in pixels of the original; 3D does not change."""
    if photo.picture.size == photo.size:
        return result
    people = [moved(person, 0, 0, photo.scale) for person in result.people]
    camera = scaled_camera(result.camera, photo.scale, photo.size)
    return dataclasses.replace(result, size=photo.size, camera=camera, people=people)


def _in_words(result: Result, photo: Photo, up: str) -> str:
    """'2 people, 5 of 34 joints hidden · floor: camera looks down by 12 +/- 6 degrees'."""
    states = [state for person in result.people for state in person.guessed.tolist()]
    found = f"{count_people(len(result.people))}, {sum(states)} of {len(states)} joints hidden"
    lens = result.camera_source if "EXIF" in result.camera_source else ""
    words = [found if result.people else "nobody found", photo.note, lens, *floor_words(result, up)]
    return " · ".join(filter(None, words))
