"""The peer: what a user would pick instead. BlazePose's own 3D output, through the same crops and the same metrics."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from PIL import Image

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP, BlazePose
from di2pose.image.crop import Roi, assumed_camera, crop, roi_from_box, to_camera_axes
from di2pose.image.detect import BlazePoseDetector, Detection
from di2pose.pose.skeleton import BLAZEPOSE_33

PEERS = ("blazepose-heavy", "blazepose-full", "blazepose-lite")


class Finder:
    """The region of a record's person: the detection whose body lies nearest to the record's box, else the box."""

    def __init__(self) -> None:
        self.detector = BlazePoseDetector()

    def __call__(self, sample: Sample, image: Image.Image) -> Roi:
        if sample.box is None:
            people = self.detector.detect(image, max_people=1, tiles=())
            if not people:
                raise InputError(f"record {sample.id} has no box, and the detector finds nobody in its picture")
            return people[0].roi
        for tiles in ((), (2, 4)):  # the quick look first: most pictures show one prominent person
            people = self.detector.detect(image, tiles=tiles)
            close = [person for person in people if _overlap(person, sample.box) > 0.2]
            if close:
                return max(close, key=lambda person: _overlap(person, sample.box or person.box)).roi
        return roi_from_box(sample.box)


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


def _overlap(person: Detection, box: tuple[float, float, float, float]) -> float:
    """Intersection over the smaller area, of a detection's square and a box."""
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = person.box, box
    shared = max(0.0, min(ax1, bx1) - max(ax0, bx0)) * max(0.0, min(ay1, by1) - max(ay0, by0))
    return shared / min((ax1 - ax0) * (ay1 - ay0), (bx1 - bx0) * (by1 - by0))
