"""Several processes that train as one.  Started by torchrun; alone without it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from di2pose.device import choose_device

TIMEOUT = timedelta(hours=2)
"""The others wait while rank 0 writes."""


@dataclass(frozen=True)
class Ranks:
    """This process among all: `rank` of `world`, on `device`."""

    rank: int
    world: int
    device: torch.device

    def share(self, batch: int) -> tuple[int, int]:
        """First and past-the-last place of this rank in a global batch."""
        return batch * self.rank // self.world, batch * (self.rank + 1) // self.world

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module whose backward pass averages gradients over the ranks."""
        if self.world == 1:
            return module
        return DistributedDataParallel(
            module, device_ids=[self.device.index] if self.device.index is not None else None
        )

    def unsynchronised(self, module: nn.Module, wanted: bool) -> AbstractContextManager[None]:
        """A context in which backward passes only add up: all but the last of an accumulated batch."""
        return module.no_sync() if wanted and isinstance(module, DistributedDataParallel) else nullcontext()

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


ALONE = Ranks(0, 1, torch.device("cpu"))
"""One process, without torchrun."""


@contextmanager
def join(device: str) -> Iterator[Ranks]:
    """The ranks that torchrun started, gloo on CPUs and NCCL on GPUs; one rank without torchrun.

    May be nested: torch cannot start a second group on torchrun's store, so the outermost starts and ends it.
    """
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world == 1:
        yield Ranks(0, 1, choose_device(device))
        return
    place, outermost = choose_device(device), not dist.is_initialized()
    if outermost:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(rank, world, place)
    finally:
        if outermost:
            dist.destroy_process_group()
