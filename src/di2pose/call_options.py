"""Options of a call and of the command line that are checked where they come in."""

from typing import Any

from di2pose.errors import InputError
from di2pose.options import Options


def check_call(
    hypotheses: Any, steps: Any, seed: Any, max_people: Any, height_m: Any = None, field_of_view: Any = None,
    min_score: Any = None,
) -> None:  # fmt: skip
    """`Options.check` of some options."""
    Options(
        hypotheses, steps, seed, max_people=max_people, height_m=height_m, field_of_view=field_of_view,
        min_score=min_score,
    ).check()  # fmt: skip


def usable_device(name: str, option: str = "device") -> str:
    """The device, if it can be used here; 'auto' is a CUDA GPU where there is one. `option`: what to call it."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"{option} is auto, cpu, cuda (or cuda:1, ...) or mps, got {name}")
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[device.type]
    if (device.index or 0) >= there:
        raise InputError(f"{option} {name} cannot be used here: run `di2pose doctor`, or leave it out for the CPU")
    return str(name)
