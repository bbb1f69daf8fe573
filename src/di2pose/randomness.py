"""Randomness as an argument: one generator for all rows, or one per row.

Noise is drawn on the CPU whatever the device, and row by row where each row has its own generator, so that neither
the device, nor the place of a record in a batch, nor the number of ranks changes what is drawn.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from di2pose.errors import InputError

GOLDEN = (5**0.5 - 1) / 2
BELOW_ONE = 1 - 2**-24
"""The largest float32 below 1."""


class Spread(NamedTuple):
    """Uniforms of a generator, each moved on by `turn` and wrapped at 1, and where it is `mirrored` taken from 1 when a
    draw asks for mirrors: still uniform, still independent."""

    generator: torch.Generator
    turn: float
    mirrored: bool


Noise = torch.Generator | Sequence[torch.Generator | Spread]


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part, e.g. (seed, record id, hypothesis)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator_of(*parts: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*parts))


def hypothesis_generators(seed: int, record_ids: Iterable[int | str], hypotheses: int) -> list[Spread]:
    """Noise for each (record, hypothesis), records outermost, seeded by what the row is and not by where it is.

    Each hypothesis is a draw of its own, but the hypotheses of a record are spread out: they share their uniforms. They
    come in pairs; the second of a pair has the first's mirrored, so that where one errs to the left the other errs to
    the right (antithetic variates), and pair p has them turned by p times the golden ratio, the sequence whose first k
    points fill [0, 1) most evenly for every k. Where eight independent draws may all fall on one side, these do not,
    and their mean is nearer to the mean of the distribution.
    """
    return [
        Spread(generator_of(seed, record), h // 2 * GOLDEN % 1, h % 2 == 1)
        for record in record_ids
        for h in range(hypotheses)
    ]


def training_generators(seed: int, iteration: int, first_sample: int, count: int) -> list[torch.Generator]:
    """One generator per sample of a training batch, by its place in the GLOBAL batch: ranks draw what one would."""
    return [generator_of(seed, iteration, first_sample + i) for i in range(count)]


def uniform(shape: Sequence[int], noise: Noise, device: torch.device | str = "cpu") -> Tensor:
    """float32 uniforms in [0, 1) of `shape`, whose first axis is the row."""
    if isinstance(noise, torch.Generator):
        return torch.rand(tuple(shape), generator=noise, device=noise.device).to(device)
    if len(noise) != shape[0]:
        raise InputError(f"expected one generator, or one for each of the {shape[0]} rows, got {len(noise)}")
    plain = [each.generator if isinstance(each, Spread) else each for each in noise]
    u = torch.stack([torch.rand(tuple(shape[1:]), generator=each, device=each.device) for each in plain])
    turns = [each.turn if isinstance(each, Spread) else 0.0 for each in noise]
    if any(turns):
        u = u.add_(_column(turns, u)).remainder_(1)
    return u.to(device)


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
