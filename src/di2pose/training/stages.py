"""What the stages share: modules to train, held-out figures, weights to begin with, the identity of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from di2pose import checkpoint
from di2pose.config import Config, to_json
from di2pose.data.poses import augment, crop_turns
from di2pose.device import in_float32
from di2pose.diffusion.adapter import Adapter, adapter_losses
from di2pose.diffusion.denoiser import Denoiser
from di2pose.files import Json
from di2pose.noise import Noise, generator_of, hypothesis_generators
from di2pose.pose.metrics import mpjpe
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer
from di2pose.training.loop import Batch, Ranks, RecordSource
from di2pose.training.sources import FeatureSource, MemorySource

Measure = Callable[[Any, np.ndarray, Batch, int], dict[str, Tensor]]
"""(model, numbers of held-out records, those records, seed) -> mean figures of them; `mm` chooses the best model."""
HYPOTHESES = 4
VALIDATION_STEPS = 10
"""Reverse steps in validation, where a model has more: `evaluate` takes all of them."""
STANDARD_CROPS = 1000
"""Training crops from which an adapter learns the mean and deviation of each feature."""
OF_TOKENS = ("token_embed.", "position", "to_logits.", "hint_embed.")
"""Weights of a denoiser that belong to its tokenizer's tokens."""
CHUNK = 64


class TokenizerStage(nn.Module):
    """Stage 1: the tokenizer learns to reconstruct poses, augmented where its configuration says so (`augment`)."""

    kind: ClassVar[str] = "di2pose"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = PoseTokenizer(config.tokenizer)

    @in_float32
    def loss(self, batch: Batch, generator: Noise) -> dict[str, Tensor]:
        poses = batch["joints_mm"]
        if self.config.tokenizer.augment:
            poses = augment(poses, generator, self.config.skeleton)
        return self.tokenizer.loss(poses)

    def update_codebook(self) -> None:
        self.tokenizer.update_codebook()

    def parts(self) -> dict[str, nn.Module]:
        return {"tokenizer": self.tokenizer}


def reconstruction_mm(stage: TokenizerStage, rows: np.ndarray, batch: Batch, seed: int) -> dict[str, Tensor]:
    """`mm` and `turned_mm`: MPJPE through the tokens and back, as the poses are and turned as crops are."""
    poses, tokenizer = batch["joints_mm"], stage.tokenizer
    turns = crop_turns(len(rows), [generator_of(seed, "turns", row) for row in rows.tolist()]).to(poses)
    turned = poses @ turns.mT
    return {
        "mm": mpjpe(tokenizer.decode(tokenizer.encode(poses)), poses).mean(),
        "turned_mm": mpjpe(tokenizer.decode(tokenizer.encode(turned)), turned).mean(),
    }


class AdapterStage(nn.Module):
    """Before stage 2, where there is an adapter: it learns to read poses and visibilities off the features."""

    kind: ClassVar[str] = "di2pose"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.adapter = Adapter(config.denoiser)

    def loss(self, batch: Batch, generator: Noise) -> dict[str, Tensor]:
        output = self.adapter(batch["features"], generator if self.training else None)
        return adapter_losses(output, batch, self.config.diffusion)

    def parts(self) -> dict[str, nn.Module]:
        return {"adapter": self.adapter}


def regression_mm(stage: AdapterStage, rows: np.ndarray, batch: Batch, seed: int) -> dict[str, Tensor]:
    """`mm`, MPJPE of the regression, and the losses."""
    losses = stage.loss(batch, [])
    return {"mm": MM_PER_METRE * losses["regression"], **losses}


def prediction_mm(model: Any, rows: np.ndarray, batch: Batch, seed: int) -> dict[str, Tensor]:
    """`mm`, MPJPE of the mean of HYPOTHESES poses of a `PoseModel`; `single_mm`, of each; the losses."""
    noise = hypothesis_generators(seed, rows.tolist(), HYPOTHESES)
    steps = min(model.config.sample_steps, VALIDATION_STEPS)
    poses = model.predict(batch["features"], HYPOTHESES, steps, noise).joints_mm
    truth = batch["joints_mm"]
    return {
        "mm": mpjpe(poses.mean(1), truth).mean(),
        "single_mm": mpjpe(poses.flatten(0, 1), truth.repeat_interleave(HYPOTHESES, 0)).mean(),
        **model.loss(batch, noise[::HYPOTHESES]),
    }


@torch.no_grad()
def held_out_figures(
    model: nn.Module, ranks: Ranks, held_out: RecordSource, measure: Measure, seed: int
) -> dict[str, float]:
    """The means over some held-out records, evenly spaced, of what `measure` finds; the ranks share them."""
    rows = _spread(len(held_out), HELD_OUT[measure])
    device, shared = next(model.parameters()).device, len(rows) >= ranks.world
    mine = rows[ranks.rank :: ranks.world] if shared else rows
    means: dict[str, float] = {}
    for start in range(0, len(mine), CHUNK):
        some = mine[start : start + CHUNK]
        batch = {name: tensor.to(device) for name, tensor in held_out.batch(some).items()}
        for name, value in measure(model, some, batch, seed).items():
            means[name] = means.get(name, 0.0) + float(value) * len(some) / len(rows)
    return ranks.sum(means) if shared else means


HELD_OUT: dict[Measure, int] = {reconstruction_mm: 2000, regression_mm: 1024, prediction_mm: 256}
"""Most records of a validation."""


def run_identity(name: str, config: object, seed: int, source: MemorySource | FeatureSource, share: float) -> Json:
    """What makes a run the same run."""
    whole = {"stage": name, "config": to_json(config), "seed": seed, "data": source.fingerprint}
    return whole if share == 1 else whole | {"share": share}


def digest(module: nn.Module) -> float:
    """Tells one set of weights from another."""
    return float(sum(tensor.double().abs().sum() for tensor in module.state_dict().values()))


def standard_features(source: FeatureSource) -> Tensor:
    """Features of some training crops, to standardise an adapter with."""
    return source.batch(_spread(len(source), STANDARD_CROPS))["features"]


def _spread(total: int, count: int) -> np.ndarray:
    """At most `count` numbers, evenly over 0..total-1."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(np.int64))


def load_adapter(adapter: Adapter, folder: Path) -> None:
    """Load the adapter of its own run or of a whole model. Image tokens and channels behind those that it was trained
    with keep the statistics of `adapter`, and their weights start at 0; joints behind those start as in `adapter`."""
    _load(adapter, _grown(checkpoint.read_part(folder, "adapter"), adapter), folder)


def load_denoiser(denoiser: Denoiser, folder: Path, same_tokens: bool = True) -> None:
    """Load the denoiser of another run; its adapter as `load_adapter` does. Without `same_tokens` what reads and
    predicts tokens stays as it is: that of another tokenizer's tokens would mean nothing."""
    state = checkpoint.read_part(folder, "denoiser")
    if not same_tokens:
        own = denoiser.state_dict()
        state |= {name: value for name, value in own.items() if name.startswith(OF_TOKENS)}
    if denoiser.adapter is not None:
        own = {key.removeprefix("adapter."): value for key, value in state.items() if key.startswith("adapter.")}
        state |= {f"adapter.{key}": value for key, value in _grown(own, denoiser.adapter).items()}
    _load(denoiser, state, folder)


def _grown(state: dict[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """An adapter's weights, extended to more image tokens, channels and joints; unchanged where there are no more."""
    wanted = adapter.state_dict()
    for name in ("to_joints.weight", "to_joints.bias", "to_visibility.weight", "to_visibility.bias"):
        if name in state and len(state[name]) < len(wanted[name]):
            state = state | {name: torch.cat([state[name], wanted[name][len(state[name]) :]])}
    if "mean" not in state or state["mean"].shape == wanted["mean"].shape:
        return state
    (tokens, width), (all_tokens, all_channels) = state["mean"].shape, wanted["mean"].shape
    if tokens > all_tokens or width > all_channels:
        return state
    grown = dict(state)
    for name, kept in (("mean", (tokens, width)), ("scale", (tokens, width)), ("narrow.weight", (None, width))):
        grown[name] = wanted[name].clone()
        grown[name][tuple(slice(end) for end in kept)] = state[name]
    old = state["join.weight"].unflatten(1, (tokens, -1))
    joined = torch.zeros(len(old), all_tokens, old.shape[2])
    joined[:, :tokens] = old
    return grown | {"join.weight": joined.flatten(1)}


def _load(part: Adapter | Denoiser, state: dict[str, Tensor], folder: Path) -> None:
    checkpoint.check_state(state, part.state_dict(), folder)
    part.load_state_dict(state)
