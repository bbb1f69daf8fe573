"""The one training loop: tokenizer, denoiser, and whatever else has a `loss`.

Every draw is seeded by (seed, iteration, place in the global batch) and every record's turn by (seed, epoch), so that
a run that was stopped goes on bit for bit, and ranks do what one process would.
"""

import math
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Generic, Protocol, cast, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from tqdm import tqdm

from di2pose.checkpoint import check_state
from di2pose.config import TrainingConfig
from di2pose.device import autocast, precision_of
from di2pose.diffusion.denoiser import Block
from di2pose.errors import InputError
from di2pose.noise import Noise, training_generators
from di2pose.tokenizer.local_mlp import LocalMLP, MixerBlock
from di2pose.training.distributed import Ranks, join
from di2pose.training.log import Log, progress_bar
from di2pose.training.optimiser import EMA, EpochSampler, Model, adamw, learning_rate
from di2pose.training.options import RunOptions, out_of_memory, stop_signals
from di2pose.training.state import check_identity, load_optimiser, optimiser_tensors, read_state, write_state

Batch = dict[str, Tensor]
VALIDATION_SHARE, LEAST_INTERVAL = 0.05, 500
"""Validation takes at most this share of training's forward passes, and comes at most every so many iterations."""
BLOCKS = (Block, LocalMLP, MixerBlock)
"""What networks are built of, and `--compile` compiles."""
STEP_PASSES = 3
"""Forward passes that a record costs in training: its own, and the backward pass, which is twice as dear."""


@runtime_checkable
class Trainable(Protocol):
    """A module with a loss: a dict of scalars, of which `loss` is minimised; each is a mean over the samples."""

    def loss(self, batch: Batch, generator: Noise) -> dict[str, Tensor]: ...


@runtime_checkable
class LearnsCodebook(Protocol):
    """A Trainable with a codebook that is updated without gradients, once a step, after the weights."""

    def update_codebook(self) -> None: ...


@runtime_checkable
class RecordSource(Protocol):
    """Training records by number."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Job(Generic[Model]):
    """What is trained, on what."""

    name: str
    model: Model
    """A Trainable."""
    source: RecordSource
    training: TrainingConfig
    seed: int
    validate: Callable[[Model, Ranks], dict[str, float]]
    """Figures of the averaged model on held-out records, which the ranks share; `mm` is shown on the progress bar."""
    export: Callable[[Model, Mapping[str, float], str], object]
    """Writes the averaged model, with notes, to the folder RUN/NAME, for use: `model` is the last, `best` that of the
    least held-out mm so far."""
    identity: Mapping[str, object]
    """What must be the same for a run to go on: JSON values."""
    validation_passes: int = 0
    """Forward passes of one validation, each of one record."""

    @property
    def validate_every(self) -> int:
        """Iterations between validations, by counted forward passes and not by a clock: the same on every machine."""
        affordable = VALIDATION_SHARE * STEP_PASSES * self.training.batch  # passes an iteration
        return max(LEAST_INTERVAL, math.ceil(self.validation_passes / affordable))

    @property
    def iterations(self) -> int:
        return self.training.iterations or math.ceil(self.training.epochs * len(self.source) / self.training.batch)


class _Loss(nn.Module):
    """A module whose forward pass is the loss: what DDP wraps."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, generator: Noise) -> dict[str, Tensor]:
        return cast(Trainable, self.model).loss(batch, generator)


def train(job: Job[Model], out: Path, options: RunOptions) -> int:
    """Train to the end, or go on from RUN/last.safetensors. 0, or the number of the signal that stopped it."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if not isinstance(job.model, Trainable):
        raise InputError(f"{type(job.model).__name__} cannot be trained: it has no loss(batch, generator)")
    with join(options.device) as ranks, stop_signals() as signals:
        precision_of(options.precision, ranks.device)  # refused before anything is written
        if job.training.batch < ranks.world * options.accumulate:
            raise InputError(
                f"a batch of {job.training.batch} cannot be cut into {ranks.world} ranks x {options.accumulate} parts"
            )
        out.mkdir(parents=True, exist_ok=True)
        try:
            return _Trainer(job, out, options, ranks).run(signals)
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{out} could not be written ({error}): {out / 'last.safetensors'}, where there is one, is whole; "
                "make room, and the same command goes on"
            ) from error


class _Trainer(Generic[Model]):
    def __init__(self, job: Job[Model], out: Path, options: RunOptions, ranks: Ranks) -> None:
        self.job, self.out, self.options, self.ranks = job, out, options, ranks
        self.path = out / "last.safetensors"
        self.model = job.model.to(ranks.device).train()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        # The average reaches back over a tenth of the run at most: more would drag the first weights into the last.
        self.average = EMA(self.model, min(job.training.ema, max(0.0, 1 - 10 / job.iterations)))
        if options.compile:  # block by block: alike, they are compiled once; names of weights stay as they are
            for block in (module for module in self.model.modules() if isinstance(module, BLOCKS)):
                block.compile()
        self.optimiser = adamw(self.model, job.training)
        half = precision_of(options.precision, ranks.device) == torch.float16
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=half)
        self.sampler = EpochSampler(len(job.source), job.seed)
        self.iteration, self.saved, self.seconds = 0, 0, 0.0
        self.sums: dict[str, float] = {}  # of the losses since the last row of the log
        self.figures: dict[str, float] = {}  # of the last validation
        self.best_mm: float | None = None
        if options.resume and self.path.is_file():
            self._restore()
        if ranks.rank == 0:  # of killed runs: our own temporary files and folders, and safetensors'
            for leftover in [path for name in ("last.", "model.", "best.", "tmp") for path in out.glob(f".{name}*")]:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        ranks.wait()  # all have read the checkpoint before one may replace it
        self.loss = ranks.wrap(_Loss(self.model))

    def run(self, signals: list[int]) -> int:
        total, lead = self.job.iterations, self.ranks.rank == 0
        log = Log(self.out, self.iteration, self.options.tensorboard) if lead else None
        if self.iteration >= total:
            if log:  # it may have been killed after its last checkpoint, before its model and its log were written
                self._export()
                log.finish()
            return 0
        interval = self.options.validate_every or self.job.validate_every
        if lead:
            share = self.job.validation_passes / (STEP_PASSES * self.job.training.batch * interval)
            print(f"{self.job.name}: validation every {interval} iterations, {share:.1%} of training", file=sys.stderr)
        started, saved_at, stop = time.monotonic() - self.seconds, time.monotonic(), False
        with progress_bar(self.job.name, self.iteration, total, lead) as bar, ThreadPoolExecutor(1) as pool:
            for parts in self._batches(pool):
                losses = self._gradients(parts, bool(signals))
                stop = losses.pop("stop") > 0
                losses["gradient_norm"] = self._update()
                self.seconds = time.monotonic() - started
                self.sums = {key: self.sums.get(key, 0.0) + value for key, value in (losses | {"count": 1.0}).items()}
                if check := self.iteration == total or self.iteration % interval == 0:
                    self._validate()
                if log and (check or self.iteration % self.options.log_every == 0):
                    self._report(log, bar, check)
                bar.update()
                due = time.monotonic() - saved_at >= 60 * self.options.save_minutes
                if lead and (due or stop or self.iteration == total):
                    self._save()
                    saved_at = time.monotonic()
                if stop:
                    break
        if log:
            log.finish()
        self.ranks.wait()
        return (signals or [signal.SIGTERM])[0] if stop and self.iteration < total else 0

    def _batches(self, pool: ThreadPoolExecutor) -> Iterator[list[tuple[int, Batch]]]:
        """This rank's parts of each global batch, (first place, records), read one iteration ahead."""
        coming = pool.submit(self._read, self.iteration)
        for following in range(self.iteration + 1, self.job.iterations + 1):
            parts = coming.result()
            if following < self.job.iterations:
                coming = pool.submit(self._read, following)
            yield parts

    def _read(self, iteration: int) -> list[tuple[int, Batch]]:
        first, last = self.ranks.share(self.job.training.batch)
        count = self.options.accumulate
        cuts = [first + (last - first) * k // count for k in range(count + 1)]
        start = iteration * self.job.training.batch
        parts = [(a, self.job.source.batch(self.sampler.rows(start + a, start + b))) for a, b in pairwise(cuts)]
        if self.ranks.device.type != "cuda":
            return parts
        with torch.cuda.device(self.ranks.device):  # this thread's own current device is the first GPU
            return [(a, {name: tensor.pin_memory() for name, tensor in records.items()}) for a, records in parts]

    def _gradients(self, parts: list[tuple[int, Batch]], stop: bool) -> dict[str, float]:
        """Gradients and losses of the global batch. Changes no weight, so that a failure here loses nothing."""
        size, place = self.job.training.batch, self.ranks.device
        totals: dict[str, float] = {}
        self.optimiser.zero_grad()
        try:
            for number, (first, records) in enumerate(parts, 1):
                batch = {name: tensor.to(place, non_blocking=True) for name, tensor in records.items()}
                count = len(next(iter(batch.values())))
                generators = training_generators(self.job.seed, self.iteration, first, count)
                with self.ranks.unsynchronised(self.loss, number < len(parts)):
                    with autocast(place, self.options.precision):
                        losses = self.loss(batch, generators)
                    # DDP averages over ranks: shares of the batch, whatever their sizes, then add up to its mean.
                    self.scaler.scale(losses["loss"] * (count * self.ranks.world / size)).backward()
                for name, value in losses.items():
                    totals[name] = totals.get(name, 0.0) + float(value.detach()) * count / size
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            self.optimiser.zero_grad()
            if self.ranks.rank == 0:
                self._save()
            raise InputError(
                f"out of memory in iteration {self.iteration + 1}: go on with a larger --accumulate (the result is the "
                f"same), now {self.options.accumulate}; {self.path} holds all {self.iteration} iterations before it"
            ) from error
        totals = self.ranks.sum(totals | {"stop": float(stop)})
        self._check_finite("loss", totals["loss"])
        return totals

    def _update(self) -> float:
        """One step of AdamW and of the average; the norm of the gradient before clipping."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.iteration, self.job.iterations, self.job.training)
        self.scaler.unscale_(self.optimiser)
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.job.training.clip))
        if not self.scaler.is_enabled():  # a scaler skips such a step and lowers its scale
            self._check_finite("gradient", norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        if isinstance(self.model, LearnsCodebook):
            self.model.update_codebook()
        self.iteration += 1
        self.average.update(self.model, self.iteration)
        return norm

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            kept = f"the checkpoint of iteration {self.saved} is kept" if self.saved else "there is no checkpoint yet"
            raise InputError(
                f"the {what} became {value} in iteration {self.iteration + 1}; {kept}. Try a lower --learning-rate, "
                "and look for broken records with `di2pose data check`"
            )

    def _validate(self) -> None:
        with autocast(self.ranks.device, self.options.precision):
            self.figures = self.job.validate(self.average.model, self.ranks)
        if "mm" in self.figures and (self.best_mm is None or self.figures["mm"] < self.best_mm):
            self.best_mm = self.figures["mm"]
            if self.ranks.rank == 0:
                self._export("best")

    def _report(self, log: Log, bar: tqdm, check: bool) -> None:
        count = self.sums.pop("count")
        row = {"iteration": self.iteration, "epoch": self.iteration * self.job.training.batch / len(self.job.source)}
        row |= {name: value / count for name, value in self.sums.items()}
        row |= {"learning_rate": float(self.optimiser.param_groups[0]["lr"]), "seconds": round(self.seconds, 1)}
        self.sums = {}
        if check:
            row |= {f"held_out_{name}": value for name, value in self.figures.items()}
        log.write(row)
        shown = {"loss": f"{row['loss']:.4f}"}
        bar.set_postfix(shown | ({"mm": f"{self.figures['mm']:.1f}"} if "mm" in self.figures else {}), refresh=False)

    def _save(self) -> None:
        groups = {
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict(),
            "optimiser": optimiser_tensors(self.model, self.optimiser),
        }
        facts = {name: getattr(self, name) for name in ("iteration", "seconds", "sums", "figures", "best_mm")}
        write_state(self.path, groups, {"identity": self.job.identity, **facts, "scaler": self.scaler.state_dict()})
        self.saved = self.iteration
        self._export()

    def _export(self, name: str = "model") -> None:
        notes = {"iteration": self.iteration, "iterations": self.job.iterations, "seed": self.job.seed}
        self.job.export(self.average.model, notes | {f"held_out_{k}": v for k, v in self.figures.items()}, name)

    def _restore(self) -> None:
        groups, facts = read_state(self.path)
        check_identity(self.path, facts["identity"], self.job.identity)
        for name, module in (("model", self.model), ("average", self.average.model)):
            check_state(groups[name], module.state_dict(), self.path)
            module.load_state_dict(groups[name])
        if facts["iteration"]:
            load_optimiser(self.model, self.optimiser, groups.get("optimiser", {}), self.path)
        if facts["scaler"]:
            self.scaler.load_state_dict(facts["scaler"])
        self.iteration = self.saved = facts["iteration"]
        self.seconds, self.sums, self.figures = facts["seconds"], facts["sums"], facts["figures"]
        self.best_mm = facts.get("best_mm")  # earlier versions kept none
