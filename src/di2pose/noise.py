"""Randomness as an argument: one generator for all rows, or one per row.

Noise is drawn on the CPU, and row by row where each row has its own generator, so that neither the device, nor the
place of a record in a batch, nor the number of ranks changes what is drawn. The noise of hypotheses is numpy's:
PyTorch's own generator on a CPU is MT19937, as numpy's older one is, and the same seed gives the same numbers with
either.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError

if TYPE_CHECKING:
    from torch import Generator, Tensor
else:
    Generator = Tensor = Any  # imported where it is used: an ONNX model does without PyTorch

GOLDEN = (5**0.5 - 1) / 2
BELOW_ONE = 1 - 2**-24
"""The largest float32 below 1."""


class Uniforms:
    """What `torch.rand(shape, generator=torch.Generator().manual_seed(seed))` gives, draw after draw, bit for bit."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.RandomState(seed & 0xFFFFFFFF)  # PyTorch, too, uses the last 32 bits of a seed

    def draw(self, shape: Sequence[int]) -> Float[np.ndarray, "..."]:
        """float32 uniforms in [0, 1): the last 24 bits of each word of 32."""
        words = np.frombuffer(self._words.bytes(4 * math.prod(shape)), "<u4") & 0xFFFFFF
        return (words.astype(np.float32) * np.float32(2**-24)).reshape(shape)


class AntitheticNoise(NamedTuple):
    """Uniforms of a generator, each moved on by `turn` and wrapped at 1; where it is `mirrored`, `1 - u` for the draws
    that use mirrors. Still uniform, still independent."""

    generator: Uniforms
    turn: float
    mirrored: bool


Noise = Generator | Sequence[Generator] | Sequence[AntitheticNoise]
"""One for all rows, or one per row."""


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part, e.g. (seed, record id, hypothesis)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def hypothesis_generators(seed: int, record_ids: Iterable[int | str], hypotheses: int) -> list[AntitheticNoise]:
    """Noise for each (record, hypothesis), records outermost, seeded by the record and not by its place in a batch.

    The hypotheses of a record share their uniforms, but are spread out. They come in pairs; the second of a pair has
    the first's mirrored (antithetic variates), and pair p has them turned by p times the golden ratio, the sequence
    whose first k points fill [0, 1) most evenly for every k. Their mean is nearer to the mean of the distribution than
    that of independent draws.
    """
    return [
        AntitheticNoise(Uniforms(seed_of(seed, record)), h // 2 * GOLDEN % 1, h % 2 == 1)
        for record in record_ids
        for h in range(hypotheses)
    ]


def antithetic_uniform(shape: Sequence[int], rows: Sequence[AntitheticNoise]) -> Float[np.ndarray, "..."]:
    """float32 uniforms in [0, 1) of `shape`, whose first axis is the row."""
    u = np.stack([each.generator.draw(shape[1:]) for each in rows])
    turns = np.array([each.turn for each in rows], dtype=np.float32)
    return (u + turns.reshape(-1, *[1] * (u.ndim - 1))) % np.float32(1) if turns.any() else u


def generator_of(*parts: int | str) -> Generator:
    import torch

    return torch.Generator().manual_seed(seed_of(*parts))


def training_generators(seed: int, iteration: int, first_sample: int, count: int) -> list[Generator]:
    """One generator per sample of a training batch, by its place in the GLOBAL batch: ranks draw what one would."""
    return [generator_of(seed, iteration, first_sample + i) for i in range(count)]


def uniform(shape: Sequence[int], noise: Noise, device: Any = "cpu") -> Tensor:
    """float32 uniforms in [0, 1) of `shape`, whose first axis is the row."""
    import torch

    if isinstance(noise, torch.Generator):
        return torch.rand(tuple(shape), generator=noise, device=noise.device).to(device)
    if len(noise) != shape[0]:
        raise InputError(f"expected one generator, or one for each of the {shape[0]} rows, got {len(noise)}")
    if rows := [each for each in noise if isinstance(each, AntitheticNoise)]:
        return torch.from_numpy(antithetic_uniform(tuple(shape), rows)).to(device)
    plain = [each for each in noise if isinstance(each, torch.Generator)]
    return torch.stack([torch.rand(tuple(shape[1:]), generator=each, device=each.device) for each in plain]).to(device)


def share(noise: Noise, rows: Sequence[int], hypotheses: int) -> Any:
    """The noise of some of the hypotheses of every record; one generator for all rows stays."""
    if not isinstance(noise, Sequence):
        return noise
    return [noise[first + h] for first in range(0, len(noise), hypotheses) for h in rows]


def mirrored(u: Any, noise: Noise) -> Any:
    """Uniforms, of PyTorch or of NumPy, `1 - u` in the rows that are mirrored."""
    rows = noise if isinstance(noise, Sequence) else []
    which = np.array([isinstance(each, AntitheticNoise) and each.mirrored for each in rows])
    if not which.any():
        return u
    which = which.reshape(-1, *[1] * (u.ndim - 1))
    if isinstance(u, np.ndarray):
        return np.where(which, np.float32(BELOW_ONE) - u, u)
    import torch

    return torch.where(torch.from_numpy(which).to(u.device), BELOW_ONE - u, u)


def normal(shape: Sequence[int], noise: Noise, device: Any = "cpu", mirrors: bool = False) -> Tensor:
    """Standard normals, each the inverse transform of one uniform; a mirrored uniform gives the opposite normal."""
    u = uniform(shape, noise, device)
    u = mirrored(u, noise) if mirrors else u
    return 2**0.5 * (2 * u - 1).clamp(-1 + 1e-6, 1 - 1e-6).erfinv()


def uniform_integers(shape: Sequence[int], count: int, noise: Noise, device: Any = "cpu") -> Tensor:
    """Integers uniform on 0..count-1."""
    return (uniform(shape, noise, device) * count).long().clamp_(max=count - 1)
