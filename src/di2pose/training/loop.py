"""The one training loop: tokenizer, denoiser, and whatever else has a `loss`; alone, or as one of torchrun's ranks.

Every draw is seeded by (seed, iteration, place in the global batch) and every record's turn by (seed, epoch), so that
a run that was stopped goes on bit for bit, and ranks do what one process would.
"""

import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from di2pose.checkpoint import check_state
from di2pose.config import TrainingConfig
from di2pose.device import autocast, choose_device, precision_of
from di2pose.diffusion.denoiser import Block
from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.noise import Noise, training_generators
from di2pose.tokenizer.local_mlp import LocalMLP, MixerBlock
from di2pose.training import state
from di2pose.training.log import Log, progress_bar
from di2pose.training.observers import observed
from di2pose.training.options import RunOptions, stop_signals

Batch = dict[str, Tensor]
VALIDATIONS, LEAST_INTERVAL = 50, 500
"""A run is validated so many times at most, and not more often than every so many iterations."""
BLOCKS = (Block, LocalMLP, MixerBlock)
"""What networks are built of, and `--compile` compiles."""
TIMEOUT = timedelta(hours=2)
"""The other ranks wait while rank 0 writes."""


@dataclass(frozen=True)
class Ranks:
    """This process among all: `rank` of `world`, on `device`."""

    rank: int
    world: int
    device: torch.device

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """The same numbers on every rank: their sums over the ranks."""
        if self.world == 1:
            return dict(values)
        total = torch.tensor(list(values.values()), dtype=torch.float64 if self.device.type == "cpu" else torch.float32)
        total = total.to(self.device)
        dist.all_reduce(total)
        return dict(zip(values, total.tolist(), strict=True))

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def join(device: str) -> Iterator[Ranks]:
    """The ranks that torchrun started, gloo on CPUs and NCCL on GPUs; one rank without torchrun."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = choose_device(device)
    if world > 1:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(rank, world, place)
    finally:
        if world > 1:
            dist.destroy_process_group()


@runtime_checkable
class RecordSource(Protocol):
    """Training records by number."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Job:
    """What is trained, on what."""

    name: str
    model: nn.Module
    """With `loss(batch, generator)`: scalars by name, each a mean over the samples, of which `loss` is minimised. Where
    it has `update_codebook()`, that is called once a step, after the weights."""
    source: RecordSource
    training: TrainingConfig
    seed: int
    validate: Callable[[Any, Ranks], dict[str, float]]
    """Figures of the averaged model on held-out records, which the ranks share; `mm` is shown on the progress bar."""
    export: Callable[[Any, Mapping[str, float], str], object]
    """Writes the averaged model, with notes, to the folder RUN/NAME, for use: `model` is the last, `best` that of the
    least held-out mm so far."""
    identity: Mapping[str, object]
    """What must be the same for a run to go on: JSON values."""

    @property
    def iterations(self) -> int:
        return self.training.iterations or math.ceil(self.training.epochs * len(self.source) / self.training.batch)


class _Loss(nn.Module):
    """A module whose forward pass is the loss of a batch as its observers see it: what DDP wraps."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, generator: Noise) -> dict[str, Tensor]:
        return self.model.loss(observed(batch, getattr(self.model, "config", None), generator), generator)


def train(job: Job, out: Path, options: RunOptions) -> int:
    """Train to the end, or go on from RUN/last.safetensors. 0, or the number of the signal that stopped it."""
    if options.threads:
        torch.set_num_threads(options.threads)
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


class _Trainer:
    def __init__(self, job: Job, out: Path, options: RunOptions, ranks: Ranks) -> None:
        self.job, self.out, self.options, self.ranks = job, out, options, ranks
        self.path = out / "last.safetensors"
        self.model: Any = job.model.to(ranks.device).train()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        # The average reaches back over a tenth of the run at most: more would drag the first weights into the last.
        self.average = state.EMA(self.model, min(job.training.ema, max(0.0, 1 - 10 / job.iterations)))
        if options.compile:  # block by block: alike, they are compiled once; names of weights stay as they are
            for block in (module for module in self.model.modules() if isinstance(module, BLOCKS)):
                block.compile()
        self.optimiser = state.adamw(self.model, job.training)
        half = precision_of(options.precision, ranks.device) == torch.float16
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=half)
        self.sampler = state.EpochSampler(len(job.source), job.seed)
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
        self.loss: Any = _Loss(self.model)
        if ranks.world > 1:
            on_gpu = [ranks.device.index] if ranks.device.index is not None else None
            self.loss = DistributedDataParallel(self.loss, device_ids=on_gpu)

    def run(self, signals: list[int]) -> int:
        total, lead = self.job.iterations, self.ranks.rank == 0
        log = Log(self.out, self.iteration) if lead else None
        if self.iteration >= total:
            if log:  # it may have been killed after its last checkpoint, before its model and its log were written
                self._export()
                log.finish()
            return 0
        interval = self.options.validate_every or max(LEAST_INTERVAL, total // VALIDATIONS)
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
        size, rank, world, count = self.job.training.batch, self.ranks.rank, self.ranks.world, self.options.accumulate
        first, last = size * rank // world, size * (rank + 1) // world
        cuts = [first + (last - first) * k // count for k in range(count + 1)]
        start = iteration * size
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
                adds_up = number < len(parts) and isinstance(self.loss, DistributedDataParallel)
                with self.loss.no_sync() if adds_up else nullcontext():  # ranks exchange the last part's gradients
                    with autocast(place, self.options.precision):
                        losses = self.loss(batch, generators)
                    # DDP averages over ranks: shares of the batch, whatever their sizes, then add up to its mean.
                    self.scaler.scale(losses["loss"] * (count * self.ranks.world / size)).backward()
                for name, value in losses.items():
                    totals[name] = totals.get(name, 0.0) + float(value.detach()) * count / size
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
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
            group["lr"] = state.learning_rate(self.iteration, self.job.iterations, self.job.training)
        self.scaler.unscale_(self.optimiser)
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.job.training.clip))
        if not self.scaler.is_enabled():  # a scaler skips such a step and lowers its scale
            self._check_finite("gradient", norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        if hasattr(self.model, "update_codebook"):
            self.model.update_codebook()
        self.iteration += 1
        self.average.update(self.iteration)
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
            "optimiser": state.optimiser_tensors(self.model, self.optimiser),
        }
        facts: Json = {name: getattr(self, name) for name in ("iteration", "seconds", "sums", "figures", "best_mm")}
        facts |= {"identity": self.job.identity, "scaler": self.scaler.state_dict()}
        state.write_state(self.path, groups, facts)
        self.saved = self.iteration
        self._export()

    def _export(self, name: str = "model") -> None:
        notes = {"iteration": self.iteration, "iterations": self.job.iterations, "seed": self.job.seed}
        self.job.export(self.average.model, notes | {f"held_out_{k}": v for k, v in self.figures.items()}, name)

    def _restore(self) -> None:
        groups, facts = state.read_state(self.path)
        state.check_identity(self.path, facts["identity"], self.job.identity)
        for name, module in (("model", self.model), ("average", self.average.model)):
            check_state(groups[name], module.state_dict(), self.path)
            module.load_state_dict(groups[name])
        if facts["iteration"]:
            state.load_optimiser(self.model, self.optimiser, groups.get("optimiser", {}), self.path)
        if facts["scaler"]:
            self.scaler.load_state_dict(facts["scaler"])
        self.iteration = self.saved = facts["iteration"]
        self.seconds, self.sums, self.figures = facts["seconds"], facts["sums"], facts["figures"]
        self.best_mm = facts.get("best_mm")  # earlier versions kept none


def _out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)
