"""The parts of an ONNX folder on the road from pixels to people.  B crops, H hypotheses, N tokens."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from di2pose.calibration import Calibration
from di2pose.config import Config, from_json
from di2pose.errors import InputError
from di2pose.image.detect import Detector, load_detector
from di2pose.image.encoder import Encoder, EncoderOutput, load_encoder
from di2pose.onnx.folder import OnnxFolder
from di2pose.onnx.sampler import P0Of, Schedule, sample
from di2pose.pipeline.road import Road
from di2pose.prediction import Constraints, Prediction, check_hypotheses


class OnnxPredictor(Road):
    """Photos to people, as `Di2Pose` does it, without PyTorch: the same call, the same `Result`, for the same seed the
    same joints. Joints cannot be pinned, and videos are PyTorch's.

        model = OnnxPredictor("DIR")
        result = model("photo.jpg", hypotheses=8, seed=0)
    """

    def __init__(self, folder: Path | str, threads: int = 0) -> None:
        """folder: what `di2pose export MODEL --onnx DIR` wrote; threads: 0 is as many as there are cores"""
        self._folder = OnnxFolder(folder, threads)
        told = self._folder.description
        self.model = OnnxModel(self._folder)
        self.calibration = None if told["calibration"] is None else from_json(Calibration, told["calibration"])
        self._encoder = load_encoder(self.model.config.encoder)

    @property
    def encoder(self) -> Encoder:
        return self._encoder

    def encode_pixels(self, pixels: UInt8[np.ndarray, "B H W 3"]) -> EncoderOutput:
        if not len(pixels):
            layout = self._encoder.layout
            return EncoderOutput(np.zeros((0, layout.length, layout.width), np.float32))
        return self._encoder.encode(pixels)

    def load_detector(self, detector: str | Detector | None = None) -> Detector:
        if detector is None or detector == "auto":
            return self._detector
        return load_detector(detector) if isinstance(detector, str) else detector

    @cached_property
    def _detector(self) -> Detector:
        return load_detector("auto")


class OnnxModel:
    """Features in, poses out: a `prediction.Predicts`."""

    def __init__(self, folder: OnnxFolder) -> None:
        self._folder = folder
        self.config = from_json(Config, folder.description["config"])
        self.schedule = from_json(Schedule, folder.description["schedule"])

    def predict(
        self,
        features: Float[np.ndarray, "B L F"],
        hypotheses: int,
        steps: int,
        generator: Any,
        constraints: Constraints | None = None,
    ) -> Prediction:
        """As `Di2PoseNetwork.predict`; the noise is that of `spread.hypothesis_generators`."""
        check_hypotheses(hypotheses)
        known = constraints or Constraints()
        if known.pins is not None:
            raise InputError("pins need gradients, which ONNX has not: use di2pose.Di2Pose (PyTorch) for them")
        condition = self._condition(features)
        kept = None
        if known.kept is not None:
            kept = (np.repeat(known.kept[0], hypotheses, axis=0), np.repeat(known.kept[1], hypotheses, axis=0))
        drawn = sample(
            lambda ks, s: self._p0_of(ks, s, condition),
            self.schedule,
            steps,
            (len(features) * hypotheses, self.config.tokenizer.tokens),
            generator,
            self.config.tokenizer.digits,
            kept,
        )
        joints_mm = self._folder.run("decoder", tokens=drawn)["joints_mm"]
        rows = (len(features), hypotheses)
        return Prediction(
            joints_mm.reshape(*rows, *joints_mm.shape[1:]), condition.get("visibility"), drawn.reshape(*rows, -1)
        )

    def certainty(self, features: Float[np.ndarray, "B L F"]) -> Float[np.ndarray, " B"] | None:
        """As `Di2PoseNetwork.certainty`."""
        if not self.schedule.final_occlude:
            return None
        ks = np.full((len(features), self.config.tokenizer.tokens), self.schedule.occ)
        p0 = self._p0_of(ks, self.schedule.steps, self._condition(features))(np.arange(ks.size))
        return (p0 * np.log(np.maximum(p0, 1e-12))).sum(-1).reshape(ks.shape).mean(-1)

    def tokens_of(self, joints_mm: Float[np.ndarray, "B H 17 3"]) -> Int[np.ndarray, "B H N"]:
        poses = joints_mm.reshape(-1, *joints_mm.shape[2:])
        tokens = self._folder.run("tokens", joints_mm=poses)["tokens"].astype(np.int64)
        return tokens.reshape(*joints_mm.shape[:2], -1)

    def _condition(self, features: np.ndarray) -> dict[str, np.ndarray]:
        return self._folder.run("condition", features=features)

    def _p0_of(self, ks: np.ndarray, s: int, condition: dict[str, np.ndarray]) -> P0Of:
        told = {name: condition[name] for name in ("keys", "values", "hint") if name in condition}
        x = self._folder.run("step", ks=ks, s=np.array([s]), **told)["x"]
        x = x.reshape(-1, x.shape[-1])
        return lambda rows: self._folder.run("head", x=x[rows])["p0"]
