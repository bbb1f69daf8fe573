"""Weights to begin with: of another run, or of a model that saw fewer image tokens, before a second observer came."""

from pathlib import Path

import torch
from torch import Tensor

from di2pose import checkpoint
from di2pose.diffusion.adapter import Adapter
from di2pose.diffusion.denoiser import Denoiser

ADAPTER = "adapter."


def start_adapter(adapter: Adapter, folder: Path) -> None:
    """Load the adapter of a run of its own or of a whole model. Image tokens and channels that it does not know, behind
    those that it does, keep what `adapter` has of them, and at first say nothing."""
    _load(adapter, grown(checkpoint.read_part(folder, "adapter"), adapter), folder)


def start_denoiser(denoiser: Denoiser, folder: Path) -> None:
    """Load the denoiser of another run; its adapter as `start_adapter` does."""
    state = checkpoint.read_part(folder, "denoiser")
    if denoiser.adapter is not None:
        mine = {key.removeprefix(ADAPTER): value for key, value in state.items() if key.startswith(ADAPTER)}
        state |= {ADAPTER + key: value for key, value in grown(mine, denoiser.adapter).items()}
    _load(denoiser, state, folder)


def grown(state: dict[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """An adapter's weights, for more image tokens (behind the others) of more channels. Nothing is changed where there
    are no more, or where the weights are of another shape altogether."""
    wanted = adapter.state_dict()
    if "mean" not in state or state["mean"].shape == wanted["mean"].shape:
        return state
    (tokens, width), (more, wider) = state["mean"].shape, wanted["mean"].shape
    if tokens > more or width > wider:
        return state
    new = dict(state)
    for name, kept in (("mean", (tokens, width)), ("scale", (tokens, width)), ("narrow.weight", (None, width))):
        new[name] = wanted[name].clone()
        new[name][tuple(slice(end) for end in kept)] = state[name]
    inner = len(state["join.weight"])
    joined = torch.zeros(inner, more, state["join.weight"].shape[1] // tokens)
    joined[:, :tokens] = state["join.weight"].unflatten(1, (tokens, -1))
    return new | {"join.weight": joined.flatten(1)}


def _load(part: Adapter | Denoiser, state: dict[str, Tensor], folder: Path) -> None:
    checkpoint.check_state(state, part.state_dict(), folder)
    part.load_state_dict(state)
