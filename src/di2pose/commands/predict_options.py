"""The flags of `predict`: the options of a prediction and those of a run, checked before any work is done."""

import dataclasses
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from di2pose.commands.inputs import BoxFile, read_camera
from di2pose.commands.writing import endings, parse_formats
from di2pose.device import usable_device
from di2pose.errors import InputError
from di2pose.image.keypoints import PictureKeypoints, read_keypoints
from di2pose.image.read import MOST_MEGAPIXELS
from di2pose.options import Boxes, Options, Point
from di2pose.pose.camera import Camera

DEFAULT_FORMAT = "json,html,overlay"
FORMAT_HELP = f"what to write, with commas between: {', '.join(endings())}"
FLAGS = {"height_m": "height", "field_of_view": "fov"}
"""Options whose flags have other names."""


@dataclass(frozen=True, eq=False)
class PredictOptions(Options):
    """One run. The fields are the flags; what is read or derived from them is a property."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("di2pose-out")
    """Folder for the results; made where it is missing."""
    format: Annotated[str, tyro.conf.arg(help=FORMAT_HELP)] = DEFAULT_FORMAT
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
    camera_file: Annotated[Path | None, tyro.conf.arg(name="camera")] = None
    """JSON with "K", the 3x3 matrix of a calibration, or "focal" and "centre" in pixels; may hold "size"
    [width, height] and "distortion" in OpenCV's order."""
    height_m: Annotated[float | None, tyro.conf.arg(name="height")] = None
    """Stature of the people in metres, 1.78: scales skeleton and distance."""
    field_of_view: Annotated[float | None, tyro.conf.arg(name="fov")] = None
    """Field of view in degrees across the longer side, where there is no calibration. Without it: by the focal length
    in a photo's EXIF block, else 60."""
    smooth: bool = True
    """Smooth videos over time; surer joints weigh more."""
    same_body: bool = True
    """Give everybody in a video bones of one length from their first frame to their last."""
    blur_faces: bool = False
    """Make faces unrecognisable in everything that is written. Only of people who were found."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
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
    boxes: tyro.conf.Suppress[Boxes | None] = None
    keypoints: tyro.conf.Suppress[Any] = None
    camera: tyro.conf.Suppress[Camera | None] = None
    occluded: tyro.conf.Suppress[Boxes] = ()
    pin: tyro.conf.Suppress[dict[str, Point] | None] = None
    keep_tokens: tyro.conf.Suppress[dict[int, int] | None] = None

    def __post_init__(self) -> None:
        # Read now: wrong ones are errors before any work.
        _ = self.formats, self.box_file, self.known_camera, self.known_keypoints
        for each in dataclasses.fields(Options):
            value, least, most = getattr(self, each.name), each.metadata.get("least"), each.metadata.get("most")
            if value is not None and least is not None and not least <= value <= (most or float("inf")):
                flag = FLAGS.get(each.name, each.name).replace("_", "-")
                bounds = f"{least} or more" if most is None else f"from {least} to {most}"
                hint = f": did you mean {value / 100:g} m?" if flag == "height" and 30 <= value <= 300 else ""
                raise InputError(f"--{flag} must be {bounds}, got {value:g}{hint}")
        if self.camera_file is not None and self.field_of_view is not None:
            raise InputError("give --camera or --fov, not both: the camera has a field of view already")
        if self.box_source is not None and self.keypoint_source is not None:
            raise InputError("give --boxes or --keypoints, not both: keypoints say where the people are")
        if self.workers is not None and self.workers < 0:
            raise InputError(f"--workers is a number of processes, or 0 for one a core, got {self.workers}")
        if self.ray_address is not None and self.engine != "ray":
            raise InputError("--ray-address is of --engine ray: give both, or neither")
        if self.max_megapixels <= 0:
            raise InputError(f"--max-megapixels must be above 0, got {self.max_megapixels:g}")

    def call(self, *names: str) -> dict[str, Any]:
        """Keyword arguments of a call of the pipeline, by name."""
        return {name: getattr(self, name) for name in names}

    @cached_property
    def formats(self) -> tuple[str, ...]:
        """The names in `format`, each once."""
        return parse_formats(self.format)

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

    @cached_property
    def known_camera(self) -> Camera | None:
        return None if self.camera_file is None else read_camera(self.camera_file)

    @property
    def torch_device(self) -> str:
        """The device, if it can be used here."""
        return usable_device(self.device, "--device")
