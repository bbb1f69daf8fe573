"""What small batches of photos cost: CPU time of a prediction in batches of 1, 2, 4 and 8 photos over batches of 8.

    python benchmarks/photo_batches.py
    python benchmarks/photo_batches.py --count 8 --rounds 1

`di2pose predict` writes a batch when it is done (`commands.inputs.TOGETHER` photos): the smaller, the sooner a line is
printed, and the less is lost by Ctrl-C. The sizes take turns in one process, and the ratio is of the medians. The
difference is the largest of any joint.
"""

import statistics
import time
from itertools import islice

import numpy as np
import torch
import tyro
from many_pictures import frames

from di2pose.pipeline.pipeline import Di2Pose
from di2pose.text_table import markdown

FIRST = 50
"""In the frames before this one the walker is not there yet."""


def main(count: int = 16, rounds: int = 3, hypotheses: int = 8) -> None:
    """Measure it.

    Args:
        count: photos, a multiple of 8
        rounds: how often each size is measured
        hypotheses: poses drawn for each person
    """
    torch.set_num_threads(1)
    model, pictures = Di2Pose.from_pretrained(), list(islice(frames(FIRST + count), FIRST, None))
    model(pictures[:2])
    seconds: dict[int, list[float]] = {1: [], 2: [], 4: [], 8: []}
    joints: dict[int, np.ndarray] = {}
    for _ in range(rounds):
        for size, times in seconds.items():
            began = time.process_time()
            batches = [pictures[first : first + size] for first in range(0, count, size)]
            results = [result for batch in batches for result in model(batch, hypotheses=hypotheses)]
            times.append(time.process_time() - began)
            joints[size] = np.array([person.joints_mm for result in results for person in result.people])
    whole = statistics.median(seconds[8])
    rows = [
        [str(size), f"{statistics.median(times) / whole:.3f}", f"{np.abs(joints[size] - joints[8]).max():.2g} mm"]
        for size, times in seconds.items()
    ]
    print(markdown(["photos in a batch", "CPU time over 8", "difference"], rows))


if __name__ == "__main__":
    tyro.cli(main)
