"""The parts of an ONNX folder on the road from pixels to people.  B crops, H hypotheses, N tokens."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from di2pose.calibration import Calibration
from di2pose.config import Config, from_json
from di2pose.errors import InputError
from di2pose.image.crop import Roi, crop_rotation
from di2pose.image.detect import Detection
from di2pose.image.encoder import EncoderOutput, FeatureLayout
from di2pose.image.glance import Boxes, Poses, look_for_boxes, look_for_poses
from di2pose.image.people_detector import PeopleDetector
from di2pose.model import Constraints, Prediction, check_hypotheses
from di2pose.onnx.folder import OnnxFolder
from di2pose.onnx.sampler import P0Of, Schedule, sample
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33

CROP = 256


def OnnxPredictor(folder: Path | str, threads: int = 0) -> Di2Pose:
    """Photos to people without PyTorch: the same call, the same `Result`, for the same seed the same joints. Joints
    cannot be pinned, and videos are PyTorch's.

        model = OnnxPredictor("DIR")
        result = model("photo.jpg", hypotheses=8, seed=0)

    folder: what `di2pose export MODEL --onnx DIR` wrote; threads: 0 is as many as there are cores
    """
    opened = OnnxFolder(folder, threads)
    told = opened.description["calibration"]
    poses = OnnxPoses(opened) if "poses" in opened else None
    detector = PeopleDetector(OnnxBoxes(opened), poses)
    calibration = None if told is None else from_json(Calibration, told)
    return Di2Pose(OnnxModel(opened), OnnxEncoder(opened), detector, calibration)


class OnnxModel:
    """Features in, poses out: a `model.NumpyModel`."""

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
        """As `Di2PoseNetwork.predict`; the noise is that of `noise.hypothesis_generators`."""
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


class OnnxEncoder:
    """BlazePose, with MoveNet as a second observer where the model has it: an `image.encoder.Encoder`."""

    size = (CROP, CROP)

    def __init__(self, folder: OnnxFolder) -> None:
        self._folder = folder
        self.name = str(folder.description["config"]["encoder"])
        self.layout = from_json(FeatureLayout, folder.description["layout"])

    def region(self, detection: Detection) -> Roi:
        return detection.roi

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        return region.matrix(CROP)

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        return crop_rotation(camera, region)

    def encode(self, crops: UInt8[np.ndarray, "B 256 256 3"]) -> EncoderOutput:
        if not len(crops):
            return EncoderOutput(np.zeros((0, self.layout.length, self.layout.width), np.float32))
        return EncoderOutput(skeleton=BLAZEPOSE_33, **self._folder.run("encoder", crops=crops))

    def cache_parts(self, crops: UInt8[np.ndarray, "B 256 256 3"]) -> dict[str, np.ndarray]:
        features = self.encode(crops).features
        blocks = self.layout.blocks
        return {b.name: features[:, self.layout.tokens(b.name), b.first : b.first + b.width] for b in blocks}


class OnnxBoxes:
    """EfficientDet-Lite0."""

    def __init__(self, folder: OnnxFolder) -> None:
        self._folder = folder

    def begin(self, images: Sequence[Image.Image]) -> Callable[[], list[Boxes]]:
        return look_for_boxes(images, lambda pixels: partial(self._answer, pixels))

    def _answer(self, pixels: UInt8[np.ndarray, "B 320 320 3"]) -> list[np.ndarray]:
        """One picture at a time, as the network was written."""
        looks = [self._folder.run("boxes", pixels=each[None]) for each in pixels]
        return [np.concatenate([look[name] for look in looks]) for name in ("boxes", "scores")]


class OnnxPoses:
    """MoveNet MultiPose."""

    def __init__(self, folder: OnnxFolder) -> None:
        self._folder = folder

    def begin(self, image: Image.Image, least: float = 0.0) -> Callable[[], Poses]:
        """Everybody, whatever they score: nothing would be saved by leaving some out."""
        return look_for_poses(image, lambda pixels: partial(self._answer, pixels))

    def _answer(self, pixels: UInt8[np.ndarray, "1 h w 3"]) -> list[np.ndarray]:
        found = self._folder.run("poses", pixels=pixels)
        return [found[name] for name in ("keypoints", "boxes", "scores")]
