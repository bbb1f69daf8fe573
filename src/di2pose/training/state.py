"""RUN/last.safetensors: all that a training run needs to go on, bit for bit, in ONE file.

Tensors: weights, averaged weights, optimiser moments, what else the model learns. In the header, as JSON: iteration,
running means of the log, loss scale, and the run's identity (stage, config, seed, data), which must be the same when
the run goes on. One file can be replaced atomically; a folder cannot. No pickles.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from di2pose.checkpoint import check_state
from di2pose.errors import InputError
from di2pose.files import Json, replacing

FORMAT_VERSION = 1
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


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


def check_identity(path: Path, found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Refuse to go on with a run that was started otherwise, and name what differs."""
    old, new = _flat("", found), _flat("", json.loads(json.dumps(wanted)))
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
