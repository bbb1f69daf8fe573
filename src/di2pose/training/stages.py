"""The stages as jobs for the loop: which model, which records, what is measured, what is saved."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from di2pose import checkpoint
from di2pose.config import Config, TrainingConfig, to_json
from di2pose.data.poses import augment, crop_turns
from di2pose.device import in_float32
from di2pose.diffusion.adapter import Adapter, adapter_losses
from di2pose.diffusion.denoiser import Denoiser
from di2pose.errors import InputError
from di2pose.model import PoseModel, Recipe, TokenRecipe, find_model, kind_of, save_model, training_of
from di2pose.network import Di2PoseNetwork
from di2pose.noise import Noise, generator_of, hypothesis_generators
from di2pose.pose.metrics import mpjpe
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer
from di2pose.training.distributed import ALONE, Ranks
from di2pose.training.loop import Batch, Job
from di2pose.training.optimiser import Model
from di2pose.training.overrides import check_tokenizer, overridden
from di2pose.training.sources import FeatureSource, feature_sources, pose_sources

HELD_OUT_POSES, HELD_OUT_READINGS, HELD_OUT_CROPS, HYPOTHESES = 2000, 1024, 256, 4
VALIDATION_STEPS = 10
"""Reverse steps in validation, where a model has more: `evaluate` takes all of them."""
STANDARD_CROPS = 1000
"""Training crops from which an adapter learns the mean and deviation of each feature."""
CHUNK = 64


class TokenizerStage(nn.Module):
    """Stage 1: the tokenizer learns to reconstruct poses, augmented where its configuration says so (`augment`)."""

    def __init__(self, tokenizer: PoseTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    @in_float32
    def loss(self, batch: Batch, generator: Noise) -> dict[str, Tensor]:
        poses = augment(batch["joints_mm"], generator) if self.tokenizer.config.augment else batch["joints_mm"]
        return self.tokenizer.loss(poses)

    def update_codebook(self) -> None:
        self.tokenizer.update_codebook()


def tokenizer_job(
    config: Config, data: Sequence[Path], out: Path, seed: int, init: Path | None = None, share: float = 1.0
) -> Job[TokenizerStage]:
    """Train the tokenizer on the poses of one or several folders, from nothing or from the weights of another run."""
    train, held_out = pose_sources(data, share)
    torch.manual_seed(seed)
    stage = TokenizerStage(PoseTokenizer(config.tokenizer))
    identity = _identity("tokenizer", config, seed, train.fingerprint, share)
    if init is not None:
        checkpoint.load(model_folder(init), {"tokenizer": stage.tokenizer})
        identity["init"] = _digest(stage.tokenizer)

    rows = _spread(len(held_out), HELD_OUT_POSES)

    def validate(stage: TokenizerStage, ranks: Ranks) -> dict[str, float]:
        return reconstruction_mm(stage.tokenizer, held_out.batch(rows)["joints_mm"], seed, ranks)

    def export(stage: TokenizerStage, notes: Mapping[str, float], name: str) -> None:
        checkpoint.save(out / name, config, {"tokenizer": stage.tokenizer}, {**notes, "poses": len(train)})

    passes = 2 * len(rows)
    return Job("tokenizer", stage, train, config.tokenizer_training, seed, validate, export, identity, passes)


@torch.no_grad()
@in_float32
def reconstruction_mm(tokenizer: PoseTokenizer, joints_mm: Tensor, seed: int, ranks: Ranks = ALONE) -> dict[str, float]:
    """`mm` and `turned_mm`: MPJPE through the tokens and back, as the poses are and turned as crops are."""
    joints_mm = joints_mm.to(tokenizer.order.device)
    turned = joints_mm @ crop_turns(len(joints_mm), generator_of(seed, "turns")).to(joints_mm).mT
    mine = {name: poses[ranks.rank :: ranks.world] for name, poses in (("mm", joints_mm), ("turned_mm", turned))}
    sums = {name: mpjpe(tokenizer.decode(tokenizer.encode(poses)), poses).sum() for name, poses in mine.items()}
    return ranks.sum({name: float(total) / len(joints_mm) for name, total in sums.items()})


class AdapterStage(nn.Module):
    """Before stage 2, where there is an adapter: it learns to read poses and visibilities off the features."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.adapter = Adapter(config.denoiser)
        self.weights = config.diffusion

    def loss(self, batch: Batch, generator: Noise) -> dict[str, Tensor]:
        output = self.adapter(batch["features"], generator if self.training else None)
        return adapter_losses(output.joints_mm, output.visibility_logits, batch, self.weights)


def adapter_job(
    config: Config, features: Sequence[Path], out: Path, seed: int, init: Path | None = None, share: float = 1.0
) -> Job[AdapterStage]:
    """Train the adapter alone, from nothing or from the weights of another run or of a whole model, which may have seen
    fewer image tokens. The features' size is the caches'."""
    if not config.denoiser.adapter_layers:
        raise InputError(f"the recipe {config.name} has no adapter (adapter_layers is 0): train its denoiser at once")
    train, held_out = feature_sources(features, share)
    config = _for_features(config, train)
    torch.manual_seed(seed)
    stage = AdapterStage(config)
    identity = _identity("adapter", config, seed, train.fingerprint, share)
    stage.adapter.standardise(_standard_features(train))
    if init is not None:
        load_adapter(stage.adapter, model_folder(init))
        identity["init"] = _digest(stage.adapter)

    rows = _spread(len(held_out), HELD_OUT_READINGS)

    @torch.no_grad()
    def validate(stage: AdapterStage, ranks: Ranks) -> dict[str, float]:
        """On some held-out crops: `mm`, MPJPE of the regression, and the mean losses."""
        figures = _means(stage, held_out, rows, ranks, lambda some, batch: stage.loss(batch, []))
        return {"mm": MM_PER_METRE * figures["regression"], **figures}

    def export(stage: AdapterStage, notes: Mapping[str, float], name: str) -> None:
        checkpoint.save(out / name, config, {"adapter": stage.adapter}, {**notes, "crops": len(train)})

    passes = len(rows)
    return Job("adapter", stage, train, config.adapter_training, seed, validate, export, identity, passes)


def denoiser_job(
    config: Config,
    tokenizer: Path,
    features: Sequence[Path],
    out: Path,
    seed: int,
    init: Path | None = None,
    adapter: Path | None = None,
    share: float = 1.0,
) -> Job[Di2PoseNetwork]:
    """Train the denoiser on cached features, with the frozen tokenizer of a run; from nothing, or from another run's
    denoiser, which learned the tokens of the same tokenizer. An adapter that comes trained, from a run of its own, else
    in that denoiser, stays as it is; what it drops in training it drops here too: hints are then as wrong as on new
    crops.

    The tokenizer's part of the configuration is the run's own, and the width of the features is the caches'.
    """
    folder = model_folder(tokenizer)
    train, held_out = feature_sources(features, share)
    config = adopt(config, checkpoint.read_config(folder), train)
    torch.manual_seed(seed)
    model = Di2PoseNetwork(config)
    checkpoint.load(folder, {"tokenizer": model.tokenizer})
    if init is not None:
        _same_tokenizer(model, model_folder(init))
        load_denoiser(model.denoiser, model_folder(init))
    if (reader := getattr(model.denoiser, "adapter", None)) is not None:
        if adapter is not None:
            load_adapter(reader, model_folder(adapter))
        elif init is None:
            reader.standardise(_standard_features(train))
        reader.requires_grad_(adapter is None and init is None)
    identity = _identity("denoiser", config, seed, train.fingerprint, share) | {"tokenizer": _digest(model.tokenizer)}
    if init is not None or adapter is not None:
        identity["init"] = _digest(model.denoiser)
    return _model_job("denoiser", model, train, held_out, config.denoiser_training, out, seed, identity)


def model_job(
    kind: str,
    features: Sequence[Path],
    out: Path,
    seed: int,
    over: Callable[[TrainingConfig], TrainingConfig] = lambda training: training,
    init: Path | None = None,
    settings: Sequence[str] = (),
    share: float = 1.0,
    tokenizer: Path | None = None,
    adapter: Path | None = None,
) -> Job[nn.Module]:
    """Train a kind of model that learns in one stage on cached features, from nothing or from the weights of another
    run. Its configuration is the kind's own recipe for such features; `settings` change its fields, and `over` how it
    is trained. A tokenizer, for kinds that stand on one, and an adapter that comes trained stay as they are."""
    cls = kind_of(kind)
    train, held_out = feature_sources(features, share)
    sizes = (train.encoder, train.layout.length, train.layout.width)
    if isinstance(cls, TokenRecipe):
        if tokenizer is None:
            raise InputError(f"a model of kind '{kind}' needs --tokenizer: a run of `di2pose train tokenizer`")
        trained = checkpoint.read_config(model_folder(tokenizer)).tokenizer
        recipe = cls.token_recipe(*sizes, trained)
        check_tokenizer(overridden(recipe, settings), trained, settings)
    elif tokenizer is not None:
        raise InputError(f"--tokenizer {tokenizer} cannot be used: kind '{kind}' has none, leave it out")
    elif isinstance(cls, Recipe):
        recipe = cls.recipe(*sizes)
    else:
        raise InputError(
            f"a model of kind '{kind}' learns in stages: `di2pose train all`, or `di2pose train tokenizer`, then "
            "`di2pose train adapter` where the recipe has one, then `di2pose train denoiser`"
        )
    config = overridden(recipe, settings)
    config = replace(cast(Any, config), training=over(training_of(config)))
    torch.manual_seed(seed)
    model = cls(config)
    identity = _identity(kind, config, seed, train.fingerprint, share)
    assert isinstance(model, PoseModel)
    if tokenizer is not None:
        checkpoint.load(model_folder(tokenizer), {"tokenizer": model.parts()["tokenizer"]})
        identity["tokenizer"] = _digest(model.parts()["tokenizer"])
    if init is not None:
        if (other := checkpoint.read_kind(model_folder(init))[0]) != kind:
            raise InputError(f"--init {init} holds a model of kind '{other}', expected one of '{kind}'")
        checkpoint.load(model_folder(init), model.parts())
        identity["init"] = _digest(model)
    elif hasattr(model, "prepare"):
        model.prepare(_standard_features(train))
    if adapter is not None:
        reader = getattr(model.parts().get("trunk"), "adapter", None)
        if not isinstance(reader, Adapter):
            raise InputError(f"--adapter {adapter} cannot be used: this model of kind '{kind}' has no place for one")
        load_adapter(reader, model_folder(adapter))
        reader.requires_grad_(False)
        identity["adapter"] = _digest(reader)
    return _model_job(kind, model, train, held_out, training_of(config), out, seed, identity)


def _model_job(
    name: str,
    model: Model,
    train: FeatureSource,
    held_out: FeatureSource,
    training: TrainingConfig,
    out: Path,
    seed: int,
    identity: Mapping[str, object],
) -> Job[Model]:
    """A `PoseModel`: measured by its predictions, saved whole."""
    assert isinstance(model, PoseModel)
    rows, steps = _spread(len(held_out), HELD_OUT_CROPS), min(model.config.sample_steps, VALIDATION_STEPS)

    def validate(averaged: Model, ranks: Ranks) -> dict[str, float]:
        return prediction_mm(averaged, held_out, rows, steps, seed, ranks)

    def export(averaged: Model, notes: Mapping[str, float], name: str) -> None:
        assert isinstance(averaged, PoseModel)
        save_model(averaged, out / name, **notes, crops=len(train))

    passes = len(rows) * (HYPOTHESES * steps + 1)  # samples, and the losses
    return Job(name, model, train, training, seed, validate, export, identity, passes)


@torch.no_grad()
def prediction_mm(
    model: nn.Module, held_out: FeatureSource, rows: np.ndarray, steps: int, seed: int, ranks: Ranks
) -> dict[str, float]:
    """On some held-out crops: `mm`, MPJPE of the mean of HYPOTHESES poses; `single_mm`, of each; the mean losses."""
    assert isinstance(model, PoseModel)

    def measure(some: np.ndarray, batch: Batch) -> dict[str, Tensor]:
        noise = hypothesis_generators(seed, some.tolist(), HYPOTHESES)
        poses = model.predict(batch["features"], HYPOTHESES, steps, noise).joints_mm
        truth = batch["joints_mm"]
        return {
            "mm": mpjpe(poses.mean(1), truth).mean(),
            "single_mm": mpjpe(poses.flatten(0, 1), truth.repeat_interleave(HYPOTHESES, 0)).mean(),
            **model.loss(batch, noise[::HYPOTHESES]),
        }

    return _means(model, held_out, rows, ranks, measure)


def _means(
    model: nn.Module,
    source: FeatureSource,
    rows: np.ndarray,
    ranks: Ranks,
    measure: Callable[[np.ndarray, Batch], dict[str, Tensor]],
) -> dict[str, float]:
    """The means over the records `rows` of what `measure` finds in some of them at a time; the ranks share them."""
    device, shared = next(model.parameters()).device, len(rows) >= ranks.world
    mine = rows[ranks.rank :: ranks.world] if shared else rows
    means: dict[str, float] = {}
    for start in range(0, len(mine), CHUNK):
        some = mine[start : start + CHUNK]
        batch = {name: tensor.to(device) for name, tensor in source.batch(some).items()}
        for name, value in measure(some, batch).items():
            means[name] = means.get(name, 0.0) + float(value) * len(some) / len(rows)
    return ranks.sum(means) if shared else means


def adopt(recipe: Config, tokenizer: Config, source: FeatureSource) -> Config:
    """The recipe with the tokenizer that was trained and the features that there are."""
    denoiser = replace(
        recipe.denoiser,
        tokens=tokenizer.tokenizer.tokens,
        codes=tokenizer.tokenizer.codes,
        hint_channels=tokenizer.tokenizer.channels if recipe.denoiser.hint_channels else 0,
    )
    training = tokenizer.tokenizer_training
    adopted = replace(recipe, tokenizer=tokenizer.tokenizer, tokenizer_training=training, denoiser=denoiser)
    return _for_features(adopted, source)


def _for_features(config: Config, source: FeatureSource) -> Config:
    layout = source.layout
    denoiser = replace(
        config.denoiser,
        feature_width=layout.width,
        feature_tokens=layout.length,
        observer_tokens=layout.observer_tokens if config.denoiser.observer_dropout else 0,
    )
    return replace(config, denoiser=denoiser, encoder=source.encoder)


def _standard_features(source: FeatureSource) -> Tensor:
    return source.batch(_spread(len(source), STANDARD_CROPS))["features"]


def model_folder(run: Path) -> Path:
    """The checkpoint of a run, RUN/model, the checkpoint folder itself, or that of a name in the package."""
    folder = find_model(run)
    if not (folder / "config.json").is_file():
        raise InputError(f"{run} holds no model: expected a run of `di2pose train`, or a checkpoint folder")
    return folder


def _same_tokenizer(model: Di2PoseNetwork, init: Path) -> None:
    """Tokens mean nothing to a denoiser that learned those of another tokenizer."""
    other = PoseTokenizer(checkpoint.read_config(init).tokenizer)
    checkpoint.load(init, {"tokenizer": other})
    if _digest(other) != _digest(model.tokenizer):
        raise InputError(
            f"--init {init} was trained with another tokenizer: give --tokenizer {init}, or leave --init out"
        )


def load_adapter(adapter: Adapter, folder: Path) -> None:
    """Load the adapter of its own run or of a whole model. Image tokens and channels behind those that it was trained
    with keep the statistics of `adapter`, and their weights start at 0."""
    _load(adapter, _grown(checkpoint.read_part(folder, "adapter"), adapter), folder)


def load_denoiser(denoiser: Denoiser, folder: Path) -> None:
    """Load the denoiser of another run; its adapter as `load_adapter` does."""
    state = checkpoint.read_part(folder, "denoiser")
    if denoiser.adapter is not None:
        own = {key.removeprefix("adapter."): value for key, value in state.items() if key.startswith("adapter.")}
        state |= {f"adapter.{key}": value for key, value in _grown(own, denoiser.adapter).items()}
    _load(denoiser, state, folder)


def _grown(state: dict[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """An adapter's weights, extended to more image tokens and channels; unchanged where there are no more."""
    wanted = adapter.state_dict()
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


def _identity(stage: str, config: object, seed: int, data: str, share: float = 1.0) -> dict[str, object]:
    """What makes a run the same run."""
    whole = {"stage": stage, "config": to_json(config), "seed": seed, "data": data}
    return whole if share == 1 else whole | {"share": share}


def _spread(total: int, count: int) -> np.ndarray:
    """At most `count` numbers, evenly over 0..total-1."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(np.int64))


def _digest(module: nn.Module) -> float:
    """Tells one set of weights from another."""
    return float(sum(tensor.double().abs().sum() for tensor in module.state_dict().values()))
