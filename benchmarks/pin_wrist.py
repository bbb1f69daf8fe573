"""What one known joint tells of the others: pin the true wrist, look at the elbow and the shoulder of that arm.

    python benchmarks/pin_wrist.py MODEL --features PEOPLE_TEST --limit 512

On held-out rendered people, wrists that cannot be seen. Error in mm of the mean of 8 hypotheses, without and with
the pin.
"""

from pathlib import Path

import numpy as np
import torch
import tyro

from di2pose.data.feature_cache import FeatureCache
from di2pose.model import Constraints, load_model
from di2pose.noise import hypothesis_generators
from di2pose.pose.skeleton import H36M_17, convert
from di2pose.training.sources import FeatureSource

ARM = ("wrist", "elbow", "shoulder")


def main(
    model: tyro.conf.Positional[Path],
    features: Path,
    limit: int = 512,
    hypotheses: int = 8,
    steps: int = 10,
    seed: int = 0,
) -> None:
    """Measure it.

    Args:
        model: checkpoint folder
        features: cache of rendered people with visibility
        limit: the first so many of the arms whose wrist is hidden
        hypotheses: poses an image
        steps: reverse steps
        seed: of the noise
    """
    torch.set_num_threads(1)
    network, cache = load_model(model), FeatureCache(features)
    hidden = cache.column("visibility") > 0
    arms = [(row, side) for row in range(len(cache)) for side in ("left", "right")
            if hidden[row, H36M_17.index(f"{side}_wrist")]][:limit]  # fmt: skip
    places = np.stack([np.zeros(len(arms), np.int64), np.array([row for row, _ in arms])], 1)
    truth = convert(cache.column("joints_mm")[places[:, 1]].astype(np.float32), cache.skeleton, network.skeleton)[0]
    source = FeatureSource([cache], places, truth, network.skeleton)
    errors = {name: np.zeros((len(arms), len(ARM))) for name in ("without", "with")}
    for start in range(0, len(arms), 32):
        some = np.arange(start, min(start + 32, len(arms)))
        batch = source.batch(some)
        joints = torch.stack([torch.tensor(H36M_17.indices(*(f"{arms[k][1]}_{part}" for part in ARM))) for k in some])
        pinned = torch.nn.functional.one_hot(joints[:, 0], network.skeleton.count).bool()
        for name, known in (("without", None), ("with", Constraints(pins=(batch["joints_mm"], pinned)))):
            noise = hypothesis_generators(seed, some.tolist(), hypotheses)
            poses = network.predict(batch["features"], hypotheses, steps, noise, known).joints_mm.mean(1)
            off = (poses - batch["joints_mm"]).norm(dim=-1).gather(1, joints)
            errors[name][some] = off.numpy()
    print(f"{len(arms)} arms with a hidden wrist, {hypotheses} hypotheses, {steps} steps\n")
    print(f"| | {' | '.join(ARM)} |\n|---|{'---|' * len(ARM)}")
    for name, values in errors.items():
        print(f"| {name} the true wrist pinned | {' | '.join(f'{value:.0f}' for value in values.mean(0))} |")


if __name__ == "__main__":
    tyro.cli(main)
