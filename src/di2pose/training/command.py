"""`di2pose train tokenizer`, `adapter`, `denoiser`, `model` and `all`: alone, or under torchrun."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from di2pose import checkpoint, recipes
from di2pose.config import Config
from di2pose.errors import InputError
from di2pose.model import KINDS
from di2pose.training.distributed import join
from di2pose.training.loop import Job, train
from di2pose.training.optimiser import Model
from di2pose.training.options import RunOptions, Settings, StageOptions
from di2pose.training.overrides import check_tokenizer, overridden
from di2pose.training.stages import adapter_job, denoiser_job, model_folder, model_job, tokenizer_job

RecipeName = Literal["paper", "small", "compare", "tiny"]
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
    from), metrics.jsonl, metrics.csv, plot.png. The same command resumes a stopped run.

    Args:
        data: prepared datasets, rendered people or feature caches; split train is learned from, the rest measured on
        out: folder of the run
        recipe: the configuration to start from
        share: of the training poses to learn from, chosen by their ids: of feature caches the same as for the denoiser
    """
    config = _recipe(recipe, stage)
    config = replace(config, tokenizer_training=stage.over(config.tokenizer_training))
    return _run(tokenizer_job(config, data, out, stage.seed, stage.init, share), out, options)


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
        share: of the training crops to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    config = _recipe(recipe, stage)
    config = replace(config, adapter_training=stage.over(config.adapter_training))
    return _run(adapter_job(config, features, out, stage.seed, stage.init, share), out, options)


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
        share: of the training crops to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    config = _recipe(recipe, stage)
    check_tokenizer(config, checkpoint.read_config(model_folder(tokenizer)).tokenizer, stage.settings)
    if adapter is not None and not config.denoiser.adapter_layers:
        raise InputError(f"--adapter {adapter} cannot be used: the recipe {recipe} has no adapter; leave it out")
    config = replace(config, denoiser_training=stage.over(config.denoiser_training))
    job = denoiser_job(config, tokenizer, features, out, stage.seed, stage.init, adapter, share)
    return _run(job, out, options)


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
        share: of the training crops to learn from, chosen by their ids; a smaller share is a part of a larger one
    """
    job = model_job(kind, features, out, stage.seed, stage.over, stage.init, stage.settings, share, tokenizer, adapter)
    return _run(job, out, options)


def train_all(
    data: tuple[Path, ...],
    features: tuple[Path, ...],
    out: Path,
    recipe: RecipeName = "small",
    iterations: tuple[int, int, int] | None = None,
    epochs: tuple[int, int, int] | None = None,
    seed: int = 0,
    settings: Settings = (),
    share: float = 1.0,
    options: How = HOW,
) -> int:
    """All stages, one after the other: RUN/tokenizer, RUN/adapter where the recipe has one, RUN/denoiser, whose `model`
    is the whole Di2Pose.

    The same command resumes a stopped run in the stage where it stopped.

    Args:
        data: poses for the tokenizer, as for `train tokenizer`
        features: caches of `di2pose features`, as for `train denoiser`
        out: folder of the run
        recipe: the configuration
        iterations: lengths of the three stages, instead of the recipe's epochs; without an adapter the second is unused
        epochs: passes over the data, of the three stages
        seed: of the weights, the order of the data and every draw
        settings: change a field of the recipe by its path, as for `train denoiser`
        share: of the training crops of the features, as for `train denoiser`; the tokenizer sees all poses
    """
    lengths = zip(iterations or (None,) * 3, epochs or (None,) * 3, strict=True)
    first, second, third = (StageOptions(count, passes, seed=seed, settings=settings) for count, passes in lengths)
    adapter = out / "adapter" if _recipe(recipe, first).denoiser.adapter_layers else None
    with join(options.device):
        stopped = train_tokenizer(data, out / "tokenizer", recipe, stage=first, options=options)
        if adapter is not None and not stopped:
            stopped = train_adapter(features, adapter, recipe, share, second, options)
        if stopped:
            return stopped
        return train_denoiser(out / "tokenizer", features, out / "denoiser", recipe, adapter, share, third, options)


def _recipe(name: RecipeName, stage: StageOptions) -> Config:
    known = {"paper": recipes.paper, "small": recipes.small, "compare": recipes.compare, "tiny": recipes.tiny}
    return overridden(known[name](), stage.settings)


def _run(job: Job[Model], out: Path, options: RunOptions) -> int:
    stopped = train(job, out, options)
    if int(os.environ.get("RANK", "0")) == 0:
        state = f"stopped by signal {stopped}: the same command goes on" if stopped else f"{job.iterations} iterations"
        written = ("model", "best") if (out / "best").is_dir() else ("model",)
        print(f"{job.name}: {state}; " + ", ".join(str(out / name) for name in (*written, "metrics.csv", "plot.png")))
    return 128 + stopped if stopped else 0
