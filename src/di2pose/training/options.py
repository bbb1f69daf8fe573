"""Options of a training: where it starts and how long it is, how it is carried out; `--set`; signals that stop it."""

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeVar

import tyro

from di2pose.config import Config, TokenizerConfig, TrainingConfig, from_json, model_skeleton, to_json
from di2pose.device import Precision
from di2pose.errors import InputError

C = TypeVar("C")
Settings = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="KEY=VALUE")]


@dataclass(frozen=True)
class StageOptions:
    """Where a stage begins, and how much it learns where that is not what the recipe says."""

    iterations: int | None = None
    """length, instead of the recipe's epochs"""
    epochs: int | None = None
    """passes over the data"""
    batch: int | None = None
    """records of one step, over all ranks"""
    learning_rate: float | None = None
    """highest learning rate"""
    init: Path | None = None
    """run or checkpoint folder whose weights to begin with (your own data, more data); left out: from nothing"""
    seed: int = 0
    """of the weights, the order of the data and every draw"""
    settings: Settings = ()
    """change a field of the recipe by its path, as in --set denoiser.width=96 --set tokenizer.levels=[8,5,5,5]; what
    follows from it follows (--set diffusion.steps=25 is enough). May be given many times"""

    def over(self, training: TrainingConfig) -> TrainingConfig:
        """The recipe's training, with the values given here."""
        given = {name: getattr(self, name) for name in ("iterations", "epochs", "batch", "learning_rate")}
        return replace(training, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class RunOptions:
    """Nothing here changes what is learned, but for rounding."""

    device: str = "cpu"
    """cpu, cuda or mps"""
    threads: int = 0
    """CPU threads of each process; 0 leaves it to torch"""
    accumulate: int = 1
    """cut each batch into so many parts, one after the other: less memory"""
    precision: Precision = "auto"
    """of the networks, in training and validation (autocast); auto: bfloat16 on a GPU that has it, else float32"""
    compile: bool = False
    """compile the blocks of the network (torch.compile): a slow start, then quicker on a GPU"""
    log_every: int = 20
    """iterations from row to row of metrics.jsonl"""
    validate_every: int | None = None
    """iterations from one validation to the next; left out: a fiftieth of the run, 500 at least"""
    save_minutes: float = 10.0
    """time from one checkpoint to the next; there is always one at the end and at a stop"""
    resume: bool = True
    """go on where RUN/last.safetensors stands; --no-resume starts over"""

    def __post_init__(self) -> None:
        for name in ("accumulate", "log_every", "validate_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} must be 1 or more, got {getattr(self, name)}")


def overridden(config: C, settings: Sequence[str]) -> C:
    """The configuration with the fields of `settings` replaced, each "path.to.field=value"; values are JSON, else text.
    Fields of the denoiser that other parts determine are derived again, unless they are set, too."""
    if not settings:
        return config
    data, given = to_json(config), set()
    for setting in settings:
        path, equals, text = setting.partition("=")
        *groups, name = path.split(".")
        part: Any = data
        for group in groups:
            if isinstance(part.get(group), dict):
                part = part[group]
            else:
                name = ""  # there is no such group
        if not equals or isinstance(part.get(name, {}), dict):
            fields = ", ".join(part)
            raise InputError(f"--set {setting}: expected KEY=VALUE, as in tokenizer.tokens=48; keys there: {fields}")
        part[name] = text
        with suppress(json.JSONDecodeError):
            part[name] = json.loads(text)
        given.add(path)
    if isinstance(config, Config):
        _derive(data, given)
    elif "skeleton" in given and "trunk" in data:  # of a diffusion over the joints themselves
        joints = model_skeleton(data["skeleton"]).count
        data["trunk"] |= {name: joints for name in ("tokens", "joints") if f"trunk.{name}" not in given}
    return from_json(type(config), data)


def _derive(data: dict[str, Any], given: set[str]) -> None:
    tokenizer = from_json(TokenizerConfig, data["tokenizer"])
    denoiser, steps = data["denoiser"], data["diffusion"]["steps"]
    hint = tokenizer.channels if denoiser["hint_channels"] and denoiser["adapter_layers"] else 0
    derived = {"tokens": tokenizer.tokens, "codes": tokenizer.codes, "steps": steps, "hint_channels": hint}
    derived["joints"] = model_skeleton(tokenizer.skeleton).count
    denoiser |= {name: value for name, value in derived.items() if f"denoiser.{name}" not in given}
    if "sample_steps" not in given and isinstance(steps, int):
        data["sample_steps"] = min(data["sample_steps"], steps)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C are noted, so that the iteration at hand can end and be saved; a second one interrupts."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(int(number))

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
