"""The peer: what a user would pick instead. BlazePose's own 3D output, through the same crops and the same metrics."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from PIL import Image

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP, BlazePose
from di2pose.image.crop import assumed_camera, crop, to_camera_axes
from di2pose.image.find import Finder
from di2pose.pose.skeleton import BLAZEPOSE_33

PEERS = ("blazepose-heavy", "blazepose-full", "blazepose-lite")


class BlazePosePeer:
    """BlazePose's world landmarks as a `Predictor`: one pose, repeated for every hypothesis."""

    skeleton = BLAZEPOSE_33

    def __init__(self, variant: Literal["heavy", "full", "lite"] = "heavy") -> None:
        self.network = BlazePose(variant)
        self.find = Finder()

    def predict(
        self,
        images: Sequence[Image.Image | None],
        samples: Sequence[Sample],
        hypotheses: int,
        steps: int,
        seed: int,
    ) -> np.ndarray:
        regions, crops = [], []
        for image, sample in zip(images, samples, strict=True):
            if image is None:
                raise InputError(f"record {sample.id} has no picture: BlazePose needs one")
            regions.append(self.find(sample, image))
            crops.append(crop(image, regions[-1], CROP))
        world = self.network(torch.from_numpy(np.stack(crops))).world_mm.numpy()
        poses = []
        for pose, roi, image, sample in zip(world, regions, images, samples, strict=True):
            camera = sample.camera or assumed_camera(image.size if image is not None else (CROP, CROP))
            poses.append(to_camera_axes(pose.astype(np.float64), roi, camera))
        hips = BLAZEPOSE_33.indices("left_hip", "right_hip")
        joints = np.stack(poses)
        joints = joints - joints[:, hips].mean(axis=1, keepdims=True)
        return np.repeat(joints[:, None], hypotheses, axis=1)
