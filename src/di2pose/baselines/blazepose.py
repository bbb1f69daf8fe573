"""BlazePose's own 3D as a predictor, the peer of evaluations: detected and cropped as for every other predictor."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import PersonMatcher, Record, from_record_box
from di2pose.image.encoder import crop_pixels, load_encoder
from di2pose.pose.skeleton import BLAZEPOSE_33

Pictures = Sequence[Image.Image | None]
PEERS = ("blazepose-heavy", "blazepose-full", "blazepose-lite")


class BlazePosePeer:
    """BlazePose's world landmarks as an `evaluation.predictor.Predictor`: one pose, repeated for every hypothesis."""

    skeleton = BLAZEPOSE_33

    def __init__(self, name: str = PEERS[0], true_boxes: bool = False) -> None:
        self.encoder, self.find = load_encoder(name), from_record_box if true_boxes else PersonMatcher().find

    def predict(
        self, images: Pictures, samples: Sequence[Record], hypotheses: int, steps: int | None = None, seed: int = 0
    ) -> np.ndarray:
        crops, turns = [], []
        for image, sample in zip(images, samples, strict=True):
            if image is None:
                raise InputError(f"record {sample.id} has no picture: BlazePose needs one")
            region = self.encoder.region(self.find(sample, image))
            crops.append(crop_pixels(self.encoder, image, region))
            turns.append(self.encoder.rotation(region, sample.camera or assumed_camera(image.size)))
        world_mm = self.encoder.encode(np.stack(crops)).world_mm
        assert world_mm is not None
        joints = world_mm.astype(np.float64) @ np.stack(turns)
        hips = list(BLAZEPOSE_33.indices("left_hip", "right_hip"))
        joints = joints - joints[:, hips].mean(axis=1, keepdims=True)
        return np.repeat(joints[:, None], hypotheses, axis=1)
