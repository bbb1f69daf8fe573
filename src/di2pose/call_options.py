"""Options of a call and of the command line, checked where they come in and not deep inside, or never."""

from numbers import Integral, Real

from di2pose.errors import InputError


def check_call(
    hypotheses: object, steps: object, seed: object, max_people: object, height_m: object = None,
    field_of_view: object = None, min_score: object = None,
) -> None:  # fmt: skip
    """Numbers of the right kind; what range `steps`, a stature or an angle may have, the parts say that use them."""
    for name, value, least in (("hypotheses", hypotheses, 1), ("max_people", max_people, 1), ("seed", seed, None)):
        if not _whole(value):
            raise InputError(f"{name} must be a whole number, got {value!r}")
        if least is not None and value < least:  # type: ignore[operator]
            raise InputError(f"{name} must be {least} or more, got {value!r}")
    if steps is not None and not _whole(steps):
        raise InputError(f"steps must be a whole number, or None for the model's own, got {steps!r}")
    for name, value, example in (
        ("height_m", height_m, "a stature in metres like 1.78"),
        ("field_of_view", field_of_view, "an angle in degrees like 60"),
        ("min_score", min_score, "a number from 0 to 1"),
    ):
        if value is not None and not (isinstance(value, Real) and not isinstance(value, bool)):
            raise InputError(f"{name} must be {example}, or None, got {value!r}")
    if isinstance(min_score, Real) and not 0 <= float(min_score) <= 1:
        raise InputError(f"min_score must be a number from 0 to 1, got {min_score!r}")


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


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
