"""`di2pose train tokenizer`, `train denoiser`, `train all`: alone, or under torchrun."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from di2pose import recipes
from di2pose.config import Config, TrainingConfig
from di2pose.training.distributed import join
from di2pose.training.job import Job
from di2pose.training.loop import train
from di2pose.training.options import Options
from di2pose.training.stages import denoiser_job, tokenizer_job

Recipe = Literal["paper", "small", "tiny"]
How = Annotated[Options, tyro.conf.arg(name="")]
DEFAULT = Options()


def train_tokenizer(
    data: tuple[Path, ...],
    out: Path,
    recipe: Recipe = "small",
    iterations: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    init: Path | None = None,
    seed: int = 0,
    options: How = DEFAULT,
) -> int:
    """Stage 1: train the pose tokenizer on poses, mirrored, of other bodies and turned as crops are.

    Writes RUN/model (averaged weights), RUN/last.safetensors (to go on from), metrics.jsonl, metrics.csv, plot.png.
    The same command goes on with a run that was stopped.

    Args:
        data: prepared datasets, rendered people or feature caches; split train is learned from, the rest measured on
        out: folder of the run
        recipe: the configuration to start from
        iterations: length, instead of the recipe's epochs
        epochs: passes over the data
        batch: records of one step, over all ranks
        learning_rate: highest learning rate
        init: run or checkpoint folder whose weights to begin with (your own data, more data); left out: from nothing
        seed: of the weights, the order of the data and every draw
    """
    config = _recipe(recipe)
    training = _override(config.tokenizer_training, iterations, epochs, batch, learning_rate)
    return _run(tokenizer_job(replace(config, tokenizer_training=training), data, out, seed, init), out, options)


def train_denoiser(
    tokenizer: Path,
    features: tuple[Path, ...],
    out: Path,
    recipe: Recipe = "small",
    iterations: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    init: Path | None = None,
    seed: int = 0,
    options: How = DEFAULT,
) -> int:
    """Stage 2: train the denoiser on cached image features, with a frozen tokenizer.

    Writes RUN/model, the whole Di2Pose for `Di2Pose.from_pretrained`, and the files of `train tokenizer`. The same
    command goes on with a run that was stopped.

    Args:
        tokenizer: run of `di2pose train tokenizer`, or a checkpoint folder
        features: caches of `di2pose features`; split train is learned from, the rest measured on
        out: folder of the run
        recipe: the configuration to start from; the tokenizer's part is the tokenizer run's own
        iterations: length, instead of the recipe's epochs
        epochs: passes over the data
        batch: records of one step, over all ranks
        learning_rate: highest learning rate
        init: run or checkpoint folder whose weights to begin with (your own data, more data); left out: from nothing
        seed: of the weights, the order of the data and every draw
    """
    config = _recipe(recipe)
    training = _override(config.denoiser_training, iterations, epochs, batch, learning_rate)
    config = replace(config, denoiser_training=training)
    return _run(denoiser_job(config, tokenizer, features, out, seed, _world(), init), out, options)


def train_all(
    data: tuple[Path, ...],
    features: tuple[Path, ...],
    out: Path,
    recipe: Recipe = "small",
    iterations: tuple[int, int] | None = None,
    epochs: tuple[int, int] | None = None,
    seed: int = 0,
    options: How = DEFAULT,
) -> int:
    """Both stages, one after the other: RUN/tokenizer, then RUN/denoiser, whose `model` is the whole Di2Pose.

    The same command goes on with a run that was stopped, in the stage where it was.

    Args:
        data: poses for the tokenizer, as for `train tokenizer`
        features: caches of `di2pose features`, as for `train denoiser`
        out: folder of the run
        recipe: the configuration
        iterations: lengths of the two stages, instead of the recipe's epochs
        epochs: passes over the data, of the two stages
        seed: of the weights, the order of the data and every draw
    """
    first, second = (((iterations or (None, None))[k], (epochs or (None, None))[k]) for k in (0, 1))
    with join(options.device):
        stopped = train_tokenizer(data, out / "tokenizer", recipe, *first, seed=seed, options=options)
        if stopped:
            return stopped
        return train_denoiser(
            out / "tokenizer", features, out / "denoiser", recipe, *second, seed=seed, options=options
        )


def _recipe(name: Recipe) -> Config:
    return {"paper": recipes.paper, "small": recipes.small, "tiny": recipes.tiny}[name]()


def _override(
    training: TrainingConfig,
    iterations: int | None,
    epochs: int | None,
    batch: int | None,
    learning_rate: float | None,
) -> TrainingConfig:
    given = {"iterations": iterations, "epochs": epochs, "batch": batch, "learning_rate": learning_rate}
    return replace(training, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def _run(job: Job, out: Path, options: Options) -> int:
    stopped = train(job, out, options)
    if int(os.environ.get("RANK", "0")) == 0:
        state = f"stopped by signal {stopped}: the same command goes on" if stopped else f"{job.iterations} iterations"
        print(f"{job.name}: {state}; {out / 'model'}, {out / 'metrics.csv'}, {out / 'plot.png'}")
    return 128 + stopped if stopped else 0


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
