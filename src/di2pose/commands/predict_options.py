"""What `predict` is asked for: its flags, checked before any work is done."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import tyro

from di2pose.call_options import usable_device
from di2pose.commands.user_files import BoxFile, read_camera
from di2pose.commands.writing import endings, parse_formats
from di2pose.errors import InputError
from di2pose.image.read import MOST_MEGAPIXELS
from di2pose.pose.camera import Camera

HEIGHTS_M = (0.4, 2.8)
"""From a small child to the tallest person; somebody who types centimetres is told so."""
DEFAULT_FORMAT, RAY_FORMAT = "json,html,overlay", "parquet"
FORMAT_HELP = (
    f"what to write, with commas between: {', '.join(endings())} (left out: {DEFAULT_FORMAT}; --engine ray writes "
    f"{RAY_FORMAT} alone)"
)


@dataclass(frozen=True)
class PredictOptions:
    """One run. The fields are the flags; what they lead to (files that are read, ...) are properties."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("di2pose-out")
    """Folder for the results; made where it is missing."""
    format: Annotated[str | None, tyro.conf.arg(help=FORMAT_HELP)] = None
    model: str | None = None
    """Name or folder of a model (left out: the one inside the package)."""
    hypotheses: int = 8
    """Poses to draw for each person; their spread says how sure the answer is."""
    steps: int | None = None
    """Reverse steps of the diffusion (left out: as the model recommends)."""
    seed: int = 0
    """The same seed gives the same result."""
    detector: str = "auto"
    """Who finds people: auto, blazepose, or rtdetr:FOLDER, an RT-DETR or D-FINE in safetensors (extra vitpose)."""
    encoder: str | None = None
    """Image encoder instead of the one that the model names, e.g. vitpose:FOLDER where its weights have moved."""
    boxes: Annotated[Path | None, tyro.conf.arg(metavar="FILE|X0,Y0,X1,Y1")] = None
    """Where people are in the photos, instead of a detector, in pixels of the upright picture. Numbers: X0,Y0,X1,Y1,
    of several people with ; between them, the same in every photo. Or a file: JSON {"photo.jpg": [[x0, y0, x1, y1],
    ...]} or CSV with the columns file,x0,y0,x1,y1; photos that it does not name are searched as usual."""
    max_people: int = 8
    """At most so many in a picture, the largest ones."""
    min_score: float | None = None
    """Leave out people whose score is lower, 0 to 1 (left out: as the model recommends). Lower finds more people, and
    more things that are none."""
    height: float | None = None
    """How tall the people are in metres, 1.78: scales skeleton and distance."""
    camera: Path | None = None
    """JSON with "K", the 3x3 matrix of a calibration, or "focal" and "centre" in pixels; may hold "size"
    [width, height] and "distortion" in OpenCV's order."""
    fov: float | None = None
    """Field of view in degrees across the longer side, where there is no calibration. Without it: by the focal length
    in a photo's EXIF block, else 60."""
    second_look: bool = True
    """Look at everybody's mirror image, too, and at whoever is doubtful up to three times more; the crop that the
    model is surest of counts: slower, and much better where something misleads the detector."""
    smooth: bool = True
    """Smooth videos over time; surer joints weigh more."""
    same_body: bool = True
    """Give everybody in a video bones of one length from their first frame to their last."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    blur_faces: bool = False
    """Make faces unrecognisable in everything that is written. Only of people who were found."""
    max_megapixels: float = MOST_MEGAPIXELS
    """Refuse larger pictures that have to be unpacked whole (PNG, TIFF); JPEGs may have any size."""
    workers: int | None = None
    """Processes that share the work, each with a model and one core: the same results, sooner where there are many
    files; 0: one for each core (left out: one process on all cores, and with --engine ray all of the cluster)."""
    engine: Literal["local", "ray"] = "local"
    """Where the work is done: on this machine, or on a Ray cluster (extra ray), whose machines see the photos under the
    same paths. Ray writes Parquet, and a run that was stopped goes on where it was."""
    ray_address: str | None = None
    """Of a cluster that runs already, ray://HOST:10001 or HOST:6379 (left out: one is started on this machine)."""

    def __post_init__(self) -> None:
        _ = self.formats, self.box_file, self.known_camera  # wrong ones are told now
        for flag, value in (("hypotheses", self.hypotheses), ("max-people", self.max_people), ("steps", self.steps)):
            if value is not None and value < 1:
                raise InputError(f"--{flag} must be 1 or more, got {value}")
        if self.height is not None and not HEIGHTS_M[0] <= self.height <= HEIGHTS_M[1]:
            hint = f": did you mean {self.height / 100:g}?" if 40 <= self.height <= 280 else ""
            raise InputError(f"--height is in metres, {HEIGHTS_M[0]} to {HEIGHTS_M[1]}, got {self.height:g}{hint}")
        if self.camera is not None and self.fov is not None:
            raise InputError("give --camera or --fov, not both: the camera has a field of view already")
        if self.fov is not None and not 1 <= self.fov <= 170:
            raise InputError(f"--fov is in degrees across the longer side, 1 to 170, got {self.fov:g}")
        if self.min_score is not None and not 0 <= self.min_score <= 1:
            raise InputError(f"--min-score is a number from 0 to 1, got {self.min_score:g}")
        if self.workers is not None and self.workers < 0:
            raise InputError(f"--workers is a number of processes, or 0 for one a core, got {self.workers}")
        if self.engine == "ray" and self.formats != (RAY_FORMAT,):
            raise InputError(f"--engine ray writes {RAY_FORMAT} alone, got --format {self.format}: leave it out")
        if self.ray_address is not None and self.engine != "ray":
            raise InputError("--ray-address is of --engine ray: give both, or neither")
        if self.max_megapixels <= 0:
            raise InputError(f"--max-megapixels must be above 0, got {self.max_megapixels:g}")

    @cached_property
    def formats(self) -> tuple[str, ...]:
        """The names in `format`, each once."""
        return parse_formats(self.format or (RAY_FORMAT if self.engine == "ray" else DEFAULT_FORMAT))

    @property
    def processes(self) -> int:
        """How many share the work on this machine."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cores if self.workers == 0 else self.workers or 1

    @cached_property
    def box_file(self) -> BoxFile | None:
        return None if self.boxes is None else BoxFile(self.boxes)

    @cached_property
    def known_camera(self) -> Camera | None:
        return None if self.camera is None else read_camera(self.camera)

    @property
    def torch_device(self) -> str:
        """The device that was asked for, if it can be used here."""
        return usable_device(self.device, "--device")
