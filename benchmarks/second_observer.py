"""What does a second observer cost, and what do its 8 bits lose? MoveNet against BlazePose heavy, one core, one run.

    OMP_NUM_THREADS=1 python benchmarks/second_observer.py
    OMP_NUM_THREADS=1 python benchmarks/second_observer.py --data PREPARED_POSE2SIM --occlusion occ-80

Prints processor time as ratios to BlazePose's pass, medians of passes in turn: machines differ, and other work may
share them. With `--data` also the 2D error of MoveNet's 12 limb joints in pixels of the 256 crop.
"""

import time
from pathlib import Path

import numpy as np
import torch
import tyro

from di2pose.data.sample import Dataset
from di2pose.image.blazepose import CROP, BlazePose
from di2pose.image.detect import PersonMatcher
from di2pose.image.movenet import MoveNet
from di2pose.pose.skeleton import COCO_17, LIMB_12
from di2pose.training.features import DatasetCrops
from di2pose.training.people_crops import OcclusionProtocol, PatchedCrops, PeopleCrops


def main(
    repeats: int = 40, data: Path | None = None, occlusion: OcclusionProtocol | None = None, count: int = 150
) -> None:
    torch.set_num_threads(1)
    blazepose, movenet = BlazePose("heavy"), MoveNet()
    if data is not None:
        crops, joints = labelled_crops(Dataset(data), blazepose, occlusion, count)
        limbs = list(COCO_17.indices(*LIMB_12))
        error = np.linalg.norm(movenet.begin(crops)()[0][:, limbs, :2] - joints, axis=-1)
        print(f"MoveNet: 2D error mean {np.nanmean(error):.2f}, median {np.nanmedian(error):.2f} px")
    crop = np.random.default_rng(0).integers(0, 256, (1, CROP, CROP, 3), dtype=np.uint8)
    passes = {"BlazePose heavy": blazepose.encode, "MoveNet": lambda crops: movenet.begin(crops)()}
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(repeats):
        for name, network in passes.items():
            begin = time.process_time()
            network(crop)
            seconds[name].append(time.process_time() - begin)
    one = np.median(seconds["BlazePose heavy"])
    for name, each in seconds.items():
        print(f"{name}: {np.median(each) / one:.2f} of BlazePose's pass")


def labelled_crops(
    dataset: Dataset, encoder: BlazePose, occlusion: OcclusionProtocol | None, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Crops (N, 256, 256, 3) spread over a prepared dataset, and their limb joints (N, 12, 2) in their pixels."""
    source: DatasetCrops | PeopleCrops | PatchedCrops
    if dataset.name == "people":
        people = PeopleCrops(dataset)
        source = people if occlusion is None else PatchedCrops(people, occlusion)
    else:
        source = DatasetCrops(dataset, encoder, PersonMatcher(), occlusion)
    limbs = list(dataset.skeleton.indices(*LIMB_12))
    rows = np.linspace(0, len(source) - 1, min(count, len(source))).astype(int)
    seen = [source.crop(int(row))[:2] for row in rows]
    joints = np.stack([labels["joints_2d"][limbs] for _, labels in seen])
    return np.stack([crop for crop, _ in seen]), joints


if __name__ == "__main__":
    tyro.cli(main)
