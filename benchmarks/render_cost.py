"""What does a rendered training example cost? Drawing a person against encoding the picture, one core, one run.

    OMP_NUM_THREADS=1 python benchmarks/render_cost.py --motion CMU_BVH

Prints CPU time as ratios to encoding alone: machines differ, and other work may share them.
"""

import time
from pathlib import Path

import numpy as np
import torch
import tyro
from di2pose_people.features import RenderedCrops
from di2pose_people.sampling import Plan

from di2pose.image.blazepose import BlazePose


def main(motion: Path, count: int = 120, seed: int = 12345) -> None:
    torch.set_num_threads(1)
    source = RenderedCrops(Plan(motion, seed=seed), count)
    network = BlazePose("heavy")
    network.cache_parts(np.stack([source.crop(i)[0] for i in range(8)]))  # warm
    drawing = encoding = 0.0
    for start in range(0, count, 8):
        begin = time.process_time()
        pictures = np.stack([source.crop(i)[0] for i in range(start, min(start + 8, count))])
        middle = time.process_time()
        network.cache_parts(pictures)
        drawing, encoding = drawing + middle - begin, encoding + time.process_time() - middle
    print(f"{count} people, CPU time in units of encoding alone:")
    print(f"draw {drawing / encoding:.2f}   encode 1.00   draw + encode {(drawing + encoding) / encoding:.2f}")


if __name__ == "__main__":
    tyro.cli(main)
