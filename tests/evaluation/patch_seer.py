"""A predictor whose error is known: it looks for the patch on a plain grey picture. Ranks run it as a script."""

import sys
from pathlib import Path

import numpy as np

from di2pose.data.sample import Dataset
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset

GREY = 128
CLEAN_MM, PEAK_MM = 30.0, 300.0


class PatchSeer:
    """The truth, all joints but the pelvis moved by 30 mm, and by up to 300 mm more the nearer the patch lies to the
    pixel `extra["weak_spot"]` of the record. Hypotheses differ by a factor drawn from (seed, record id, hypothesis)."""

    def __init__(self):
        self.calls = 0

    def predict(self, images, samples, hypotheses, steps, seed):
        poses = []
        for image, sample in zip(images, samples, strict=True):
            self.calls += 1
            rows, columns = np.nonzero(np.asarray(image)[..., 0] != GREY)
            error = CLEAN_MM
            if len(rows):
                centre = (columns.min() + columns.max() + 1) / 2, (rows.min() + rows.max() + 1) / 2
                error += PEAK_MM * np.exp(-np.hypot(*np.subtract(centre, sample.extra["weak_spot"])) / 50)
            for h in range(hypotheses):
                factor = np.random.default_rng([seed, int(sample.id.removeprefix("r")), h]).uniform(0.9, 1.1)
                moved = sample.joints_mm + np.float32([error * factor, 0, 0])
                moved[0] = 0
                poses.append(moved)
        return np.stack(poses).reshape(len(samples), hypotheses, *poses[0].shape)


if __name__ == "__main__":
    data, out, protocols = sys.argv[1:]
    evaluate_dataset(
        PatchSeer(), Dataset(data), parse_protocols(protocols, every=1), Path(out), hypotheses=(1, 2), batch=64
    )
