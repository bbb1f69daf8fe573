"""Which records a training step sees, from (seed, epoch, position) alone: nothing to save, nothing to share."""

import numpy as np

from di2pose.errors import InputError
from di2pose.randomness import seed_of


class Order:
    """An endless stream over `count` records: epoch after epoch, each a fresh permutation."""

    def __init__(self, count: int, seed: int) -> None:
        if count < 1:
            raise InputError("there is nothing to train on: the training data has no records")
        self.count, self.seed = count, seed
        self._epoch, self._permutation = -1, np.zeros(0, np.int64)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The records at the places start..stop-1 of the stream; they may lie in several epochs."""
        pieces = []
        while start < stop:
            epoch, first = divmod(start, self.count)
            last = min(self.count, first + stop - start)
            pieces.append(self._of(epoch)[first:last])
            start += last - first
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def _of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            self._permutation = np.random.default_rng(seed_of(self.seed, "epoch", epoch)).permutation(self.count)
            self._epoch = epoch
        return self._permutation
