"""Di2Pose without PyTorch: onnxruntime + numpy + pillow. `di2pose export MODEL --onnx DIR` writes what it reads.

    model = OnnxPredictor("DIR")
    result = model("photo.jpg", hypotheses=8, seed=0)
"""

from di2pose.onnx.predictor import OnnxPredictor

__all__ = ["OnnxPredictor"]
