"""How long a run is, how it is carried out, and what may stop it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import torch
import tyro

from di2pose.config import TrainingConfig
from di2pose.device import Precision
from di2pose.errors import InputError

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
    """iterations from one validation to the next; left out: 500, or as many as keep validation below 5 % of training"""
    save_minutes: float = 10.0
    """time from one checkpoint to the next; there is always one at the end and at a stop"""
    tensorboard: bool = False
    """write TensorBoard files too"""
    resume: bool = True
    """go on where RUN/last.safetensors stands; --no-resume starts over"""

    def __post_init__(self) -> None:
        for name in ("accumulate", "log_every", "validate_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} must be 1 or more, got {getattr(self, name)}")


def out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


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
