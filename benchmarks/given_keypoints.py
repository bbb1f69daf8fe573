"""What better 2D keypoints bring: Pose2Sim by MoveNet, and by true 2D joints with noise, handed in as keypoints.

    python benchmarks/given_keypoints.py --data prepared/pose2sim --every 4 --noise 0 0.015 0.03 0.06

Noise is Gaussian, over the longer side of the person's box. MPJPE / PA-MPJPE over 12 limb joints, mm, hips aligned.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from di2pose import Di2Pose
from di2pose.data.sample import Dataset
from di2pose.image.boxes import intersection
from di2pose.pose.metrics import pa_mpjpe
from di2pose.pose.skeleton import COCO_17, H36M_17, LIMB_12

LIMBS, MARKS = list(H36M_17.indices(*LIMB_12)), list(COCO_17.indices(*LIMB_12))
HIPS = [LIMB_12.index("left_hip"), LIMB_12.index("right_hip")]


def errors(found: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """MPJPE and PA-MPJPE."""
    poses = [torch.tensor(np.asarray(each)[LIMBS], dtype=torch.float64)[None] for each in (found, truth)]
    a, b = (pose - pose[:, HIPS].mean(1, keepdim=True) for pose in poses)
    return float((a - b).norm(dim=-1).mean()), float(pa_mpjpe(a, b).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a prepared dataset with pictures and 2D joints")
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.015, 0.03, 0.06])
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    dataset, model = Dataset(options.data), Di2Pose.from_pretrained(options.model)
    rows: dict[str, list[tuple[float, float]]] = {"MoveNet": []} | {f"true + {n:.1%}": [] for n in options.noise}
    for row in range(0, len(dataset), options.every):
        record = dataset[row]
        assert record.joints_2d is not None
        picture, random = dataset.read_image(record), np.random.default_rng(row)
        points = record.joints_2d[LIMBS].astype(float)
        box = (*points.min(0), *points.max(0))
        if people := model(picture, camera=record.camera).people:
            nearest = max(people, key=lambda each: intersection(each.box, box))
            rows["MoveNet"].append(errors(nearest.joints_mm, record.joints_mm))
        jitter = random.standard_normal((len(LIMB_12), 2)) * max(np.ptp(points, axis=0))
        for noise in options.noise:
            given = np.full((17, 3), np.nan)
            given[MARKS] = np.concatenate([points + noise * jitter, np.full((len(LIMB_12), 1), 0.9)], axis=1)
            (person,) = model(picture, camera=record.camera, keypoints=given).people
            rows[f"true + {noise:.1%}"].append(errors(person.joints_mm, record.joints_mm))
    for name, found in rows.items():
        print(f"{name:14} {len(found):4} records  {' / '.join(f'{value:.1f}' for value in np.mean(found, axis=0))} mm")


if __name__ == "__main__":
    main()
