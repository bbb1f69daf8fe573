"""Which records a step sees, AdamW, its learning rate, and the averaged weights."""

import copy
import math
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import nn

from di2pose.config import TrainingConfig
from di2pose.errors import InputError
from di2pose.noise import seed_of

Model = TypeVar("Model", bound=nn.Module)
DECAYED = (nn.Linear, nn.Conv1d, nn.Conv2d)


class EpochSampler:
    """An endless stream over `count` records: epoch after epoch, each a fresh permutation by (seed, epoch) alone, so
    that there is nothing to save and nothing to share among ranks."""

    def __init__(self, count: int, seed: int) -> None:
        if count < 1:
            raise InputError("there is nothing to train on: the training data has no records")
        self.count, self.seed = count, seed
        self._epoch, self._permutation = -1, np.zeros(0, np.int64)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The records at the places start..stop-1 of the stream; they may lie in several epochs."""
        epochs, places = np.divmod(np.arange(start, stop), self.count)
        pieces = [self._of(epoch)[places[epochs == epoch]] for epoch in np.unique(epochs).tolist()]
        return np.concatenate([np.zeros(0, np.int64), *pieces])

    def _of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            self._permutation = np.random.default_rng(seed_of(self.seed, "epoch", epoch)).permutation(self.count)
            self._epoch = epoch
        return self._permutation


def adamw(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters. Only the matrices of linear and convolution layers decay: no norm, no bias,
    no embedding (of tokens, steps or positions)."""
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, DECAYED)}
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if id(p) in matrices], "weight_decay": config.weight_decay},
        {"params": [p for p in trainable if id(p) not in matrices], "weight_decay": 0.0},
    ]
    fused = all(p.device.type == "cpu" for p in trainable)  # one pass over the weights; elsewhere torch chooses itself
    kept = [group for group in groups if group["params"]]
    return torch.optim.AdamW(kept, lr=config.learning_rate, betas=config.betas, fused=fused or None)


def learning_rate(iteration: int, iterations: int, config: TrainingConfig) -> float:
    """Linear warm-up, then half a cosine to 0 at the end. The warm-up takes a tenth of the run at most."""
    warmup = min(config.warmup, iterations // 10)
    if iteration < warmup:
        return config.learning_rate * (iteration + 1) / warmup
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (iteration - warmup) / (iterations - warmup)))


class EMA(Generic[Model]):
    """Exponential moving average of the weights, free of the bias to its start.

    a_n = sum_i d^(n-i) w_i / sum_i d^(n-i), computed as a_n = a_(n-1) + (w_n - a_(n-1)) (1 - d) / (1 - d^n).
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: Model, count: int) -> None:
        """Take in the weights after update number `count`, 1 being the first."""
        share = (1 - self.decay) / (1 - self.decay**count)
        for mean, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
            if parameter.requires_grad:
                mean.lerp_(parameter, share)
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
