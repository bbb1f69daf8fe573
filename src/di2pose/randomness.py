"""Randomness as an argument: one generator for all rows, or one per row.

Noise is drawn on the CPU whatever the device, and row by row where each row has its own generator, so that neither
the device, nor the place of a record in a batch, nor the number of ranks changes what is drawn.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from di2pose.errors import InputError
from di2pose.spread import BELOW_ONE, spread_uniform
from di2pose.spread import Spread as Spread
from di2pose.spread import hypothesis_generators as hypothesis_generators
from di2pose.spread import seed_of as seed_of

Noise = torch.Generator | Sequence[torch.Generator] | Sequence[Spread]


def generator_of(*parts: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*parts))


def training_generators(seed: int, iteration: int, first_sample: int, count: int) -> list[torch.Generator]:
    """One generator per sample of a training batch, by its place in the GLOBAL batch: ranks draw what one would."""
    return [generator_of(seed, iteration, first_sample + i) for i in range(count)]


def uniform(shape: Sequence[int], noise: Noise, device: torch.device | str = "cpu") -> Tensor:
    """float32 uniforms in [0, 1) of `shape`, whose first axis is the row."""
    if isinstance(noise, torch.Generator):
        return torch.rand(tuple(shape), generator=noise, device=noise.device).to(device)
    if len(noise) != shape[0]:
        raise InputError(f"expected one generator, or one for each of the {shape[0]} rows, got {len(noise)}")
    if spread := [each for each in noise if isinstance(each, Spread)]:
        return torch.from_numpy(spread_uniform(tuple(shape), spread)).to(device)
    plain = [each for each in noise if isinstance(each, torch.Generator)]
    return torch.stack([torch.rand(tuple(shape[1:]), generator=each, device=each.device) for each in plain]).to(device)


def mirrored(u: Tensor, noise: Noise) -> Tensor:
    """Uniforms with those rows taken from 1 that are to be."""
    if isinstance(noise, torch.Generator) or not any(isinstance(each, Spread) and each.mirrored for each in noise):
        return u
    rows = _column([isinstance(each, Spread) and each.mirrored for each in noise], u)
    return torch.where(rows.bool(), BELOW_ONE - u, u)


def _column(values: Sequence[float], u: Tensor) -> Tensor:
    """A number a row, to be spread over the row."""
    return torch.tensor(values, dtype=u.dtype, device=u.device).view(-1, *[1] * (u.ndim - 1))


def normal(
    shape: Sequence[int], noise: Noise, device: torch.device | str = "cpu", mirrors: bool = False
) -> Tensor:
    """Standard normals, each the inverse transform of one uniform; a mirrored uniform gives the opposite normal."""
    u = uniform(shape, noise, device)
    u = mirrored(u, noise) if mirrors else u
    return 2**0.5 * (2 * u - 1).clamp(-1 + 1e-6, 1 - 1e-6).erfinv()


def uniform_integers(shape: Sequence[int], count: int, noise: Noise, device: torch.device | str = "cpu") -> Tensor:
    """Integers uniform on 0..count-1."""
    return (uniform(shape, noise, device) * count).long().clamp_(max=count - 1)
