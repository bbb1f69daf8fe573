"""`di2pose train tokenizer`, `adapter`, `denoiser` and `model`: alone, or under torchrun.

A command makes the configuration, the records, the model and the run's identity; `loop.train` does the rest. The order
of random draws (manual_seed, then the model) is part of what a seed means.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from di2pose import checkpoint, recipes
from di2pose.config import Config, TokenizerConfig, TrainingConfig
from di2pose.data.feature_cache import FeatureCache
from di2pose.diffusion.adapter import Adapter
from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.model import KINDS, Recipe, TokenRecipe, TorchModel, find_model, kind_of
from di2pose.network import Di2PoseNetwork
from di2pose.recipes import RecipeName
from di2pose.tokenizer.tokenizer import PoseTokenizer
from di2pose.training import stages
from di2pose.training.loop import Job, RecordSource, train
from di2pose.training.options import RunOptions, StageOptions, overridden
from di2pose.training.sources import feature_sources, fullest, open_caches, pose_sources

Stage = Annotated[StageOptions, tyro.conf.arg(name="")]
How = Annotated[RunOptions, tyro.conf.arg(name="")]
STAGE, HOW = StageOptions(), RunOptions()


def train_tokenizer(
    data: tuple[Path, ...],
    out: Path,
    recipe: RecipeName = "small",
    share: float = 1.0,
    stage: Stage = STAGE,
    options: How = HOW,
) -> int:
    """Stage 1: train the pose tokenizer on poses, mirrored, of other bodies and turned as crops are.

    Writes RUN/model (averaged weights), RUN/best (those of the best validation so far), RUN/last.safetensors (to go on
    from), metrics.jsonl, metrics.csv. The same command resumes a stopped run.

    Args:
        data: prepared datasets, rendered people or feature caches; split train is learned from, the rest measured on
        out: folder of the run
        recipe: the configuration to start from
        share: of the training records to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    config = overridden(recipes.named(recipe), stage.settings)
    config = replace(config, tokenizer_training=stage.over(config.tokenizer_training))
    sources = pose_sources(data, share, config.skeleton)
    torch.manual_seed(stage.seed)
    model = stages.TokenizerStage(config)
    identity = stages.run_identity("tokenizer", config, stage.seed, sources[0], share)
    if stage.init is not None:
        checkpoint.load(find_model(stage.init), model.parts())
        identity["init"] = stages.digest(model.tokenizer)
    return _run(model, sources, config.tokenizer_training, identity, stages.reconstruction_mm, out, options)


def train_adapter(
    features: tuple[Path, ...],
    out: Path,
    recipe: RecipeName = "small",
    share: float = 1.0,
    stage: Stage = STAGE,
    options: How = HOW,
) -> int:
    """Before stage 2, for recipes with an adapter: train it alone to read poses off cached image features.

    Cheap, so that it can see every crop many times; `train denoiser --adapter RUN` goes on with it. Writes the files of
    `train tokenizer`. The same command resumes a stopped run.

    Args:
        features: caches of `di2pose features`; split train is learned from, the rest measured on
        out: folder of the run
        recipe: the configuration to start from
        share: of the training records to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    config = overridden(recipes.named(recipe), stage.settings)
    if not config.denoiser.adapter_layers:
        raise InputError(f"the recipe {config.name} has no adapter (adapter_layers is 0): train its denoiser at once")
    caches = open_caches(features)
    config = adopt(config, fullest(caches))
    sources = feature_sources(caches, share, config.skeleton)
    config = replace(config, adapter_training=stage.over(config.adapter_training))
    torch.manual_seed(stage.seed)
    model = stages.AdapterStage(config)
    identity = stages.run_identity("adapter", config, stage.seed, sources[0], share)
    model.adapter.standardise(stages.standard_features(sources[0]))
    if stage.init is not None:
        stages.load_adapter(model.adapter, find_model(stage.init))
        identity["init"] = stages.digest(model.adapter)
    return _run(model, sources, config.adapter_training, identity, stages.regression_mm, out, options)


def train_denoiser(
    tokenizer: Path,
    features: tuple[Path, ...],
    out: Path,
    recipe: RecipeName = "small",
    adapter: Path | None = None,
    share: float = 1.0,
    stage: Stage = STAGE,
    options: How = HOW,
) -> int:
    """Stage 2: train the denoiser on cached image features, with a frozen tokenizer.

    Writes RUN/model, the whole Di2Pose for `Di2Pose.from_pretrained`, and the files of `train tokenizer`. The same
    command resumes a stopped run.

    Args:
        tokenizer: run of `di2pose train tokenizer`, or a checkpoint folder
        features: caches of `di2pose features`; split train is learned from, the rest measured on
        out: folder of the run
        recipe: the configuration to start from; the tokenizer's part is the tokenizer run's own
        adapter: run of `di2pose train adapter`, for recipes with an adapter; it stays as it is, and takes the place of
            that in --init. Left out: it is trained along
        share: of the training records to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    config = overridden(recipes.named(recipe), stage.settings)
    trained = checkpoint.read_config(find_model(tokenizer))
    _check_tokenizer(config, trained.tokenizer, stage.settings)
    if adapter is not None and not config.denoiser.adapter_layers:
        raise InputError(f"--adapter {adapter} cannot be used: the recipe {recipe} has no adapter; leave it out")
    caches = open_caches(features)
    config = adopt(config, fullest(caches), trained)
    sources = feature_sources(caches, share, config.skeleton)
    config = replace(config, denoiser_training=stage.over(config.denoiser_training))
    torch.manual_seed(stage.seed)
    model = Di2PoseNetwork(config)
    checkpoint.load(find_model(tokenizer), {"tokenizer": model.tokenizer})
    if stage.init is not None:
        same = _has_same_tokenizer(model, find_model(stage.init))
        stages.load_denoiser(model.denoiser, find_model(stage.init), same)
        if not same:
            print(f"{stage.init} has another tokenizer: what reads and predicts tokens starts anew")
    if (reader := getattr(model.denoiser, "adapter", None)) is not None:
        if adapter is not None:
            stages.load_adapter(reader, find_model(adapter))
        elif stage.init is None:
            reader.standardise(stages.standard_features(sources[0]))
        # One that comes trained stays as it is. What it drops in training it drops here too: self-conditions are then
        # as wrong as on new crops.
        reader.requires_grad_(adapter is None and stage.init is None)
    identity = stages.run_identity("denoiser", config, stage.seed, sources[0], share)
    identity["tokenizer"] = stages.digest(model.tokenizer)
    if stage.init is not None or adapter is not None:
        identity["init"] = stages.digest(model.denoiser)
    return _run(model, sources, config.denoiser_training, identity, stages.prediction_mm, out, options)


def train_model(
    kind: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="KIND", help=f"one of {', '.join(KINDS)}")],
    features: tuple[Path, ...],
    out: Path,
    tokenizer: Path | None = None,
    adapter: Path | None = None,
    share: float = 1.0,
    stage: Stage = STAGE,
    options: How = HOW,
) -> int:
    """Train a kind of model that learns in one stage on cached image features, by the kind's own recipe.

    Writes RUN/model, which `evaluate`, `calibrate` and `predict` take, and the files of `train tokenizer`. The same
    command resumes a stopped run.

    Args:
        features: caches of `di2pose features`; split train is learned from, the rest measured on
        out: folder of the run
        tokenizer: for kinds that stand on one (pct): run of `di2pose train tokenizer`; it stays as it is
        adapter: for kinds with Di2Pose's trunk (gaussian, pct): run of `di2pose train adapter --recipe compare`; it
            stays as it is. Left out: it is trained along
        share: of the training records to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    caches = open_caches(features)
    config = _kind_recipe(kind, fullest(caches), tokenizer, stage.settings)
    config = replace(config, training=stage.over(config.training))
    torch.manual_seed(stage.seed)
    model: Any = kind_of(kind)(config)
    sources = feature_sources(caches, share, TorchModel(model).skeleton)
    identity = stages.run_identity(kind, config, stage.seed, sources[0], share)
    if tokenizer is not None:
        checkpoint.load(find_model(tokenizer), {"tokenizer": model.parts()["tokenizer"]})
        identity["tokenizer"] = stages.digest(model.parts()["tokenizer"])
    if stage.init is not None:
        if (other := checkpoint.read_kind(find_model(stage.init))[0]) != kind:
            raise InputError(f"--init {stage.init} holds a model of kind '{other}', expected one of '{kind}'")
        checkpoint.load(find_model(stage.init), model.parts())
        identity["init"] = stages.digest(model)
    elif hasattr(model, "prepare"):
        model.prepare(stages.standard_features(sources[0]))
    if adapter is not None:
        reader = getattr(model.parts().get("trunk"), "adapter", None)
        if not isinstance(reader, Adapter):
            raise InputError(f"--adapter {adapter} cannot be used: this model of kind '{kind}' has no place for one")
        stages.load_adapter(reader, find_model(adapter))
        reader.requires_grad_(False)
        identity["adapter"] = stages.digest(reader)
    return _run(model, sources, config.training, identity, stages.prediction_mm, out, options)


def _run(
    model: Any,
    sources: tuple[RecordSource, RecordSource],
    training: TrainingConfig,
    identity: Json,
    measure: stages.Measure,
    out: Path,
    options: RunOptions,
) -> int:
    """Train the model, judged by `measure`; its averaged parts are saved below `out`. The command's exit code."""
    source, held_out = sources
    name, seed = identity["stage"], identity["seed"]

    count = {"poses" if name == "tokenizer" else "crops": len(source)}

    def export(averaged: Any, notes: Mapping[str, float], folder: str) -> None:
        checkpoint.save(out / folder, averaged.config, averaged.parts(), {**notes, **count}, kind=averaged.kind)

    validate = partial(stages.held_out_figures, held_out=held_out, measure=measure, seed=seed)
    job = Job(name, model, source, training, seed, validate, export, identity)
    stopped = train(job, out, options)
    if int(os.environ.get("RANK", "0")) == 0:
        state = f"stopped by signal {stopped}: the same command goes on" if stopped else f"{job.iterations} iterations"
        written = ("model", "best") if (out / "best").is_dir() else ("model",)
        print(f"{job.name}: {state}; " + ", ".join(str(out / name) for name in (*written, "metrics.csv")))
    return 128 + stopped if stopped else 0


def _kind_recipe(kind: str, cache: FeatureCache, tokenizer: Path | None, settings: Sequence[str]) -> Any:
    """The kind's own configuration for such features, with the settings."""
    cls, sizes = kind_of(kind), (str(cache.header["encoder"]), cache.layout.length, cache.layout.width)
    if isinstance(cls, TokenRecipe):
        if tokenizer is None:
            raise InputError(f"a model of kind '{kind}' needs --tokenizer: a run of `di2pose train tokenizer`")
        trained = checkpoint.read_config(find_model(tokenizer)).tokenizer
        config = overridden(cls.token_recipe(*sizes, trained), settings)
        _check_tokenizer(config, trained, settings)
        return config
    if tokenizer is not None:
        raise InputError(f"--tokenizer {tokenizer} cannot be used: kind '{kind}' has none, leave it out")
    if isinstance(cls, Recipe):
        return overridden(cls.recipe(*sizes), settings)
    raise InputError(
        f"a model of kind '{kind}' learns in stages: `di2pose train tokenizer`, then "
        "`di2pose train adapter` where the recipe has one, then `di2pose train denoiser`"
    )


def adopt(recipe: Config, cache: FeatureCache, tokenizer: Config | None = None) -> Config:
    """The recipe with the features that there are, and with the tokenizer that was trained."""
    if tokenizer is not None:
        part = tokenizer.tokenizer
        hint = part.channels if recipe.denoiser.hint_channels else 0
        joints = tokenizer.skeleton.count
        denoiser = replace(recipe.denoiser, tokens=part.tokens, codes=part.codes, hint_channels=hint, joints=joints)
        training = tokenizer.tokenizer_training
        recipe = replace(recipe, tokenizer=part, tokenizer_training=training, denoiser=denoiser)
    layout = cache.layout
    denoiser = replace(
        recipe.denoiser,
        feature_width=layout.width,
        feature_tokens=layout.length,
        observer_tokens=layout.observer_tokens if recipe.denoiser.observer_dropout else 0,
        simulated_observers=recipe.denoiser.simulated_observers if layout.observer_tokens else 0.0,
    )
    return replace(recipe, denoiser=denoiser, encoder=str(cache.header["encoder"]))


def _check_tokenizer(config: Any, tokenizer: TokenizerConfig, settings: Sequence[str]) -> None:
    """Refuse settings of the tokenizer that its own run has otherwise: a later stage takes it as it is."""
    for group, _, name in (setting.partition("=")[0].partition(".") for setting in settings):
        if group == "tokenizer" and getattr(config.tokenizer, name) != (there := getattr(tokenizer, name)):
            raise InputError(f"--set tokenizer.{name}: the tokenizer that was trained has {there}; leave it out")


def _has_same_tokenizer(model: Di2PoseNetwork, init: Path) -> bool:
    other = PoseTokenizer(checkpoint.read_config(init).tokenizer)
    checkpoint.load(init, {"tokenizer": other})
    return stages.digest(other) == stages.digest(model.tokenizer)
