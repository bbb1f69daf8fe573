"""The device that computes, and its precision.

On a CUDA device float32 matrix products use TF32 (convolutions do so by torch's default), and networks run in bfloat16
where the GPU has it. Tokenizer, quantiser, softmax and losses stay float32: a metre in bfloat16 has steps of 4 mm.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast

import torch

from di2pose.errors import InputError

Precision = Literal["auto", "float32", "bfloat16", "float16"]
"""auto: bfloat16 on a CUDA device with hardware for it, else float32."""
Function = TypeVar("Function", bound=Callable[..., Any])


def usable_device(name: str, option: str = "device") -> str:
    """The device, if it can be used here; 'auto' is a CUDA GPU where there is one. `option`: what to call it."""
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


def choose_device(name: str) -> torch.device:
    """The device of that name, made ready; under torchrun `cuda` is the GPU of this rank."""
    if usable_device(name, "--device") == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    device = torch.device(usable_device(name, "--device"))
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)  # else every rank would keep a context on the first GPU, too
        torch.set_float32_matmul_precision("high")
    return device


def precision_of(wanted: Precision, device: torch.device) -> torch.dtype:
    """The dtype of autocast. Refuses a precision that the device would only emulate, hundreds of times slower."""
    if wanted == "auto":
        has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bfloat16 else torch.float32
    if wanted == "float32":
        return torch.float32
    if device.type == "cuda":
        has = wanted == "float16" or torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        able = torch.cpu.get_capabilities()
        has = wanted == "bfloat16" and bool(able.get("avx512_bf16") or able.get("amx_bf16") or able.get("bf16"))
    else:
        has = torch.amp.is_autocast_available(device.type)
    if not has:
        raise InputError(f"this {device.type} has no hardware for {wanted}: leave --precision out")
    return torch.bfloat16 if wanted == "bfloat16" else torch.float16


def autocast(device: torch.device, wanted: Precision = "auto") -> torch.autocast:
    """A context in which networks on the device compute in that precision."""
    dtype = precision_of(wanted, device)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def in_float32(function: Function) -> Function:
    """The function with autocast off inside: for what would suffer in half precision, such as coordinates."""

    @wraps(function)
    def inner(*arguments: Any, **named: Any) -> Any:
        device = next((name for name in ("cuda", "cpu", "mps") if torch.is_autocast_enabled(name)), None)
        if device is None:
            return function(*arguments, **named)
        with torch.autocast(device, enabled=False):
            return function(*arguments, **named)

    return cast(Function, inner)
