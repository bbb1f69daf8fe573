"""AdamW, its learning rate, and the averaged weights."""

import copy
import math
from typing import Any

import torch
from torch import nn

from di2pose.config import TrainingConfig

DECAYED = (nn.Linear, nn.Conv1d, nn.Conv2d)


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


class Average:
    """Exponential moving average of the weights, free of the bias to its start.

    a_n = sum_i d^(n-i) w_i / sum_i d^(n-i), computed as a_n = a_(n-1) + (w_n - a_(n-1)) (1 - d) / (1 - d^n).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model: Any = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, count: int) -> None:
        """Take in the weights after update number `count`, 1 being the first."""
        share = (1 - self.decay) / (1 - self.decay**count)
        for mean, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
            if parameter.requires_grad:
                mean.lerp_(parameter, share)
        for mean, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            mean.copy_(buffer)
