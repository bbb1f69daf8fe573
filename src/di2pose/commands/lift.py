"""`di2pose lift`: 2D keypoints of another program -> 3D people, without a picture."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tyro

from di2pose.commands.inputs import Input, fitted_camera
from di2pose.commands.predict import SharedOptions
from di2pose.commands.writing import Report, RunLog, endings, floor_words, progress_bar, ready_folder
from di2pose.device import usable_device
from di2pose.errors import InputError
from di2pose.image.detect import Detector
from di2pose.image.keypoints import filled_frames, read_keypoints
from di2pose.interruption import deferred_sigint
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import SKELETONS
from di2pose.result import Motion, Result, count_people
from di2pose.video.lift import lift_video

SIZE = re.compile(r"(\d{1,6})\s*[xX×,]\s*(\d{1,6})")
FORMATS = ", ".join(name for name in endings() if name != "overlay")


@dataclass(frozen=True, eq=False)
class LiftOptions(SharedOptions):
    """The flags of `di2pose lift`."""

    size: str = ""
    """Width and height of the pictures in pixels, 1920x1080; may be left out where --camera has it."""
    format: Annotated[str, tyro.conf.arg(help=f"what to write, with commas between: {FORMATS}")] = "json,html"
    fps: float = 30.0
    """Frames a second of a file or folder with several pictures, which are taken for those of a video."""
    photos: bool = False
    """Several pictures are photos of their own, not the frames of a video."""
    skeleton: str | None = None
    """Order of the joints, where the file does not say it and their number does not tell it, e.g. h36m_17."""
    model: str = "lift"
    """Name or folder of a model of keypoints alone."""
    max_people: tyro.conf.Suppress[int] = 8
    min_score: tyro.conf.Suppress[float | None] = None
    detector: tyro.conf.Suppress[str | Detector | None] = None
    second_look: tyro.conf.Suppress[bool] = True

    @cached_property
    def pixels(self) -> tuple[int, int]:
        """Width and height."""
        found = SIZE.fullmatch(self.size.strip())
        if found is not None:
            return int(found[1]), int(found[2])
        known = None if self.size or self.known_camera is None else self.known_camera.size
        if known is None:
            got = f", got '{self.size}'" if self.size else ""
            raise InputError(f"--size must be the pictures' width and height in pixels, 1920x1080{got}")
        return known

    @cached_property
    def asked(self) -> dict[str, Any]:
        """Arguments of a prediction."""
        camera = None if self.known_camera is None else fitted_camera(self.known_camera, self.pixels)
        return {"camera": camera} | self.call("hypotheses", "steps", "seed", "height_m", "field_of_view")


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
    if "overlay" in options.formats:
        raise InputError(f"--format overlay needs the picture: use `di2pose predict --keypoints`, or {FORMATS}")
    _ = options.pixels, options.asked  # wrong ones are errors before any work
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
            every = filled_frames(pictures)
            missing = f"{len(every) - len(pictures)} frames that {path.name} leaves out are empty"
            motion = lift_video(
                model, [each.people for each in every], options.fps, options.pixels,
                smoothed=options.smooth, same_body=options.same_body, held_feet=options.hold_feet,
                start_s=options.start_s, end_s=options.end_s, **options.asked,
            )  # fmt: skip
            motion = motion if options.person is None else motion.only(options.person)
            return [_written(Input("video", path, name), motion, options, missing * (len(every) > len(pictures)))]
        found = model(size=options.pixels, keypoints=[each.people for each in pictures], **options.asked)
    except InputError as error:
        return [Report(Input("photo", path, name), problems=[str(error)])]
    items, taken = [], set[str]()
    for number, picture in enumerate(pictures):
        own = name if len(pictures) == 1 else _free_name(f"{name}-{Path(picture.name or str(number)).stem}", taken)
        items.append(Input("photo", path, own))
    return [_written(item, result, options) for item, result in zip(items, found, strict=True)]


def _written(item: Input, found: Result | Motion, options: LiftOptions, note: str = "") -> Report:
    people = len(found.tracks if isinstance(found, Motion) else found.people)
    frames = f"{len(found)} frames" if isinstance(found, Motion) else ""
    words = ", ".join(filter(None, [frames, count_people(people), note]))
    report = Report(item, " · ".join([words, *floor_words(found, options.up)]), people)
    report.save(options.out / item.name, options.formats, found, found, up=options.up)
    return report
