"""`di2pose lift`: 2D keypoints of another program -> 3D people, without a picture."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from di2pose.commands.inputs import Heights, Input, People, Seconds, fitted_camera, read_camera
from di2pose.commands.writing import Report, RunLog, endings, floor_words, parse_formats, progress_bar, ready_folder
from di2pose.device import usable_device
from di2pose.errors import InputError
from di2pose.image.keypoints import PictureKeypoints, filled_frames, read_keypoints
from di2pose.interruption import deferred_sigint
from di2pose.options import VIDEO_OPTIONS, Options
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import SKELETONS
from di2pose.result import Motion, Result, count_people
from di2pose.video.lift import lift_video

SIZE = re.compile(r"(\d{1,6})\s*[xX×,]\s*(\d{1,6})")
FORMATS = ", ".join(name for name in endings() if name != "overlay")


@dataclass(frozen=True, eq=False)
class LiftOptions:
    """The flags of `di2pose lift`."""

    size: str = ""
    """Width and height of the pictures in pixels, 1920x1080; may be left out where --camera has it."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("di2pose-out")
    """Folder for the results; made where it is missing."""
    format: Annotated[str, tyro.conf.arg(help=f"what to write, with commas between: {FORMATS}")] = "json,html"
    fps: float = 30.0
    """Frames a second of a file or folder with several pictures, which are taken for those of a video."""
    photos: bool = False
    """Several pictures are photos of their own, not the frames of a video."""
    skeleton: str | None = None
    """Order of the joints, where the file does not say it and their number does not tell it, e.g. h36m_17."""
    model: str = "lift"
    """Name or folder of a model of keypoints alone."""
    hypotheses: int = 8
    """Poses drawn for each person; their mean is the estimate."""
    steps: int | None = None
    """Reverse steps of the diffusion (left out: the model's own)."""
    seed: int = 0
    """Of the noise."""
    camera_file: Annotated[Path | None, tyro.conf.arg(name="camera")] = None
    """JSON of a calibration, as for `di2pose predict`."""
    field_of_view: Annotated[float | None, tyro.conf.arg(name="fov")] = None
    """Degrees across the longer side, where there is no calibration (left out: 60)."""
    height_m: Annotated[Heights, tyro.conf.arg(name="height")] = None
    """Stature in metres, 1.78 of everybody, or 0=1.78,1=1.20 by the number of the person."""
    start_s: Annotated[Seconds, tyro.conf.arg(name="start")] = None
    """Of videos: only from this time on."""
    end_s: Annotated[Seconds, tyro.conf.arg(name="end")] = None
    """Of videos: only until this time."""
    person: People = None
    """Of videos: only these people in the files, by track number, or the one with the largest median box."""
    smooth: bool = True
    """Smooth videos over time."""
    same_body: bool = True
    """Give everybody in a video bones of one length."""
    hold_feet: bool = True
    """Hold feet in videos where they stand on the floor, and smooth people's paths."""
    up: Literal["camera", "floor"] = "camera"
    """What is up in TRC, C3D, BVH and the page: the camera's up, or, where it is found, that of the floor, at height
    0."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""

    @cached_property
    def pixels(self) -> tuple[int, int]:
        """Width and height."""
        found = SIZE.fullmatch(self.size.strip())
        if found is not None:
            return int(found[1]), int(found[2])
        known = None if self.size or self.camera_file is None else read_camera(self.camera_file).size
        if known is None:
            got = f", got '{self.size}'" if self.size else ""
            raise InputError(f"--size must be the pictures' width and height in pixels, 1920x1080{got}")
        return known

    @cached_property
    def formats(self) -> tuple[str, ...]:
        names = parse_formats(self.format)
        if "overlay" in names:
            raise InputError(f"--format overlay needs the picture: use `di2pose predict --keypoints`, or {FORMATS}")
        return names

    @cached_property
    def camera(self) -> Camera | None:
        if self.camera_file is not None and self.field_of_view is not None:
            raise InputError("give --camera or --fov, not both: the camera has a field of view already")
        return None if self.camera_file is None else fitted_camera(read_camera(self.camera_file), self.pixels)

    def call(self) -> dict[str, Any]:
        """Arguments of a prediction."""
        names = ("hypotheses", "steps", "seed", "height_m", "field_of_view")
        chosen = {name: getattr(self, name) for name in names if name in VIDEO_OPTIONS}
        return chosen | {"camera": self.camera}


def lift(
    inputs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE|FOLDER...")],
    /,
    options: Annotated[LiftOptions, tyro.conf.arg(name="")],
) -> int:
    """3D poses from 2D keypoints alone: OpenPose's JSON (a file, or a folder of frames), COCO results, AlphaPose's,
    MMPose's or rtmlib's JSON, .npz or .npy. No picture is needed or read.

    Files are written whole or not at all. Exit code 0: all done; 1: something failed and the rest is done; 2: nothing
    could be done.
    """
    if not inputs:
        raise InputError("give a file or folder of 2D keypoints: di2pose lift poses.json --size 1920x1080")
    if options.skeleton is not None and options.skeleton not in SKELETONS:
        raise InputError(f"--skeleton knows {', '.join(SKELETONS)}; got {options.skeleton}")
    _ = options.pixels, options.formats, options.camera  # wrong ones are errors before any work
    Options(**{name: value for name, value in options.call().items() if name != "camera"}).check()
    ready_folder(options.out)
    device = usable_device(options.device, "--device")
    model = Di2Pose.from_pretrained(options.model, device)
    log = RunLog(options.out, max(len(path.name) for path in inputs))
    with progress_bar(None, len(inputs), "file", disable=len(inputs) < 2) as bar:
        taken: set[str] = set()
        for path in inputs:
            name = _free_name(path.stem if path.is_file() else path.resolve().name, taken)
            with deferred_sigint():
                for report in _reports(model, path, name, options):
                    log.add(report)
            bar.update()
    people = sum(each.people for each in log.reports)
    print(f"{len(log.reports)} done, {count_people(people)}; written to {options.out}", flush=True)
    return log.exit_code


def _free_name(name: str, taken: set[str]) -> str:
    """The name, counted where it is taken already, and then taken; upper and lower case are the same."""
    counted = [name, *(f"{name}-{k}" for k in range(1, len(taken) + 1))]
    free = next(each for each in counted if each.casefold() not in taken)
    taken.add(free.casefold())
    return free


def _reports(model: Di2Pose, path: Path, name: str, options: LiftOptions) -> list[Report]:
    """Everything of one input, lifted and written."""
    try:
        pictures = read_keypoints(path, options.skeleton)
        if not any(len(each.people) for each in pictures):
            raise InputError(f"{path} has no people: it holds {len(pictures)} pictures without keypoints")
        if len(pictures) > 1 and not options.photos:
            return [_motion(model, path, name, pictures, options)]
        found = model(size=options.pixels, keypoints=[each.people for each in pictures], **options.call())
    except InputError as error:
        return [Report(Input("photo", path, name), problems=[str(error)])]
    reports, taken = [], set[str]()
    for number, (picture, result) in enumerate(zip(pictures, found, strict=True)):
        own = name if len(pictures) == 1 else _free_name(f"{name}-{Path(picture.name or str(number)).stem}", taken)
        reports.append(_written(Report(Input("photo", path, own)), result, count_people(len(result.people)), options))
    return reports


def _motion(model: Di2Pose, path: Path, name: str, pictures: list[PictureKeypoints], options: LiftOptions) -> Report:
    frames = filled_frames(pictures)
    motion = lift_video(
        model, [each.people for each in frames], options.fps, options.pixels,
        smoothed=options.smooth, same_body=options.same_body, held_feet=options.hold_feet,
        start_s=options.start_s, end_s=options.end_s, **options.call(),
    )  # fmt: skip
    motion = motion if options.person is None else motion.only(options.person)
    missing = f"{len(frames) - len(pictures)} frames that {path.name} leaves out are empty"
    parts = [f"{len(motion)} frames", count_people(len(motion.tracks)), missing * (len(frames) > len(pictures))]
    words = ", ".join(filter(None, parts))
    return _written(Report(Input("video", path, name)), motion, words, options)


def _written(report: Report, found: Result | Motion, words: str, options: LiftOptions) -> Report:
    report.text = " · ".join([words, *floor_words(found, options.up)])
    report.people = len(found.tracks if isinstance(found, Motion) else found.people)
    report.save(options.out / report.item.name, options.formats, found, found, up=options.up)
    return report
