"""Arrays of PyTorch and of numpy alike: the road from pixels to people runs on either, and imports no PyTorch."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def to_numpy(values: Any, dtype: type[np.generic] = np.float64) -> np.ndarray:
    """An array of either kind, on whatever device, as numpy's."""
    return np.asarray(values if isinstance(values, np.ndarray) else values.cpu().numpy(), dtype=dtype)


def concatenate(parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of one kind, one after the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis)
    import torch

    return torch.cat(list(parts), dim=axis)
