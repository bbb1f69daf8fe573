"""Vector quantisation, PCT's way.  d channels, C codes that are learned as running means.

A code is the mean of the latents that fell to it, over about 1 / (1 - DECAY) batches:

    size  <- DECAY size + (1 - DECAY) count          of latents for which the code is the nearest
    total <- DECAY total + (1 - DECAY) sum           of them
    code   = total / size

Unlike PCT's, codes that hardly anything falls to begin anew at latents of the batch: small batches lose most of a
codebook without it. In the first step that is nearly all of them, so that the codebook begins among the data.
"""

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn

from di2pose.errors import InputError
from di2pose.tokenizer.fsq import check_tokens

DECAY = 0.9
"""PCT's. Slower means are left behind by an encoder that learns fast."""
DEAD = 0.05
"""Latents of a batch, in the running mean, below which a code begins anew."""


class VQ(nn.Module):
    """`vq(z) -> (codes, indices)`: the nearest code of each latent, with a straight-through gradient.

    In training each call is remembered, and `update_codebook` moves the codebook: once a step, after all parts of
    its batch.
    """

    codebook: Tensor
    size: Tensor
    total: Tensor

    def __init__(self, codes: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.register_buffer("codebook", torch.randn(codes, channels))
        self.register_buffer("size", torch.zeros(codes))
        self.register_buffer("total", torch.zeros(codes, channels))
        self.seen: list[tuple[Tensor, Tensor]] = []  # (latents, their codes) of this step

    def forward(self, z: Float[Tensor, "*batch d"]) -> tuple[Float[Tensor, "*batch d"], Int[Tensor, " *batch"]]:
        if z.shape[-1] != self.channels:
            raise InputError(f"VQ expected {self.channels} channels on the last axis, got shape {tuple(z.shape)}")
        with torch.autocast(z.device.type, enabled=False):
            z = z.float()
            flat = z.detach().flatten(0, -2)
            # |z - e|^2 without |z|^2, which is the same for every code
            indices = torch.addmm(self.codebook.square().sum(1), flat, self.codebook.T, alpha=-2).argmin(1)
            if self.training and torch.is_grad_enabled():
                self.seen.append((flat, indices))
            indices = indices.view(z.shape[:-1])
            codes = z + (self.codebook[indices] - z).detach()
        return codes, indices

    def place(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Where latents lie among the codes, whose mean length is 1 here."""
        return z.float() / self.codebook.norm(dim=1).mean()

    def indices_to_codes(self, indices: Int[Tensor, " *batch"]) -> Float[Tensor, "*batch d"]:
        check_tokens(indices, len(self.codebook))
        return self.codebook[indices]

    @torch.no_grad()
    def update_codebook(self) -> None:
        """Move the codes to the latents of this step, of all ranks; every rank arrives at the same codebook."""
        if not self.seen:
            return
        latents, indices = (torch.cat(parts) for parts in zip(*self.seen, strict=True))
        self.seen.clear()
        count, total = torch.zeros_like(self.size), torch.zeros_like(self.total)
        count.index_add_(0, indices, torch.ones_like(latents[:, 0]))
        total.index_add_(0, indices, latents)
        many = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        if many:
            dist.all_reduce(count)
            dist.all_reduce(total)
        self.size.lerp_(count, 1 - DECAY)
        self.total.lerp_(total, 1 - DECAY)
        dead = self.size < DEAD
        if new := int(dead.sum()):
            if many:  # in the order of the global batch, as one process has them
                everyone = [latents] * dist.get_world_size()
                dist.all_gather_object(everyone, latents.cpu())
                latents = torch.cat(everyone).to(self.total)
            # Each time others: the rows are spread evenly over the batch, from a place that the codebook's state gives.
            rows = (torch.linspace(0, len(latents) - 1, new) + float(self.size.sum()) % 1 * len(latents)).long()
            self.total[dead] = latents[(rows % len(latents)).to(latents.device)]
            self.size[dead] = 1.0
        self.codebook.copy_(self.total / self.size.unsqueeze(1))
