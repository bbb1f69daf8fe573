"""What a step changes, and RUN/last.safetensors, which holds it all.

The optimiser, the averaged weights, and which records a step sees; written and read as ONE file, from which a run goes
on bit for bit. Its tensors: weights, averaged weights, optimiser moments. In its header, as JSON: iteration, running
means of the log, loss scale, and the run's identity (stage, config, seed, data), which must be the same when the run
goes on. One file can be replaced atomically; a folder cannot. No pickles.
"""

import copy
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from di2pose.checkpoint import check_state
from di2pose.config import TrainingConfig, without_later
from di2pose.errors import InputError
from di2pose.files import Json, replacing
from di2pose.noise import seed_of

FORMAT_VERSION = 1
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
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


class EMA:
    """Exponential moving average of the weights, free of the bias to its start.

    a_n = sum_i d^(n-i) w_i / sum_i d^(n-i), computed as a_n = a_(n-1) + (w_n - a_(n-1)) (1 - d) / (1 - d^n).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay = decay
        pairs = zip(self.model.parameters(), model.parameters(), strict=True)
        self.trained = [(mean, parameter) for mean, parameter in pairs if parameter.requires_grad]
        self.buffers = list(zip(self.model.buffers(), model.buffers(), strict=True))

    @torch.no_grad()
    def update(self, count: int) -> None:
        """Take in the model's weights after update number `count`, 1 being the first."""
        share = (1 - self.decay) / (1 - self.decay**count)
        for mean, parameter in self.trained:
            mean.lerp_(parameter, share)
        for kept, buffer in self.buffers:
            kept.copy_(buffer)


def write_state(path: Path, groups: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, object]) -> None:
    """Replace `path`, atomically: a process killed here leaves the old file whole."""
    header = json.dumps({"format_version": FORMAT_VERSION, **facts})
    named = {f"{group}/{name}": value for group, tensors in groups.items() for name, value in tensors.items()}
    whole = {key: value.detach().cpu().contiguous() for key, value in named.items()}
    with replacing(path) as temporary:
        save_file(whole, temporary, {"run": header})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())


def read_state(path: Path) -> tuple[dict[str, dict[str, Tensor]], Json]:
    """(tensors by group, facts) of a checkpoint."""
    groups: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("run", "{}"))
            for key in file.keys():  # noqa: SIM118
                group, _, name = key.partition("/")
                groups.setdefault(group, {})[name] = file.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}): delete it to start over") from error
    if facts.get("format_version") != FORMAT_VERSION:
        raise InputError(f"{path} is not a training checkpoint of format version {FORMAT_VERSION}")
    return groups, facts


def check_identity(path: Path, found: Json, wanted: Mapping[str, object]) -> None:
    """Refuse to go on with a run that was started otherwise, and name what differs."""
    old, new = (_flat("", without_later(each)) for each in (found, json.loads(json.dumps(wanted))))
    differing = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if differing:
        shown = "; ".join(f"{key} was {old.get(key)}, is {new.get(key)}" for key in differing[:6])
        more = f"; and {len(differing) - 6} more" if len(differing) > 6 else ""
        raise InputError(
            f"{path.parent} holds another run ({shown}{more}): "
            "give the same settings to go on, another --out, or --no-resume to start over"
        )


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments by the names of the parameters."""
    return {
        f"{name}.{moment}": optimiser.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimiser.state
        for moment in MOMENTS
    }


def load_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], path: Path) -> None:
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    wanted = {f"{n}.{m}": torch.zeros(()) if m == "step" else p for n, p in trainable.items() for m in MOMENTS}
    check_state(tensors, wanted, path)
    for name, parameter in trainable.items():
        moments = {moment: tensors[f"{name}.{moment}"].to(parameter.device) for moment in MOMENTS[1:]}
        optimiser.state[parameter] = {"step": tensors[f"{name}.step"], **moments}


def _flat(prefix: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {k: v for key, inner in value.items() for k, v in _flat(f"{prefix}.{key}" if prefix else key, inner).items()}
