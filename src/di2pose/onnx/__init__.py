"""Di2Pose without PyTorch: onnxruntime for the denoiser and the decoder, litert for the encoder and the detectors.

    model = OnnxPredictor("DIR")                # written by `di2pose export MODEL --onnx DIR`
    result = model("photo.jpg", hypotheses=8, seed=0)
"""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from di2pose.arrays import to_numpy
from di2pose.image.detect import Detector, load_detector
from di2pose.image.encoder import Encoder, EncoderOutput, load_encoder
from di2pose.onnx.model import OnnxModel
from di2pose.pipeline.road import Road

__all__ = ["OnnxModel", "OnnxPredictor"]


class OnnxPredictor(Road):
    """`Di2Pose` with an `OnnxModel`: the same call, the same `Result`, for the same seed the same joints. Joints cannot
    be pinned, and videos need PyTorch."""

    def __init__(self, folder: Path | str, threads: int = 0) -> None:
        """folder: what `di2pose export MODEL --onnx DIR` wrote; threads: of onnxruntime, 0 is one per core"""
        self.model = OnnxModel(folder, threads)
        self.calibration = self.model.calibration

    @cached_property
    def encoder(self) -> Encoder:
        return load_encoder(self.model.config.encoder)

    @cached_property
    def _detector(self) -> Detector:
        return load_detector("auto")

    def encode_pixels(self, pixels: UInt8[np.ndarray, "B H W 3"]) -> EncoderOutput:
        if not len(pixels):
            return EncoderOutput(np.zeros((0, self.encoder.layout.length, self.encoder.layout.width), np.float32))
        import torch  # the encoders' arrays are PyTorch's, still

        seen = self.encoder.encode(torch.from_numpy(pixels))
        arrays: Any = {name: to_numpy(value, np.float32) for name, value in seen._arrays().items()}
        return replace(seen, **arrays)

    def load_detector(self, detector: str | Detector | None = None) -> Detector:
        if detector is None or detector == "auto":
            return self._detector
        return load_detector(detector) if isinstance(detector, str) else detector
