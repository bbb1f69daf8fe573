"""Di2Pose without PyTorch: onnxruntime for the denoiser and the decoder, litert for the encoder and the detectors.

    model = OnnxPredictor("DIR")                # written by `di2pose export MODEL --onnx DIR`
    result = model("photo.jpg", hypotheses=8, seed=0)
"""

from pathlib import Path

from di2pose.onnx.model import OnnxModel
from di2pose.pipeline.pipeline import Di2Pose

__all__ = ["OnnxModel", "OnnxPredictor"]


def OnnxPredictor(folder: Path | str, threads: int = 0) -> Di2Pose:
    """`Di2Pose` with an `OnnxModel`: the same call, the same `Result`, for the same seed the same joints. Joints cannot
    be pinned, and videos need PyTorch.

    folder: what `di2pose export MODEL --onnx DIR` wrote; threads: of onnxruntime, 0 is one per core
    """
    model = OnnxModel(folder, threads)
    return Di2Pose(model, calibration=model.calibration)
