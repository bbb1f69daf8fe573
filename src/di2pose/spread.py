"""The noise of hypotheses, in numpy: what `randomness` hands to PyTorch and `di2pose.onnx` uses as it is.

PyTorch's own generator on a CPU is MT19937, as numpy's older one is: the same seed gives the same numbers with either.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

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


class Spread(NamedTuple):
    """Uniforms of a generator, each moved on by `turn` and wrapped at 1, and where it is `mirrored` taken from 1 when a
    draw asks for mirrors: still uniform, still independent."""

    generator: Uniforms
    turn: float
    mirrored: bool


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part, e.g. (seed, record id, hypothesis)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def hypothesis_generators(seed: int, record_ids: Iterable[int | str], hypotheses: int) -> list[Spread]:
    """Noise for each (record, hypothesis), records outermost, seeded by what the row is and not by where it is.

    Each hypothesis is a draw of its own, but the hypotheses of a record are spread out: they share their uniforms. They
    come in pairs; the second of a pair has the first's mirrored, so that where one errs to the left the other errs to
    the right (antithetic variates), and pair p has them turned by p times the golden ratio, the sequence whose first k
    points fill [0, 1) most evenly for every k. Where eight independent draws may all fall on one side, these do not,
    and their mean is nearer to the mean of the distribution.
    """
    return [
        Spread(Uniforms(seed_of(seed, record)), h // 2 * GOLDEN % 1, h % 2 == 1)
        for record in record_ids
        for h in range(hypotheses)
    ]


def spread_uniform(shape: Sequence[int], rows: Sequence[Spread]) -> Float[np.ndarray, "..."]:
    """float32 uniforms in [0, 1) of `shape`, whose first axis is the row."""
    u = np.stack([each.generator.draw(shape[1:]) for each in rows])
    turns = np.array([each.turn for each in rows], dtype=np.float32)
    return (u + turns.reshape(-1, *[1] * (u.ndim - 1))) % np.float32(1) if turns.any() else u


def spread_mirrored(u: Float[np.ndarray, "..."], rows: Sequence[Spread]) -> Float[np.ndarray, "..."]:
    """Uniforms with those rows taken from 1 that are to be."""
    turned = np.array([each.mirrored for each in rows]).reshape(-1, *[1] * (u.ndim - 1))
    return np.where(turned, np.float32(BELOW_ONE) - u, u)
