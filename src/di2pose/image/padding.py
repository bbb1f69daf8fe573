"""How TensorFlow pads."""

from collections.abc import Sequence


def same_padding(shape: Sequence[int], reach: Sequence[int], stride: Sequence[int]) -> tuple[int, int, int, int]:
    """TensorFlow's SAME padding, (left, right, top, bottom); an odd amount puts more behind than before."""
    total = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(shape, reach, stride, strict=True)]
    (top, left), (bottom, right) = [n // 2 for n in total], [n - n // 2 for n in total]
    return left, right, top, bottom
