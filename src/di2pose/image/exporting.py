"""Whether a network is being written as ONNX just now."""

import sys

import torch


def is_exporting() -> bool:
    """As `torch.onnx.is_in_onnx_export`, which is there only after an import that takes as long as a network's pass:
    whoever exports has done it."""
    return "torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()
