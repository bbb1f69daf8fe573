"""What `predict` was asked for, checked before any work is done."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from di2pose.commands.given import Boxes
from di2pose.errors import InputError
from di2pose.image.read import MOST_MEGAPIXELS
from di2pose.pose.camera import Camera

HEIGHTS_M = (0.4, 2.8)
"""From a small child to the tallest person; somebody who types centimetres is told so."""


@dataclass(frozen=True)
class Options:
    """One run."""

    folder: Path
    formats: tuple[str, ...]
    hypotheses: int = 8
    steps: int | None = None
    seed: int = 0
    detector: str = "blazepose"
    boxes: Boxes | None = None
    max_people: int = 8
    height_m: float | None = None
    camera: Camera | None = None
    field_of_view: float | None = None
    second_look: bool = True
    smooth: bool = True
    blur_faces: bool = False
    max_megapixels: float = MOST_MEGAPIXELS

    def __post_init__(self) -> None:
        for flag, value in (("hypotheses", self.hypotheses), ("max-people", self.max_people), ("steps", self.steps)):
            if value is not None and value < 1:
                raise InputError(f"--{flag} must be 1 or more, got {value}")
        if self.height_m is not None and not HEIGHTS_M[0] <= self.height_m <= HEIGHTS_M[1]:
            hint = f": did you mean {self.height_m / 100:g}?" if 40 <= self.height_m <= 280 else ""
            raise InputError(f"--height is in metres, {HEIGHTS_M[0]} to {HEIGHTS_M[1]}, got {self.height_m:g}{hint}")
        if self.camera is not None and self.field_of_view is not None:
            raise InputError("give --camera or --fov, not both: the camera has a field of view already")
        if self.field_of_view is not None and not 1 <= self.field_of_view <= 170:
            raise InputError(f"--fov is in degrees across the longer side, 1 to 170, got {self.field_of_view:g}")
        if self.max_megapixels <= 0:
            raise InputError(f"--max-megapixels must be above 0, got {self.max_megapixels:g}")

    @property
    def drawing(self) -> dict[str, Any]:
        """The arguments of the model that are the same for every picture."""
        return {
            "hypotheses": self.hypotheses,
            "steps": self.steps,
            "seed": self.seed,
            "height_m": self.height_m,
            "max_people": self.max_people,
            "detector": self.detector,
            "field_of_view": self.field_of_view,
            "second_look": self.second_look,
        }


def find_device(name: str) -> str:
    """The torch device of that name, if it can be used here; 'auto' is a CUDA GPU where there is one, else the CPU."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.split(":")[0]
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in usable:
        raise InputError(f"--device is auto, cpu, cuda (or cuda:1, ...) or mps, got {name}")
    if not usable[kind]:
        raise InputError(f"--device {name} cannot be used here: run `di2pose doctor`, or leave it out for the CPU")
    return name
