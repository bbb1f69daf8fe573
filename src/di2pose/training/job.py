"""What the training loop is given: a model with a loss, records by number, and what must not change on the way."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from di2pose.config import TrainingConfig
from di2pose.randomness import Noise

Batch = dict[str, Tensor]


@runtime_checkable
class Trainable(Protocol):
    """A module with a loss: a dict of scalars, of which `loss` is minimised; each is a mean over the samples."""

    def loss(self, batch: Batch, generator: Noise) -> dict[str, Tensor]: ...


@runtime_checkable
class Source(Protocol):
    """Training records by number."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Job:
    """What is trained, on what."""

    name: str
    model: nn.Module
    """A Trainable."""
    source: Source
    training: TrainingConfig
    seed: int
    validate: Callable[[Any], dict[str, float]]
    """Figures of the averaged model on held-out records; `mm` among them is shown on the progress bar."""
    export: Callable[[Any, Mapping[str, Any]], None]
    """Writes the averaged model, with notes, for use."""
    identity: Mapping[str, Any]
    """What must be the same for a run to go on: JSON values."""
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors beside the weights that training changes in place."""

    @property
    def iterations(self) -> int:
        return self.training.iterations or math.ceil(self.training.epochs * len(self.source) / self.training.batch)
